// One stream of a session of millrace.v1.

import {Accounting, type Advice} from './accounting.js';
import {Backoff} from './backoff.js';
import {capture} from './capture.js';
import {isVideo, usable} from './codecs.js';
import {Encoder, type TimedOptions} from './encoder.js';
import {MillraceError, type ErrorMessage, aborted, errorOf, throwIfAborted} from './errors.js';
import type {FrameData, SendOptions, StreamOptions} from './options.js';
import {isPicture} from './picture.js';
import type {Policy} from './policy.js';
import {Queue} from './queue.js';
import type {Reply} from './replies.js';
import type {Message, Session} from './session.js';
import {traceparent} from './trace.js';
import {type Codec, type Tensor, encodeFrame} from './wire.js';

const AUTO: readonly Codec[] = ['h264', 'vp8', 'vp9', 'av1', 'jpeg'];
const BUFFER = 64;
const NO_DECODER = /^(limits\.max_decoders|quotas\.decoders)/; // settings that bound the videos that a server decodes
const POLL = 5; // ms, while the browser sends what it has

/**
 * A stream survives the loss of a connection. `for await (const reply of stream)` reads the ending of each frame, in
 * the order of arrival, until the stream is closed; the loop throws the MillraceError that ended the stream. Leaving
 * the loop ends the stream. When the loop is slower than the answers, `every` sends less, and `latest` discards the
 * oldest unread endings (counts.unread).
 */
export class Stream extends Accounting implements AsyncIterable<Reply> {
  readonly model: string;
  readonly #connection: Session<Stream>;
  readonly #options: StreamOptions;
  readonly #codecs: readonly Codec[]; // in order of preference
  #message: Message; // that opens the stream
  #before: [Message, Policy] | undefined; // message and policy before the last update
  #codec = 0; // the index of the codec in use
  #refused: {codec: Codec; error: MillraceError}[] = [];
  #timer: ReturnType<typeof setTimeout> | undefined; // until it is opened again
  #backoff = new Backoff();
  #seq = 0; // of the next frame; it continues over reconnects
  #framesSent = 0; // frames sent, as credits count them
  #creditLimit = 0; // the server's limit of them
  #framesEnded = 0; // frames that have ended
  #policy: Policy = {}; // in force
  #isOpen = false; // in this session
  #wasOpen = false;
  #paused = false;
  #closeSent = false;
  #advice: Advice = {};
  #next = 0; // the earliest time of the next frame
  #discontinuity = false; // frames before the next one were lost
  #encoder: Encoder | null = null;
  #queue = new Queue<Reply>();
  #waiters: (() => void)[] = [];
  #resolve!: () => void;
  #reject!: (error: MillraceError) => void;
  #ended!: () => void;

  /** The number of the stream in the session; 0 = not open. @internal */
  sid = 0;

