// Server streams: cameras and videos that the server reads itself.

import type {ServerStream} from '@millrace/client';
import {useRef, useState} from 'preact/hooks';
import {Counts} from './counts';
import {useAction, useManaged, usePolled} from './hooks';
import {Elsewhere, Figure, State, View, number} from './parts';
import {Picture} from './picture';
import {Rules} from './rulesform';
import {server} from './server';
import {Add, Change} from './streamform';

const INTERVAL = 1000; // ms

export function Streams() {
  const {value: streams, failed, refresh} = usePolled(() => server.streams(), INTERVAL);
  const [adding, setAdding] = useState(false),
    managed = useManaged();
  const [removed, setRemoved] = useState<string[]>([]); // streams of the configuration
  const before = useRef<{at: number; list: ServerStream[]}>(undefined),
    earlier = useRef<{at: number; list: ServerStream[]}>(undefined);
  if (streams && before.current?.list !== streams) {
    earlier.current = before.current;
    before.current = {at: performance.now(), list: streams};
  }
  const fps = (s: ServerStream) => {
    const old = earlier.current?.list.find(o => o.name === s.name && o.since === s.since);
    return old ? (Math.max(0, s.results - old.results) / (before.current!.at - earlier.current!.at)) * 1000 : NaN;
  };
  return (
    <View title="Streams" id="streams" alert={failed}>
      <div class="row">
        <h2>Server streams</h2>
        {managed && (
          <button type="button" id="add" aria-expanded={adding} onClick={() => setAdding(!adding)}>
            Add a stream
          </button>
        )}
      </div>
      {!managed && <Elsewhere what="changes streams" />}
      {adding && (
        <Add
          done={() => {
            setAdding(false);
            refresh();
          }}
        />
      )}
      {managed &&
        removed
          .filter(name => !streams?.some(s => s.name === name))
          .map(name => <Removed key={name} name={name} refresh={refresh} />)}
      {streams?.length === 0 && (
        <p class="soft">
          There is no server stream. A server stream is a camera or a video that the server reads itself.
        </p>
      )}
      <div class="cards">
        {streams?.map(s => (
          <Card
            key={s.name}
            of={s}
            fps={fps(s)}
            managed={managed}
            refresh={refresh}
            removed={() =>
              setRemoved(list => [...list.filter(name => name !== s.name), ...(s.origin === 'config' ? [s.name] : [])])
            }
          />
        ))}
      </div>
    </View>
  );
}

/** How a stream of the configuration that was removed returns. */
function Removed({name, refresh}: {name: string; refresh: () => void}) {
  const {busy, error, act} = useAction(refresh);
  return (
    <div class="row" role="status">
      <p class="soft">
        The stream {name} was removed. It is a stream of the configuration, and returns when the server starts again or
        reads its configuration again.
      </p>
      <button type="button" disabled={busy} onClick={() => act(() => server.resetStream(name))}>
        Bring {name} back
      </button>
      {error && (
        <p class="message" role="alert">
          {error}
        </p>
      )}
    </div>
  );
}

function Card({
  of: s,
  fps,
  managed,
  refresh,
  removed,
}: {
  of: ServerStream;
  fps: number;
  managed: boolean;
  refresh: () => void;
  removed: () => void;
}) {
  const [shown, setShown] = useState(true),
    [open, setOpen] = useState<'' | 'change' | 'rules'>('');
  const changing = open === 'change',
    ruling = open === 'rules';
  const {busy, error, act} = useAction(refresh);
  const drops = Object.entries(s.drops ?? {});
  const age = s.last ? (Date.now() - Date.parse(s.last)) / 1000 : NaN;
  return (
    <article class={`card${open ? ' whole' : ''}`} aria-label={`Stream ${s.name}`} data-stream={s.name}>
      <div class="sides">
        <div>
          <div class="row">
            <h3>{s.name}</h3>
            <span>
              {s.paused && <span class="badge warn">paused</span>} <State of={s.state} />
            </span>
          </div>
          {shown && !ruling && s.state === 'running' && (
            <div class="preview">
              <Picture of={s} />
            </div>
          )}
          {s.models.length > 1 && <p class="soft">{s.models.map(m => m.model).join(', ')}</p>}
          {s.state === 'running' &&
            s.models
              .filter(m => m.state === 'waiting' && m.error)
              .map(m => (
                <p key={m.model} class="message">
                  {m.error!.message} ({m.error!.code})
                </p>
              ))}
          {s.error && (
            <p class="message">
              {s.error.message} ({s.error.code})
            </p>
          )}
          <dl class="figures">
            <Figure name="results" unit="fps">
              {number(fps, 1)}
            </Figure>
            <Figure name="newest result" unit="s ago">
              {number(age, 1)}
            </Figure>
            <Figure name="dropped">{drops.reduce((sum, [, n]) => sum + n, 0)}</Figure>
            <Figure name="errors">{s.errors}</Figure>
          </dl>
          {s.rules && <Counts of={s} managed={managed} />}
          <div class="row">
            {managed && (
              <button
                type="button"
                disabled={busy}
                onClick={() => act(() => server.changeStream(s.name, {paused: !s.paused}))}
              >
                {s.paused ? 'Resume' : 'Pause'}
              </button>
            )}
            {managed && (
              <button type="button" aria-expanded={changing} onClick={() => setOpen(changing ? '' : 'change')}>
                Change
              </button>
            )}
            {managed && (
              <button type="button" aria-expanded={ruling} onClick={() => setOpen(ruling ? '' : 'rules')}>
                Lines and zones
              </button>
            )}
            <button type="button" aria-pressed={shown} onClick={() => setShown(!shown)}>
              Picture
            </button>
            {managed && (
              <button
                type="button"
                class="danger"
                disabled={busy}
                onClick={() => {
                  if (confirm(`Remove the stream ${s.name}?`))
                    void act(async () => {
                      await server.removeStream(s.name);
                      removed();
                    });
                }}
              >
                Remove
              </button>
            )}
          </div>
          {error && (
            <p class="message" role="alert">
              {error}
            </p>
          )}
          <details>
            <summary>More</summary>
            <table>
              <tbody>
                {(
                  [
                    ['source', s.source],
                    ...s.models.map(m => [
                      `model ${m.model}${m.version ? `, version ${m.version}` : ''}`,
                      `${m.state}, ${m.policy.policy}, ${m.results} results, ${m.errors} errors`,
                    ]),
                    ['since', new Date(s.since).toLocaleString()],
                    ['size', s.width ? `${s.width} × ${s.height}` : '–'],
                    ['frames read', s.frames],
                    ['skipped pictures', s.skipped],
                    ['results', s.results],
                    ...drops.map(([reason, n]) => [`dropped: ${reason}`, n]),
                    ['restarts of the source', s.restarts],
                    ['watchers', s.watchers],
                    ['from', s.origin],
                  ] as [string, string | number][]
                ).map(([name, v]) => (
                  <tr key={name}>
                    <th scope="row">{name}</th>
                    <td class="n">{v}</td>
                  </tr>
                ))}
              </tbody>
            </table>
          </details>
        </div>
        {changing && <Change of={s} refresh={refresh} />}
        {ruling && <Rules of={s} refresh={refresh} />}
      </div>
    </article>
  );
}
