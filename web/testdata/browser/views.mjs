// The cases of the views, and of what Live shows beside boxes.

import assert from 'node:assert/strict';
import fs from 'node:fs';
import {createRequire} from 'node:module';
import {setTimeout as delay} from 'node:timers/promises';
import {Console, TIMEOUT, given} from './page.mjs';

const axe = fs.readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Waits until the function returns something true, and returns it. */
async function until(what, look) {
  for (const end = Date.now() + TIMEOUT; ;) {
    const value = await look();
    if (value) return value;
    if (Date.now() > end) throw new Error(`never came: ${what}`);
    await delay(100);
  }
}

/** Looks for violations of accessibility rules, in light and dark and at the width of a phone. */
export async function check(c, name) {
  await c.page.evaluate(axe);
  for (const [scheme, width, height] of [['light', 1280, 800], ['dark', 1280, 800], ['dark', 360, 740]]) {
    await c.page.emulateMedia({colorScheme: scheme});
    await c.page.setViewportSize({width, height});
    await delay(300); // charts are drawn anew
    const violations = await c.page.evaluate(async () => (await window.axe.run(document)).violations.map(v => `${v.id}: ${v.nodes.map(n => `${n.target} ${n.failureSummary ?? ''}`).join('; ')}`));
    assert.deepEqual(violations, [], `${name}, ${scheme}, ${width} px`);
    const wide = await c.page.evaluate('document.scrollingElement.scrollWidth');
    assert.ok(wide <= width, `${name} is ${wide} px wide on ${width} px`);
    if (width > 360) await picture(c, name, scheme);
  }
  await c.page.emulateMedia({colorScheme: 'light'});
  await c.page.setViewportSize({width: 1280, height: 800});
}

/** Keeps a picture of the view for the docs. */
async function picture(c, name, scheme) {
  if (given.screenshots) await c.page.screenshot({path: `${given.screenshots}/console-${name}-${scheme}.png`, fullPage: name === 'live'});
}

/** Keeps, with each result, the number that is in the picture that is shown. It runs in the page. */
function readNumbers() {
  window.numbers = [];
  window.millrace.addEventListener('result', ({detail: r}) => {
    const canvas = document.getElementById('picture'), g = canvas.getContext('2d');
    let n = 0;
    for (let bit = 0; bit < 16; bit++) {
      const [red] = g.getImageData(Math.round((10 + 20 * bit) * canvas.width / 320), Math.round(12 * canvas.height / 240), 1, 1).data;
      if (red > 128) n |= 1 << bit;
    }
    window.numbers.push({shown: n, sent: Math.round(r.media * 30), seq: r.seq, hidden: canvas.hidden});
  });
}

const overlay = c => c.page.evaluate(() => {
  const o = document.getElementById('overlay');
  return o.getContext('2d').getImageData(0, 0, o.width, o.height).data.some(v => v > 0);
});

