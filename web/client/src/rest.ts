// The server's REST calls that pages need.

import {address, authorization, type Token} from './connection.js';
import {type Code, MillraceError, aborted, ownText} from './errors.js';
import type {Clip, ClipObjects, ClipPage, ClipQuery} from './clips.js';
import type {EventQuery, StreamCounts, StreamEvent, StreamHeat} from './history.js';
import type {Task, TaskOptions, TaskQuery} from './tasks.js';
import type {Params, Tensor} from './wire.js';

/** A model of the repository. */
export interface ModelEntry {
  name: string;
  version: string;
  /** READY, LOADING, UNAVAILABLE or UNLOADING. */
  state: string;
  reason: string;
}

/** The endpoint of a load, and the change by the load. */
export interface Loaded {
  name: string;
  endpoint: string;
  /** loaded: a new endpoint; reloaded: a new model at the endpoint; scaled: another number of workers only. */
  result: 'loaded' | 'reloaded' | 'scaled' | 'unchanged';
}

export interface TensorMetadata {
  name: string;
  datatype: string;
  shape: number[];
}

export interface ModelMetadata {
  name: string;
  versions?: string[];
  platform: string;
  inputs: TensorMetadata[];
  outputs: TensorMetadata[];
}

/** counts[i] = values above bounds[i-1] and up to bounds[i]; the last count is of values above the last bound. */
export interface Histogram {
  bounds: number[];
  counts: number[];
  sum: number;
}

export interface ModelStatus {
  name: string;
  version: string;
  /** The kind of the workers. */
  kind: string;
  state: string;
  reason?: string;
  /** The most rows of a batch. */
  max_batch: number;
  workers: number;
  busy: number;
  quarantined: number;
  restarts: number;
  streams: number;
  /** Waiting frames. */
  waiting: number;
  /** Waiting time of the oldest waiting frame, ms. */
  oldest_ms: number;
  batches: number;
  /** accepted = results + drops + errors + in_flight, as clients were told. */
  accepted: number;
  results: number;
  /** Dropped requests and frames by reason. */
  drops: Record<string, number>;
  /** Errors by code. */
  errors: Record<string, number>;
  in_flight: number;
  refused: Record<string, number>;
  unsendable: Record<string, number>;
  batch_rows: Histogram;
  /** Durations of the stages, µs. */
  stages_us: {queue: Histogram; prepare: Histogram; run: Histogram; total: Histogram};
  /** Members added by a newer server. */
  [member: string]: unknown;
}

/** The state of the server: GET /v2/status. */
export interface Status {
  version: string;
  state: 'starting' | 'ready' | 'degraded' | 'draining';
  /** The time by the server's clock. */
  time: string;
  started: string;
  uptime_seconds: number;
  process: {cpu_seconds: number; processors: number; resident_bytes: number; heap_bytes: number; goroutines: number};
  memory: {budget: number; leased: number; reserved: number; denied: number};
  connections: Record<string, {open: number; refused: number; failed: number}>;
  sessions: Record<string, number>;
  /** Server streams by state. */
  streams: Record<string, number>;
  models: ModelStatus[];
}

/** A part of a frame's way. */
export interface Span {
  name: string;
  span_id: string;
  parent_id?: string;
  /** Since the begin of the trace's first span. */
  start_us: number;
  duration_us: number;
  attributes: Record<string, unknown>;
}

/** A kept frame: GET /v2/traces. */
export interface KeptFrame {
  trace_id: string;
  span_id: string;
  /** The client's span. */
  parent_id?: string;
  time: string;
  model: string;
  version: string;
  endpoint: string;
  stream: string;
  seq: number;
  outcome: 'result' | 'drop' | 'error';
  /** The reason of a drop. */
  reason: string;
  /** The code of an error. */
  code: string;
  message: string;
  /** The reason for keeping the trace. */
  kept: ('sampled' | 'slow' | 'dropped' | 'failed' | 'gated')[];
  duration_us: number;
  batch_rows: number;
  /** The page of the trace in the tracing system; '' without the setting tracing.ui_url. */
  url: string;
  spans: Span[];
  /** The remaining frames of the batch. */
  batch: {trace_id: string; span_id: string}[];
}

export interface ServerStreamPolicy {
  policy: 'latest' | 'every';
  max_age_ms?: number;
  deadline_ms?: number;
  max_fps?: number;
  window?: number;
  priority: string;
}

