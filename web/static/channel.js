// One stream of a session of millrace.v1.

import {Account} from './account.js';
import {framed} from './wire.js';
import {Waits} from './waits.js';

/**
 * A stream that outlives its connection. Besides the events of an Account there
 * is `keyframe`: of inter-coded video the next chunk has to be a key frame, for
 * the server asks for one or chunks were lost.
 */
export class Channel extends Account {
  #session;
  #asked; // the message that opens it
  #codec;
  #timer = 0; // until it is asked for anew
  #waits = new Waits();
  #seq = 0; // of the next frame; it rises over all connections
  #count = 0; // frames that the server has of the stream, as credits count them
  #limit = 0; // how many it may have
  #ended = 0; // of these have had their ending
  #window = 0;
  #interval = 0; // ms between frames that the server advises; 0 = any
  #next = 0; // when the next frame is due by that
  #size = null; // of frames that the server advises
  #broken = false; // frames before the next one were lost

  /** What the session knows it by; 0 = it has not been asked for. */
  sid = 0;

  /**
   * @param {import('./session.js').Session} session
   * @param {string} model
   * @param {{codec?: string, policy?: object}} options codec: left out, pictures are known by their content
   */
  constructor(session, model, {codec, policy}) {
    super();
    this.#session = session;
    this.#codec = codec ?? 'opaque';
    this.#asked = {type: 'open', model, codec, policy};
  }

  /** Opens the stream, and again whenever it is lost, until stop. */
  start() {
    this.turn('connecting');
    this.#session.join(this);
  }

  stop() {
    this.#finish();
  }

  /** Has it opened at once, for frames of another codec. Call it while it waits. */
  change(codec) {
    clearTimeout(this.#timer);
    this.#codec = this.#asked.codec = codec;
    this.#session.join(this);
  }

  /** The id of the session it goes by now. */
  get session() { return this.#session.id; }

  /** Up to this seq every frame has had its ending; undefined = none has. */
  get last() {
    const next = this.oldest ?? this.#seq;
    return next > 0 ? next - 1 : undefined;
  }

  /** Frames a second that the server advises; 0 = any. */
  get advised() { return this.#interval && 1000 / this.#interval; }

  /** The size of frames that the server advises, in px; null = any. @returns {{width: number, height: number} | null} */
  get size() { return this.#size; }

  /** How many frames may be sent now: the server's credit. */
  get room() { return this.state === 'running' && this.#session.clear ? Math.max(0, this.#limit - this.#count) : 0; }

  /** Whether a frame sent now would not wait behind others, and is not too soon by the server's advice. */
  get ready() { return this.room > 0 && performance.now() >= this.#next; }

  /**
   * Sends a frame. Without a stream it does nothing.
   * @param {Blob | Uint8Array} frame
   * @param {number} captured when, as of performance.now()
   * @param {*} note comes back with the result
   * @param {boolean} key of inter-coded video: it is a key frame
   * @returns {boolean} whether it was sent
   */
  send(frame, captured, note, key = false) {
    if (this.state !== 'running') return false;
    const seq = this.#seq++, now = performance.now();
    this.begin(seq, frame.size ?? frame.byteLength, captured, note);
    this.#count++;
    this.#next = Math.max(this.#next, now - this.#interval) + this.#interval;
    this.#session.send(framed(frame, {codec: this.#codec, sid: this.sid, seq, captured, key, discontinuity: this.#broken}));
    this.#broken = false;
    return true;
  }

  /** Asks for the stream by a new number. Called by the session. */
  open(sid) {
    clearTimeout(this.#timer);
    this.lose('connection');
    this.sid = sid;
    this.#count = this.#limit = this.#ended = this.#window = this.#interval = this.#next = 0;
    this.#size = null;
    this.#broken = this.#seq > 0;
    this.#session.say({...this.#asked, sid});
  }

  /** Goes on as far as the server got. Called by the session. @returns {boolean} false = it has to be opened anew */
  resume(there) {
    if (!there || this.#window === 0) return false; // unknown, or the answer to open was lost
    this.lose('connection', {above: there.received_count > 0 ? there.received_seq : -1});
    this.#broken ||= there.received_count < this.#count;
    this.#count = there.received_count;
    this.#limit = there.credit_limit;
    // Answered with the credit, which tells how many frames have ended: what was missed and is not sent again.
    this.#session.say({type: 'update', sid: this.sid, policy: {}});
    this.#run();
    return true;
  }

  /** The connection is lost. Called by the session. */
  wait(fault) {
    clearTimeout(this.#timer);
    this.turn('waiting', fault);
  }

  /** The session has ended, and would again. Called by the session. */
  finish(fault) {
    this.#finish(fault);
  }

  /** Takes a message about the stream. Called by the session. */
  take(m) {
    switch (m.type) {
      case 'opened':
        this.#limit = m.credit_limit;
        this.#window = m.policy.window;
        this.#waits.reset();
        this.#run();
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
        else if (this.#window > 0) this.tell('error', m);
        else this.#refused(m);
        break;
      case 'advise':
        if (m.fps) this.#interval = 1000 / m.fps;
        if (m.width) this.#size = {width: m.width, height: m.height};
        if (m.keyframe) this.tell('keyframe');
        break;
      case 'closed':
        this.#closed(m.reason);
        break;
    }
  }

  #run() {
    this.turn('running');
    this.tell('keyframe');
  }

  /** Notes what became of the frames in ranges. An ending that has come before changes nothing. */
  #settle(ranges, reply, {ack = 0, credit_limit: limit = 0} = reply) {
    this.#limit = Math.max(this.#limit, limit);
    for (const [from, to] of ranges) {
      for (let seq = from; seq <= to; seq++) {
        if (this.end(seq, reply)) this.#ended++;
      }
    }
    if (ack > this.#ended) { // endings that went down with a connection, and are not kept
      this.lose('connection', {most: ack - this.#ended});
      this.#ended = ack;
    }
  }

  #refused(fault) {
    this.#session.forget(this);
    if (fault.retryable) this.#again(fault);
    else this.#finish(fault);
  }

  #closed(reason) {
    this.#session.forget(this);
    if (reason === 'unloaded') this.#finish({code: 'unloaded', message: `model ${this.#asked.model} was unloaded`});
    else if (reason !== 'draining') this.#again({code: reason, message: 'the server closed the stream'}); // or it closes the connection next
  }

  #again(fault) {
    this.lose('connection');
    this.#timer = setTimeout(() => this.#session.join(this), this.#waits.take(fault.retry_after_ms));
    this.turn('waiting', fault);
  }

  #finish(fault) {
    clearTimeout(this.#timer);
    this.#session.part(this);
    this.lose('closed');
    this.turn('stopped', fault);
  }
}