  /** @internal */
  readonly opened = new Promise<void>((resolve, reject) => ([this.#resolve, this.#reject] = [resolve, reject]));

  /** Resolves when the stream is closed. Never rejects. */
  readonly closed = new Promise<void>(resolve => (this.#ended = resolve));

  /** @internal */
  static async create(connection: Session<Stream>, options: StreamOptions): Promise<Stream> {
    // Without a codec the server recognises pictures.
    const {codec = options.source?.codec ?? 'opaque', signal} = options;
    const codecs = await usable(
      codec === 'auto' ? AUTO : typeof codec === 'string' ? [codec] : codec,
      options.source !== undefined,
    );
    throwIfAborted(signal);
    return new Stream(connection, options, codecs);
  }

  private constructor(connection: Session<Stream>, options: StreamOptions, codecs: readonly Codec[]) {
    super();
    const {
      model,
      version,
      codec = options.source?.codec,
      policy = {},
      outputs,
      stateful,
      params,
      width,
      height,
      signal,
      source,
      trace,
    } = options;
    this.model = model;
    this.#connection = connection;
    this.#options = options;
    this.#codecs = codecs;
    this.#message = {
      type: 'open',
      model,
      version,
      codec: codec && codecs[0],
      policy: {...source?.policy, ...policy},
      outputs,
      stateful,
      params,
      width,
      height,
      trace: trace !== 'off',
    };
    signal?.addEventListener('abort', this.#abort);
    connection.add(this);
    if (source)
      void this.opened.then(
        () => capture(source, this, options.each),
        () => source.stop(),
      );
  }

  /** The codec in use. */
  get codec(): Codec {
    return this.#codecs[this.#codec]!;
  }

  /** The codecs refused by the server before the codec in use, with the errors. */
  get refused(): readonly {codec: Codec; error: MillraceError}[] {
    return this.#refused;
  }

  /** The policy in force, with the model's defaults. */
  get policy(): Policy {
    return this.#policy;
  }

  /** Advice of the server about frames. Pictures encoded here follow the advice. */
  get advice(): Advice {
    return this.#advice;
  }

  /** The number of frames that may be sent now: the server's credit, less frames being encoded. */
  get credit(): number {
    if (this.state !== 'running') return 0;
    let credit = this.#creditLimit - this.#framesSent - (this.#encoder?.pending ?? 0);
    if (this.#buffer > 0 && this.#policy.mode === 'every')
      credit = Math.min(credit, this.#buffer - this.#queue.length - this.inFlight);
    return Math.max(0, credit);
  }

  /** Whether a frame may be sent now: there is credit, the time has come, and no earlier frame is queued here. */
  get ready(): boolean {
    return this.credit > 0 && this.#connection.writable && !this.#encoder?.busy && performance.now() >= this.#next;
  }

  /** Resolves when a frame may be sent; rejects when the stream has ended. */
  async whenReady(): Promise<void> {
    while (!this.ready) {
      if (this.state === 'closing' || this.state === 'closed')
        throw new MillraceError('canceled', `the stream to ${this.model} is closed`);
      // Without credit, a message of the server ends the wait.
      const wait = this.credit > 0 ? Math.max(POLL, this.#next - performance.now()) : 0;
      await new Promise<void>(done => {
        this.#waiters.push(done);
        if (wait > 0) setTimeout(done, wait);
      });
    }
  }

  /**
   * Sends a frame, or begins to encode the frame, unless the stream is not ready. A VideoFrame or ImageBitmap is
   * closed, sent or not. Frames are numbered after encoding: bytes overtake pictures.
   * @returns false = the frame was skipped
   */
  send(data: FrameData, options: SendOptions = {}): boolean {
    const now = performance.now(),
      captured = options.captured ?? now;
    if (!this.ready) {
      if (isPicture(data) && 'close' in data) data.close();
      this.leftOut(options.note);
      return false;
    }
    const fps = Math.min(this.#advice.fps || Infinity, this.#policy.max_fps || Infinity),
      interval = 1000 / fps;
    this.#next = Math.max(this.#next, now - interval) + interval;
    if (isPicture(data)) {
      this.#encoder ??= new Encoder(this, this.#options);
      this.#encoder.encode(data, {...options, captured, taken: now});
    } else {
      this.transmit(bytesOf(data), {...options, captured, taken: now});
    }
    return true;
  }

  /** Changes the options for later frames. The mode of the policy cannot change. */
  update({policy, outputs, params}: Pick<StreamOptions, 'policy' | 'outputs' | 'params'>): void {
    this.#before = [this.#message, this.#policy];
    this.#message = {
      ...this.#message,
      policy: {...this.#message.policy, ...policy},
      ...(outputs ? {outputs} : {}),
      ...(params ? {params} : {}),
    };
    this.#policy = {...this.#policy, ...policy};
    this.#tell({type: 'update', policy, outputs, params});
  }

  /** Makes frames wait at the server, until resume. */
  pause(): void {
    this.#paused = true;
    this.#tell({type: 'pause'});
  }

  resume(): void {
    this.#paused = false;
    this.#tell({type: 'resume'});
  }

  /** Drops the waiting frames. Frames in a batch are still answered. */
  flush(): void {
    this.#tell({type: 'flush'});
  }

  /**
   * Ends the stream when the frames in flight have ended. Frames that wait in a paused stream are dropped. Resolves
   * when the stream is closed.
   */
  async close(): Promise<void> {
    this.#options.source?.stop();
    await this.#encoder?.drain();
    if (this.state === 'running') {
      this.setState('closing');
      this.#wake();
      this.#closeWhenEnded();
    } else if (this.state !== 'closing') {
      this.finish();
    }
    await this.closed;
  }

  /** Ends the stream at once. Frames in flight end as dropped: `closed`. */
  abort(error?: MillraceError): void {
    this.finish(error);
  }

  [Symbol.asyncIterator](): AsyncIterator<Reply, undefined> {
    return {
      next: () => this.#queue.next(() => this.#wake()),
      return: async () => {
        this.abort();
        return {done: true, value: undefined};
      },
    };
  }

  // The remaining methods are for Connection, Encoder and capture.

  /** @internal Resolves when no frame is in flight, or the stream has ended. */
  async drain(): Promise<void> {
    await this.#encoder?.drain();
    while (this.inFlight > 0 && this.state !== 'closed') await new Promise<void>(done => this.#waiters.push(done));
  }

  /** @internal A frame was not sent. */
  leftOut(note: unknown): void {
    this.skipped(note);
    this.#wake();
  }

  /** @internal Sends encoded bytes. @returns false = the stream is not running */
  transmit(
    data: Blob | Uint8Array | readonly Tensor[],
    {taken, captured, note, traceparent: given, ...options}: TimedOptions,
  ): boolean {
    if (this.state !== 'running') return false;
    const seq = this.#seq++,
      parent = given ?? traceparent(this.#options.trace),
      {width, height} = this.#options;
    const frame = encodeFrame(data, {
      ...options,
      ...(width && height ? {width, height} : {}),
      traceparent: parent,
      codec: this.codec,
      sid: this.sid,
      seq,
      captured: performance.timeOrigin + captured,
      discontinuity: this.#discontinuity,
    });
    this.#framesSent++;
    this.#discontinuity = false;
    this.begin(seq, {
      captured,
      taken,
      sent: performance.now(),
      bytes: frame instanceof Blob ? frame.size : frame.length,
      note,
      traceparent: parent,
    });
    this.#connection.sendFrame(frame);
    return true;
  }

  /** @internal All frames up to this seq have ended; undefined = none. */
  get lastEnded(): number | undefined {
    const next = this.oldest ?? this.#seq;
    return next > 0 ? next - 1 : undefined;
  }

  /** @internal Opens the stream under a new number. */
  open(sid: number): void {
    clearTimeout(this.#timer);
    this.lose('connection');
    if (this.state === 'closing') {
      this.sid = 0;
      this.finish();
      return;
    }
    this.sid = sid;
    this.#framesSent = this.#creditLimit = this.#framesEnded = this.#next = 0;
    this.#isOpen = false;
    this.#advice = {};
    this.#discontinuity = this.#seq > 0;
    this.#connection.sendMessage({...this.#message, sid});
  }

  /** @internal Resumes the stream from the server's state. @returns false = the stream must be opened again */
  resumeFrom(state: Message | undefined): boolean {
    if (!state || !this.#isOpen) return false; // unknown, or the reply to open was lost
    this.lose('connection', {above: state.received_count > 0 ? state.received_seq : -1});
    this.#discontinuity ||= state.received_count < this.#framesSent;
    this.#framesSent = state.received_count;
    this.#creditLimit = state.credit_limit;
    // The reply has the credit, which tells how many frames have ended, also those whose endings were lost.
    this.#tell({type: 'update', policy: {}});
    this.#tell({type: this.#paused ? 'pause' : 'resume'});
    this.#closeSent = false;
    if (this.state === 'closing') this.#closeWhenEnded();
    else this.#running();
    return true;
  }

  /** @internal The connection is lost. */
  disconnected(error?: MillraceError): void {
    clearTimeout(this.#timer);
    if (this.state !== 'closing') this.setState('waiting', error);
  }

  /** @internal Ends the stream. */
  finish(error?: MillraceError): void {
    if (this.state === 'closed') return;
    clearTimeout(this.#timer);
    this.#options.signal?.removeEventListener('abort', this.#abort);
    this.#options.source?.stop();
    this.#connection.remove(this);
    this.#encoder?.close();
    this.lose('closed');
    this.setState('closed', error);
    this.#wake();
    this.#queue.end(error);
    this.#reject(error ?? new MillraceError('canceled', `the stream to ${this.model} was closed`));
    this.#ended();
  }

  /** @internal Handles a message about the stream. */
  handle(m: Message): void {
    switch (m.type) {
      case 'opened':
        this.#creditLimit = m.credit_limit;
        this.#policy = m.policy;
        this.#isOpen = this.#wasOpen = true;
        this.#backoff.reset();
        if (this.#paused) this.#tell({type: 'pause'});
        this.#running();
        this.#resolve();
        break;
      case 'credit':
        this.#settle(m);
        break;
      case 'result': {
        const {
          model = this.model,
          version = '',
          outputs = [],
          parameters = {},
          width = 0,
          height = 0,
          batch = 0,
          partial = false,
          timing,
          traceresponse,
        } = m;
        const said = {
          result: {model, version, outputs, parameters, width, height, batch, partial},
          timing,
          traceresponse,
        };
        if (this.end(m.seq, said, this.#connection.clockOffset)) this.#framesEnded++;
        this.#settle(m);
        break;
      }
      case 'drop':
        for (const [from, to] of m.seqs) for (let seq = from; seq <= to; seq++) this.#ending(seq, {dropped: m.reason});
        this.#settle(m);
        break;
      case 'error': {
        const error = errorOf(m as unknown as ErrorMessage);
        if (m.seq !== undefined) {
          this.#ending(
            m.seq,
            this.#sendsPictures(error) ? {dropped: 'undecoded'} : {error, traceresponse: m.traceresponse},
          );
          this.#settle(m);
        } else if (!this.#isOpen) {
          this.#openRefused(error);
        } else {
          if (error.field.startsWith('update') && this.#before) [this.#message, this.#policy] = this.#before;
          this.emit('refusal', error);
        }
        break;
      }
      case 'advise': {
        const {fps, width, height, quality} = m;
        this.#advice = {
          ...this.#advice,
          ...(fps ? {fps} : {}),
          ...(width ? {width, height} : {}),
          ...(quality ? {quality} : {}),
        };
        this.emit('advice', this.#advice);
        if (m.keyframe) this.emit('keyframe', undefined);
        break;
      }
      case 'closed':
        this.#onClosed(m.reason);
        break;
    }
    this.#closeWhenEnded();
    this.#wake();
  }

  protected override reply(reply: Reply): void {
    if (this.#buffer === 0) return;
    this.#queue.push(reply);
    if (this.#queue.length > this.#buffer) {
      this.#queue.shift();
      this.unread();
    }
  }

  get #buffer(): number {
    return this.#options.buffer ?? BUFFER;
  }

  #abort = (): void => this.abort(aborted(this.#options.signal!));

  #tell(message: Message): void {
    if (this.#isOpen && this.sid) this.#connection.sendMessage({...message, sid: this.sid});
  }

  #wake(): void {
    for (const wake of this.#waiters.splice(0)) wake();
  }

  #closeWhenEnded(): void {
    if (this.state !== 'closing' || this.#closeSent || (this.inFlight > 0 && !this.#paused)) return;
    this.#closeSent = true;
    this.#tell({type: 'close'});
  }

  #running(): void {
    this.setState('running');
    this.emit('keyframe', undefined);
    this.#wake();
  }

  #ending(seq: number, said: {dropped: string} | {error: MillraceError; traceresponse: string | undefined}): void {
    if (this.end(seq, said)) this.#framesEnded++;
  }

  /** Takes the credit of a message, and ends frames without an ending at the server. */
  #settle({ack = 0, credit_limit: limit = 0}: Message): void {
    this.#creditLimit = Math.max(this.#creditLimit, limit);
    if (ack > this.#framesEnded) {
      // endings that were lost with a connection
      this.lose('connection', {most: ack - this.#framesEnded});
      this.#framesEnded = ack;
    }
  }

  /** Goes on with another codec, because the server refused the codec before. */
  #useCodec(index: number, error: MillraceError): void {
    this.#refused.push({codec: this.codec, error});
    this.#message.codec = this.#codecs[(this.#codec = index)];
    this.emit('codec', {codec: this.codec, error});
  }

  /**
   * Goes on with pictures if the server had no decoder left for the first key frame. Returns whether the stream does
   * so.
   */
  #sendsPictures(error: MillraceError): boolean {
    if (!NO_DECODER.test(error.field)) return false;
    if (!isVideo(this.codec)) return true; // since a frame before
    const index = this.#codecs.findIndex((codec, i) => i > this.#codec && !isVideo(codec));
    if (index > 0) this.#useCodec(index, error);
    return index > 0;
  }

  /** Tries the next codec after a refused codec; otherwise tries again later, or ends the stream. */
  #openRefused(error: MillraceError): void {
    this.sid = 0;
    if ((/(^|\.)codec$/.test(error.field) || NO_DECODER.test(error.field)) && this.#codec + 1 < this.#codecs.length) {
      this.#useCodec(this.#codec + 1, error);
      this.#connection.add(this);
    } else if (error.retryable && this.#wasOpen) {
      this.#reopenLater(error);
    } else {
      this.finish(error);
    }
  }

  #onClosed(reason: string): void {
    this.sid = 0;
    this.#isOpen = false;
    if (this.state === 'closing' || reason === 'client') this.finish();
    else if (reason === 'unloaded') this.finish(new MillraceError('unloaded', `model ${this.model} was unloaded`));
    else if (reason !== 'draining') {
      // A draining server closes the connection next.
      this.#reopenLater(new MillraceError('unavailable', `the server closed the stream: ${reason}`, {retryable: true}));
    }
  }

  #reopenLater(error: MillraceError): void {
    this.lose('connection');
    this.#timer = setTimeout(() => this.#connection.add(this), this.#backoff.next(error.retryAfterMs));
    this.setState('waiting', error);
  }
}

function bytesOf(
  data: Blob | ArrayBuffer | ArrayBufferView | readonly Tensor[],
): Blob | Uint8Array | readonly Tensor[] {
  if (data instanceof ArrayBuffer) return new Uint8Array(data);
  return ArrayBuffer.isView(data) ? new Uint8Array(data.buffer, data.byteOffset, data.byteLength) : data;
}
