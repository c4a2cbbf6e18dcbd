// The console: joins the page to a source, a stream and what comes back.

import * as api from './api.js';
import * as figures from './figures.js';
import * as sources from './sources.js';
import {draw} from './draw.js';
import {read} from './results.js';
import {Stats} from './stats.js';
import {Stream} from './stream.js';

const $ = id => document.getElementById(id);

const LONG = 3000; // ms without an answer that the visitor is told of, and that an error stays on the page

/** @type {Map<string, {name: string, size: {width: number, height: number} | null}>} */
let models = new Map();
let run = null; // what streams, a Run

/**
 * What tests and the curious look at. Each result is also an event "result" of
 * window.millrace, its detail as results.js has it with `media`, the frame's
 * place in the video in seconds.
 */
const view = window.millrace = Object.assign(new EventTarget(), {
  state: 'idle', message: '', sent: 0, answered: 0, dropped: 0, errors: 0, skipped: 0, last: null,
});

function tell(text) {
  if (view.message === text) return; // or it would be read out again
  view.message = text;
  $('message').textContent = text;
  $('message').hidden = text === '';
}

const chosen = () => document.querySelector('input[name=source]:checked').value;

/** Fills the list of models: first what takes pictures, and of these what this page shows best. */
async function list() {
  const all = await api.models();
  const ready = await Promise.all(all.filter(m => m.state === 'READY').map(async ({name}) => (
    {name, size: api.pictureSize(await api.metadata(name))}
  )));
  const rank = m => (m.size ? 0 : 4) + (m.name === 'spotter' ? 0 : m.name === 'motion' ? 1 : 2);
  ready.sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name));
  models = new Map(ready.map(m => [m.name, m]));
  $('model').replaceChildren(...ready.map(m => new Option(m.size ? m.name : `${m.name} (no pictures)`, m.name)));
  if (all.length === 0) {
    tell('The server has no model. Start it with one, such as: millrace serve --model motion=motion');
  } else if (ready.length === 0) {
    tell(`No model is ready: ${all.map(m => `${m.name} is ${m.state} ${m.reason ?? ''}`.trim()).join(', ')}. Load one, then reload this page.`);
  }
}

/** Opens the chosen source. @returns {Promise<sources.Source>} */
function open() {
  const video = $('video'), file = $('file').files[0];
  switch (chosen()) {
    case 'camera':
      return sources.camera(video);
    case 'clip':
      return sources.film(video, 'clip.mp4', {loop: true, what: 'The clip'});
  }
  if (!file) throw new api.Told('Pick a video or a picture first.');
  return file.type.startsWith('image/') ? sources.still($('still'), file) : sources.film(video, file, {what: file.name});
}

/** One source streaming to one model, from start to stop. */
class Run {
  #model;
  #source;
  #stream;
  #stats = new Stats();
  #timer = 0;
  #encoding = false;
  #erred = 0; // when an error was last told

  constructor(model, source) {
    this.#model = model;
    this.#source = source;
    this.#stream = new Stream(api.streamURL(model.name, source.still ? 'every' : 'latest'));
    this.#stream.addEventListener('state', e => this.#state(e.detail));
    this.#stream.addEventListener('result', e => this.#result(e.detail));
    this.#stream.addEventListener('error', e => this.#error(e.detail));
    for (const type of ['result', 'drop', 'error']) this.#stream.addEventListener(type, () => this.#count());
    source.onend = text => {
      stop();
      tell(text);
    };
  }

  start() {
    this.#timer = setInterval(() => this.#report(), 250);
    this.#stream.start();
    this.#source.each?.((captured, media) => this.#frame(captured, media));
  }

  stop() {
    clearInterval(this.#timer);
    this.#stream.stop();
    this.#report();
    this.#source.stop();
  }

  /** Sends the present frame, unless others are still on their way. */
  async #frame(captured, media) {
    if (this.#encoding || !this.#stream.ready) {
      view.skipped++;
      return;
    }
    this.#encoding = true;
    try {
      const blob = await this.#source.encode(this.#model.size);
      if (blob) this.#stream.send(blob, captured, media);
    } finally {
      this.#encoding = false;
    }
    this.#count();
  }

