// One task: its state while it waits and runs, and its result.

import {MillraceError, type Task, type TaskFile, taskEnded} from '@millrace/client';
import {useEffect, useRef, useState} from 'preact/hooks';
import {useAction, usePolled} from './hooks';
import {State, bytes, pretty} from './parts';
import {describe, server} from './server';

const AGAIN = 2000; // ms until a task is asked for again, where the server sends no events

/**
 * A task and its changes, as the server tells them. gone: the task does not exist. put replaces the task by the answer
 * to an action.
 */
function useTask(id: string): {task?: Task; failed: string; gone: boolean; put: (t: Task) => void} {
  const [task, setTask] = useState<Task>(),
    [failed, setFailed] = useState<unknown>(),
    [turn, setTurn] = useState(0);
  useEffect(() => {
    let over = false,
      timer: ReturnType<typeof setTimeout> | undefined,
      source: EventSource | undefined;
    const show = (t: Task) => {
      setTask(t);
      setFailed(undefined);
    };
    const ask = async () => {
      try {
        const t = await server.task(id);
        if (over) return;
        show(t);
        if (!taskEnded(t)) follow();
      } catch (e) {
        if (over) return;
        setFailed(e);
        if (!(e instanceof MillraceError) || e.code !== 'not_found') timer = setTimeout(ask, AGAIN);
      }
    };
    const follow = () => {
      source = new EventSource(server.url('v2', 'tasks', id, 'events'));
      source.addEventListener('task', e => {
        const t: Task = JSON.parse(e.data);
        show(t);
        if (taskEnded(t)) source?.close();
      });
      source.onerror = () => {
        // The browser connects again by itself, unless the server has refused.
        if (source?.readyState === EventSource.CLOSED) timer = setTimeout(ask, AGAIN);
      };
    };
    void ask();
    return () => {
      over = true;
      clearTimeout(timer);
      source?.close();
    };
  }, [id, turn]);
  return {
    task,
    failed: failed === undefined ? '' : describe(failed),
    gone: failed instanceof MillraceError && failed.code === 'not_found',
    put: t => {
      setTask(t);
      setTurn(n => n + 1);
    },
  };
}

/** The time now, each second while it is needed. */
function useNow(on: boolean): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (!on) return;
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [on]);
  return now;
}

/** close: the address without the task. changed: the list is no longer up to date. */
export function Details({id, close, changed}: {id: string; close: string; changed: () => void}) {
  const {task: t, failed, gone, put} = useTask(id);
  const {busy, error, act} = useAction(changed);
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => heading.current?.focus(), [id]);
  const state = t?.state;
  useEffect(() => {
    if (state) changed();
  }, [state]);
  return (
    <section class="card" aria-label="Task" id="task">
      <div class="row">
        <h3 ref={heading} tabIndex={-1}>
          Task <code>{id}</code>
        </h3>
        <a href={close}>Close</a>
      </div>
      {failed && (
        <p class="message" role="alert">
          {failed}
        </p>
      )}
      {t && !gone && (
        <>
          <Now of={t} />
          {t.error && t.state !== 'finished' && (
            <p class="message">
              {!taskEnded(t) && 'The attempt before failed: '}
              {t.error.message} ({t.error.code})
            </p>
          )}
          <div class="row">
            {!taskEnded(t) && (
              <button type="button" disabled={busy} onClick={() => act(async () => put(await server.cancelTask(id)))}>
                Cancel
              </button>
            )}
            {taskEnded(t) && t.state !== 'finished' && (
              <button
                type="button"
                class="main"
                disabled={busy}
                onClick={() => act(async () => put(await server.retryTask(id)))}
              >
                Retry
              </button>
            )}
            {t.state !== 'running' && (
              <button
                type="button"
                class="danger"
                disabled={busy}
                onClick={() => {
                  if (confirm(`Delete the task ${t.input.name ?? id} with its input and result?`))
                    void act(async () => {
                      await server.deleteTask(id);
                      location.assign(close);
                    });
                }}
              >
                Delete
              </button>
            )}
          </div>
          {error && (
            <p class="message" role="alert">
              {error}
            </p>
          )}
          {t.state === 'finished' && t.result && <Result key={t.result.sha256} id={id} of={t.result} model={t.model} />}
          <Rows of={t} />
          <Log of={t} />
        </>
      )}
    </section>
  );
}

