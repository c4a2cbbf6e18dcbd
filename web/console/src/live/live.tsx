// Streams a camera, a video or a picture to a model, and shows the results.

import type {Result} from '@millrace/client';
import {useCallback, useEffect, useMemo, useRef, useState} from 'preact/hooks';
import {Chart} from '../chart';
import {draw} from '../draw';
import {read} from '../outputs';
import {Alert, Figure, number} from '../parts';
import {describe, offer, server, unreachable} from '../server';
import {check} from '../session';
import {choose, pictureSize, takesVideo, type Model} from './choice';
import {codecs} from './encoders';
import {Picked, json} from './picked';
import {Run, type Measured, type PolicyUpdate, type View} from './run';
import {Stage} from './stage';
import type {History} from './stats';
import {open, type Kind, type Opened} from './sources';

const view: View & {read: typeof read; draw: typeof draw} = Object.assign(new EventTarget(), {
  state: 'idle',
  message: '',
  note: '',
  sent: 0,
  bytes: 0,
  answered: 0,
  dropped: 0,
  errors: 0,
  skipped: 0,
  session: '',
  last: null,
  read,
  draw,
});
(window as unknown as {millrace: typeof view}).millrace = view;

const POLICY = {
  max_fps: 'most frames/s',
  max_age_ms: 'max age, ms',
  deadline_ms: 'deadline, ms',
  window: 'window',
} as const;