/** A model of a server stream, with the endings of the frames for the model. */
export interface ServerStreamModel {
  model: string;
  version?: string;
  state: 'connecting' | 'running' | 'waiting' | 'ended';
  since: string;
  retry?: string;
  error?: {code: Code; kind?: string; message: string};
  policy: ServerStreamPolicy;
  results: number;
  errors: number;
  drops: Record<string, number>;
  last?: string;
}

/** A stream read by the server from a source: docs/streams.md. */
export interface ServerStream {
  name: string;
  source: string;
  /** The model of a stream with one model. version and policy belong to this model, too. */
  model?: string;
  version?: string;
  models: ServerStreamModel[];
  origin: 'config' | 'request';
  state: 'connecting' | 'running' | 'waiting' | 'ended' | 'failed';
  since: string;
  retry?: string;
  error?: {code: Code; kind?: string; message: string};
  paused: boolean;
  policy?: ServerStreamPolicy;
  width?: number;
  height?: number;
  /** The width of a pixel of the frames divided by the height; left out = unknown, treated as 1. */
  pixel_aspect?: number;
  /** Frames per second, as declared by the source. */
  fps?: number;
  /** The configured settings of the source, such as fps, width and decode. */
  settings?: Record<string, unknown>;
  rules?: ServerStreamRules;
  restarts: number;
  frames: number;
  /** Pictures of a video with `decode` `reference` or `key` that became no frame. */
  skipped: number;
  results: number;
  errors: number;
  drops: Record<string, number>;
  lost: {frames: number; results: number; lines: number};
  last?: string;
  watchers: number;
  sinks: Record<string, {sent: number; retries: number; lost: number; error?: string}>;
}

/** A position x, y in the picture, y down: shares of the picture, or pixels of the picture of the rules. */
export type Point = readonly [number, number];

/** Which objects a line or zone counts: docs/events.md. Durations are texts, such as `30s`. */
export interface RuleFilter {
  classes?: string[];
  score?: number;
  age?: string;
  anchor?: string;
}

/** A line to cross. `in` is a move from the left to the right of the line, seen from `from` towards `to`. */
export interface RuleLine extends RuleFilter {
  name: string;
  from: Point;
  to: Point;
}

/** A zone to be in. */
export interface RuleZone extends RuleFilter {
  name: string;
  polygon: readonly Point[];
  dwell?: string;
  count?: {over: number; for?: string};
  appear?: boolean;
  vanish?: boolean;
  speed?: {over: number; for?: string};
}

/** A condition over lines and zones. */
export interface RuleWhen {
  name: string;
  if: string;
  within?: string;
  for?: string;
}

/** The rules of a stream over the objects of a model with tracks. */
export interface ServerStreamRules {
  width?: number;
  height?: number;
  margin?: number;
  settle?: string;
  inertia?: string;
  ground?: {points: readonly Point[]; metres: readonly Point[]};
  lines?: RuleLine[];
  zones?: RuleZone[];
  when?: RuleWhen[];
}

/** The keys of a server stream, as in the configuration. */
export type ServerStreamOptions = {name: string; source: string} & Record<string, unknown>;

/** Changes of the policy of a model in a server stream; 0 and '' stand for the default. */
export interface ServerStreamPolicyChange {
  version?: string;
  policy?: 'latest' | 'every' | '';
  max_age_ms?: number;
  deadline_ms?: number;
  max_fps?: number;
  window?: number;
  priority?: 'low' | 'normal' | 'high' | '';
}

/** Changes of a running server stream: left-out members stay. 0 and '' stand for the default. */
export interface ServerStreamChange extends ServerStreamPolicyChange {
  paused?: boolean;
  /** The only model from now on. */
  model?: string;
  /** Changes of single models. A model without a place in the stream is added. */
  models?: ({model: string; remove?: boolean} & ServerStreamPolicyChange)[];
  source?: string;
  fps?: number;
  loop?: boolean;
  width?: number;
  /** The pictures of a video that are decoded. */
  decode?: 'all' | 'reference' | 'key' | '';
  rtsp_transport?: 'tcp' | 'udp' | '';
  /** A duration, such as `1s`. */
  poll?: string;
  /** '' removes a sink. */
  sinks?: {file?: string; max_size?: number | string; webhook?: string; webhook_secret?: string};
  /** All lines and zones; {} removes all. */
  rules?: ServerStreamRules;
}

export interface InferReply {
  model_name: string;
  model_version?: string;
  id?: string;
  parameters?: Params;
  outputs: Tensor[];
}

export interface RESTOptions {
  /** An API key of the server, or a function that returns the valid key. */
  token?: Token;
  headers?: Record<string, string>;
  fetch?: typeof fetch;
}

