// A stream of frames to one model in plain mode: each binary message is a frame,
// each text message the ending of one. It knows no page and no camera.

import {Account} from './account.js';
import {Waits} from './waits.js';

/** Frames on their way: one travels while one is computed. */
export const WINDOW = 2;

/** Close codes after which trying again would end in the same way. */
export const FINAL = new Set([1008, 1009, 4400, 4401, 4404, 4409]);

/** One connection at a time, with no memory of the one before. */
export class Stream extends Account {
  #socket = null;
  #timer = 0;
  #waits = new Waits();
  #seq = 0; // of the next frame; each connection counts from 0
  #fault; // that the server told of the connection

  /** @param {string} url of the stream, ws: or wss: */
  constructor(url) {
    super();
    this.url = url;
  }

  /** Connects, and again whenever the connection is lost, until stop. */
  start() {
    this.turn('connecting');
    this.#connect();
  }

  stop() {
    this.#finish('stopped');
  }

  /**
   * Whether a frame sent now would not wait behind others. What is on its way
   * decides, not a rate: so it recovers at once when there is room again.
   */
  get ready() {
    return this.#socket?.readyState === WebSocket.OPEN && this.inFlight < WINDOW && this.#socket.bufferedAmount === 0;
  }

  /**
   * Sends a frame. Without a connection it does nothing.
   * @param {Blob} frame
   * @param {number} captured when, as of performance.now()
   * @param {*} note comes back with the result
   */
  send(frame, captured, note) {
    if (this.#socket?.readyState !== WebSocket.OPEN) return;
    this.begin(this.#seq++, frame.size, captured, note);
    this.#socket.send(frame);
  }

  #connect() {
    const socket = new WebSocket(this.url);
    this.#socket = socket;
    this.#fault = undefined;
    socket.onopen = () => {
      this.#waits.reset();
      this.#seq = 0;
      this.turn('running');
    };
    socket.onmessage = m => this.#reply(JSON.parse(m.data));
    socket.onclose = e => this.#closed(e);
  }

  #closed(e) {
    const fault = this.#fault ?? (e.reason ? {code: String(e.code), message: e.reason} : undefined);
    if (FINAL.has(e.code)) {
      this.#finish('stopped', fault ?? {code: String(e.code), message: 'the server closed the stream'});
      return;
    }
    this.lose('connection');
    this.#timer = setTimeout(() => this.#connect(), this.#waits.take());
    this.turn('waiting', fault);
  }

  #finish(state, fault) {
    clearTimeout(this.#timer);
    const socket = this.#socket;
    this.#socket = null;
    if (socket) {
      socket.onopen = socket.onmessage = socket.onclose = null;
      socket.close(1000);
    }
    this.lose('closed');
    this.turn(state, fault);
  }

  #reply(r) {
    if (r.partial || this.end(r.seq, r)) return;
    this.#fault = r.error; // of no frame: it says why the connection is about to close
  }
}
