// Tasks: inferences whose results the server keeps until somebody fetches them.

import {MillraceError, type Task, taskEnded} from '@millrace/client';
import {useEffect, useRef, useState} from 'preact/hooks';
import {useAction, usePolled} from './hooks';
import {State, View, bytes} from './parts';
import {server} from './server';
import {Details, Progress} from './task';
import {Submit, Uploads} from './taskform';

const INTERVAL = 2000; // ms
const OFF = 10_000; // ms, while the server has no tasks
const PAGE = 50; // tasks
const TYPING = 300; // ms after the last key until the list is asked for

const STATES = {
  '': 'all',
  'queued,running': 'not ended',
  queued: 'queued',
  running: 'running',
  finished: 'finished',
  failed: 'failed',
  cancelled: 'cancelled',
  expired: 'expired',
};

/** The parts of the view's address. */
type Place = Partial<Record<'state' | 'model' | 'text' | 'after' | 'id', string>>;

/** The address of the view with changes; without `after`, the first page. */
function placeOf(query: URLSearchParams, change: Place): string {
  const to = new URLSearchParams(query);
  for (const [k, v] of Object.entries(change)) v ? to.set(k, v) : to.delete(k);
  return `#/tasks${to.size > 0 ? `?${to}` : ''}`;
}

const go = (query: URLSearchParams, change: Place) => location.assign(placeOf(query, change));

export function Tasks({query}: {query: URLSearchParams}) {
  const [off, setOff] = useState(false);
  const filter = Object.fromEntries(['state', 'model', 'text', 'after'].map(k => [k, query.get(k) || undefined]));
  const {value, failed, refresh} = usePolled(
    async () => {
      try {
        const page = await server.tasks({...filter, limit: PAGE});
        setOff(false);
        return page;
      } catch (e) {
        if (!(e instanceof MillraceError) || e.code !== 'not_found') throw e;
        setOff(true);
        return undefined;
      }
    },
    off ? OFF : INTERVAL,
    JSON.stringify([filter, off]),
  );
  const shown = useRef(value); // the page before stays until the next one has come
  shown.current = value ?? (off || failed ? undefined : shown.current);
  const page = shown.current,
    id = query.get('id') ?? '';
  const {files, over, take} = useDrop(page !== undefined);
  const [open, setOpen] = useState(false),
    forming = open || files.length > 0;
  return (
    <View title="Tasks" id="tasks" alert={failed}>
      <div class="row">
        <h2>Tasks</h2>
        {page && (
          <button
            type="button"
            id="submit-task"
            aria-expanded={forming}
            onClick={() => {
              setOpen(!forming);
              take([]);
            }}
          >
            Submit a task
          </button>
        )}
      </div>
      {off && <Off />}
      {page && (forming || over) && (
        <Submit
          files={files}
          take={take}
          over={over}
          model={query.get('model') ?? ''}
          done={() => {
            setOpen(false);
            take([]);
          }}
        />
      )}
      <Uploads
        stored={t => {
          refresh();
          go(query, {id: t.id});
        }}
      />
      {page && <Filter query={query} listed={page.tasks} />}
      {page && id && <Details key={id} id={id} close={placeOf(query, {id: ''})} changed={refresh} />}
      {page && <List page={page} query={query} id={id} refresh={refresh} stale={!value} />}
    </View>
  );
}

function Off() {
  return (
    <p class="soft" data-off>
      This server keeps no tasks: it has no data folder. Start the server with a folder that survives restarts:{' '}
      <code>millrace serve --data FOLDER</code>
    </p>
  );
}

/** Files that the user drops anywhere on the page, and whether files are held over the page now. */
function useDrop(on: boolean): {files: File[]; over: boolean; take: (files: File[]) => void} {
  const [files, take] = useState<File[]>([]),
    [over, setOver] = useState(false);
  useEffect(() => {
    if (!on) return;
    const has = (e: DragEvent) => e.dataTransfer?.types.includes('Files') ?? false;
    const hold = (e: DragEvent) => {
      if (!has(e)) return;
      e.preventDefault();
      setOver(true);
    };
    const handlers: [string, (e: DragEvent) => void][] = [
      ['dragenter', hold],
      ['dragover', hold],
      ['dragleave', e => e.relatedTarget === null && setOver(false)],
      [
        'drop',
        e => {
          if (!has(e)) return;
          e.preventDefault(); // else the browser leaves the page and shows the file
          setOver(false);
          const dropped = [...(e.dataTransfer?.files ?? [])];
          take(list => [...list, ...dropped]);
        },
      ],
    ];
    for (const [name, f] of handlers) window.addEventListener(name, f as EventListener);
    return () => {
      for (const [name, f] of handlers) window.removeEventListener(name, f as EventListener);
    };
  }, [on]);
  return {files, over, take};
}

