// A stream of frames to one model in plain mode: each binary message is a frame,
// each text message the ending of one. It knows no page and no camera.

const WINDOW = 2; // frames on their way: one travels while one is computed
const FIRST_WAIT = 500, LONGEST_WAIT = 8000; // ms between attempts to connect

/**
 * Events: 'state' (connecting, running, waiting, stopped), 'result', 'drop',
 * 'error' (a frame's or the stream's, with code and message).
 */
export class Stream extends EventTarget {
  #socket = null;
  #timer = 0;
  #wait = FIRST_WAIT;
  #captured = new Map(); // seq -> ms at which the frame was captured
  #seq = 0;
  #fatal = false;

  sent = 0;
  answered = 0;
  errors = 0;
  dropped = {}; // reason -> frames
  state = 'idle';

  /** @param {string} url of the stream, ws: or wss: */
  constructor(url) {
    super();
    this.url = url;
  }

  start() {
    this.#turn('connecting');
    this.#connect();
  }

  stop() {
    this.#fatal = true;
    clearTimeout(this.#timer);
    this.#socket?.close(1000);
    this.#turn('stopped');
  }

  /**
   * Whether a frame sent now would not wait behind others. What the buffers hold
   * decides, not a rate: so it recovers at once when there is room again.
   */
  get ready() {
    return this.#socket?.readyState === WebSocket.OPEN && this.#captured.size < WINDOW && this.#socket.bufferedAmount === 0;
  }

  /** @param {Blob | ArrayBuffer} frame  @param {number} captured performance.now() */
  send(frame, captured) {
    if (this.#socket?.readyState !== WebSocket.OPEN) return;
    this.#captured.set(this.#seq++, captured);
    this.sent++;
    this.#socket.send(frame);
  }

  #connect() {
    const socket = new WebSocket(this.url);
    this.#socket = socket;
    socket.onopen = () => {
      this.#wait = FIRST_WAIT;
      this.#seq = 0;
      this.#captured.clear();
      this.#turn('running');
    };
    socket.onmessage = m => this.#reply(m.data);
    socket.onclose = e => this.#closed(e);
  }

  #closed(e) {
    this.#drop('connection', this.#captured.size); // their endings will not come
    this.#captured.clear();
    if (this.#fatal || this.state === 'stopped') return;
    if (e.code === 1008 || e.code >= 4400 && e.code < 4500 && e.code !== 4429 && e.code !== 4408) {
      this.#tell('error', {code: String(e.code), message: e.reason || 'the server closed the stream', fatal: true});
      this.stop();
      return;
    }
    const wait = this.#wait * (0.5 + Math.random());
    this.#wait = Math.min(2 * this.#wait, LONGEST_WAIT);
    this.#turn('waiting');
    this.#timer = setTimeout(() => this.#connect(), wait);
  }

  #reply(text) {
    const r = JSON.parse(text);
    const captured = this.#captured.get(r.seq);
    if (r.partial) return;
    this.#captured.delete(r.seq);
    if (r.dropped) {
      this.#drop(r.dropped, 1);
    } else if (r.error) {
      this.errors++;
      this.#tell('error', r.error);
    } else {
      this.answered++;
      this.#tell('result', {...r, age: performance.now() - captured});
    }
  }

  #drop(reason, frames) {
    if (frames === 0) return;
    this.dropped[reason] = (this.dropped[reason] ?? 0) + frames;
    this.#tell('drop', {reason, frames});
  }

  #turn(state) {
    if (this.state === state) return;
    this.state = state;
    this.#tell('state', state);
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, {detail}));
  }
}
