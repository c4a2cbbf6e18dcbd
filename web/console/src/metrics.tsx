// The server's figures over the last minutes.

import type {ModelStatus, Status} from '@millrace/client';
import {useMemo} from 'preact/hooks';
import {Chart, type Line} from './chart';
import {Figure, State, View, bytes, number} from './parts';
import {quantile, rates, since, total, useStatus, type Sample} from './status';

const COLOURS = ['--blue', '--orange', '--green', '--violet', '--teal', '--pink', '--olive', '--brown'];
const MAX_LINES = 6; // of a chart

const coloured = new Map<string, string>(); // models, by their names

/** The colour of each of the models that are shown. A model keeps its colour in all charts. */
function colours(names: string[]): string[] {
  for (const gone of [...coloured.keys()]
    .filter(n => !names.includes(n))
    .slice(0, Math.max(0, coloured.size + names.length - COLOURS.length)))
    coloured.delete(gone);
  for (const n of names)
    if (!coloured.has(n)) coloured.set(n, COLOURS.find(c => ![...coloured.values()].includes(c)) ?? '--soft');
  return names.map(n => coloured.get(n)!);
}

export function Metrics() {
  const {samples, now, failed} = useStatus();
  const names = [...new Set(now?.models.map(m => m.name))];
  const busiest = now?.models
    .toSorted((a, b) => b.batches - a.batches)
    .slice(0, MAX_LINES)
    .map(m => m.name);
  const shown = names.filter(n => busiest?.includes(n));
  const charts = useMemo(() => build(samples, shown), [samples]);
  const times = samples.map(s => s.at);
  return (
    <View title="Metrics" id="metrics" alert={failed}>
      <h2>The last five minutes</h2>
      {now && (
        <dl class="figures">
          <Figure name="server">
            <State of={now.state} /> <small>{now.version}</small>
          </Figure>
          <Figure name="up for">{duration(now.uptime_seconds)}</Figure>
          <Figure name="resident memory">{bytes(now.process.resident_bytes)}</Figure>
          <Figure name="frame memory" unit={`of ${bytes(now.memory.budget)}`}>
            {bytes(now.memory.leased)}
          </Figure>
          <Figure name="goroutines">{now.process.goroutines}</Figure>
          <Figure name="connections">
            {number(Object.values(now.connections).reduce((sum, c) => sum + c.open, 0))}
          </Figure>
        </dl>
      )}
      {names.length > shown.length && (
        <p class="soft">
          Charts show {MAX_LINES} of {names.length} models, those with the most batches.
        </p>
      )}
      {samples.length > 1 && (
        <div class="cards">
          {charts.map(c => (
            <Chart key={c.title} {...c} times={times} />
          ))}
        </div>
      )}
    </View>
  );
}

function duration(s: number): string {
  const units: [number, string][] = [
    [86400, 'd'],
    [3600, 'h'],
    [60, 'min'],
  ];
  for (const [size, unit] of units) if (s >= 2 * size) return `${Math.floor(s / size)} ${unit}`;
  return `${Math.floor(s)} s`;
}

/** How the frames of a model have ended. */
interface Frames {
  results?: number;
  drops?: Record<string, number>;
  errors?: Record<string, number>;
}

const frames = (m: ModelStatus): Frames => m as Frames;

const sum = (o: Record<string, number> | undefined) => o && Object.values(o).reduce((a, b) => a + b, 0);

function build(samples: Sample[], names: string[]): {title: string; unit: string; lines: Line[]}[] {
  const model = (s: Status, name: string) => s.models.find(m => m.name === name);
  const own = colours(names);
  const perModel = (of: (name: string) => (number | null)[]): Line[] =>
    names.map((name, i) => ({label: name, colour: own[i]!, values: of(name)}));
  const counter = (of: (m: ModelStatus) => number | undefined) =>
    perModel(name =>
      rates(samples, s => {
        const m = model(s, name);
        return m && of(m);
      }),
    );
  const gauge = (of: (m: ModelStatus) => number) =>
    perModel(name =>
      samples.map(s => {
        const m = model(s.status, name);
        return m ? of(m) : null;
      }),
    );
  const change = (of: (now: ModelStatus, before: ModelStatus) => number) =>
    perModel(name =>
      samples.map((s, i) => {
        const now = model(s.status, name),
          before = samples[i - 1] && model(samples[i - 1]!.status, name);
        const v = now && before ? of(now, before) : NaN;
        return Number.isFinite(v) ? v : null;
      }),
    );
  return [
    {title: 'Results', unit: '/s', lines: counter(m => frames(m).results)},
    {title: 'Drops', unit: '/s', lines: counter(m => sum(frames(m).drops))},
    {title: 'Errors', unit: '/s', lines: counter(m => sum(frames(m).errors))},
    {
      title: 'Time in the server, p95',
      unit: 'ms',
      lines: change((now, before) => quantile(since(now.stages_us.total, before.stages_us.total), 0.95) / 1000),
    },
    {
      title: 'Rows of a batch, mean',
      unit: 'rows',
      lines: change(
        (now, before) =>
          (now.batch_rows.sum - before.batch_rows.sum) / (total(now.batch_rows) - total(before.batch_rows)),
      ),
    },
    {title: 'Frames waiting', unit: 'frames', lines: gauge(m => m.waiting)},
    {
      title: 'Processors used',
      unit: 'cores',
      lines: [{label: 'server', colour: '--blue', values: rates(samples, s => s.process.cpu_seconds)}],
    },
    {
      title: 'Memory',
      unit: 'MB',
      lines: [
        {label: 'resident', colour: '--blue', values: samples.map(s => s.status.process.resident_bytes / 1e6)},
        {label: 'frames', colour: '--orange', values: samples.map(s => s.status.memory.leased / 1e6)},
      ],
    },
  ];
}
