// A chart of values over time.

import uPlot from 'uplot';
import 'uplot/dist/uPlot.min.css';
import {useEffect, useRef} from 'preact/hooks';
import {colour, useScheme} from './scheme';

const FONT = '11px system-ui, sans-serif';

export interface Line {
  label: string;
  colour: string; // a custom property of the style sheet, such as --blue
  values: (number | null)[];
}

/** times: seconds since 1970. Lines may change from one drawing to the next. */
export function Chart({
  title,
  unit,
  times,
  lines,
  height = 150,
}: {
  title: string;
  unit: string;
  times: number[];
  lines: Line[];
  height?: number;
}) {
  const at = useRef<HTMLDivElement>(null),
    plot = useRef<uPlot>(null);
  const theme = useScheme();
  const names = lines.map(l => l.label).join('\n');
  useEffect(() => {
    const box = at.current!,
      of = (name: string) => colour(box, name);
    const numbers = new Intl.NumberFormat(navigator.language, {notation: 'compact', maximumSignificantDigits: 3});
    const clock = new Intl.DateTimeFormat(navigator.language, {timeStyle: 'medium'});
    const shape = document.createElement('canvas').getContext('2d')!;
    shape.font = FONT;
    const width = (texts: string[] | null) => Math.max(0, ...(texts ?? []).map(t => shape.measureText(t).width));
    const axis = {
      stroke: of('--soft'),
      grid: {stroke: of('--line'), width: 1},
      ticks: {stroke: of('--line'), width: 1},
      font: FONT,
    };
    plot.current = new uPlot(
      {
        width: box.clientWidth || 300,
        height,
        cursor: {y: false},
        scales: {y: {range: (_, min, max) => [Math.min(0, min ?? 0), max ? max * 1.1 : 1]}},
        axes: [
          {...axis, space: width([clock.format(0)]) + 24, values: (_, at) => at.map(v => clock.format(1000 * v))},
          {...axis, size: (_, texts) => 18 + width(texts), values: (_, at) => at.map(v => numbers.format(v))},
        ],
        series: [
          {value: (_, v) => (v === null ? '–' : clock.format(1000 * v))},
          ...lines.map(l => ({
            label: l.label,
            stroke: of(l.colour),
            width: 1.5,
            spanGaps: false,
            points: {show: false},
            value: (_: uPlot, v: number | null) => (v === null ? '–' : `${Number(v.toPrecision(3))} ${unit}`),
          })),
        ],
      },
      [times, ...lines.map(l => l.values)],
      box,
    );
    const resized = new ResizeObserver(() => plot.current?.setSize({width: box.clientWidth, height}));
    resized.observe(box);
    return () => {
      resized.disconnect();
      plot.current?.destroy();
    };
  }, [names, theme, height, unit]);
  useEffect(() => plot.current?.setData([times, ...lines.map(l => l.values)]), [times, lines]);
  return (
    <figure class="chart card" aria-label={title}>
      <figcaption>
        <h3>
          {title} <small class="soft">{unit}</small>
        </h3>
      </figcaption>
      <div ref={at} />
    </figure>
  );
}
