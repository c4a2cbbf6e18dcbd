// One source streaming to one model.

import {
  MillraceError,
  connect,
  type CapturedFrame,
  type Codec,
  type Counts,
  type Policy,
  type Result,
  type Stream,
} from '@millrace/client';
import {describe, explain, root, server, unreachable} from '../server';
import type {Model} from './choice';
import {label} from './encoders';
import {text, type Opened} from './sources';
import {sceneOf, type Stage} from './stage';
import {Stats, type History, type Now} from './stats';

const WINDOW = 2; // frames in flight: one is in transfer while one is computed
const LARGEST = 640; // px: the longer side of frames as sent, unless the model needs more
const SLOW = 3000; // ms without an answer after which the user is told, and that an error stays on the page
// In the error of a server that cannot decode video: no decoder is free for this client, or the server has no ffmpeg.
const AS_JPEG = /\bsend jpeg\b|^quotas\.decoders\b/;
const REPORT = 250; // ms between measurements

/** What the page shows of a run, a few times a second. */
export interface Measured {
  now: Now;
  history: History;
  counts: Counts;
  advice?: {width?: number; height?: number};
  policy: string;
  last?: Result;
}

export type PolicyUpdate = Omit<Policy, 'mode'>;

export interface Options {
  codec: string;
  mode: 'latest' | 'every';
  traced: boolean;
}

/** The state of Live, for tests. Each result is also an event "result". */
export interface View extends EventTarget {
  state: string;
  message: string;
  note: string;
  sent: number;
  bytes: number;
  answered: number;
  dropped: number;
  errors: number;
  skipped: number;
  session: string;
  last: unknown;
}

/** The callbacks of a Run. */
export interface Page {
  view: View;
  /** Tells the user what is wrong. */
  showMessage: (text: string) => void;
  /** Tells the user what differs from the chosen settings, until the end. */
  showNote: (text: string) => void;
  measured: (m: Measured) => void;
  /** Calls stop. */
  ended: (text: string) => void;
}

/** What comes back with a frame's ending. */
interface Note {
  media: number; // its place in a video, seconds
  picture?: Promise<ImageBitmap | undefined>;
}

/** From start to stop. */
export class Run {
  readonly #model: Model;
  readonly #opened: Opened;
  readonly #options: Options;
  readonly #stage: Stage;
  readonly #page: Page;
  readonly #stats = new Stats();
  readonly #ending = new AbortController();
  #stream: Stream | undefined;
  #last: Result | undefined;
  #timer: ReturnType<typeof setInterval> | undefined;
  #errorShown = 0; // when an error was last shown
  #turn: Promise<unknown> = Promise.resolve(); // of showing results in their order

  constructor(model: Model, opened: Opened, options: Options, stage: Stage, page: Page) {
    this.#model = model;
    this.#opened = opened;
    this.#options = options;
    this.#stage = stage;
    this.#page = page;
  }

