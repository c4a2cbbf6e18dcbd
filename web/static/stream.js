// A stream of frames to one model in plain mode: each binary message is a frame,
// each text message the ending of one. It knows no page and no camera.

const WINDOW = 2; // frames on their way: one travels while one is computed
const FIRST_WAIT = 500, LONGEST_WAIT = 8000; // ms between attempts to connect

// Close codes after which trying again would end in the same way.
const FINAL = new Set([1008, 1009, 4400, 4401, 4404, 4409]);

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
 */
export class Stream extends EventTarget {
  #socket = null;
  #timer = 0;
  #wait = FIRST_WAIT;
  #waiting = new Map(); // seq -> {captured, sent, note}, the oldest first
  #seq = 0; // of the next frame; each connection counts from 0
  #fault; // that the server told of the connection

  sent = 0;
  answered = 0;
  errors = 0;
  /** @type {Object<string, number>} reason -> frames */
  dropped = {};
  /** @type {State} */
  state = 'idle';

  /** @param {string} url of the stream, ws: or wss: */
  constructor(url) {
    super();
    this.url = url;
  }

  /** Connects, and again whenever the connection is lost, until stop. */
  start() {
    this.#turn('connecting');
    this.#connect();
  }

  stop() {
    this.#end('stopped');
  }

  get inFlight() { return this.#waiting.size; }

  /** How long the oldest frame has been waiting for its ending, ms; 0 = none waits. */
  get silence() {
    const [oldest] = this.#waiting.values();
    return oldest ? performance.now() - oldest.sent : 0;
  }

  /**
   * Whether a frame sent now would not wait behind others. What is on its way
   * decides, not a rate: so it recovers at once when there is room again.
   */
  get ready() {
    return this.#socket?.readyState === WebSocket.OPEN && this.#waiting.size < WINDOW && this.#socket.bufferedAmount === 0;
  }

  /**
   * Sends a frame. Without a connection it does nothing.
   * @param {Blob | ArrayBuffer} frame
   * @param {number} captured when, as of performance.now()
   * @param {*} note comes back with the result
   */
  send(frame, captured, note) {
    if (this.#socket?.readyState !== WebSocket.OPEN) return;
    this.#waiting.set(this.#seq++, {captured, sent: performance.now(), note});
    this.sent++;
    this.#socket.send(frame);
  }

  #connect() {
    const socket = new WebSocket(this.url);
    this.#socket = socket;
    this.#fault = undefined;
    socket.onopen = () => {
      this.#wait = FIRST_WAIT;
      this.#seq = 0;
      this.#turn('running');
    };
    socket.onmessage = m => this.#reply(JSON.parse(m.data));
    socket.onclose = e => this.#closed(e);
  }

  #closed(e) {
    const fault = this.#fault ?? (e.reason ? {code: String(e.code), message: e.reason} : undefined);
    if (FINAL.has(e.code)) {
      this.#end('stopped', fault ?? {code: String(e.code), message: 'the server closed the stream'});
      return;
    }
    this.#lose('connection');
    // Random, so that the clients of a server that comes back do not all come at once.
    this.#timer = setTimeout(() => this.#connect(), this.#wait * (0.5 + Math.random()));
    this.#wait = Math.min(2 * this.#wait, LONGEST_WAIT);
    this.#turn('waiting', fault);
  }

  #end(state, fault) {
    clearTimeout(this.#timer);
    const socket = this.#socket;
    this.#socket = null;
    if (socket) {
      socket.onopen = socket.onmessage = socket.onclose = null;
      socket.close(1000);
    }
    this.#lose('closed');
    this.#turn(state, fault);
  }

  #reply(r) {
    if (r.partial) return;
    const frame = this.#waiting.get(r.seq);
    if (!frame) { // of no frame: it says why the connection is about to close
      this.#fault = r.error;
      return;
    }
    this.#waiting.delete(r.seq);
    if (r.dropped) {
      this.#drop(r.dropped, 1);
    } else if (r.error) {
      this.errors++;
      this.#tell('error', r.error);
    } else {
      this.answered++;
      this.#tell('result', {...r, age: performance.now() - frame.captured, note: frame.note});
    }
  }

  /** The endings of the frames on their way will not come. */
  #lose(reason) {
    const frames = this.#waiting.size;
    this.#waiting.clear();
    if (frames > 0) this.#drop(reason, frames);
  }

  #drop(reason, frames) {
    this.dropped[reason] = (this.dropped[reason] ?? 0) + frames;
    this.#tell('drop', {reason, frames});
  }

  #turn(state, fault) {
    if (this.state === state) return;
    this.state = state;
    this.#tell('state', {state, fault});
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, {detail}));
  }
}