export const views = {
  // The picture that is shown is the one that its result is about: a number is in each picture.
  async exact(browser) {
    const saw = {};
    for (const codec of ['jpeg', 'vp8']) {
      const c = await Console.open(browser, `model=late&source=file&codec=${codec}`);
      await c.page.evaluate(readNumbers);
      await c.page.setInputFiles('#file', given.numbered);
      // After a second without a result the page shows pictures at once, and hides those of results.
      await c.until('numbers.filter(n => !n.hidden).length >= 8');
      const numbers = await c.page.evaluate('window.numbers.filter(n => !n.hidden)');
      for (const {shown, sent} of numbers) assert.equal(shown, sent, JSON.stringify(numbers));
      await c.page.selectOption('#timing', 'at-once');
      await c.until('document.getElementById("picture").hidden');
      await c.close();
      saw[codec] = numbers.length;
    }
    return saw;
  },

  // A click pauses on a frame, and shows its way.
  async picked(browser) {
    const c = await Console.open(browser, 'model=spotter&source=clip&autostart=1');
    await c.page.evaluate(() => {
      window.long = [];
      new PerformanceObserver(list => window.long.push(...list.getEntries().map(e => Math.round(e.duration)))).observe({type: 'longtask'});
    });
    await c.page.check('#traced');
    await c.until('m.answered >= 30 && m.last.boxes.length > 0');
    const long = await c.page.evaluate('window.long');
    await c.page.focus('#pick');
    await c.page.keyboard.press('Enter');
    const title = await c.page.textContent('#picked h3');
    const steps = await c.page.$$eval('#picked [role=rowheader]', all => all.map(e => e.textContent));
    assert.deepEqual(steps.slice(0, 8), ['capture', 'encode', 'network', 'queue', 'prepare', 'model', 'results', 'reply']);
    assert.match(title, /^Frame \d+ of spotter/);
    const shown = () => c.page.evaluate(() => document.getElementById('picture').toDataURL());
    const before = await shown(), {answered} = await c.view();
    await c.until(`m.answered > ${answered + 5}`);
    assert.equal(await shown(), before, 'the picture goes on');
    assert.equal(await c.page.textContent('#picked h3'), title);
    assert.match(await c.page.textContent('#trace-link'), /^[0-9a-f]{32}$/);

    const [download] = await Promise.all([c.page.waitForEvent('download'), c.page.click('#snapshot')]);
    const png = fs.readFileSync(await download.path());
    assert.deepEqual([png.readUInt32BE(16), png.readUInt32BE(20), png.toString('latin1', 1, 4)], [320, 240, 'PNG']);
    await c.page.click('#raw');
    const json = JSON.parse(await c.page.textContent('#json'));
    assert.equal(title.split(' ')[1], String(json.seq));
    assert.ok(json.outputs.some(o => o.name === 'boxes'));
    assert.equal(await overlay(c), true);
    await c.page.fill('#threshold', '1');
    await until('no box below the threshold', async () => !await overlay(c));
    await c.page.fill('#threshold', '0');
    await c.page.click('#raw');
    await check(c, 'live');
    await c.page.click('#pick');
    await c.page.waitForSelector('#picked', {state: 'detached'});

    await c.page.fill('#max_fps', '2');
    await c.page.press('#max_fps', 'Enter');
    await until('max_fps is in force', async () => /max_fps 2/.test(await c.page.textContent('#in-force')));
    await c.close();
    return {title, 'long tasks (ms)': long};
  },

  async streams(browser) {
    const c = await Console.open(browser, '/streams', {wait: '[data-stream=digits]'});
    await until('a picture', () => c.page.evaluate(() => document.querySelector('[data-stream=digits] img')?.naturalWidth > 0));
    await check(c, 'streams');
    const card = c.page.locator('[data-stream=digits]');
    await card.getByRole('button', {name: 'Pause'}).click();
    await card.getByRole('button', {name: 'Resume'}).click();
    await card.getByRole('button', {name: 'Change'}).click();
    await card.getByLabel('Most frames/s of the model').fill('5');
    await card.getByRole('button', {name: 'Apply'}).click();
    await until('the change', async () => (await (await fetch(`${given.url}/v2/streams/digits`)).json()).policy.max_fps === 5);

    await c.page.click('#add');
    const form = c.page.getByRole('form', {name: 'Add a stream'});
    await form.getByLabel('Name').fill('second');
    await form.getByLabel('Source', {exact: true}).fill('ftp://127.0.0.1/clip.mp4');
    await form.getByLabel('Model, or several').selectOption('motion');
    await form.getByRole('button', {name: 'Add'}).click();
    assert.match(await form.getByRole('alert').textContent(), /source: .*\(/);
    c.forgive();
    await form.getByLabel('Source', {exact: true}).fill(`${given.url}/console/clip.mp4`);
    await form.getByRole('button', {name: 'Add'}).click();
    const second = c.page.locator('[data-stream=second]');
    await second.waitFor();
    c.page.on('dialog', d => d.accept());
    await second.getByRole('button', {name: 'Remove'}).click();
    await second.waitFor({state: 'detached'});
    c.forgive();
    await c.close();
  },

  // A proxy passes a path on to the server: the console works there, and asks for nothing outside of the path.
  async path(browser) {
    const c = await Console.open(browser, 'model=motion&source=clip&autostart=1', {base: given.path, wait: '#key'});
    const outside = [];
    c.page.on('request', r => r.url().startsWith(given.path) || outside.push(r.url()));
    c.page.on('websocket', w => w.url().startsWith(given.path.replace('http', 'ws')) || outside.push(w.url()));
    await c.page.fill('#key', given.guarded.keys.all);
    await c.page.keyboard.press('Enter');
    await c.until('m.answered >= 10 && m.message === ""');
    for (const [view, wait] of [['streams', '#add'], ['models', '[data-model=motion]'], ['traces', '#reason'], ['metrics', '#metrics .chart canvas']]) {
      await c.page.goto(`${given.path}/console/#/${view}`);
      await c.page.waitForSelector(wait);
    }
    await c.page.click('#logout');
    await c.page.waitForSelector('#key');
    assert.deepEqual(outside, []);
    c.forgive(); // of the answers to requests without a login
    await c.close();
  },

  async models(browser) {
    const c = await Console.open(browser, '/models', {wait: '[data-model=spare]'});
    const spare = c.page.locator('[data-model=spare]');
    const workers = async () => Number((await (await fetch(`${given.url}/v2/status`)).json()).models.find(m => m.name === 'spare')?.workers ?? 0);
    await until('the inputs', async () => /in\s*image\s*UINT8/.test(await spare.textContent()));
    await spare.getByRole('button', {name: 'Add a worker'}).click();
    await until('a second worker', async () => await workers() === 2);
    await spare.getByRole('button', {name: 'Remove a worker'}).click();
    await until('one worker', async () => await workers() === 1);

    const spotter = c.page.locator('[data-model=spotter]');
    await spotter.getByText('Try it').click();
    await spotter.getByLabel('With a picture').setInputFiles(given.pictures[0]);
    await until('a reply', async () => /"name": "boxes"/.test(await spotter.getByRole('status').textContent()));
    await spotter.getByLabel(/^Request for/).fill('{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}');
    await spotter.getByRole('button', {name: 'Send'}).click();
    await until('an error', async () => /\(invalid_argument\)/.test((await spotter.getByRole('alert').allTextContents()).join()));
    await until('a histogram', () => spotter.locator('svg.bars, .few').count());
    assert.match(await spotter.textContent(), /since the model was loaded \([1-9]/);
    await check(c, 'models');

    c.page.on('dialog', d => d.accept());
    await spare.getByRole('button', {name: 'Unload'}).click();
    await spare.getByRole('button', {name: 'Load', exact: true}).first().click();
    await until('the model again', async () => await workers() === 1);
    c.forgive();
    await c.close();
  },

  // From a frame to its trace, and from there into the tracing system.
  async traces(browser) {
    const c = await Console.open(browser, 'model=spotter&source=clip&autostart=1');
    await c.until('m.answered >= 30');
    const kept = async () => (await (await fetch(`${given.url}/v2/traces?model=spotter&reason=sampled&limit=200`)).json()).traces.filter(t => t.endpoint === 'ws').length;
    const before = await kept();
    assert.equal(await c.page.isChecked('#traced'), false);
    await c.until('m.answered >= 60');
    assert.equal(await kept(), before, 'frames are traced before anybody asks for it');
    await c.page.check('#traced');
    await c.until('m.state === "running" && m.answered >= 30');
    await c.page.click('#pick');
    await c.page.waitForSelector('#kept');
    const id = await c.page.textContent('#trace-link');
    const spans = await c.page.$$eval('#kept [role=rowheader]', all => all.map(e => e.textContent));
    for (const name of ['wait', 'batch', 'prepare', 'run', 'results', 'write']) assert.ok(spans.includes(name), `no span ${name} in ${spans}`);
    assert.equal(await c.page.getAttribute('#kept a[rel=noreferrer]', 'href'), `${given.tracing}${id}`);
    await c.page.click('#trace-link');
    await c.page.waitForSelector('#trace [role=rowheader]');
    assert.ok((await c.page.textContent('#trace h3')).includes(id));
    await until('the frame in the list', () => c.page.locator(`[data-trace="${id}"]`).count());
    await c.page.selectOption('#order', 'slowest');
    const times = await until('the list', async () => {
      const all = await c.page.$$eval('#traces tbody td:nth-child(6)', all => all.map(e => Number(e.textContent)));
      return all.length > 1 && all.every((v, i) => i === 0 || v <= all[i - 1]) && all;
    });
    await check(c, 'traces');

    // A frame that was dropped is kept by a rule.
    await c.page.selectOption('#reason', 'dropped');
    await until('only dropped frames', async () => {
      const all = await c.page.$$eval('#traces tbody td:nth-child(5)', all => all.map(e => e.textContent));
      return all.length > 0 && all.every(t => t.includes('dropped'));
    });
    await c.close();
    return {id, spans, times: times.slice(0, 3)};
  },

  async metrics(browser) {
    const c = await Console.open(browser, '/metrics', {wait: '.chart canvas'});
    await until('charts', async () => await c.page.locator('.chart canvas').count() >= 8);
    await delay(given.screenshots ? 30_000 : 0);
    await check(c, 'metrics');
    // The switch of colours wins over the system's.
    await c.page.selectOption('#theme', 'dark');
    await until('dark', () => c.page.evaluate('getComputedStyle(document.body).colorScheme === "dark"'));
    await c.close();
  },

  // The page of the OpenAPI document: it calls a model, breaks no rule of its policy, and loads nothing from elsewhere.
  async docs(browser) {
    const page = await browser.newPage({colorScheme: 'dark'}), faults = [];
    page.on('console', m => m.type() === 'error' && faults.push(m.text()));
    page.on('pageerror', e => faults.push(e.stack));
    page.on('request', r => new URL(r.url()).origin !== given.url && !r.url().startsWith('data:') && faults.push(r.url()));
    await page.goto(`${given.url}/docs`);
    const model = page.locator('[id="operations-tag-model_slow"]');
    await model.click({timeout: TIMEOUT});
    await page.getByText('/v2/models/slow/infer').click();
    await page.getByText('Try it out').click();
    await page.getByText('Execute', {exact: true}).click();
    await until('the reply', async () => /"model_name": "slow"/.test(await page.locator('.live-responses-table').textContent()));
    for (const scheme of ['dark', 'light']) {
      await page.emulateMedia({colorScheme: scheme});
      await until(scheme, async () => (await page.evaluate('document.documentElement.classList.contains("dark-mode")')) === (scheme === 'dark'));
    }
    assert.deepEqual(faults, []);
    await page.close();
  },
};
