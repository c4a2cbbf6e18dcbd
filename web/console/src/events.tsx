// The events of lines and zones: what happened, where, and when, and their clips.

import type {EventQuery, StreamEvent} from '@millrace/client';
import {useRef, useState} from 'preact/hooks';
import {Clips} from './clips';
import {useAction, usePolled} from './hooks';
import {momentsOf, told, type Moment} from './moments';
import {View} from './parts';
import {Player} from './player';
import {server} from './server';

const INTERVAL = 2000; // ms
const LIMIT = 200;

const TYPES = ['cross', 'enter', 'leave', 'dwell', 'count', 'appear', 'vanish', 'speed', 'when'];
const SPANS = {'10m': '10 minutes', '1h': 'hour', '24h': 'day', '168h': 'week'} as const;
type Span = keyof typeof SPANS;

const MINUTES: Record<Span, number> = {'10m': 10, '1h': 60, '24h': 24 * 60, '168h': 7 * 24 * 60};
const DOWNLOAD = 1000; // events a request

/** A strip for each camera with a mark for each event, from the begin of the time to now. */
function Timeline({events, minutes}: {events: readonly StreamEvent[]; minutes: number}) {
  const now = Date.now(),
    cameras = [...new Set(events.map(e => e.stream))].toSorted();
  const at = (e: StreamEvent) => 100 * (1 - (now - Date.parse(e.time)) / (minutes * 60_000));
  return (
    <div class="strips">
      {cameras.map(camera => {
        const own = events.filter(e => e.stream === camera);
        return (
          <div key={camera} class="strip">
            <span>{camera}</span>
            <svg
              viewBox="0 0 100 10"
              preserveAspectRatio="none"
              role="img"
              aria-label={`${own.length} events of ${camera}`}
            >
              {own.map(e => (
                <rect key={e.id} class={e.type} x={Math.max(0, at(e)) - 0.15} width="0.3" y="0" height="10">
                  <title>{`${new Date(e.time).toLocaleString()}: ${told(e)}`}</title>
                </rect>
              ))}
            </svg>
          </div>
        );
      })}
    </div>
  );
}

/** All events of the query, the newest first, as lines of JSON. */
async function lines(query: EventQuery): Promise<string> {
  let text = '',
    after: string | undefined;
  do {
    const page = await server.events({...query, limit: DOWNLOAD, ...(after ? {after} : {})});
    for (const e of page.events) text += `${JSON.stringify(e)}\n`;
    after = page.next;
  } while (after);
  return text;
}