  async start(): Promise<void> {
    const {signal} = this.#ending,
      {codec, mode, traced} = this.#options,
      {source} = this.#opened;
    const still = this.#stage.isStill;
    this.#state('connecting');
    try {
      const connection = await connect(root, {signal});
      signal.addEventListener('abort', () => connection.close());
      const stream = await connection.open({
        model: this.#model.name,
        source,
        signal,
        trace: traced ? true : undefined,
        buffer: 0,
        policy: {mode: still ? 'every' : mode, window: WINDOW},
        maxSide: Math.max(LARGEST, this.#model.size?.width ?? 0, this.#model.size?.height ?? 0),
        ...(still ? {} : {codec: codec === 'jpeg' ? ('jpeg' as const) : [codec as Codec, 'jpeg' as const]}),
        each: frame => this.#note(frame),
      });
      this.#stream = stream;
      for (const {codec: refused, error} of stream.refused) this.#asJPEG(refused, error);
      stream.addEventListener('codec', ({detail: {error}}) => this.#asJPEG(codec, error));
      stream.addEventListener('result', ({detail}) => this.#result(detail));
      stream.addEventListener('drop', ({detail}) => this.#discard(detail));
      stream.addEventListener('skip', ({detail}) => this.#discard(detail));
      stream.addEventListener('error', ({detail}) => {
        this.#discard(detail);
        this.#error(detail.error);
      });
      stream.addEventListener('state', ({detail: {state, error}}) => this.#changed(state, error));
      this.#page.view.session = connection.id;
      connection.addEventListener('state', () => (this.#page.view.session = connection.id));
      this.#timer = setInterval(() => this.#report(), REPORT);
      this.#changed(stream.state);
    } catch (e) {
      if (signal.aborted) return;
      if (!(e instanceof MillraceError)) throw e;
      this.#page.ended(this.#describe(e));
    }
  }

  stop(): void {
    this.#ending.abort();
    this.#opened.source.stop();
    clearInterval(this.#timer);
    if (this.#stream) this.#report();
  }

  /** Changes the policy for frames that are sent later. Rejects when the server refuses. */
  async update(policy: PolicyUpdate): Promise<void> {
    const stream = this.#stream;
    if (!stream) return;
    let refused: MillraceError | undefined;
    const listen = ({detail}: CustomEvent<MillraceError>) => (refused = detail);
    stream.addEventListener('refusal', listen);
    stream.update({policy});
    await new Promise(done => setTimeout(done, 2 * REPORT));
    stream.removeEventListener('refusal', listen);
    if (refused) throw refused;
  }

  /** Keeps the picture of a frame that is sent, until its ending. */
  #note({media, taken, picture}: CapturedFrame): Note {
    if (!taken) return {media};
    const frame = picture();
    if (!frame) return {media};
    return {
      media,
      picture: createImageBitmap(frame)
        .catch(() => undefined)
        .finally(() => frame.close()),
    };
  }

  #result(result: Result): void {
    this.#last = result;
    this.#stats.add(result);
    this.#count();
    const {media, picture} = (result.note ?? {}) as Partial<Note>;
    if (this.#errorShown && performance.now() - this.#errorShown > SLOW) {
      this.#errorShown = 0;
      this.#page.showMessage('');
    }
    this.#turn = this.#turn.then(async () => {
      const scene = sceneOf(result),
        kept = await picture;
      if (this.#ending.signal.aborted) {
        kept?.close();
        return;
      }
      this.#stage.show({result, scene, picture: kept});
      const shown = {...scene, seq: result.seq, media, traceId: result.traceId};
      this.#page.view.last = shown;
      this.#page.view.dispatchEvent(new CustomEvent('result', {detail: shown}));
    });
  }

  /** Frees the picture of a frame that has no result. */
  #discard({note}: {note: unknown}): void {
    this.#count();
    void (note as Note | undefined)?.picture?.then(kept => kept?.close());
  }

  #error(error: MillraceError): void {
    this.#errorShown = performance.now();
    this.#page.showMessage(this.#describe(error));
  }

  #describe(error: MillraceError): string {
    if (error.field === 'source') return `${text(error)}.`;
    if (/\bthis browser\b/.test(error.message))
      return `${error.message}. Send as JPEG or as something else, and press Start again.`;
    return `${this.#model.name}: ${explain(error)}`;
  }

  #state(state: string): void {
    this.#page.view.state = state;
  }

  async #changed(state: string, error?: MillraceError): Promise<void> {
    if (this.#ending.signal.aborted) return;
    if (state === 'running') {
      this.#page.showMessage('');
    } else if (state === 'waiting') {
      this.#stage.clear();
      this.#page.showMessage(
        `${error ? this.#describe(error) : 'The connection to the server is lost.'} Trying again…`,
      );
    } else if (state === 'closed') {
      this.#count();
      if (error) this.#page.ended(this.#describe(error));
      else if (!this.#stage.isStill) this.#page.ended(`${this.#opened.what} has ended. Press Start to see it again.`);
      return;
    }
    this.#state(state);
    if (state !== 'waiting') return;
    const why = await this.#refusalReason();
    if (why && this.#stream?.state === 'waiting') this.#page.showMessage(`${why} Trying again…`);
  }

  /** Why the server refuses the stream. Browsers do not give the reply to a WebSocket upgrade to pages. */
  async #refusalReason(): Promise<string> {
    try {
      await server.model(this.#model.name);
    } catch (e) {
      if (!unreachable(e)) return describe(e);
    }
    return '';
  }

  /** It goes on as JPEG, for which the server needs no video decoder. */
  #asJPEG(codec: string, error: MillraceError): void {
    if (!AS_JPEG.test(error.message)) {
      // JPEG would not do either
      this.#page.ended(this.#describe(error));
      return;
    }
    const video = label(codec);
    this.#page.showNote(
      `The server cannot decode ${video} now, so this goes as JPEG. It says: ${error.message}. ` +
        `Press Start to try ${video} again.`,
    );
  }

  #count(): void {
    const {sent, bytes, results, errors, dropped, skipped} = this.#stream!.counts;
    Object.assign(this.#page.view, {sent, bytes, answered: results, errors, dropped, skipped});
  }

  #report(): void {
    const stream = this.#stream!,
      {counts} = stream;
    this.#count();
    this.#stage.check();
    const now = this.#stats.now(counts);
    this.#page.measured({
      now,
      history: this.#stats.history(now.age),
      counts,
      advice: stream.advice,
      policy: words(stream.policy),
      last: this.#last,
    });
    if (stream.silence > SLOW) {
      this.#errorShown = performance.now(); // so that an answer removes it
      this.#page.showMessage(
        `${this.#model.name} has not answered for some seconds: it is slow, or the server cannot be reached.`,
      );
    }
  }
}

const words = (p: Policy): string =>
  Object.entries(p)
    .filter(([, v]) => v)
    .map(([k, v]) => `${k} ${v}`)
    .join(', ');