  #result(reply) {
    const result = {...read(reply), media: reply.note};
    this.#stats.add(reply);
    view.last = result;
    draw($('overlay'), result);
    $('texts').textContent = result.lines.join('\n');
    if (this.#erred && performance.now() - this.#erred > LONG) {
      this.#erred = 0;
      tell('');
    }
    view.dispatchEvent(new CustomEvent('result', {detail: result}));
  }

  #error(fault) {
    this.#erred = performance.now();
    tell(`${this.#model.name}: ${api.explain(fault)}`);
  }

  async #state({state, fault}) {
    view.state = state;
    buttons();
    switch (state) {
      case 'running':
        tell('');
        if (this.#source.still) this.#stream.send(this.#source.still, performance.now());
        break;
      case 'waiting': {
        tell(`The connection to the server is lost${fault ? `: ${fault.message}` : ''}. Trying again…`);
        draw($('overlay'), null);
        const why = await this.#refusal();
        if (why && view.state === 'waiting') tell(`${why} Trying again…`);
        break;
      }
      case 'stopped':
        if (fault) {
          stop();
          tell(`${this.#model.name}: ${api.explain(fault)}`);
        }
    }
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
    const {sent, answered, errors, dropped} = this.#stream;
    Object.assign(view, {sent, answered, errors, dropped: Object.values(dropped).reduce((a, b) => a + b, 0)});
  }

  #report() {
    this.#count();
    this.#stats.plot($('plot'));
    figures.show(this.#stream, this.#stats, view.skipped);
    if (this.#stream.silence > LONG) {
      this.#erred = performance.now(); // so that an answer takes it away
      tell(`${this.#model.name} has not answered for ${Math.round(this.#stream.silence / 1000)} seconds.`);
    }
  }
}

/** Streams what is chosen, instead of what streams now. */
async function start() {
  stop();
  tell('');
  const model = models.get($('model').value);
  if (!model) return;
  Object.assign(view, {state: 'opening', sent: 0, answered: 0, dropped: 0, errors: 0, skipped: 0, last: null});
  const opening = run = {stop() {}};
  buttons();
  remember();
  try {
    const source = await open();
    if (run !== opening) { // stopped while the visitor was asked
      source.stop();
      return;
    }
    show(source);
    run = new Run(model, source);
    run.start();
  } catch (e) {
    if (run === opening) {
      stop();
      tell(e.message);
    }
    if (!(e instanceof api.Told)) throw e;
  }
}

function stop() {
  const last = run;
  run = null;
  last?.stop();
  if (last) view.state = 'stopped';
  draw($('overlay'), null);
  $('stage').classList.remove('on');
  $('texts').textContent = '';
  buttons();
}

/** Makes room for the source's picture. */
function show(source) {
  $('still').hidden = !source.still;
  $('video').hidden = Boolean(source.still);
  $('stage').style.aspectRatio = `${source.width} / ${source.height}`;
  $('stage').classList.add('on');
}

function buttons() {
  $('start').disabled = models.size === 0;
  $('stop').disabled = run === null;
}

/** Keeps what is chosen in the address, so that it can be linked to. */
function remember() {
  const hash = new URLSearchParams(location.hash.slice(1));
  hash.set('model', $('model').value);
  hash.set('source', chosen());
  history.replaceState(null, '', '#' + hash);
}

/** Chooses what the address names, and starts it if it says so. */
async function recall() {
  const hash = new URLSearchParams(location.hash.slice(1));
  if (models.has(hash.get('model'))) $('model').value = hash.get('model');
  const source = $('source-' + hash.get('source')) ?? $('source-clip');
  (source.disabled ? $('source-camera') : source).checked = true;
  if (hash.get('autostart') === '1') await start();
}

async function main() {
  $('controls').addEventListener('submit', e => {
    e.preventDefault();
    start();
  });
  $('stop').addEventListener('click', () => {
    stop();
    tell('');
  });
  $('model').addEventListener('change', () => {
    if (run) start();
  });
  $('file').addEventListener('change', () => {
    $('source-file').checked = true;
    if ($('file').files.length) start();
  });
  window.addEventListener('hashchange', recall);
  new ResizeObserver(() => draw($('overlay'), run && view.last)).observe($('stage'));
  buttons();
  $('source-clip').disabled = !(await api.offers()).clip;
  await list();
  buttons();
  await recall();
}

main().catch(e => {
  tell(e.message);
  if (!(e instanceof api.Told)) throw e;
});
