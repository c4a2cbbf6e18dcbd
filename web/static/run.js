// One source streaming to one model.

import * as api from './api.js';
import * as figures from './figures.js';
import {draw} from './draw.js';
import {Encoder, label} from './encoder.js';
import {read} from './results.js';
import {Session} from './session.js';
import {Stats} from './stats.js';

const $ = id => document.getElementById(id);

const WINDOW = 2; // frames on their way: one travels while one is computed
const LONG = 3000; // ms without an answer that the visitor is told of, and that an error stays on the page
const AS_JPEG = /\bsend jpeg\b/; // says a server that cannot decode a video: no decoder is free, or it has no ffmpeg

/**
 * @typedef {object} Page what a Run tells
 * @property {object} view the counts and the last result, for whoever looks
 * @property {(text: string) => void} tell the visitor what is wrong
 * @property {(text: string) => void} note tells him what is otherwise than he chose, until the end
 * @property {(state: import('./account.js').State) => void} turned
 * @property {(text: string) => void} ended calls stop
 */

/**
 * From start to stop. Inter-coded video that the server cannot decode goes on as
 * JPEG.
 */
export class Run {
  #model;
  #source;
  #page;
  #stream;
  #codec; // undefined = that of the picture
  #encoder = null; // of inter-coded video
  #stats = new Stats();
  #timer = 0;
  #encoding = false;
  #erred = 0; // when an error was last told

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

  /** Sends the present frame, unless others are still on their way. */
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
      if (blob) this.#stream.send(blob, captured, media); // nothing, if it was stopped meanwhile
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
    if (this.#erred && performance.now() - this.#erred > LONG) {
      this.#erred = 0;
      this.#page.tell('');
    }
    this.#page.view.dispatchEvent(new CustomEvent('result', {detail: result}));
  }

  #error(fault) {
    this.#erred = performance.now();
    this.#page.tell(this.#words(fault));
  }

  #words(fault) { return `${this.#model.name}: ${api.explain(fault)}`; }

  async #state({state, fault}) {
    this.#page.turned(state);
    if (state === 'running') {
      this.#page.tell('');
      if (this.#source.still && this.#stream.inFlight === 0) this.#stream.send(this.#source.still, performance.now());
    } else if (state === 'waiting' && this.#encoder && AS_JPEG.test(fault?.message)) {
      this.#asJPEG(fault);
    } else if (state === 'waiting') {
      draw($('overlay'), null);
      this.#page.tell(`${fault ? this.#words(fault) : 'The connection to the server is lost.'} Trying again…`);
      const why = await this.#refusal();
      if (why && this.#stream.state === 'waiting') this.#page.tell(`${why} Trying again…`);
    } else if (fault) {
      this.#page.ended(this.#words(fault));
    }
  }

  /** Goes on as JPEG, which the server need not have a decoder for. */
  #asJPEG(fault) {
    const video = label(this.#codec);
    this.#page.note(`The server cannot decode ${video} now, so this goes as JPEG. It says: ${fault.message}. Press Start to try ${video} again.`);
    this.#encoder.close();
    this.#encoder = null;
    this.#codec = 'jpeg';
    this.#stream.change(this.#codec);
  }

  /** Why a server that answers has no stream for us: a browser keeps the reply to an upgrade to itself. */
  async #refusal() {
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
    figures.show(this.#stream, this.#stats, this.#page.view.skipped);
    if (this.#stream.silence > LONG) {
      this.#erred = performance.now(); // so that an answer takes it away
      this.#page.tell(`${this.#model.name} has not answered for some seconds: it is slow, or the server cannot be reached.`);
    }
  }
}
