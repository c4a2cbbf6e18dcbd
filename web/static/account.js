// What becomes of the frames of a stream.

/**
 * @typedef {'idle' | 'connecting' | 'running' | 'waiting' | 'stopped'} State waiting = for the next attempt to connect
 * @typedef {{code: string, message: string}} Fault
 */

/**
 * Every frame that was sent has one ending: answered, dropped or an error. So
 * sent = answered + all of dropped + errors + inFlight at any time, also across
 * connections.
 *
 * Events, each with a detail:
 * - state: {state: State, fault?: Fault}; the fault is what ended the connection, where the server told it
 * - result: the server's reply with `age`, ms from capture to now, and `note`, what send was given
 * - drop: {reason: string, frames: number}; beside the server's reasons there are
 *   `connection` (lost with it) and `closed` (by stop)
 * - error: Fault, of a frame
 *
 * The methods are for the streams that keep their account here.
 */
export class Account extends EventTarget {
  #waiting = new Map(); // seq -> {captured, sent, note}, the oldest first

  sent = 0;
  bytes = 0; // of the frames that were sent
  answered = 0;
  errors = 0;
  /** @type {Object<string, number>} reason -> frames */
  dropped = {};
  /** @type {State} */
  state = 'idle';

  get inFlight() { return this.#waiting.size; }

  /** The seq of the oldest frame on its way, or undefined. */
  get oldest() { return this.#waiting.keys().next().value; }

  /** How long the oldest frame has been waiting for its ending, ms; 0 = none waits, or there is no connection to wait for. */
  get silence() {
    const [oldest] = this.#waiting.values();
    return oldest && this.state === 'running' ? performance.now() - oldest.sent : 0;
  }

  /** @param {number} captured when, as of performance.now() @param {*} note comes back with the result */
  begin(seq, bytes, captured, note) {
    this.#waiting.set(seq, {captured, sent: performance.now(), note});
    this.sent++;
    this.bytes += bytes;
  }

  /** Notes the ending of a frame. @returns {boolean} whether it was on its way */
  end(seq, reply) {
    const frame = this.#waiting.get(seq);
    if (!frame) return false;
    this.#waiting.delete(seq);
    if (reply.dropped) {
      this.#drop(reply.dropped, 1);
    } else if (reply.error) {
      this.errors++;
      this.tell('error', reply.error);
    } else {
      this.answered++;
      this.tell('result', {...reply, age: performance.now() - frame.captured, note: frame.note});
    }
    return true;
  }

  /** The endings of frames on their way will not come: at most so many of those above a seq, the oldest first. */
  lose(reason, {above = -1, most = Infinity} = {}) {
    const lost = [...this.#waiting.keys()].filter(seq => seq > above).slice(0, most);
    for (const seq of lost) this.#waiting.delete(seq);
    if (lost.length > 0) this.#drop(reason, lost.length);
  }

  turn(state, fault) {
    if (this.state === state) return;
    this.state = state;
    this.tell('state', {state, fault});
  }

  tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, {detail}));
  }

  #drop(reason, frames) {
    this.dropped[reason] = (this.dropped[reason] ?? 0) + frames;
    this.tell('drop', {reason, frames});
  }
}
