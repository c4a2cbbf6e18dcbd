// Server streams: cameras and videos that the server reads itself.

import type {ServerStream, ServerStreamChange, ServerStreamPolicy} from '@millrace/client';
import {useRef, useState} from 'preact/hooks';
import {useAction, useManaged, usePolled} from './hooks';
import {Elsewhere, Figure, State, View, number} from './parts';
import {server} from './server';

const INTERVAL = 1000; // ms

export function Streams() {
  const {value: streams, failed, refresh} = usePolled(() => server.streams(), INTERVAL);
  const [adding, setAdding] = useState(false), managed = useManaged();
  const before = useRef<{at: number; list: ServerStream[]}>(undefined), earlier = useRef<{at: number; list: ServerStream[]}>(undefined);
  if (streams && before.current?.list !== streams) {
    earlier.current = before.current;
    before.current = {at: performance.now(), list: streams};
  }
  const fps = (s: ServerStream) => {
    const old = earlier.current?.list.find(o => o.name === s.name && o.since === s.since);
    return old ? Math.max(0, s.results - old.results) / (before.current!.at - earlier.current!.at) * 1000 : NaN;
  };
  return <View title="Streams" id="streams" alert={failed}>
    <div class="row">
      <h2>Server streams</h2>
      {managed && <button type="button" id="add" aria-expanded={adding} onClick={() => setAdding(!adding)}>Add a stream</button>}
    </div>
    {!managed && <Elsewhere what="changes streams" />}
    {adding && <Add done={() => {
      setAdding(false);
      refresh();
    }} />}
    {streams?.length === 0 && <p class="soft">There is no server stream. A server stream is a camera or a video that the server reads itself.</p>}
    <div class="cards">
      {streams?.map(s => <Card key={s.name} of={s} fps={fps(s)} managed={managed} refresh={refresh} />)}
    </div>
  </View>;
}

function Card({of: s, fps, managed, refresh}: {of: ServerStream; fps: number; managed: boolean; refresh: () => void}) {
  const [shown, setShown] = useState(true), [changing, setChanging] = useState(false);
  const {busy, error, act} = useAction(refresh);
  const drops = Object.entries(s.drops ?? {});
  const age = s.last ? (Date.now() - Date.parse(s.last)) / 1000 : NaN;
  return <article class="card" aria-label={`Stream ${s.name}`} data-stream={s.name}>
    <div class="row">
      <h3>{s.name}</h3>
      <span>{s.paused && <span class="badge warn">paused</span>} <State of={s.state} /></span>
    </div>
    {shown && s.state === 'running' && <img class="preview" src={server.url('v2', 'streams', s.name, 'video')} alt={`Newest picture of ${s.name} with its results`} />}
    {s.models.length > 1 && <p class="soft">{s.models.map(m => m.model).join(', ')}</p>}
    {s.state === 'running' && s.models.filter(m => m.state === 'waiting' && m.error).map(m => <p key={m.model} class="message">{m.error!.message} ({m.error!.code})</p>)}
    {s.error && <p class="message">{s.error.message} ({s.error.code})</p>}
    <dl class="figures">
      <Figure name="results" unit="fps">{number(fps, 1)}</Figure>
      <Figure name="newest result" unit="s ago">{number(age, 1)}</Figure>
      <Figure name="dropped">{drops.reduce((sum, [, n]) => sum + n, 0)}</Figure>
      <Figure name="errors">{s.errors}</Figure>
    </dl>
    <div class="row">
      {managed && <button type="button" disabled={busy} onClick={() => act(() => server.changeStream(s.name, {paused: !s.paused}))}>{s.paused ? 'Resume' : 'Pause'}</button>}
      {managed && <button type="button" aria-expanded={changing} onClick={() => setChanging(!changing)}>Change</button>}
      <button type="button" aria-pressed={shown} onClick={() => setShown(!shown)}>Picture</button>
      {managed && <button type="button" class="danger" disabled={busy} onClick={() => {
        if (confirm(`Remove the stream ${s.name}?`)) void act(() => server.removeStream(s.name));
      }}>Remove</button>}
    </div>
    {error && <p class="message" role="alert">{error}</p>}
    {changing && <Change of={s} refresh={refresh} />}
    <details>
      <summary>More</summary>
      <table>
        <tbody>
          {([['source', s.source], ...s.models.map(m => [`model ${m.model}${m.version ? `, version ${m.version}` : ''}`, `${m.state}, ${m.policy.policy}, ${m.results} results, ${m.errors} errors`]), ['since', new Date(s.since).toLocaleString()],
            ['size', s.width ? `${s.width} × ${s.height}` : '–'], ['frames read', s.frames], ['results', s.results],
            ...drops.map(([reason, n]) => [`dropped: ${reason}`, n]), ['restarts of the source', s.restarts], ['watchers', s.watchers], ['from', s.origin]] as [string, string | number][])
            .map(([name, v]) => <tr key={name}><th scope="row">{name}</th><td class="n">{v}</td></tr>)}
        </tbody>
      </table>
    </details>
  </article>;
}

