// Counts the frames of a stream and their endings.

/**
 * @typedef {'idle' | 'connecting' | 'running' | 'waiting' | 'stopped'} State waiting = until the next attempt to connect
 * @typedef {{code: string, message: string}} Fault
 */

/**
 * Every frame that was sent has one ending: answered, dropped or an error. So
 * sent = answered + all of dropped + errors + inFlight at any time, also across
 * connections.
 *
 * Events, each with a detail:
 * - state: {state: State, fault?: Fault}; fault: what ended the connection, if the server sent it
 * - result: the server's reply with `age`, ms from capture to now, and `note`, the argument of send
 * - drop: {reason: string, frames: number}; the server's reasons, and
 *   `connection` (lost with the connection) and `closed` (by stop)
 * - error: Fault, of a frame
 *
 * The methods are for subclasses.
 */
export class Accounting extends EventTarget {
  #inFlight = new Map(); // seq -> {captured, sent, note}, the oldest first

  sent = 0;
  bytes = 0; // of the frames that were sent
  answered = 0;
  errors = 0;
  /** @type {Object<string, number>} reason -> frames */
  dropped = {};
  /** @type {State} */
  state = 'idle';

  get inFlight() { return this.#inFlight.size; }

  /** The seq of the oldest frame in flight, or undefined. */
  get oldest() { return this.#inFlight.keys().next().value; }

  /** How long the oldest frame has been in flight, ms; 0 = none, or there is no connection. */
  get silence() {
    const [oldest] = this.#inFlight.values();
    return oldest && this.state === 'running' ? performance.now() - oldest.sent : 0;
  }

  /** @param {number} captured when, as of performance.now() @param {*} note is returned with the result */
  begin(seq, bytes, captured, note) {
    this.#inFlight.set(seq, {captured, sent: performance.now(), note});
    this.sent++;
    this.bytes += bytes;
  }

  /** Counts the ending of a frame. @returns {boolean} whether it was in flight */
  end(seq, reply) {
    const frame = this.#inFlight.get(seq);
    if (!frame) return false;
    this.#inFlight.delete(seq);
    if (reply.dropped) {
      this.#drop(reply.dropped, 1);
    } else if (reply.error) {
      this.errors++;
      this.emit('error', reply.error);
    } else {
      this.answered++;
      this.emit('result', {...reply, age: performance.now() - frame.captured, note: frame.note});
    }
    return true;
  }

  /** Drops frames whose endings will not come: at most `most` of those with a seq above `above`, the oldest first. */
  lose(reason, {above = -1, most = Infinity} = {}) {
    const lost = [...this.#inFlight.keys()].filter(seq => seq > above).slice(0, most);
    for (const seq of lost) this.#inFlight.delete(seq);
    if (lost.length > 0) this.#drop(reason, lost.length);
  }

  setState(state, fault) {
    if (this.state === state) return;
    this.state = state;
    this.emit('state', {state, fault});
  }

  emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, {detail}));
  }

  #drop(reason, frames) {
    this.dropped[reason] = (this.dropped[reason] ?? 0) + frames;
    this.emit('drop', {reason, frames});
  }
}