/** Done of total, where the consumer tells. */
export function Progress({of: {progress: p, state}}: {of: Task}) {
  if (!p || (!p.done && !p.total)) return null;
  const text = `${p.done}${p.total ? ` of ${p.total}` : ''}${p.unit ? ` ${p.unit}` : ''}`;
  return (
    <span class="progress">
      {p.total && state === 'running' ? <progress aria-label="Progress" max={p.total} value={p.done} /> : null}{' '}
      <span class="soft">{text}</span>
    </span>
  );
}

const SECOND = 1000,
  MINUTE = 60 * SECOND,
  HOUR = 60 * MINUTE;

function span(ms: number): string {
  const s = Math.max(0, ms) / SECOND;
  if (s < 0.1) return `${(1000 * s).toFixed(0)} ms`;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (ms < 2 * MINUTE) return `${s.toFixed(0)} s`;
  return ms < 2 * HOUR ? `${(ms / MINUTE).toFixed(0)} min` : `${(ms / HOUR).toFixed(1)} h`;
}

/** What happens now, for people. */
function Now({of: t}: {of: Task}) {
  const now = useNow(!taskEnded(t));
  const {value: models} = usePolled(() => server.models().catch(() => undefined), 5000);
  const later = t.not_before ? Date.parse(t.not_before) : 0;
  const says = () => {
    switch (t.state) {
      case 'running':
        return (
          `for ${span(now - Date.parse(t.started ?? t.created))}, ` +
          `attempt ${t.attempt} of ${t.last_attempt} on ${t.consumer}`
        );
      case 'queued':
        if (later > now) return `${t.error ? 'after a failed attempt ' : ''}until ${new Date(later).toLocaleString()}`;
        if (models && !models.some(m => m.name === t.model && m.state === 'READY'))
          return `until ${t.model} is loaded: this server has no such model that is ready`;
        return `for ${span(now - Date.parse(t.created))}`;
      default:
        return t.started && t.ended ? `after ${span(Date.parse(t.ended) - Date.parse(t.started))}` : '';
    }
  };
  return (
    <p role="status">
      <State of={t.state} /> {says()} {t.state === 'running' && <Progress of={t} />}
    </p>
  );
}

const fileText = (f: TaskFile) => [f.name, bytes(f.size), f.type].filter(Boolean).join(', ');

function Rows({of: t}: {of: Task}) {
  const time = (at?: string) => at && new Date(at).toLocaleString();
  const rows: [string, string | undefined][] = [
    ['model', t.version ? `${t.model}, version ${t.version}` : t.model],
    ['input', fileText(t.input)],
    ['result', t.result && fileText(t.result)],
    ['submitted', time(t.created)],
    ['not before', time(t.not_before)],
    ['expires', time(t.expires)],
    ['started', time(t.started)],
    ['ended', time(t.ended)],
    ['attempts', t.attempt > 0 ? `${t.attempt} of ${t.last_attempt}` : `${t.attempts} at most`],
    ['consumer', t.consumer],
    ['priority', t.priority ? String(t.priority) : undefined],
    ['owner', t.owner],
    ['webhook', t.webhook && [t.webhook.url, t.webhook.state, t.webhook.error].filter(Boolean).join(', ')],
  ];
  return (
    <table>
      <caption class="hidden">What is known of the task</caption>
      <tbody>
        {rows.map(
          ([name, v]) =>
            v && (
              <tr key={name}>
                <th scope="row">{name}</th>
                <td>{v}</td>
              </tr>
            ),
        )}
      </tbody>
    </table>
  );
}

const TEXT = 1 << 20; // bytes of a result that is shown as a whole
const BEGIN = 1 << 16; // bytes of a longer text that are shown
const PICTURE = 64 << 20; // bytes of a picture that is shown

