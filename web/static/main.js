// The console: joins the page to a source, a stream and what comes back.

import * as api from './api.js';
import * as sources from './sources.js';
import {Stats} from './stats.js';
import {Stream} from './stream.js';
import {draw, read} from './results.js';

const $ = id => document.getElementById(id);
const CLIP = 'clip.mp4';

/** What tests and the curious look at. */
const view = window.millrace = {state: 'idle', sent: 0, answered: 0, dropped: 0, errors: 0, skipped: 0, message: '', last: null, seen: {}};

let run = null; // the stream that runs

function tell(text) {
  view.message = text;
  $('message').textContent = text;
  $('message').hidden = text === '';
}

const chosen = () => document.querySelector('input[name=source]:checked').value;

async function list() {
  const all = await api.models();
  const ready = all.filter(m => m.state === 'READY');
  const described = await Promise.all(ready.map(async m => ({...m, size: api.pictureSize(await api.metadata(m.name))})));
  // What takes pictures first, and of these the ones that this page is best with.
  const rank = m => (m.size ? 0 : 4) + (m.name === 'spotter' ? 0 : m.name === 'motion' ? 1 : 2);
  described.sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name));
  $('model').replaceChildren(...described.map(m => new Option(m.size ? m.name : `${m.name} (no pictures)`, m.name)));
  if (described.length === 0) {
    tell(all.length ? `No model is ready: ${all.map(m => `${m.name} ${m.state} ${m.reason}`).join(', ')}.` : 'The server has no model. Start it with one, such as: millrace serve --model motion=motion');
  }
  return Object.fromEntries(described.map(m => [m.name, m]));
}

async function open() {
  const video = $('video'), img = $('still');
  switch (chosen()) {
    case 'camera':
      return sources.camera(video);
    case 'clip':
      return sources.film(video, CLIP, {loop: true, what: 'The clip'});
    default: {
      const file = $('file').files[0];
      if (!file) throw new api.Told('Pick a video or a picture first.');
      if (file.type.startsWith('image/')) return sources.still(img, file);
      return sources.film(video, URL.createObjectURL(file), {what: file.name});
    }
  }
}

async function start(models) {
  stop();
  tell('');
  const name = $('model').value;
  if (!name) return;
  Object.assign(view, {state: 'connecting', sent: 0, answered: 0, dropped: 0, errors: 0, skipped: 0, last: null, seen: {}});
  const current = run = {stop() {}};
  buttons();
  let source;
  try {
    source = await open();
  } catch (e) {
    if (run === current) stop();
    tell(e.message);
    if (!(e instanceof api.Told)) throw e;
    return;
  }
  if (run !== current) { // stopped while the visitor was asked
    source.stop();
    return;
  }
  show(source);
  location.replace(`#model=${encodeURIComponent(name)}&source=${chosen()}`);
  const url = new URL(`/v2/models/${encodeURIComponent(name)}/stream`, location.href);
  url.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:';
  url.search = source.still ? '?policy=every' : '?policy=latest';
  const stream = new Stream(url.href), stats = new Stats();
  let encoding = false;
  const frame = async () => {
    if (encoding || !stream.ready) {
      view.skipped++;
      return;
    }
    encoding = true;
    const captured = performance.now();
    const blob = await source.encode(models[name]?.size);
    encoding = false;
    if (blob) stream.send(blob, captured);
  };
  stream.addEventListener('state', e => state(e.detail, stream, source, name));
  stream.addEventListener('result', e => {
    const result = read(e.detail);
    stats.add(e.detail);
    view.last = {seq: e.detail.seq, ...result};
    for (const l of result.labels) view.seen[l] = (view.seen[l] ?? 0) + 1;
    draw($('overlay'), result);
    $('texts').textContent = result.lines.join('\n');
    if (source.still) tell('');
  });
  stream.addEventListener('error', e => tell(`${name}: ${e.detail.message} (${e.detail.code})`));
  source.onend = text => {
    stop();
    tell(text);
  };
  const second = setInterval(() => {
    stats.second();
    stats.plot($('plot'));
  }, 1000);
  const figures = setInterval(() => report(stream, stats), 250);
  current.stop = () => {
    clearInterval(second);
    clearInterval(figures);
    stream.stop();
    report(stream, stats);
    source.stop();
  };
  stream.start();
  source.each?.(frame);
}

/** Makes room for the source's picture. */
function show(source) {
  $('still').hidden = !source.still;
  $('video').hidden = Boolean(source.still);
  $('stage').style.aspectRatio = `${source.width} / ${source.height}`;
  $('stage').classList.add('on');
}

async function state(now, stream, source, name) {
  view.state = now;
  buttons();
  if (now === 'running') {
    tell('');
    if (source.still) stream.send(source.still, performance.now());
  }
  if (now !== 'waiting') return;
  tell('The connection to the server is lost. Trying again…');
  draw($('overlay'), null);
  try {
    await api.metadata(name); // reached, and yet no stream: it can say why
  } catch (e) {
    if (view.state === 'waiting' && !e.message.startsWith('The server does not answer')) tell(e.message);
  }
}

function stop() {
  const last = run;
  run = null;
  last?.stop();
  if (view.state !== 'idle') view.state = 'stopped';
  draw($('overlay'), null);
  buttons();
}

function buttons() {
  $('start').disabled = run !== null;
  $('stop').disabled = run === null;
}

const number = (v, digits = 0) => Number.isFinite(v) ? v.toFixed(digits) : '–';

function report(stream, stats) {
  const now = stats.now();
  const dropped = Object.values(stream.dropped).reduce((a, b) => a + b, 0);
  Object.assign(view, {sent: stream.sent, answered: stream.answered, dropped, errors: stream.errors});
  $('fps').textContent = number(now.fps, 1);
  $('age').textContent = number(now.age);
  $('age95').textContent = number(now.age95);
  $('dropped').textContent = dropped;
  for (const key of ['rest', 'queue', 'prepare', 'run']) $('t-' + key).textContent = number(now[key], 1);
  const rows = [['sent', stream.sent], ['answered', stream.answered], ...Object.entries(stream.dropped).map(([r, n]) => [`dropped: ${r}`, n]),
    ['errors', stream.errors], ['left out before encoding', view.skipped]];
  $('counts').replaceChildren(...rows.map(([name, n]) => {
    const row = document.createElement('tr');
    const head = row.appendChild(document.createElement('th'));
    head.scope = 'row';
    head.textContent = name;
    row.insertCell().textContent = n;
    return row;
  }));
}

async function main() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  const hasClip = await fetch(CLIP, {method: 'HEAD'}).then(r => r.ok, () => false);
  $('source-clip').disabled = !hasClip;
  const models = await list();
  if (wanted.get('model') in models) $('model').value = wanted.get('model');
  const source = $('source-' + (wanted.get('source') ?? (hasClip ? 'clip' : 'camera')));
  if (source && !source.disabled) source.checked = true;
  $('file').addEventListener('change', () => { $('source-file').checked = true; });
  $('controls').addEventListener('submit', e => {
    e.preventDefault();
    start(models);
  });
  $('stop').addEventListener('click', () => { stop(); tell(''); });
  new ResizeObserver(() => draw($('overlay'), run && view.last)).observe($('stage'));
  buttons();
  if (wanted.get('start')) await start(models);
}

main().catch(e => {
  tell(e.message);
  if (!(e instanceof api.Told)) throw e;
});
