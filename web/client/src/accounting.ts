// Counts the frames of a stream and their endings.

import type {MillraceError} from './errors.js';
import {Events} from './events.js';
import {
  type Drop,
  type Ending,
  type Failure,
  type Reply,
  type Result,
  type ServerTiming,
  type Times,
  timings,
} from './replies.js';
import {isSampled, traceIdOf} from './trace.js';

/** waiting = until the next attempt to connect or to open; closing = until the frames in flight have ended. */
export type State = 'connecting' | 'running' | 'waiting' | 'closing' | 'closed';

/** Requests of the server about frames; undefined = any value. */
export interface Advice {
  fps?: number;
  /** The size of pictures, px. */
  width?: number;
  height?: number;
  /** Quality of JPEG, 1 to 100. */
  quality?: number;
}

/** The details of a stream's events. */
export interface StreamEvents {
  /** error: the cause of the end of the connection or the stream, if the server sent a cause. */
  state: {state: State; error?: MillraceError};
  result: Result;
  drop: Drop;
  error: Failure;
  /** A frame was not sent: no credit, too early by the server's advice, or skipped by the encoder. */
  skip: {note: unknown};
  advice: Advice;
  /** The server refused a message about the stream, for example an update. */
  refusal: MillraceError;
  /** The next chunk of inter-coded video must be a key frame: the server requests a key frame, or chunks were lost. */
  keyframe: undefined;
  /** The stream goes on with the next codec, because the server refused the codec before. */
  codec: {codec: string; error: MillraceError};
}

/** The frames of a stream. sent = results + dropped + errors + inFlight, at any time. */
export interface Counts {
  sent: number;
  /** Frames left out before sending. */
  skipped: number;
  results: number;
  dropped: number;
  /** Dropped frames by reason. */
  drops: Record<string, number>;
  errors: number;
  inFlight: number;
  /** Bytes of sent frames. */
  bytes: number;
  /** Endings discarded because nobody read the endings in time; the other counts include discarded endings. */
  unread: number;
}

interface Frame extends Times {
  bytes: number;
  note: unknown;
  traceparent: string;
}

/** The server's message about the ending of a frame. */
type Said = {traceresponse?: string} & (
  {dropped: string} | {error: MillraceError} | {result: Omit<Result, keyof Ending | 'type'>; timing?: ServerTiming}
);

/**
 * Every sent frame has one ending: a result, a drop or an error, also across connections. The protected methods are for
 * Stream.
 */
export abstract class Accounting extends Events<StreamEvents> {
  #inFlight = new Map<number, Frame>(); // by seq, the oldest first
  #counts = {sent: 0, skipped: 0, results: 0, dropped: 0, errors: 0, bytes: 0, unread: 0};
  #drops: Record<string, number> = {};
  #state: State = 'connecting';

  get state(): State {
    return this.#state;
  }

  get counts(): Counts {
    return {...this.#counts, drops: {...this.#drops}, inFlight: this.#inFlight.size};
  }

  get inFlight(): number {
    return this.#inFlight.size;
  }

  /** Time in flight of the oldest frame, ms; 0 = no frame in flight, or no connection. */
  get silence(): number {
    const [oldest] = this.#inFlight.values();
    return oldest && this.#state === 'running' ? performance.now() - oldest.sent : 0;
  }

  /** The seq of the oldest frame in flight. */
  protected get oldest(): number | undefined {
    return this.#inFlight.keys().next().value;
  }

  /** Called with each ending, and each partial result. */
  protected abstract reply(reply: Reply): void;

  protected begin(seq: number, frame: Frame): void {
    this.#inFlight.set(seq, frame);
    this.#counts.sent++;
    this.#counts.bytes += frame.bytes;
  }

  protected skipped(note: unknown): void {
    this.#counts.skipped++;
    this.emit('skip', {note});
  }

  protected unread(): void {
    this.#counts.unread++;
  }

  /**
   * Counts the ending of a frame.
   * @param offset of the server's clock, see timings
   * @returns whether the frame was in flight
   */
  protected end(seq: number, said: Said, offset?: number): boolean {
    const frame = this.#inFlight.get(seq);
    if (!frame) return false;
    const {captured, note, bytes, traceparent} = frame,
      timing = 'result' in said ? said.timing : undefined;
    const ending = {
      seq,
      captured,
      note,
      bytes,
      traceId: traceIdOf(traceparent || said.traceresponse),
      traceKept: isSampled(said.traceresponse),
      timings: timings(frame, performance.now(), timing, offset),
    };
    if ('result' in said) {
      const result: Result = {type: 'result', ...ending, ...said.result};
      if (!result.partial) {
        this.#inFlight.delete(seq);
        this.#counts.results++;
      }
      this.#tell('result', result);
      return !result.partial;
    }
    this.#inFlight.delete(seq);
    if ('error' in said) {
      this.#counts.errors++;
      this.#tell('error', {type: 'error', ...ending, error: said.error});
    } else {
      this.#counts.dropped++;
      this.#drops[said.dropped] = (this.#drops[said.dropped] ?? 0) + 1;
      this.#tell('drop', {type: 'drop', ...ending, reason: said.dropped});
    }
    return true;
  }

  /** Drops frames without hope of an ending: at most `most` frames with a seq above `above`, the oldest first. */
  protected lose(reason: string, {above = -1, most = Infinity} = {}): void {
    const lost = [...this.#inFlight.keys()].filter(seq => seq > above).slice(0, most);
    for (const seq of lost) this.end(seq, {dropped: reason});
  }

  protected setState(state: State, error?: MillraceError): void {
    if (this.#state === state || this.#state === 'closed') return;
    this.#state = state;
    this.emit('state', error ? {state, error} : {state});
  }

  #tell<K extends 'result' | 'drop' | 'error'>(type: K, reply: StreamEvents[K]): void {
    this.reply(reply);
    this.emit(type, reply);
  }
}
