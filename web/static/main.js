// The console: connects the page with a source, a stream and its results.

import * as api from './api.js';
import * as sources from './sources.js';
import {draw} from './draw.js';
import {codecs} from './encoder.js';
import {Run} from './run.js';

const $ = id => document.getElementById(id);

/** @type {Map<string, {name: string, size: {width: number, height: number} | null, video: boolean}>} */
let models = new Map();
let run = null; // the current Run, or, while a source is being opened, an object with stop

/**
 * The state of the console, for tests. Each result is also an event "result" of
 * window.millrace; its detail is a Result with `media`, the frame's position in the
 * video in seconds.
 */
const view = window.millrace = Object.assign(new EventTarget(), {
  state: 'idle', message: '', note: '', sent: 0, bytes: 0, answered: 0, dropped: 0, errors: 0, skipped: 0, last: null,
});

/** Returns a function that shows a text in an element, and hides it when it is empty. @param {'message' | 'note'} id */
const textSetter = id => text => {
  if (view[id] === text) return; // a screen reader would read it again
  view[id] = text;
  $(id).textContent = text;
  $(id).hidden = text === '';
};
const showError = textSetter('message'), showNote = textSetter('note');

function stateChanged(state) {
  view.state = state;
  updateButtons();
}

/** Stops, and shows why. */
function ended(text) {
  stop();
  showError(text);
}

const chosen = () => document.querySelector('input[name=source]:checked').value;

/** Fills the list of models: first those that take pictures. */
async function listModels() {
  const all = await api.models();
  const ready = await Promise.all(all.filter(m => m.state === 'READY').map(async ({name}) => {
    const model = await api.metadata(name);
    return {name, size: api.pictureSize(model), video: api.takesVideo(model)};
  }));
  const rank = m => (m.size ? 0 : 4) + (m.name === 'spotter' ? 0 : m.name === 'motion' ? 1 : 2);
  ready.sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name));
  models = new Map(ready.map(m => [m.name, m]));
  $('model').replaceChildren(...ready.map(m => new Option(m.size ? m.name : `${m.name} (no pictures)`, m.name)));
  if (all.length === 0) {
    showError('The server has no model. Start it with one, such as: millrace serve --model motion=motion');
  } else if (ready.length === 0) {
    showError(`No model is ready: ${all.map(m => `${m.name} is ${m.state} ${m.reason ?? ''}`.trim()).join(', ')}. Load one, then reload this page.`);
  }
}

/** Fills the list of codecs with those that this browser can encode. */
async function listCodecs() {
  const all = await codecs();
  $('codec').append(...all.map(c => new Option(c.label, c.name)));
  $('codecs').hidden = all.length === 0;
}

/** Opens the chosen source. @param {AbortSignal} signal @returns {Promise<sources.Source>} */
async function open(signal) {
  const video = $('video'), file = $('file').files[0];
  switch (chosen()) {
    case 'camera':
      return sources.camera(video, signal);
    case 'clip':
      return sources.videoFile(video, 'clip.mp4', signal, {loop: true, what: 'The clip'});
  }
  if (!file) throw new api.UserError('Pick a video or a picture first.');
  return file.type.startsWith('image/') ? sources.picture($('still'), file, signal) : sources.videoFile(video, file, signal, {what: file.name});
}

/** Starts a run with the chosen settings, after stopping the current one. */
async function start() {
  stop();
  showError('');
  const model = models.get($('model').value);
  if (!model) return;
  Object.assign(view, {state: 'opening', sent: 0, bytes: 0, answered: 0, dropped: 0, errors: 0, skipped: 0, last: null});
  const opening = new AbortController();
  run = {stop: () => opening.abort()};
  updateButtons();
  saveSettings();
  let source;
  try {
    source = await open(opening.signal);
  } catch (e) {
    if (opening.signal.aborted) return;
    ended(e.message);
    if (!(e instanceof api.UserError)) throw e;
  }
  if (!source || opening.signal.aborted) return;
  show(source);
  run = new Run(model, source, model.video ? $('codec').value : 'jpeg', {view, showError, showNote, stateChanged, ended});
  run.start();
}

function stop() {
  const last = run;
  run = null;
  last?.stop();
  if (last) view.state = 'stopped';
  draw($('overlay'), null);
  $('stage').classList.remove('on');
  $('texts').textContent = '';
  showNote('');
  updateButtons();
}

/** Shows the element of the source. */
function show(source) {
  $('still').hidden = !source.still;
  $('video').hidden = Boolean(source.still);
  $('stage').style.aspectRatio = `${source.width} / ${source.height}`;
  $('stage').classList.add('on');
}

function updateButtons() {
  $('start').disabled = models.size === 0;
  $('stop').disabled = run === null;
}

/** Writes the settings into the address, so that it can be linked to. */
function saveSettings() {
  const hash = new URLSearchParams(location.hash.slice(1));
  hash.set('model', $('model').value);
  hash.set('source', chosen());
  if ($('codec').value === 'jpeg') hash.delete('codec');
  else hash.set('codec', $('codec').value);
  history.replaceState(null, '', '#' + hash);
}

/** Applies the settings of the address, and starts if it has autostart=1. */
async function applySettings() {
  const hash = new URLSearchParams(location.hash.slice(1));
  if (models.has(hash.get('model'))) $('model').value = hash.get('model');
  const source = $('source-' + hash.get('source')) ?? $('source-clip');
  (source.disabled ? $('source-camera') : source).checked = true;
  const [jpeg, ...others] = $('codec').options;
  (others.find(o => o.value === hash.get('codec')) ?? jpeg).selected = true;
  if (hash.get('autostart') === '1') await start();
}

async function main() {
  $('controls').addEventListener('submit', e => {
    e.preventDefault();
    start();
  });
  $('stop').addEventListener('click', () => ended(''));
  for (const id of ['model', 'codec']) {
    $(id).addEventListener('change', () => {
      if (run) start();
    });
  }
  $('file').addEventListener('change', () => {
    $('source-file').checked = true;
    if ($('file').files.length) start();
  });
  window.addEventListener('hashchange', applySettings);
  new ResizeObserver(() => draw($('overlay'), run && view.last)).observe($('stage'));
  updateButtons();
  $('source-clip').disabled = !(await api.consoleInfo()).clip;
  await Promise.all([listModels(), listCodecs()]);
  updateButtons();
  await applySettings();
}

main().catch(e => {
  showError(e.message);
  if (!(e instanceof api.UserError)) throw e;
});