/** The numbers of a form; fields that are left empty are left out. */
function numbers(form: HTMLFormElement, names: string[]): Record<string, number> {
  const data = new FormData(form);
  return Object.fromEntries(names.filter(n => data.get(n) !== '').map(n => [n, Number(data.get(n))]));
}

function Numbers({of}: {of?: ServerStreamPolicy}) {
  return <>
    <label>Oldest result, ms <input type="number" name="max_age_ms" min="0" defaultValue={of?.max_age_ms} /></label>
    <label>Deadline of a frame, ms <input type="number" name="deadline_ms" min="0" defaultValue={of?.deadline_ms} /></label>
    <label>Most frames/s of the model <input type="number" name="max_fps" min="0" step="any" defaultValue={of?.max_fps} /></label>
    <label>Frames in flight <input type="number" name="window" min="0" defaultValue={of?.window} /></label>
    <label>Priority <select name="priority">{['high', 'normal', 'low'].map(p => <option key={p} selected={p === (of?.priority ?? 'normal')}>{p}</option>)}</select></label>
  </>;
}

function Change({of: s, refresh}: {of: ServerStream; refresh: () => void}) {
  const {busy, error, act} = useAction(refresh);
  const [policies] = useState(s.models); // what is typed is not overwritten by the next reply
  const [name, choose] = useState(s.models[0]!.model);
  return <form onSubmit={e => {
    e.preventDefault();
    const form = e.currentTarget;
    const change = {...numbers(form, ['max_age_ms', 'deadline_ms', 'max_fps', 'window']), priority: new FormData(form).get('priority') as ServerStreamChange['priority'] & {}};
    void act(() => server.changeStream(s.name, policies.length > 1 ? {models: [{model: name, ...change}]} : change));
  }}>
    {policies.length > 1 && <label>Model <select value={name} onChange={e => choose(e.currentTarget.value)}>{policies.map(m => <option key={m.model}>{m.model}</option>)}</select></label>}
    <div class="fields" key={name}><Numbers of={policies.find(m => m.model === name)?.policy} /></div>
    <button type="submit" disabled={busy}>Apply</button>
    {error && <p class="message" role="alert">{error}</p>}
  </form>;
}

function Add({done}: {done: () => void}) {
  const {value: models} = usePolled(() => server.models(), 5000);
  const {busy, error, act} = useAction();
  return <form class="card" aria-label="Add a stream" onSubmit={async e => {
    e.preventDefault();
    const form = e.currentTarget, data = new FormData(form), text = (name: string) => String(data.get(name)).trim();
    const chosen = data.getAll('model').map(String);
    const ok = await act(() => server.addStream({
      name: text('name'), source: text('source'), policy: text('policy'), priority: text('priority'),
      ...numbers(form, ['fps', 'max_age_ms', 'deadline_ms', 'max_fps', 'window']), ...(data.has('loop') ? {loop: true} : {}),
      ...(chosen.length === 1 ? {model: chosen[0]} : {models: chosen.map(model => ({model}))}),
    }));
    if (ok) done();
  }}>
    <div class="fields">
      <label>Name <input name="name" required /></label>
      <label>Source <input name="source" required placeholder="rtsp://HOST/PATH" /></label>
      <label>Model, or several <select name="model" multiple required size={3}>{models?.filter(m => m.state === 'READY').map(m => <option key={m.name}>{m.name}</option>)}</select></label>
      <label>When there are too many frames <select name="policy"><option value="latest">run the newest</option><option value="every">run every frame</option></select></label>
      <label>Most frames/s of the source <input type="number" name="fps" min="0" step="any" /></label>
      <Numbers />
      <label class="check"><input type="checkbox" name="loop" /> Start again at the end</label>
    </div>
    <p class="soft">The source of a request is an http, https, rtsp or rtsps address. Private addresses need <code>sources.allow_private</code>; files and devices are named in the configuration.</p>
    <button type="submit" class="main" disabled={busy}>Add</button>
    {error && <p class="message" role="alert">{error}</p>}
  </form>;
}