function Filter({query, listed}: {query: URLSearchParams; listed: Task[]}) {
  const {value: models} = usePolled(() => server.models().catch(() => []), 10_000);
  const model = query.get('model') ?? '',
    state = query.get('state') ?? '';
  const names = [...new Set([...(models ?? []).map(m => m.name), ...listed.map(t => t.model), model])]
    .filter(name => name !== '')
    .sort();
  const [text, setText] = useState(query.get('text') ?? '');
  useEffect(() => setText(query.get('text') ?? ''), [query.get('text')]);
  useEffect(() => {
    if (text.trim() === (query.get('text') ?? '')) return;
    const timer = setTimeout(() => location.replace(placeOf(query, {text: text.trim(), after: ''})), TYPING);
    return () => clearTimeout(timer);
  }, [text]);
  return (
    <form aria-label="Filter" onSubmit={e => e.preventDefault()}>
      <label>
        State{' '}
        <select id="task-state" value={state} onChange={e => go(query, {state: e.currentTarget.value, after: ''})}>
          {!(state in STATES) && <option value={state}>{state}</option>}
          {Object.entries(STATES).map(([value, label]) => (
            <option key={value} value={value}>
              {label}
            </option>
          ))}
        </select>
      </label>
      <label>
        Model{' '}
        <select id="task-model" value={model} onChange={e => go(query, {model: e.currentTarget.value, after: ''})}>
          <option value="">all</option>
          {names.map(name => (
            <option key={name}>{name}</option>
          ))}
        </select>
      </label>
      <label>
        Text{' '}
        <input
          type="search"
          id="task-text"
          value={text}
          placeholder="id, file, consumer or error"
          onInput={e => setText(e.currentTarget.value)}
        />
      </label>
    </form>
  );
}

function List({
  page,
  query,
  id,
  refresh,
  stale,
}: {
  page: {tasks: Task[]; next?: string};
  query: URLSearchParams;
  id: string;
  refresh: () => void;
  stale: boolean;
}) {
  const before = useRef<string[]>([]); // `after` of the pages before
  const after = query.get('after') ?? '';
  if (!after) before.current = [];
  const filtered = ['state', 'model', 'text'].some(k => query.get(k));
  const retry = useAction(refresh);
  const again = page.tasks.filter(retriable);
  return (
    <>
      {page.tasks.length === 0 && (
        <p class="soft">
          {after || filtered
            ? 'No task is like that.'
            : 'There is no task. A task is an inference whose result the server keeps until somebody fetches it.'}
        </p>
      )}
      {query.get('state') === 'failed' && again.length > 1 && (
        <p>
          <button
            type="button"
            disabled={retry.busy}
            onClick={() => {
              if (confirm(`Retry the ${again.length} tasks of this page?`))
                void retry.act(async () => {
                  for (const t of again) await server.retryTask(t.id);
                });
            }}
          >
            Retry these {again.length} tasks
          </button>
        </p>
      )}
      {retry.error && (
        <p class="message" role="alert">
          {retry.error}
        </p>
      )}
      {page.tasks.length > 0 && (
        <div class="scroll" aria-busy={stale}>
          <table class="tasks">
            <thead>
              <tr>
                <th>task</th>
                <th>state</th>
                <th>model</th>
                <th>input</th>
                <th>submitted</th>
                <th class="n">attempts</th>
                <th>
                  <span class="hidden">what can be done</span>
                </th>
              </tr>
            </thead>
            <tbody>
              {page.tasks.map(t => (
                <Row key={t.id} of={t} place={placeOf(query, {id: t.id})} open={t.id === id} refresh={refresh} />
              ))}
            </tbody>
          </table>
        </div>
      )}
      {(after || page.next) && (
        <nav class="row" aria-label="Pages">
          <button type="button" disabled={!after} onClick={() => go(query, {after: before.current.pop() ?? ''})}>
            Newer
          </button>
          <button
            type="button"
            disabled={!page.next || stale}
            onClick={() => {
              before.current.push(after);
              go(query, {after: page.next});
            }}
          >
            Older
          </button>
        </nav>
      )}
    </>
  );
}

/** Whether a task has ended without a result. */
export const retriable = (t: Task) => taskEnded(t) && t.state !== 'finished';

function Row({of: t, place, open, refresh}: {of: Task; place: string; open: boolean; refresh: () => void}) {
  const {busy, error, act} = useAction(refresh);
  return (
    <tr data-task={t.id}>
      <th scope="row">
        <a href={place} aria-current={open ? 'true' : undefined} title={t.id}>
          <code>
            {t.id.slice(0, 8)}…{t.id.slice(-4)}
          </code>
        </a>
      </th>
      <td class="state">
        <State of={t.state} />
        {t.state === 'running' && <Progress of={t} />}
        {t.error && t.state !== 'finished' && <p class="soft brief">{t.error.message}</p>}
        {error && (
          <p class="wrong" role="alert">
            {error}
          </p>
        )}
      </td>
      <td>
        {t.model}
        {t.version && ` ${t.version}`}
      </td>
      <td class="name">
        {t.input.name && `${t.input.name} `}
        <small class="soft">{bytes(t.input.size)}</small>
      </td>
      <td>{new Date(t.created).toLocaleString()}</td>
      <td class="n">
        {t.attempt} of {t.last_attempt || t.attempts}
      </td>
      <td class="n">
        {retriable(t) && (
          <button
            type="button"
            disabled={busy}
            aria-label={`Retry ${t.id}`}
            onClick={() => act(() => server.retryTask(t.id))}
          >
            Retry
          </button>
        )}
      </td>
    </tr>
  );
}
