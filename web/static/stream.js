// One stream of a session of millrace.v1.

import {Accounting} from './accounting.js';
import {encodeFrame} from './wire.js';
import {Backoff} from './backoff.js';

/**
 * A stream that survives the loss of its connection. Besides the events of an
 * Accounting there is `keyframe`: the next chunk of inter-coded video must be a
 * key frame, because the server asks for one or chunks were lost.
 */
export class Stream extends Accounting {
  #session;
  #openMessage; // the message that opens the stream
  #codec;
  #timer = 0; // until it is opened again
  #backoff = new Backoff();
  #seq = 0; // of the next frame; it continues over reconnects
  #framesSent = 0; // frames sent, as credits count them
  #creditLimit = 0; // the server's limit of them
  #framesEnded = 0; // frames that have ended
  #window = 0;
  #interval = 0; // ms between frames, advised by the server; 0 = any
  #next = 0; // the earliest time of the next frame by that
  #size = null; // of frames, advised by the server
  #discontinuity = false; // frames before the next one were lost

  /** The stream's number in the session; 0 = it is not open. */
  sid = 0;

  /**
   * @param {import('./session.js').Session} session
   * @param {string} model
   * @param {{codec?: string, policy?: object}} options codec: by default pictures are recognised by their content
   */
  constructor(session, model, {codec, policy}) {
    super();
    this.#session = session;
    this.#codec = codec ?? 'opaque';
    this.#openMessage = {type: 'open', model, codec, policy};
  }

  /** Opens the stream, and opens it again whenever it is lost, until stop. */
  start() {
    this.setState('connecting');
    this.#session.add(this);
  }

  stop() {
    this.#finish();
  }

  /** Opens the stream at once with another codec. Call it in state waiting. */
  changeCodec(codec) {
    clearTimeout(this.#timer);
    this.#codec = this.#openMessage.codec = codec;
    this.#session.add(this);
  }

  /** The id of its session. */
  get session() { return this.#session.id; }

  /** All frames up to this seq have ended; undefined = none. */
  get lastEnded() {
    const next = this.oldest ?? this.#seq;
    return next > 0 ? next - 1 : undefined;
  }

  /** The frame rate that the server advises; 0 = any. */
  get advised() { return this.#interval && 1000 / this.#interval; }

  /** The size of frames that the server advises, in px; null = any. @returns {{width: number, height: number} | null} */
  get size() { return this.#size; }

  /** How many frames may be sent now: the server's credit. */
  get credit() { return this.state === 'running' && this.#session.writable ? Math.max(0, this.#creditLimit - this.#framesSent) : 0; }

  /** Whether a frame may be sent now: there is credit, and it is not too early by the server's advice. */
  get ready() { return this.credit > 0 && performance.now() >= this.#next; }

  /**
   * Sends a frame, unless the stream is not running.
   * @param {Blob | Uint8Array} frame
   * @param {number} captured when, as of performance.now()
   * @param {*} note is returned with the result
   * @param {boolean} key for inter-coded video: it is a key frame
   * @returns {boolean} whether it was sent
   */
  send(frame, captured, note, key = false) {
    if (this.state !== 'running') return false;
    const seq = this.#seq++, now = performance.now();
    this.begin(seq, frame.size ?? frame.byteLength, captured, note);
    this.#framesSent++;
    this.#next = Math.max(this.#next, now - this.#interval) + this.#interval;
    this.#session.sendFrame(encodeFrame(frame, {codec: this.#codec, sid: this.sid, seq, captured, key, discontinuity: this.#discontinuity}));
    this.#discontinuity = false;
    return true;
  }

  /** Opens the stream under a new number. Called by the session. */
  open(sid) {
    clearTimeout(this.#timer);
    this.lose('connection');
    this.sid = sid;
    this.#framesSent = this.#creditLimit = this.#framesEnded = this.#window = this.#interval = this.#next = 0;
    this.#size = null;
    this.#discontinuity = this.#seq > 0;
    this.#session.sendMessage({...this.#openMessage, sid});
  }

  /** Resumes the stream from the server's state. Called by the session. @returns {boolean} false = it must be opened again */
  resume(state) {
    if (!state || this.#window === 0) return false; // unknown, or the reply to open was lost
    this.lose('connection', {above: state.received_count > 0 ? state.received_seq : -1});
    this.#discontinuity ||= state.received_count < this.#framesSent;
    this.#framesSent = state.received_count;
    this.#creditLimit = state.credit_limit;
    // The reply has the credit, which tells how many frames have ended, also those whose endings were lost.
    this.#session.sendMessage({type: 'update', sid: this.sid, policy: {}});
    this.#running();
    return true;
  }

  /** The connection is lost. Called by the session. */
  disconnected(fault) {
    clearTimeout(this.#timer);
    this.setState('waiting', fault);
  }

  /** The session has ended with a final error. Called by the session. */
  finish(fault) {
    this.#finish(fault);
  }

  /** Handles a message about the stream. Called by the session. */
  handle(m) {
    switch (m.type) {
      case 'opened':
        this.#creditLimit = m.credit_limit;
        this.#window = m.policy.window;
        this.#backoff.reset();
        this.#running();
        break;
      case 'credit':
        this.#settle([], m);
        break;
      case 'result':
        if (!m.partial) this.#settle([[m.seq, m.seq]], m);
        break;
      case 'drop':
        this.#settle(m.seqs, {dropped: m.reason}, m);
        break;
      case 'error':
        if (m.seq !== undefined) this.#settle([[m.seq, m.seq]], {error: m}, m);
        else if (this.#window > 0) this.emit('error', m);
        else this.#openRefused(m);
        break;
      case 'advise':
        if (m.fps) this.#interval = 1000 / m.fps;
        if (m.width) this.#size = {width: m.width, height: m.height};
        if (m.keyframe) this.emit('keyframe');
        break;
      case 'closed':
        this.#onClosed(m.reason);
        break;
    }
  }

  #running() {
    this.setState('running');
    this.emit('keyframe');
  }

  /** Ends the frames in ranges with a reply. Endings that came before change nothing. */
  #settle(ranges, reply, {ack = 0, credit_limit: limit = 0} = reply) {
    this.#creditLimit = Math.max(this.#creditLimit, limit);
    for (const [from, to] of ranges) {
      for (let seq = from; seq <= to; seq++) {
        if (this.end(seq, reply)) this.#framesEnded++;
      }
    }
    if (ack > this.#framesEnded) { // endings that were lost with a connection, and that the server does not keep
      this.lose('connection', {most: ack - this.#framesEnded});
      this.#framesEnded = ack;
    }
  }

  #openRefused(fault) {
    this.#session.forget(this);
    if (fault.retryable) this.#reopenLater(fault);
    else this.#finish(fault);
  }

  #onClosed(reason) {
    this.#session.forget(this);
    if (reason === 'unloaded') this.#finish({code: 'unloaded', message: `model ${this.#openMessage.model} was unloaded`});
    else if (reason !== 'draining') this.#reopenLater({code: reason, message: 'the server closed the stream'}); // when draining it closes the connection next
  }

  #reopenLater(fault) {
    this.lose('connection');
    this.#timer = setTimeout(() => this.#session.add(this), this.#backoff.next(fault.retry_after_ms));
    this.setState('waiting', fault);
  }

  #finish(fault) {
    clearTimeout(this.#timer);
    this.#session.remove(this);
    this.lose('closed');
    this.setState('stopped', fault);
  }
}