function save(name: string, text: string) {
  const address = URL.createObjectURL(new Blob([text], {type: 'application/x-ndjson'}));
  const link = Object.assign(document.createElement('a'), {href: address, download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}

const LONGEST = 3_600_000; // ms that a clip may begin before an event

/** The clips of events, by the ids of the events. */
async function clipsOf(events: readonly StreamEvent[], stream: string): Promise<Map<string, Moment>> {
  const [newest, oldest] = [events[0], events.at(-1)];
  if (!newest || !oldest) return new Map();
  const at = (time: string, ms: number) => new Date(Date.parse(time) + ms).toISOString();
  const {clips} = await server.clips({
    limit: 1000,
    from: at(oldest.time, -LONGEST),
    to: at(newest.time, 60_000), // the clocks of a source and the server may differ
    ...(stream ? {stream} : {}),
  });
  return new Map(clips.flatMap(momentsOf).flatMap(m => (m.event ? [[m.event.id, m]] : [])));
}

/** The picture of an event, which opens the player. */
function Thumbnail({of: {clip, picture, event}, play}: {of: Moment; play: () => void}) {
  const label = `Play the clip: ${told(event!)}`;
  return (
    <button type="button" class="thumbnail" aria-label={label} onClick={play}>
      {picture ? (
        <img loading="lazy" src={`${server.url('v2', 'clips', clip.id, 'pictures', `${picture}`)}?boxes=true`} alt="" />
      ) : (
        'Play'
      )}
    </button>
  );
}

export function Events({query}: {query: URLSearchParams}) {
  const camera = query.get('camera') ?? '',
    type = query.get('type') ?? '';
  const [span, setSpan] = useState<Span>('1h');
  const asked: EventQuery = {from: span, ...(camera ? {camera} : {}), ...(type ? {type} : {})};
  const {value: page, failed} = usePolled(
    () => server.events({...asked, limit: LIMIT}),
    INTERVAL,
    JSON.stringify(asked),
  );
  const shown = useRef<readonly StreamEvent[]>([]);
  if (page) shown.current = page.events;
  const [turn, setTurn] = useState(0),
    [playing, setPlaying] = useState<{moments: readonly Moment[]; index: number}>();
  const {value: clips} = usePolled(
    () => clipsOf(shown.current, camera),
    2 * INTERVAL,
    `${JSON.stringify(asked)} ${page !== undefined} ${turn}`,
  );
  const kept = useRef<Map<string, Moment>>(new Map()); // no flicker
  if (clips) kept.current = clips;
  const play = (id: string) => {
    const moments = shown.current.toReversed().flatMap(e => kept.current.get(e.id) ?? []);
    setPlaying({moments, index: moments.findIndex(m => m.event?.id === id)});
  };
  const {value: streams} = usePolled(() => server.streams(), 10_000);
  const {busy, error, act} = useAction();
  const go = (changed: Record<string, string>) => {
    const next = new URLSearchParams(Object.entries({camera, type, ...changed}).filter(([, v]) => v));
    location.hash = `/events${next.size > 0 ? `?${next}` : ''}`;
  };
  const cameras = new Set([...(streams?.map(s => s.name) ?? []), ...(camera ? [camera] : [])]);
  return (
    <View title="Events" id="events" alert={error || failed}>
      <h2>Events</h2>
      <form aria-label="Filter" onSubmit={e => e.preventDefault()}>
        <label>
          Camera{' '}
          <select value={camera} onChange={e => go({camera: e.currentTarget.value})}>
            <option value="">all</option>
            {[...cameras].map(name => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        <label>
          Type{' '}
          <select value={type} onChange={e => go({type: e.currentTarget.value})}>
            <option value="">all</option>
            {TYPES.map(t => (
              <option key={t}>{t}</option>
            ))}
          </select>
        </label>
        <label>
          Of the last{' '}
          <select value={span} onChange={e => setSpan(e.currentTarget.value as Span)}>
            {Object.entries(SPANS).map(([value, label]) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
        </label>
        <button
          type="button"
          disabled={busy || !page?.events.length}
          onClick={() => void act(async () => save('events.jsonl', await lines(asked)))}
        >
          Download
        </button>
      </form>
      {page?.events.length === 0 && (
        <p class="soft">
          There is no event. Draw <a href="#/streams">lines and zones</a> on the picture of a stream.
        </p>
      )}
      {page && page.events.length > 0 && (
        <>
          <Timeline events={page.events} minutes={MINUTES[span]} />
          <div class="scroll">
            <table>
              <thead>
                <tr>
                  <th>time</th>
                  <th>camera</th>
                  <th>event</th>
                  <th>model</th>
                  <th>tracks</th>
                  <th>clip</th>
                </tr>
              </thead>
              <tbody>
                {page.events.map(e => (
                  <tr key={e.id} data-event={e.type}>
                    <td>{new Date(e.time).toLocaleString()}</td>
                    <th scope="row">{e.stream}</th>
                    <td>{told(e)}</td>
                    <td>{e.model}</td>
                    <td>{e.tracks?.join(', ')}</td>
                    <td>
                      {kept.current.has(e.id) && <Thumbnail of={kept.current.get(e.id)!} play={() => play(e.id)} />}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
          {page.next && <p class="soft">The table has the newest {LIMIT} events; a download has all.</p>}
        </>
      )}
      <Clips camera={camera} turn={turn} play={(moments, index) => setPlaying({moments, index})} />
      {playing && (
        <Player
          {...playing}
          go={index => setPlaying({...playing, index})}
          close={() => setPlaying(undefined)}
          changed={() => setTurn(t => t + 1)}
        />
      )}
    </View>
  );
}
