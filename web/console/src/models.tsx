// Models: what they take and give, their workers, and how their frames fare.

import type {Histogram, Loaded, ModelEntry, ModelMetadata, ModelStatus, Params, Tensor} from '@millrace/client';
import {useState} from 'preact/hooks';
import {useAction, useManaged, usePolled} from './hooks';
import {Bars, Elsewhere, Figure, State, View, number, pretty} from './parts';
import {server} from './server';
import {quantile, since, useStatus, type Sample} from './status';

const INTERVAL = 2000; // ms
const WINDOW = 60; // s that histograms are about

const STAGES = {queue: 'waiting', prepare: 'decoding, resizing', run: 'model', total: 'in the server'} as const;

export function Models() {
  const {value: index, failed, refresh} = usePolled(() => server.models(), INTERVAL);
  const {samples, now} = useStatus(),
    managed = useManaged();
  return (
    <View title="Models" id="models" alert={failed}>
      <h2>Models</h2>
      {!managed && <Elsewhere what="loads models" />}
      {index?.length === 0 && (
        <p class="soft">The server has no model. Start it with one, such as: millrace serve --model motion=motion</p>
      )}
      <div class="cards">
        {index?.map(e => (
          <Card
            key={`${e.name} ${e.version ?? ''}`}
            of={e}
            status={now?.models.find(m => m.name === e.name && m.version === (e.version ?? ''))}
            samples={samples}
            managed={managed}
            refresh={refresh}
          />
        ))}
      </div>
    </View>
  );
}

function Card({
  of: e,
  status,
  samples,
  managed,
  refresh,
}: {
  of: ModelEntry;
  status?: ModelStatus;
  samples: Sample[];
  managed: boolean;
  refresh: () => void;
}) {
  const {busy, error, act} = useAction(refresh);
  const [params, setParams] = useState('');
  const [said, setSaid] = useState('');
  const ready = e.state === 'READY';
  const load = (parameters: Params) =>
    act(async () => {
      setSaid(about(await server.load(e.name, parameters)));
    });
  return (
    <article class="card" aria-label={`Model ${e.name}`} data-model={e.name}>
      <div class="row">
        <h3>
          {e.name}
          {e.version && <small class="soft"> version {e.version}</small>}
        </h3>
        <State of={e.state} />
      </div>
      {e.reason && <p class="soft">{e.reason}</p>}
      {status && (
        <dl class="figures">
          <Figure name="workers" unit={`${status.busy} busy`}>
            {status.workers}
          </Figure>
          <Figure name="streams">{status.streams}</Figure>
          <Figure name="frames waiting">{status.waiting}</Figure>
          <Figure name="batches">{status.batches}</Figure>
        </dl>
      )}
      {managed && (
        <div class="row">
          {ready ? (
            <>
              <button type="button" disabled={busy} onClick={() => load({share: false})}>
                Add a worker
              </button>
              <button
                type="button"
                disabled={busy || (status?.workers ?? 1) <= 1}
                onClick={() => act(() => server.unload(e.name))}
              >
                Remove a worker
              </button>
              <button
                type="button"
                class="danger"
                disabled={busy}
                onClick={() => {
                  if (confirm(`Unload ${e.name}? Its streams end.`))
                    void act(() => unloadAll(e.name, status?.workers ?? 1));
                }}
              >
                Unload
              </button>
            </>
          ) : (
            <button type="button" class="main" disabled={busy} onClick={() => load({})}>
              Load
            </button>
          )}
        </div>
      )}
      {said && (
        <p class="soft" role="status">
          {said}
        </p>
      )}
      {error && (
        <p class="message" role="alert">
          {error}
        </p>
      )}
      {managed && (
        <details>
          <summary>Load with parameters</summary>
          <form
            onSubmit={ev => {
              ev.preventDefault();
              void act(async () => {
                let parameters: Params;
                try {
                  parameters = JSON.parse(params || '{}');
                } catch (err) {
                  throw new Error(`The parameters are not JSON: ${(err as Error).message}`);
                }
                setSaid(about(await server.load(e.name, parameters)));
              });
            }}
          >
            <label class="hidden" for={`params-${e.name}`}>
              Parameters of {e.name}, JSON
            </label>
            <textarea
              class="code"
              id={`params-${e.name}`}
              placeholder={'{"batching.max_size": 4, "swap": true}'}
              value={params}
              onInput={ev => setParams(ev.currentTarget.value)}
            />
            <button type="submit" disabled={busy}>
              Load
            </button>
          </form>
        </details>
      )}
      {ready && <Ready name={e.name} status={status} samples={samples} />}
    </article>
  );
}

/** What a load has made of which model. */
function about({endpoint, result}: Loaded): string {
  return `${endpoint} ${result === 'unchanged' ? 'is' : 'was'} ${result}.`;
}

/** Each unload removes one worker, and the last one the model. */
async function unloadAll(name: string, workers: number): Promise<void> {
  for (let i = 0; i < workers; i++) await server.unload(name);
}