type Kind = 'json' | 'tensors' | 'text' | 'picture' | 'video' | 'file';

function kindOf(f: TaskFile): Kind {
  const type = (f.type ?? '').replace(/;.*/, '').trim().toLowerCase();
  if (f.head) return 'tensors';
  if (/[/+]json$/.test(type)) return f.size <= TEXT ? 'json' : 'text';
  if (type.startsWith('text/')) return 'text';
  if (/^image\/(png|jpeg|webp|gif|avif|bmp|svg\+xml)$/.test(type) && f.size <= PICTURE) return 'picture';
  if (/^video\/(mp4|webm)$/.test(type)) return 'video';
  return 'file';
}

/** The first bytes of a result as text. */
async function read(id: string, length: number): Promise<string> {
  const reply = await fetch(server.url('v2', 'tasks', id, 'result'), {headers: {Range: `bytes=0-${length - 1}`}});
  if (!reply.ok) throw new Error(`The server answers with status ${reply.status}.`);
  // A character that the end of the part cuts is left out.
  return new TextDecoder().decode(await reply.arrayBuffer(), {stream: true});
}

function Result({id, of: f, model}: {id: string; of: TaskFile; model: string}) {
  const address = server.url('v2', 'tasks', id, 'result');
  const kind = kindOf(f),
    head = Number(f.head ?? 0);
  const [text, setText] = useState(''),
    {error, act} = useAction();
  const whole = kind === 'json' || (kind === 'text' && f.size <= BEGIN);
  useEffect(() => {
    if (f.size === 0 || !['json', 'tensors', 'text'].includes(kind)) return;
    void act(async () => {
      const got = await read(id, kind === 'tensors' ? Math.min(head, TEXT) : whole ? f.size : BEGIN);
      setText(kind === 'text' ? got : pretty(got));
    });
  }, []);
  const name = f.name ?? `${model}-${id.slice(0, 8)}${kind === 'json' ? '.json' : ''}`;
  return (
    <section aria-label="Result" id="result">
      <div class="row">
        <h3>Result</h3>
        <a class="button" href={address} download={name}>
          Download {name} ({bytes(f.size)})
        </a>
      </div>
      {error && (
        <p class="message" role="alert">
          {error}
        </p>
      )}
      {kind === 'picture' && <img class="picture" src={address} alt={`Result of the task: ${f.name ?? 'a picture'}`} />}
      {kind === 'video' && (
        <video class="picture" src={address} controls preload="metadata" aria-label="Result of the task" />
      )}
      {kind === 'tensors' && <p class="soft">The tensors are binary: this is the JSON in front of them.</p>}
      {kind === 'text' && !whole && <p class="soft">The first {bytes(BEGIN)}:</p>}
      {text && (
        <pre tabIndex={0} aria-label="Text of the result">
          {text}
        </pre>
      )}
    </section>
  );
}

/** The log of the newest attempt, once it is opened. */
function Log({of: t}: {of: Task}) {
  const [open, setOpen] = useState(false);
  if (t.attempt === 0) return null;
  return (
    <details onToggle={e => setOpen(e.currentTarget.open)}>
      <summary>Log</summary>
      {open && <Lines of={t} />}
    </details>
  );
}

function Lines({of: t}: {of: Task}) {
  const running = t.state === 'running';
  const {value, failed} = usePolled(
    async () => {
      const reply = await fetch(server.url('v2', 'tasks', t.id, 'logs'));
      if (reply.status === 404) return '';
      if (!reply.ok) throw new Error(`The server answers with status ${reply.status}.`);
      return reply.text();
    },
    running ? AGAIN : 60_000,
    `${t.id} ${t.attempt} ${t.state}`,
  );
  const box = useRef<HTMLPreElement>(null);
  useEffect(() => {
    if (running && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [value]);
  if (failed) return <p class="message">{failed}</p>;
  if (value === undefined) return null;
  if (!value) return <p class="soft">The server has no log of the task.</p>;
  return (
    <pre ref={box} tabIndex={0} aria-label="Log of the task">
      {value}
    </pre>
  );
}
