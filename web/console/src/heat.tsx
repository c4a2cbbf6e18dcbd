// Where the objects of a stream were in the last hour, over the stream's picture.

import type {HeatMap, ServerStream} from '@millrace/client';
import {useEffect, useRef} from 'preact/hooks';
import {usePolled} from './hooks';
import {Picture, ratioOf} from './picture';
import {server} from './server';
import './rules.css';

const INTERVAL = 5000; // ms

/** The colours of the ramp, from little to much, as red, green, blue: each is lighter than the colour before. */
const RAMP = [
  [60, 15, 110],
  [140, 40, 125],
  [205, 70, 95],
  [245, 130, 50],
  [252, 235, 130],
] as const;

/** A colour of the ramp; share is 0 to 1. */
function colour(share: number): [number, number, number] {
  const at = share * (RAMP.length - 1),
    i = Math.min(Math.floor(at), RAMP.length - 2),
    [a, b] = [RAMP[i]!, RAMP[i + 1]!];
  return [0, 1, 2].map(k => a[k]! + (b[k]! - a[k]!) * (at - i)) as [number, number, number];
}

/** Paints a cell as a pixel. The root makes cells with little time visible beside cells where somebody stood. */
function paint(canvas: HTMLCanvasElement, {columns, rows, seconds}: HeatMap) {
  [canvas.width, canvas.height] = [columns, rows];
  const context = canvas.getContext('2d')!,
    image = context.createImageData(columns, rows),
    most = Math.max(...seconds);
  seconds.forEach((v, i) => {
    if (v === 0) return;
    const share = Math.sqrt(v / most);
    image.data.set([...colour(share), 110 + 110 * share], 4 * i);
  });
  context.putImageData(image, 0, 0);
}

function time(seconds: number): string {
  const whole = Math.round(seconds);
  return seconds < 100 ? `${+seconds.toFixed(1)} s` : `${Math.floor(whole / 60)} min ${whole % 60} s`;
}

/** The place with the most time, in words. */
function busiest({columns, rows, seconds}: HeatMap): string {
  const most = Math.max(...seconds),
    i = seconds.indexOf(most);
  if (most === 0) return 'No object was in the picture in the last hour.';
  const [x, y] = [((i % columns) + 0.5) / columns, (Math.floor(i / columns) + 0.5) / rows];
  return (
    `The most time was ${Math.round(x * 100)} % from the left and ${Math.round(y * 100)} % from the top: ` +
    `${time(most)}, of all objects in a cell of ${columns} × ${rows}.`
  );
}

/** The heat map of a stream. A stream with several models with tracks has a map for each model. */
export function Heat({of: s}: {of: ServerStream}) {
  const {value, failed} = usePolled(() => server.streamHeat(s.name), INTERVAL, s.name);
  return (
    <>
      {failed && (
        <p class="message" role="alert">
          {failed}
        </p>
      )}
      {value?.models.map(m => (
        <ModelHeat key={m.model} of={s} map={m} title={value.models.length > 1 ? m.model : ''} />
      ))}
    </>
  );
}

function ModelHeat({of: s, map, title}: {of: ServerStream; map: HeatMap; title: string}) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => paint(canvas.current!, map), [map]);
  const most = Math.max(...map.seconds),
    ramp = RAMP.map(([r, g, b]) => `rgb(${r} ${g} ${b})`).join(', ');
  return (
    <figure class="heat" data-heat>
      {title && <h3>{title}</h3>}
      <div class="area" style={{'--ratio': String(ratioOf(s) ?? 4 / 3)}}>
        {s.state === 'running' && <Picture of={s} />}
        <canvas ref={canvas} aria-hidden="true" />
      </div>
      {most > 0 && (
        <div class="ramp" aria-hidden="true">
          0 s <span style={{background: `linear-gradient(to right, ${ramp})`}} /> {time(most)}
        </div>
      )}
      <figcaption class="soft">{busiest(map)}</figcaption>
    </figure>
  );
}