function Ready({name, status, samples}: {name: string; status?: ModelStatus; samples: Sample[]}) {
  const {value: metadata, failed} = usePolled(() => server.model(name), 60_000, name);
  return (
    <>
      {failed && <p class="message">{failed}</p>}
      {metadata && <Tensors of={metadata} />}
      {status && <Histograms of={status} samples={samples} />}
      {metadata && <TryIt of={metadata} />}
    </>
  );
}

function Tensors({of: m}: {of: ModelMetadata}) {
  const rows = [...m.inputs.map(t => ['in', t] as const), ...m.outputs.map(t => ['out', t] as const)];
  if (rows.length === 0) return <p class="soft">Takes any picture or tensors.</p>;
  return (
    <div class="scroll">
      <table>
        <caption>Inputs and outputs{m.platform && ` (${m.platform})`}</caption>
        <tbody>
          {rows.map(([way, t]) => (
            <tr key={way + t.name}>
              <td>{way}</td>
              <th scope="row">{t.name}</th>
              <td>{t.datatype}</td>
              <td class="n">[{t.shape.join(', ')}]</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Histograms({of: m, samples}: {of: ModelStatus; samples: Sample[]}) {
  const watched = samples.at(-1)!.at - samples[0]!.at >= WINDOW; // else all frames since the model was loaded are shown
  const from = watched
    ? samples
        .find(s => s.at >= samples.at(-1)!.at - WINDOW)
        ?.status.models.find(old => old.name === m.name && old.version === m.version)
    : undefined;
  const time = watched ? 'in the last minute' : 'since the model was loaded';
  const recent = (of: (m: ModelStatus) => Histogram) => since(of(m), from && from !== m ? of(from) : undefined);
  return (
    <>
      <Bars of={recent(s => s.batch_rows)} label={`Batches by rows ${time}`} unit="rows" />
      <div class="scroll">
        <table>
          <caption>Frames answered {time}, ms</caption>
          <thead>
            <tr>
              <th>time</th>
              <th class="n">p50</th>
              <th class="n">p95</th>
              <th class="n">p99</th>
            </tr>
          </thead>
          <tbody>
            {(Object.keys(STAGES) as (keyof typeof STAGES)[]).map(stage => {
              const h = recent(s => s.stages_us[stage]);
              return (
                <tr key={stage}>
                  <th scope="row">{STAGES[stage]}</th>
                  {[0.5, 0.95, 0.99].map(q => (
                    <td class="n" key={q}>
                      {number(quantile(h, q) / 1000, 2)}
                    </td>
                  ))}
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      <Bars of={recent(s => s.stages_us.total)} label={`Time in the server ${time}`} unit="ms" scale={0.001} />
    </>
  );
}

/** An example of a request: zeros, where shapes are fixed and small. */
function example(m: ModelMetadata): string {
  const inputs = m.inputs.map(t => {
    const shape = t.shape.map(n => Math.max(1, n)),
      size = shape.reduce((a, b) => a * b, 1);
    return {
      name: t.name,
      datatype: t.datatype,
      shape,
      data: size <= 64 ? Array(size).fill(t.datatype === 'BYTES' ? '' : t.datatype === 'BOOL' ? false : 0) : [],
    };
  });
  return JSON.stringify({inputs}, null, 1);
}

/** The tensors of a request in JSON. */
function inputs(body: string): Tensor[] {
  let request: {inputs?: Tensor[]};
  try {
    request = JSON.parse(body);
  } catch (e) {
    throw new Error(`The request is not JSON: ${(e as Error).message}`);
  }
  if (!Array.isArray(request.inputs)) throw new Error('The request has no list "inputs".');
  return request.inputs;
}

function TryIt({of: m}: {of: ModelMetadata}) {
  const {busy, error, act} = useAction();
  const [body, setBody] = useState(() => example(m)),
    [reply, setReply] = useState('');
  const show = (r: object) => setReply(pretty(r));
  return (
    <details>
      <summary>Try it</summary>
      <p>
        <label>
          With a picture{' '}
          <input
            type="file"
            accept="image/*"
            disabled={busy}
            onChange={e => {
              const file = e.currentTarget.files?.[0];
              if (file)
                void act(async () => {
                  setReply(''); // that of another request would stand below an error
                  show(await server.infer(m.name, file));
                });
            }}
          />
        </label>
      </p>
      <form
        onSubmit={e => {
          e.preventDefault();
          void act(async () => {
            setReply('');
            show(await server.infer(m.name, inputs(body)));
          });
        }}
      >
        <label class="hidden" for={`try-${m.name}`}>
          Request for {m.name}, JSON
        </label>
        <textarea class="code" id={`try-${m.name}`} value={body} onInput={e => setBody(e.currentTarget.value)} />
        <button type="submit" disabled={busy}>
          Send
        </button>
      </form>
      {error && (
        <p class="message" role="alert">
          {error}
        </p>
      )}
      {reply && (
        <pre role="status" tabIndex={0} aria-label={`Reply of ${m.name}`}>
          {reply}
        </pre>
      )}
    </details>
  );
}
