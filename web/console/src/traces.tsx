// The frames whose traces the server keeps.

import type {KeptFrame} from '@millrace/client';
import {useState} from 'preact/hooks';
import {usePolled} from './hooks';
import {State, View} from './parts';
import {server} from './server';
import {Waterfall, type Step} from './waterfall';

const INTERVAL = 3000; // ms
const LIMIT = 200;

const ORDERS = {newest: 'newest first', slowest: 'slowest first'} as const;

export function Traces({query}: {query: URLSearchParams}) {
  const id = query.get('id') ?? '';
  const [model, setModel] = useState(''),
    [reason, setReason] = useState(''),
    [order, setOrder] = useState<keyof typeof ORDERS>('newest');
  const {value: traces, failed} = usePolled(
    () => server.traces({limit: LIMIT, ...(model ? {model} : {}), ...(reason ? {reason} : {})}),
    INTERVAL,
    `${model}\n${reason}`,
  );
  const {value: models} = usePolled(() => server.models(), 10_000);
  const rows = order === 'newest' ? traces : traces?.toSorted((a, b) => b.duration_us - a.duration_us);
  return (
    <View title="Traces" id="traces" alert={failed}>
      <h2>Kept frames</h2>
      <form aria-label="Filter" onSubmit={e => e.preventDefault()}>
        <label>
          Model{' '}
          <select value={model} onChange={e => setModel(e.currentTarget.value)}>
            <option value="">all</option>
            {[...new Set(models?.map(m => m.name))].map(m => (
              <option key={m}>{m}</option>
            ))}
          </select>
        </label>
        <label>
          Kept because{' '}
          <select id="reason" value={reason} onChange={e => setReason(e.currentTarget.value)}>
            <option value="">all</option>
            {['slow', 'dropped', 'failed', 'gated', 'sampled'].map(r => (
              <option key={r}>{r}</option>
            ))}
          </select>
        </label>
        <label>
          Order{' '}
          <select id="order" value={order} onChange={e => setOrder(e.currentTarget.value as keyof typeof ORDERS)}>
            {Object.entries(ORDERS).map(([value, label]) => (
              <option key={value} value={value}>
                {label}
              </option>
            ))}
          </select>
        </label>
      </form>
      {id && <One id={id} />}
      {rows?.length === 0 && (
        <p class="soft">
          No frame was kept. <code>tracing.ratio</code> and the rules of <code>tracing</code> say which frames are.
        </p>
      )}
      {rows && rows.length > 0 && (
        <div class="scroll">
          <table>
            <thead>
              <tr>
                <th>time</th>
                <th>model</th>
                <th>frame</th>
                <th>ending</th>
                <th>kept because</th>
                <th class="n">ms</th>
                <th>trace</th>
              </tr>
            </thead>
            <tbody>
              {rows.map(t => (
                <tr key={t.trace_id + t.span_id} data-trace={t.trace_id}>
                  <td>{new Date(t.time).toLocaleTimeString()}</td>
                  <th scope="row">
                    {t.model}
                    {t.version && ` ${t.version}`}
                  </th>
                  <td>
                    {t.stream ? `${t.stream} ` : ''}#{t.seq} <small class="soft">{t.endpoint}</small>
                  </td>
                  <td>
                    <State of={t.outcome} /> {t.reason || t.code}
                  </td>
                  <td>{t.kept.join(', ')}</td>
                  <td class="n">{(t.duration_us / 1000).toFixed(1)}</td>
                  <td>
                    <a href={`#/traces?id=${t.trace_id}`} aria-current={t.trace_id === id ? 'true' : undefined}>
                      <code>{t.trace_id.slice(0, 8)}</code>
                    </a>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </View>
  );
}

function One({id}: {id: string}) {
  const {value: trace, failed} = usePolled(() => server.trace(id), 60_000, id);
  return (
    <section class="card" aria-label="Trace" id="trace">
      <div class="row">
        <h3>
          Trace <code>{id}</code>
        </h3>
        <a href="#/traces">Close</a>
      </div>
      {failed && (
        <p class="message" role="alert">
          {failed}
        </p>
      )}
      {trace && <TraceDetails of={trace} />}
    </section>
  );
}

/** What the server keeps of a frame. */
export function TraceDetails({of: t}: {of: KeptFrame}) {
  return (
    <>
      <p>
        {t.model} {t.version}, {t.endpoint}, frame {t.seq}
        {t.stream && ` of ${t.stream}`}: <State of={t.outcome} /> {t.reason}
        {t.code && ` ${t.code}: ${t.message}`} after {(t.duration_us / 1000).toFixed(2)} ms
      </p>
      <Waterfall steps={serverSteps(t)} label={`Spans of ${t.trace_id}`} />
      <Companions of={t} />
      {t.url && (
        <p>
          <a href={t.url} target="_blank" rel="noreferrer">
            Open the trace in Jaeger
          </a>
        </p>
      )}
      <details>
        <summary>Attributes</summary>
        <pre tabIndex={0}>
          {t.spans
            .map(s => [s.name, ...Object.entries(s.attributes ?? {}).map(([k, v]) => `  ${k} = ${v}`)].join('\n'))
            .join('\n')}
        </pre>
      </details>
    </>
  );
}

/** Links to the other frames of the batch. */
export function Companions({of: t}: {of: KeptFrame}) {
  const others = (t.batch ?? []).filter(b => b.span_id !== t.span_id);
  if (!t.batch_rows) return null;
  return (
    <p class="soft">
      Its batch had {t.batch_rows} {t.batch_rows === 1 ? 'row' : 'rows'}
      {others.length > 0 && (
        <>
          , with{' '}
          {others.map(b => (
            <span key={b.span_id}>
              <a href={`#/traces?id=${b.trace_id}`}>
                <code>{b.trace_id.slice(0, 8)}</code>
              </a>{' '}
            </span>
          ))}
        </>
      )}
    </p>
  );
}

/** The spans of the server in order, in ms from the beginning of the first. */
export function serverSteps(t: KeptFrame): Step[] {
  return t.spans
    .toSorted((a, b) => a.start_us - b.start_us || b.duration_us - a.duration_us)
    .map(s => ({
      name: s.name,
      kind: s.name === 'run' ? 'model' : 'server',
      start: s.start_us / 1000,
      duration: s.duration_us / 1000,
      note: Object.entries(s.attributes ?? {})
        .map(([k, v]) => `${k} = ${v}`)
        .join(', '),
    }));
}