interface Call {
  method?: string;
  headers?: Record<string, string>;
  query?: Record<string, string | number | undefined>;
  body?: unknown;
  signal?: AbortSignal;
}

/** The REST calls of a server, such as `http://127.0.0.1:8000`. All methods reject with MillraceError. */
export class REST {
  readonly #url: string;
  readonly #options: RESTOptions;

  constructor(url: string | URL, options: RESTOptions = {}) {
    this.#url = address(url, 'http', '');
    this.#options = options;
  }

  /** The address of a path of the server, for example the path of a stream's video. */
  url(...path: string[]): string {
    return [this.#url, ...path.map(encodeURIComponent)].join('/');
  }

  /** Every model known to the server. */
  models(signal?: AbortSignal): Promise<ModelEntry[]> {
    return this.#json(['v2', 'repository', 'index'], {signal});
  }

  model(name: string, signal?: AbortSignal): Promise<ModelMetadata> {
    return this.#json(['v2', 'models', name], {signal});
  }

  /** Loads a model with parameters, for example `instances`. */
  load(name: string, parameters: Params = {}, signal?: AbortSignal): Promise<Loaded> {
    return this.#json(['v2', 'repository', 'models', name, 'load'], {method: 'POST', body: {parameters}, signal});
  }

  unload(name: string, signal?: AbortSignal): Promise<{name: string; endpoint: string}> {
    return this.#json(['v2', 'repository', 'models', name, 'unload'], {method: 'POST', signal});
  }

  /** Runs a model once. @param input tensors, or the file of a picture */
  infer(model: string, input: readonly Tensor[] | Blob, signal?: AbortSignal): Promise<InferReply> {
    return this.#json(['v2', 'models', model, 'infer'], {
      method: 'POST',
      body: input instanceof Blob ? input : {inputs: input},
      signal,
    });
  }

  status(signal?: AbortSignal): Promise<Status> {
    return this.#json(['v2', 'status'], {signal});
  }

  /** The newest kept frames, the newest first. */
  async traces({
    signal,
    ...query
  }: {limit?: number; model?: string; reason?: string; signal?: AbortSignal} = {}): Promise<KeptFrame[]> {
    return (await this.#json<{traces: KeptFrame[]}>(['v2', 'traces'], {query, signal})).traces;
  }

  trace(id: string, signal?: AbortSignal): Promise<KeptFrame> {
    return this.#json(['v2', 'traces', id], {signal});
  }

  async streams(signal?: AbortSignal): Promise<ServerStream[]> {
    return (await this.#json<{streams: ServerStream[]}>(['v2', 'streams'], {signal})).streams;
  }

  stream(name: string, signal?: AbortSignal): Promise<ServerStream> {
    return this.#json(['v2', 'streams', name], {signal});
  }

  addStream(options: ServerStreamOptions, signal?: AbortSignal): Promise<ServerStream> {
    return this.#json(['v2', 'streams'], {method: 'POST', body: options, signal});
  }

  changeStream(name: string, change: ServerStreamChange, signal?: AbortSignal): Promise<ServerStream> {
    return this.#json(['v2', 'streams', name], {method: 'PATCH', body: change, signal});
  }

  /** Restores the configured settings of a stream of the configuration. */
  resetStream(name: string, signal?: AbortSignal): Promise<ServerStream> {
    return this.#json(['v2', 'streams', name, 'reset'], {method: 'POST', signal});
  }

  async removeStream(name: string, signal?: AbortSignal): Promise<void> {
    await this.#json(['v2', 'streams', name], {method: 'DELETE', signal});
  }

  streamCounts(name: string, signal?: AbortSignal): Promise<StreamCounts> {
    return this.#json(['v2', 'streams', name, 'counts'], {signal});
  }

  /** Where the objects of a stream with rules were in the last minutes, at most 60. */
  streamHeat(name: string, minutes = 60, signal?: AbortSignal): Promise<StreamHeat> {
    return this.#json(['v2', 'streams', name, 'heat'], {query: {minutes}, signal});
  }

  /** Makes the counts of a stream 0. */
  resetStreamCounts(name: string, signal?: AbortSignal): Promise<StreamCounts> {
    return this.#json(['v2', 'streams', name, 'counts', 'reset'], {method: 'POST', signal});
  }

  /** Events of server streams, and `after` of the next page; without `next`, this is the last page. */
  events({signal, ...query}: EventQuery & {signal?: AbortSignal} = {}): Promise<{
    events: StreamEvent[];
    next?: string;
  }> {
    return this.#json(['v2', 'events'], {query: {...query}, signal});
  }

  /** Clips of server streams, the newest first. */
  clips({signal, ...query}: ClipQuery & {signal?: AbortSignal} = {}): Promise<ClipPage> {
    return this.#json(['v2', 'clips'], {query: {...query}, signal});
  }

  clip(id: string, signal?: AbortSignal): Promise<Clip> {
    return this.#json(['v2', 'clips', id], {signal});
  }

  /** The objects in the frames of a clip, in the order of the frames; frames without objects are left out. */
  async clipObjects(id: string, signal?: AbortSignal): Promise<ClipObjects[]> {
    const text = await this.#call(['v2', 'clips', id, 'objects'], {signal});
    return text
      .split('\n')
      .slice(0, -1) // the last line of a clip that is being written may be incomplete
      .map(line => JSON.parse(line));
  }

  /** Keeps a clip beyond the limits of the server, or no longer. */
  keepClip(id: string, favourite: boolean, signal?: AbortSignal): Promise<Clip> {
    return this.#json(['v2', 'clips', id], {method: 'PATCH', body: {favourite}, signal});
  }

  async removeClip(id: string, signal?: AbortSignal): Promise<void> {
    await this.#json(['v2', 'clips', id], {method: 'DELETE', signal});
  }

  /** Tasks, the newest first, and `after` of the next page; without `next`, this is the last page. */
  tasks({signal, ...query}: TaskQuery & {signal?: AbortSignal} = {}): Promise<{tasks: Task[]; next?: string}> {
    return this.#json(['v2', 'tasks'], {query: {...query}, signal});
  }

  task(id: string, signal?: AbortSignal): Promise<Task> {
    return this.#json(['v2', 'tasks', id], {signal});
  }

  /** Stores an input, as in the body of a request to the model, as a new task. A File is not read into memory. */
  submitTask(model: string, input: Blob, options: TaskOptions = {}, signal?: AbortSignal): Promise<Task> {
    const {key, ...query} = options;
    return this.#json(['v2', 'tasks'], {
      method: 'POST',
      query: {model, ...query},
      headers: key ? {'Idempotency-Key': key} : {},
      body: input,
      signal,
    });
  }

  cancelTask(id: string, signal?: AbortSignal): Promise<Task> {
    return this.#json(['v2', 'tasks', id, 'cancel'], {method: 'POST', signal});
  }

  retryTask(id: string, signal?: AbortSignal): Promise<Task> {
    return this.#json(['v2', 'tasks', id, 'retry'], {method: 'POST', signal});
  }

  async deleteTask(id: string, signal?: AbortSignal): Promise<void> {
    await this.#json(['v2', 'tasks', id], {method: 'DELETE', signal});
  }

  async #json<T>(path: string[], call: Call): Promise<T> {
    const text = await this.#call(path, call);
    try {
      return text ? JSON.parse(text) : ({} as T);
    } catch {
      return {} as T; // a proxy's page
    }
  }

  /** Returns the body of the answer. */
  async #call(path: string[], {method = 'GET', query = {}, headers: own, body, signal}: Call): Promise<string> {
    const given = Object.entries(query).flatMap(([k, v]) => (v === undefined ? [] : [[k, String(v)]]));
    const url = this.url(...path) + (given.length > 0 ? `?${new URLSearchParams(given)}` : '');
    const headers = {
      Accept: 'application/json',
      ...(await authorization(this.#options.token)),
      ...this.#options.headers,
      ...own,
      ...(body && !(body instanceof Blob) ? {'Content-Type': 'application/json'} : {}),
    };
    let reply: Response;
    try {
      reply = await (this.#options.fetch ?? fetch)(url, {
        method,
        headers,
        signal: signal ?? null,
        body: body === undefined || body instanceof Blob ? ((body as Blob) ?? null) : JSON.stringify(body),
      });
    } catch (cause) {
      if (signal?.aborted) throw aborted(signal);
      throw new MillraceError('unavailable', `no answer from ${this.#url}`, {retryable: true, cause});
    }
    const text = await reply.text();
    if (reply.ok) return text;
    let value: any = {};
    try {
      value = text ? JSON.parse(text) : {};
    } catch {
      /* a proxy's page: the status says enough */
    }
    throw new MillraceError(
      value.code ?? 'internal',
      ownText(value.error) ?? `${method} ${url} was answered with status ${reply.status}`,
      {
        retryable: reply.status === 429 || reply.status === 503,
        retryAfterMs: 1000 * (Number(reply.headers.get('Retry-After')) || 0),
      },
    );
  }
}
