// The counts of a stream's lines and zones, as they change.

import type {ServerStream, StreamCounts} from '@millrace/client';
import {useState} from 'preact/hooks';
import {Heat} from './heat';
import {useAction, usePolled} from './hooks';
import {server} from './server';

const INTERVAL = 1000; // ms

type Row = {key: string; name: string; values: (string | number)[]};

/** A row for each line and zone. A stream with several models with tracks has rows for each model. */
function rowsOf({models}: StreamCounts): Row[] {
  return models.flatMap(({model, lines, zones}) => {
    const of = (name: string) => (models.length > 1 ? `${name} (${model})` : name);
    return [
      ...lines.map(l => ({
        key: `${model}/${l.name}`,
        name: of(l.name),
        values: ['–', l.in, l.out, l.day.in, l.day.out],
      })),
      ...zones.map(z => ({
        key: `${model}/${z.name}`,
        name: of(z.name),
        values: [z.now, z.enter, z.leave, z.day.enter, z.day.leave],
      })),
    ];
  });
}

export function Counts({of: s, managed}: {of: ServerStream; managed: boolean}) {
  const {value, failed, refresh} = usePolled(() => server.streamCounts(s.name), INTERVAL, s.name),
    {busy, error, act} = useAction(refresh),
    [heat, showHeat] = useState(false);
  const rows = value ? rowsOf(value) : [];
  return (
    <section aria-label={`Counts of ${s.name}`} data-counts>
      {(failed || error) && (
        <p class="message" role="alert">
          {failed || error}
        </p>
      )}
      {rows.length > 0 && (
        <table>
          <thead>
            <tr>
              <th>line or zone</th>
              {['inside', 'in', 'out', 'in today', 'out today'].map(name => (
                <th key={name} class="n">
                  {name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map(({key, name, values}) => (
              <tr key={key}>
                <th scope="row">{name}</th>
                {values.map((v, i) => (
                  <td key={i} class="n">
                    {v}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <div class="row">
        <a href={`#/events?camera=${encodeURIComponent(s.name)}`}>Events of {s.name}</a>
        {managed && rows.length > 0 && (
          <button
            type="button"
            disabled={busy}
            onClick={() =>
              confirm(`Make the counts of ${s.name} 0?`) && void act(() => server.resetStreamCounts(s.name))
            }
          >
            Reset counts
          </button>
        )}
        <button type="button" aria-pressed={heat} onClick={() => showHeat(!heat)}>
          Heat map of the last hour
        </button>
      </div>
      {heat && <Heat of={s} />}
    </section>
  );
}
