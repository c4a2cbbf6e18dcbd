// The clips of cameras: size, age, and when the server removes a clip.

import type {Clip, ClipPage, ClipRetention} from '@millrace/client';
import {useState} from 'preact/hooks';
import {usePolled} from './hooks';
import {cutOf, momentsOf, type Moment} from './moments';
import {bytes} from './parts';
import {server} from './server';

const INTERVAL = 5000; // ms
const PAGE = 50;
const MOST = 1000;

/** A time in the larger units. */
export function span(seconds: number): string {
  const units = [
    [86400, 'd'],
    [3600, 'h'],
    [60, 'min'],
  ] as const;
  for (const [size, unit] of units) if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`;
  return `${Math.max(0, Math.floor(seconds))} s`;
}

/** When the server removes a clip by its age. */
function leaves(clip: Clip, {max_age_seconds: most}: ClipRetention): string {
  if (clip.favourite) return 'kept';
  if (!most) return '–';
  const left = Date.parse(clip.begin) / 1000 + most - Date.now() / 1000;
  return left <= 0 ? 'now' : `in ${span(left)}`;
}

function limits({max_age_seconds: age, max_bytes: most}: ClipRetention): string {
  return (
    `The server removes clips ${age ? `after ${span(age)}, and ` : ''}the oldest first when all clips together have ` +
    `more than ${bytes(most)}. Favourites stay.`
  );
}

export function Clips({
  camera,
  turn,
  play,
}: {
  camera: string;
  turn: number;
  play: (moments: Moment[], index: number) => void;
}) {
  const [limit, setLimit] = useState(PAGE);
  const {value: page, failed} = usePolled<ClipPage>(
    () => server.clips({limit, ...(camera ? {stream: camera} : {})}),
    INTERVAL,
    `${camera} ${limit} ${turn}`,
  );
  const [kept, setKept] = useState<ClipPage>(); // no flicker while the next page is asked for
  if (page && page !== kept) setKept(page);
  const {clips = [], next, retention} = page ?? kept ?? {};
  if (!retention && !failed) return null; // a server without clips
  return (
    <section aria-label="Clips" data-clips>
      <h2>Clips</h2>
      {failed && (
        <p class="message" role="alert">
          {failed}
        </p>
      )}
      {retention && <p class="soft">{limits(retention)}</p>}
      {clips.length === 0 ? (
        <p class="soft">There is no clip. The setting clips of a stream makes clips of events.</p>
      ) : (
        <div class="scroll">
          <table>
            <thead>
              <tr>
                <th>clip</th>
                <th>camera</th>
                <th class="n">length</th>
                <th class="n">size</th>
                <th class="n">age</th>
                <th class="n">removed</th>
                <th>notes</th>
              </tr>
            </thead>
            <tbody>
              {clips.map(c => (
                <tr key={c.id} data-clip={c.id}>
                  <td>
                    <button type="button" onClick={() => play(momentsOf(c), 0)}>
                      {new Date(c.begin).toLocaleString()}
                    </button>
                  </td>
                  <th scope="row">{c.stream}</th>
                  <td class="n">{c.seconds.toFixed(1)} s</td>
                  <td class="n">{bytes(c.bytes)}</td>
                  <td class="n">{span((Date.now() - Date.parse(c.begin)) / 1000)}</td>
                  <td class="n">{retention && leaves(c, retention)}</td>
                  <td>
                    {[c.state === 'recording' ? 'being written' : cutOf(c), c.favourite ? 'favourite' : '']
                      .filter(Boolean)
                      .join(', ')}
                  </td>
                </tr>
              ))}
            </tbody>
            <tfoot>
              {[...new Set(clips.map(c => c.stream))].toSorted().map(name => {
                const own = clips.filter(c => c.stream === name);
                return (
                  <tr key={name}>
                    <td>{own.length === 1 ? '1 clip' : `${own.length} clips`}</td>
                    <th scope="row">{name}</th>
                    <td class="n">{own.reduce((sum, c) => sum + c.seconds, 0).toFixed(0)} s</td>
                    <td class="n">{bytes(own.reduce((sum, c) => sum + c.bytes, 0))}</td>
                    <td colSpan={3}>of the list</td>
                  </tr>
                );
              })}
            </tfoot>
          </table>
        </div>
      )}
      {next && limit < MOST && (
        <button type="button" onClick={() => setLimit(Math.min(MOST, limit * 4))}>
          Show older clips
        </button>
      )}
    </section>
  );
}
