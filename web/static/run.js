// One source streaming to one model.

import * as api from './api.js';
import * as panel from './panel.js';
import {draw} from './draw.js';
import {Encoder, label} from './encoder.js';
import {read} from './results.js';
import {Session} from './session.js';
import {Stats} from './stats.js';

const $ = id => document.getElementById(id);

const WINDOW = 2; // frames in flight: one is in transfer while one is computed
const SLOW = 3000; // ms without an answer after which the user is told, and that an error stays on the page
const AS_JPEG = /\bsend jpeg\b/; // in the error of a server that cannot decode video: no decoder is free, or it has no ffmpeg

/**
 * @typedef {object} Page the callbacks of a Run
 * @property {object} view the counts and the last result
 * @property {(text: string) => void} showError tells the user what is wrong
 * @property {(text: string) => void} showNote tells the user what differs from the chosen settings, until the end
 * @property {(state: import('./accounting.js').State) => void} stateChanged
 * @property {(text: string) => void} ended calls stop
 */

/**
 * From start to stop. When the server cannot decode inter-coded video, the run goes
 * on as JPEG.
 */
export class Run {
  #model;
  #source;
  #page;
  #stream;
  #codec; // undefined = recognised by the server
  #encoder = null; // for inter-coded video
  #stats = new Stats();
  #timer = 0;
  #encoding = false;
  #errorShown = 0; // when an error was last shown

  /**
   * @param {{name: string, size: {width: number, height: number} | null}} model
   * @param {import('./sources.js').Source} source
   * @param {string} codec jpeg, or one that this browser encodes
   * @param {Page} page
   */
  constructor(model, source, codec, page) {
    this.#model = model;
    this.#source = source;
    this.#page = page;
    this.#codec = source.still ? undefined : codec;
    const policy = {mode: source.still ? 'every' : 'latest', window: WINDOW};
    this.#stream = new Session(api.sessionURL()).stream(model.name, {codec: this.#codec, policy});
    if (this.#codec && codec !== 'jpeg') {
      this.#encoder = new Encoder(codec, this.#stream, {skipped: () => page.view.skipped++, failed: page.ended});
    }
    this.#stream.addEventListener('state', e => this.#state(e.detail));
    this.#stream.addEventListener('result', e => this.#result(e.detail));
    this.#stream.addEventListener('error', e => this.#error(e.detail));
    for (const type of ['result', 'drop', 'error']) this.#stream.addEventListener(type, () => this.#count());
    source.onend = page.ended;
  }

  start() {
    this.#timer = setInterval(() => this.#report(), 250);
    this.#stream.start();
    this.#source.each?.((captured, media) => this.#frame(captured, media));
  }

  stop() {
    clearInterval(this.#timer);
    this.#encoder?.close();
    this.#stream.stop();
    this.#report();
    this.#source.stop();
  }

  /** Sends the current frame, unless the stream is not ready. */
  async #frame(captured, media) {
    if (this.#encoder) {
      this.#encoder.take(this.#source, this.#model.size, captured, media);
      return;
    }
    if (this.#encoding || !this.#stream.ready) {
      this.#page.view.skipped++;
      return;
    }
    this.#encoding = true;
    try {
      const blob = await this.#source.encode(this.#model.size, this.#stream.size);
      if (blob) this.#stream.send(blob, captured, media); // sends nothing after stop
    } finally {
      this.#encoding = false;
    }
  }

  #result(reply) {
    const result = {...read(reply), media: reply.note};
    this.#stats.add(reply);
    this.#page.view.last = result;
    draw($('overlay'), result);
    $('texts').textContent = result.lines.join('\n');
    if (this.#errorShown && performance.now() - this.#errorShown > SLOW) {
      this.#errorShown = 0;
      this.#page.showError('');
    }
    this.#page.view.dispatchEvent(new CustomEvent('result', {detail: result}));
  }

  #error(fault) {
    this.#errorShown = performance.now();
    this.#page.showError(this.#describe(fault));
  }

  #describe(fault) { return `${this.#model.name}: ${api.explain(fault)}`; }

  async #state({state, fault}) {
    this.#page.stateChanged(state);
    if (state === 'running') {
      this.#page.showError('');
      if (this.#source.still && this.#stream.inFlight === 0) this.#stream.send(this.#source.still, performance.now());
    } else if (state === 'waiting' && this.#encoder && AS_JPEG.test(fault?.message)) {
      this.#asJPEG(fault);
    } else if (state === 'waiting') {
      draw($('overlay'), null);
      this.#page.showError(`${fault ? this.#describe(fault) : 'The connection to the server is lost.'} Trying again…`);
      const why = await this.#refusalReason();
      if (why && this.#stream.state === 'waiting') this.#page.showError(`${why} Trying again…`);
    } else if (fault) {
      this.#page.ended(this.#describe(fault));
    }
  }

  /** Goes on as JPEG, for which the server needs no video decoder. */
  #asJPEG(fault) {
    const video = label(this.#codec);
    this.#page.showNote(`The server cannot decode ${video} now, so this goes as JPEG. It says: ${fault.message}. Press Start to try ${video} again.`);
    this.#encoder.close();
    this.#encoder = null;
    this.#codec = 'jpeg';
    this.#stream.changeCodec(this.#codec);
  }

  /** Why the server refuses the stream. Browsers do not give the reply to a WebSocket upgrade to pages. */
  async #refusalReason() {
    try {
      await api.metadata(this.#model.name);
    } catch (e) {
      if (!(e instanceof api.Unreachable)) return e.message;
    }
    return '';
  }

  #count() {
    const {sent, bytes, answered, errors, dropped, session} = this.#stream;
    Object.assign(this.#page.view, {sent, bytes, answered, errors, session, dropped: Object.values(dropped).reduce((a, b) => a + b, 0)});
  }

  #report() {
    this.#count();
    this.#stats.sent(this.#stream.bytes);
    this.#stats.plot($('plot'));
    panel.show(this.#stream, this.#stats, this.#page.view.skipped);
    if (this.#stream.silence > SLOW) {
      this.#errorShown = performance.now(); // so that an answer removes it
      this.#page.showError(`${this.#model.name} has not answered for some seconds: it is slow, or the server cannot be reached.`);
    }
  }
}