export function Live({query, hidden}: {query: URLSearchParams; hidden: boolean}) {
  const [models, setModels] = useState<Model[]>([]),
    [model, setModel] = useState('');
  const [source, setSource] = useState('clip'),
    [hasClip, setHasClip] = useState(true);
  const [encoders, setEncoders] = useState<{name: string; label: string}[]>([]),
    [codec, setCodec] = useState('jpeg');
  const [message, setMessage] = useState(''),
    [note, setNote] = useState('');
  const [mode, setMode] = useState<'latest' | 'every'>('latest'),
    [traced, setTraced] = useState(false);
  const [exact, setExact] = useState(true),
    [threshold, setThreshold] = useState(0),
    [raw, setRaw] = useState(false);
  const [running, setRunning] = useState(false),
    [measured, setMeasured] = useState<Measured>();
  const [picked, setPicked] = useState<Result>();
  const [policyError, setPolicyError] = useState('');
  const stage = useRef<Stage>(null),
    run = useRef<{stop: () => void; update?: (p: PolicyUpdate) => Promise<void>}>(null);
  const elements = useRef<HTMLElement>(null),
    file = useRef<HTMLInputElement>(null);
  const loaded = useRef(false);

  const showMessage = useCallback((text: string) => {
    view.message = text;
    setMessage(text);
  }, []);
  const showNote = useCallback((text: string) => {
    view.note = text;
    setNote(text);
  }, []);

  const stop = useCallback(() => {
    const last = run.current;
    run.current = null;
    last?.stop();
    if (last) view.state = 'stopped';
    stage.current?.stop();
    setPicked(undefined);
    setRunning(false);
    showNote('');
  }, []);
  const ended = useCallback((text: string) => {
    stop();
    showMessage(text);
    if (text) void check().catch(() => {}); // a page does not learn why a WebSocket was refused
  }, []);

  /** Starts with the given choice, after stopping the current run. */
  const start = async (
    choice: {model: string; source: string; codec: string; mode: 'latest' | 'every'; traced: boolean},
    list = models,
  ) => {
    stop();
    showMessage('');
    const chosen = list.find(m => m.name === choice.model);
    if (!chosen) return;
    Object.assign(view, {
      state: 'opening',
      sent: 0,
      bytes: 0,
      answered: 0,
      dropped: 0,
      errors: 0,
      skipped: 0,
      last: null,
    });
    const opening = new AbortController();
    run.current = {stop: () => opening.abort()};
    setRunning(true);
    setMeasured(undefined);
    save(choice);
    let opened: Opened | undefined;
    try {
      opened = await open(choice.source as Kind, stage.current!.video, file.current?.files?.[0], opening.signal);
    } catch (e) {
      if (opening.signal.aborted) return;
      ended(describe(e));
    }
    if (!opened || opening.signal.aborted) return;
    stage.current!.start(opened.source);
    const now = new Run(
      chosen,
      opened,
      {codec: chosen.video ? choice.codec : 'jpeg', mode: choice.mode, traced: choice.traced},
      stage.current!,
      {
        view,
        showMessage,
        showNote,
        ended,
        measured: setMeasured,
      },
    );
    run.current = now;
    void now.start();
  };
  const choice = {model, source, codec, mode, traced};
  const restart = (change: Partial<typeof choice>) => {
    if (run.current) void start({...choice, ...change});
  };

  // The elements of the stage exist after the first rendering.
  useEffect(() => {
    stage.current = new Stage(elements.current!, setPicked);
    const s = stage.current;
    (async () => {
      const [all, offered] = await Promise.all([
        listModels(showMessage),
        codecs(),
        offer().then(({clip}) => setHasClip(clip)),
      ]);
      loaded.current = true;
      setModels(all);
      setEncoders(offered);
      apply(all, offered);
    })().catch(e => showMessage(describe(e)));
    return () => {
      stop();
      s.close();
    };
  }, []);
  useEffect(() => stage.current!.set({exact, threshold}), [exact, threshold]);

  /** Applies the settings of the address, and starts if it has autostart=1. */
  const apply = (all: Model[], offered: {name: string}[]) => {
    const wanted = choose(query, all, offered);
    setModel(wanted.model);
    setSource(wanted.source);
    setCodec(wanted.codec);
    if (query.get('autostart') === '1') void start({...choice, ...wanted}, all);
  };
  const address = query.toString();
  useEffect(() => {
    if (loaded.current && !hidden && address) apply(models, encoders);
  }, [address]);

  const changePolicy = (change: PolicyUpdate) => {
    setPolicyError('');
    run.current?.update?.(change).catch(e => setPolicyError(describe(e)));
  };
  const shownResult = picked ?? (raw ? measured?.last : undefined);
  const text = useMemo(() => (raw && shownResult ? json(shownResult) : ''), [raw, shownResult]);
  const lines = useMemo(() => (measured?.last ? read(measured.last.outputs).lines : []), [measured?.last]);

  return (
    <div hidden={hidden} id="live">
      <form
        id="controls"
        class="bar"
        aria-label="What to stream"
        onSubmit={e => {
          e.preventDefault();
          void start(choice);
        }}
      >
        <label>
          Model{' '}
          <select
            id="model"
            value={model}
            onChange={e => {
              setModel(e.currentTarget.value);
              restart({model: e.currentTarget.value});
            }}
          >
            {models.map(m => (
              <option key={m.name} value={m.name}>
                {m.size ? m.name : `${m.name} (no pictures)`}
              </option>
            ))}
          </select>
        </label>
        <fieldset>
          <legend class="hidden">Source</legend>
          {[
            ['camera', 'Camera'],
            ['screen', 'Screen'],
            ['clip', 'Clip'],
            ['file', 'File'],
          ].map(([value, label]) => (
            <label key={value}>
              <input
                type="radio"
                name="source"
                id={`source-${value}`}
                value={value}
                checked={source === value}
                disabled={value === 'clip' && !hasClip}
                onChange={() => setSource(value!)}
              />{' '}
              {label}
            </label>
          ))}
          <label class="file">
            <span class="hidden">Video or picture</span>
            <input
              type="file"
              id="file"
              ref={file}
              accept="video/*,image/*"
              onChange={e => {
                setSource('file');
                if (e.currentTarget.files?.length) void start({...choice, source: 'file'});
              }}
            />
          </label>
        </fieldset>
        <label id="codecs" hidden={encoders.length === 0}>
          Send as{' '}
          <select
            id="codec"
            value={codec}
            onChange={e => {
              setCodec(e.currentTarget.value);
              restart({codec: e.currentTarget.value});
            }}
          >
            <option value="jpeg">JPEG</option>
            {encoders.map(c => (
              <option key={c.name} value={c.name}>
                {c.label}
              </option>
            ))}
          </select>
        </label>
        <span class="row">
          <button type="submit" id="start" class="main" disabled={models.length === 0}>
            Start
          </button>
          <button type="button" id="stop" disabled={!running} onClick={() => ended('')}>
            Stop
          </button>
        </span>
      </form>
      <Alert text={message} />
      <p id="note" class="note" role="status" hidden={!note}>
        {note}
      </p>
      <main class="live" aria-label="Live">
        <h2 class="hidden">Live</h2>
        <section aria-label="Picture with results" ref={elements}>
          <div id="stage">
            <video id="video" muted playsInline />
            <img id="still" alt="" hidden />
            <canvas id="picture" aria-hidden="true" hidden />
            <canvas id="overlay" aria-hidden="true" />
            {running && (
              <button
                type="button"
                class="pick"
                id="pick"
                aria-pressed={picked !== undefined}
                onClick={() => stage.current!.toggle()}
              >
                <span class="hidden">{picked ? 'Go on' : 'Pause on this frame'}</span>
              </button>
            )}
            {picked && <span class="flag">frame {picked.seq}, paused</span>}
            {!running && <p class="hint">Choose a model and a source, then press Start.</p>}
          </div>
          <div class="tools row">
            <label>
              Show{' '}
              <select
                id="timing"
                value={exact ? 'exact' : 'at-once'}
                onChange={e => setExact(e.currentTarget.value === 'exact')}
              >
                <option value="exact">each picture with its result</option>
                <option value="at-once">pictures at once</option>
              </select>
            </label>
            <label>
              Score from{' '}
              <input
                id="threshold"
                type="range"
                min="0"
                max="1"
                step="0.01"
                value={threshold}
                onInput={e => setThreshold(Number(e.currentTarget.value))}
              />
              <output for="threshold">{threshold.toFixed(2)}</output>
            </label>
            <button type="button" id="snapshot" disabled={!running} onClick={() => void stage.current!.snapshot()}>
              Snapshot
            </button>
            <button type="button" id="raw" aria-pressed={raw} onClick={() => setRaw(!raw)}>
              JSON
            </button>
          </div>
          <fieldset class="tools" id="policy">
            <legend class="soft">Policy of the stream</legend>
            <label>
              Mode{' '}
              <select
                id="mode"
                value={mode}
                onChange={e => {
                  const next = e.currentTarget.value as typeof mode;
                  setMode(next);
                  restart({mode: next});
                }}
              >
                <option value="latest">latest</option>
                <option value="every">every</option>
              </select>
            </label>
            {Object.entries(POLICY).map(([name, label]) => (
              <label key={name}>
                {label}{' '}
                <input
                  type="number"
                  id={name}
                  min="0"
                  placeholder="default"
                  disabled={!running}
                  onChange={e => changePolicy({[name]: Number(e.currentTarget.value)})}
                />
              </label>
            ))}
            <label>
              <input
                type="checkbox"
                id="traced"
                checked={traced}
                onChange={e => {
                  setTraced(e.currentTarget.checked);
                  restart({traced: e.currentTarget.checked});
                }}
              />{' '}
              trace each frame
            </label>
            {measured?.policy && (
              <span class="soft" id="in-force">
                in force: {measured.policy}
              </span>
            )}
            {policyError && (
              <span class="message" role="alert">
                {policyError}
              </span>
            )}
          </fieldset>
          {picked && <Picked of={picked} />}
          {text && (
            <pre id="json" tabIndex={0} aria-label="Result as JSON">
              {text}
            </pre>
          )}
        </section>
        <aside aria-label="Measurements">
          <dl class="figures">
            <Figure name="answered" unit="fps">
              <span id="fps">{number(measured?.now.fps, 1)}</span>
            </Figure>
            <div>
              <dt>age of an answer</dt>
              <dd>
                <span id="age">{number(measured?.now.age)}</span>{' '}
                <small>
                  ms, p95 <span id="age95">{number(measured?.now.age95)}</span>
                </small>
              </dd>
            </div>
            <Figure name="sent" unit="KB/s">
              <span id="rate">{number(measured && measured.now.rate / 1000)}</span>
            </Figure>
            <Figure name="dropped">
              <span id="dropped">{measured?.counts.dropped ?? 0}</span>
            </Figure>
          </dl>
          {measured && measured.history.times.length > 1 && <Charts of={measured.history} />}
          <table>
            <caption>Time of a frame by step, median (ms)</caption>
            <tbody>
              {(
                [
                  ['rest', 'encoding and network'],
                  ['queue', 'waiting in the server'],
                  ['prepare', 'decoding, resizing'],
                  ['run', 'model'],
                ] as const
              ).map(([key, label]) => (
                <tr key={key}>
                  <th scope="row">{label}</th>
                  <td class="n" id={`t-${key}`}>
                    {number(measured?.now[key], 1)}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
          <table>
            <caption>Frames</caption>
            <tbody id="counts">
              {counts(measured).map(([name, n]) => (
                <tr key={name}>
                  <th scope="row">{name}</th>
                  <td class="n">{n}</td>
                </tr>
              ))}
            </tbody>
          </table>
          <p class="texts" id="texts">
            {lines.join('\n')}
          </p>
        </aside>
      </main>
    </div>
  );
}

function Charts({of: h}: {of: History}) {
  const age = useMemo(() => [{label: 'age', colour: '--blue', values: h.age}], [h]);
  const fps = useMemo(() => [{label: 'fps', colour: '--orange', values: h.fps}], [h]);
  return (
    <>
      <Chart title="Age of answers" unit="ms" height={110} times={h.times} lines={age} />
      <Chart title="Answered" unit="fps" height={110} times={h.times} lines={fps} />
    </>
  );
}

function counts(m?: Measured): [string, string | number][] {
  if (!m) return [];
  const {sent, results, errors, skipped, drops} = m.counts;
  return [
    ['sent', sent],
    ...(m.advice?.width
      ? [['size advised by the server', `${m.advice.width} × ${m.advice.height}`] as [string, string]]
      : []),
    ['answered', results],
    ...Object.entries(drops).map(([reason, n]) => [`dropped: ${reason}`, n] as [string, number]),
    ['errors', errors],
    ['skipped before encoding', skipped],
  ];
}

/** The models that are ready: first those that take pictures. */
async function listModels(showMessage: (text: string) => void): Promise<Model[]> {
  const all = await server.models();
  const ready = await Promise.all(
    all
      .filter(m => m.state === 'READY')
      .map(async ({name}) => {
        try {
          const model = await server.model(name);
          return [{name, size: pictureSize(model), video: takesVideo(model)}];
        } catch (e) {
          if (unreachable(e)) throw e;
          return []; // it was unloaded in between
        }
      }),
  );
  const models: Model[] = ready.flat();
  const rank = (m: Model) => (m.size ? 0 : 4) + (m.name === 'spotter' ? 0 : m.name === 'motion' ? 1 : 2);
  models.sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name));
  if (all.length === 0) {
    showMessage('The server has no model. Start it with one, such as: millrace serve --model motion=motion');
  } else if (models.length === 0) {
    showMessage(
      `No model is ready: ${all.map(m => `${m.name} is ${m.state} ${m.reason ?? ''}`.trim()).join(', ')}. ` +
        'Load one, then reload this page.',
    );
  }
  return models;
}

/** Writes the settings into the address, so that it can be linked to. */
function save({model, source, codec}: {model: string; source: string; codec: string}): void {
  const query = new URLSearchParams({model, source, ...(codec === 'jpeg' ? {} : {codec})});
  history.replaceState(null, '', `#/live?${query}`);
}
