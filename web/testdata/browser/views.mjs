// The cases of the views, and of what Live shows beside boxes.

import assert from 'node:assert/strict';
import fs from 'node:fs';
import {createRequire} from 'node:module';
import {setTimeout as delay} from 'node:timers/promises';
import {Console, TIMEOUT, given} from './page.mjs';

const axe = fs.readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Waits until the function returns something true, and returns it. */
export async function until(what, look) {
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
  for (const [scheme, width, height] of [
    ['light', 1280, 800],
    ['dark', 1280, 800],
    ['dark', 360, 740],
  ]) {
    await c.page.emulateMedia({colorScheme: scheme});
    await c.page.setViewportSize({width, height});
    await delay(300); // charts are drawn anew
    const violations = await c.page.evaluate(async () =>
      (await window.axe.run(document)).violations.map(
        v => `${v.id}: ${v.nodes.map(n => `${n.target} ${n.failureSummary ?? ''}`).join('; ')}`,
      ),
    );
    assert.deepEqual(violations, [], `${name}, ${scheme}, ${width} px`);
    const wide = await c.page.evaluate('document.scrollingElement.scrollWidth');
    assert.ok(wide <= width, `${name} is ${wide} px wide on ${width} px`);
    if (width > 360) await picture(c, name, scheme);
  }
  await c.page.emulateMedia({colorScheme: 'light'});
  await c.page.setViewportSize({width: 1280, height: 800});
}

/** A server stream, as the server reports it. */
const stream = async name => (await fetch(`${given.url}/v2/streams/${name}`)).json();

/** The field with the label shows why the server refused it, to screen readers too, and has the focus. */
async function refused(form, label, text) {
  const field = form.getByLabel(label, {exact: true}).first();
  await until(`a refusal at ${label}`, () => field.getAttribute('aria-invalid'));
  assert.match(
    await form
      .page()
      .locator(`[id="${await field.getAttribute('aria-describedby')}"]`)
      .textContent(),
    text,
  );
  assert.equal(await field.evaluate(e => e === document.activeElement), true, `${label} has not the focus`);
}

/** Keeps a picture of the view for the docs. */
async function picture(c, name, scheme) {
  if (given.screenshots)
    await c.page.screenshot({
      path: `${given.screenshots}/console-${name}-${scheme}.png`,
      fullPage: name === 'live' || name === 'change',
    });
}

/** Keeps, with each result, the number that is in the picture that is shown. It runs in the page. */
function readNumbers() {
  window.numbers = [];
  window.millrace.addEventListener('result', ({detail: r}) => {
    const canvas = document.getElementById('picture'),
      g = canvas.getContext('2d');
    let n = 0;
    for (let bit = 0; bit < 16; bit++) {
      const [red] = g.getImageData(
        Math.round(((10 + 20 * bit) * canvas.width) / 320),
        Math.round((12 * canvas.height) / 240),
        1,
        1,
      ).data;
      if (red > 128) n |= 1 << bit;
    }
    window.numbers.push({shown: n, sent: Math.round(r.media * 30), seq: r.seq, hidden: canvas.hidden});
  });
}

const overlay = c =>
  c.page.evaluate(() => {
    const o = document.getElementById('overlay');
    return o
      .getContext('2d')
      .getImageData(0, 0, o.width, o.height)
      .data.some(v => v > 0);
  });

export const views = {
  // The picture that is shown is the one that its result is about: a number is in each picture.
  async exact(browser) {
    const saw = {};
    for (const codec of ['jpeg', 'vp8']) {
      const c = await Console.open(browser, `model=late&source=file&codec=${codec}`);
      await c.page.evaluate(readNumbers);
      await c.page.setInputFiles('#file', given.numbered);
      await c.untilReplayed('numbers.filter(n => !n.hidden).length >= 8');
      const numbers = await c.page.evaluate('window.numbers.filter(n => !n.hidden)');
      for (const {shown, sent} of numbers) assert.equal(shown, sent, JSON.stringify(numbers));
      await c.page.selectOption('#timing', 'at-once');
      await c.until('document.getElementById("picture").hidden');
      await c.page.evaluate('window.numbers = []');
      await c.untilReplayed('numbers.length > 0');
      assert.deepEqual(
        await c.page.evaluate('window.numbers.filter(n => !n.hidden)'),
        [],
        'a picture of a result is shown',
      );
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
      new PerformanceObserver(list => window.long.push(...list.getEntries().map(e => Math.round(e.duration)))).observe({
        type: 'longtask',
      });
    });
    await c.page.check('#traced');
    await c.until('m.answered >= 30 && m.last.boxes.length > 0');
    const long = await c.page.evaluate('window.long');
    await c.page.focus('#pick');
    await c.page.keyboard.press('Enter');
    const title = await c.page.textContent('#picked h3');
    const steps = await c.page.$$eval('#picked [role=rowheader]', all => all.map(e => e.textContent));
    assert.deepEqual(steps.slice(0, 8), [
      'capture',
      'encode',
      'network',
      'queue',
      'prepare',
      'model',
      'results',
      'reply',
    ]);
    assert.match(title, /^Frame \d+ of spotter/);
    const shown = () => c.page.evaluate(() => document.getElementById('picture').toDataURL());
    const before = await shown(),
      {answered} = await c.view();
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
    await until('no box below the threshold', async () => !(await overlay(c)));
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

  // Pixels that are twice as wide as high are shown so, with the boxes that the server has drawn.
  async aspect(browser) {
    const c = await Console.open(browser, '/streams', {wait: '[data-stream=wide] video'}),
      image = c.page.locator('[data-stream=wide] video');
    await until('a picture', () => image.evaluate(e => e.videoWidth === 160 && e.videoHeight === 240));
    const {width, height, pixel_aspect: aspect} = await stream('wide');
    assert.deepEqual([width, height, aspect], [160, 240, 2]);
    for (const [name, ratio] of [
      ['wide', 4 / 3],
      ['digits', 4 / 3],
    ]) {
      const at = await c.page.locator(`[data-stream=${name}] video`).evaluate(e => {
        const {width, height} = e.getBoundingClientRect(),
          {objectFit} = getComputedStyle(e);
        return {ratio: width / height, whole: objectFit === 'fill', outer: e.parentElement.clientWidth - width};
      });
      assert.ok(
        Math.abs(at.ratio - ratio) < 0.01 && at.whole && Math.abs(at.outer) < 1,
        `${name}: ${JSON.stringify(at)}`,
      );
    }
    await fetch(`${given.url}/v2/streams/wide`, {method: 'DELETE'});
    await c.page.locator('[data-stream=wide]').waitFor({state: 'detached'});
    await c.close();
  },

  // The picture moves as H.264, near the newest frame, and as motion JPEG in a browser that does not play H.264.
  async picture(browser) {
    const c = await Console.open(browser, '/streams', {wait: '[data-stream=digits] video'}),
      video = c.page.locator('[data-stream=digits] video');
    const look = () =>
      video.evaluate(v => {
        const canvas = new OffscreenCanvas(v.videoWidth || 1, v.videoHeight || 1),
          g = canvas.getContext('2d');
        g.drawImage(v, 0, 0);
        const {data} = g.getImageData(0, 0, canvas.width, canvas.height),
          end = v.buffered.length > 0 ? v.buffered.end(v.buffered.length - 1) : 0;
        return {at: v.currentTime, behind: end - v.currentTime, sum: data.reduce((a, b, i) => (a + b * i) % 1e9, 0)};
      });
    const seen = new Set();
    let last;
    await until('pictures that differ', async () => seen.add((last = await look()).sum).size > 5 && last.at > 1);
    assert.ok(last.behind < 2, `${last.behind} s behind`);
    assert.equal((await c.page.locator('[data-stream=digits] img').count()) + (await stream('digits')).lost.video, 0);
    await c.close();

    const other = await Console.open(browser);
    await other.page.addInitScript(() => {
      delete window.MediaSource;
    });
    await other.page.goto(`${given.url}/console/#/streams`);
    await other.page.reload();
    const image = other.page.locator('[data-stream=digits] img');
    await until('a JPEG', () => image.evaluate(e => e.naturalWidth > 0));
    await other.close();
  },

  async streams(browser) {
    const c = await Console.open(browser, '/streams', {wait: '[data-stream=digits]'});
    await until('a picture', () =>
      c.page.evaluate(() => document.querySelector('[data-stream=digits] video')?.videoWidth > 0),
    );
    await check(c, 'streams');
    const card = c.page.locator('[data-stream=digits]');
    await card.getByRole('button', {name: 'Pause'}).click();
    await card.getByRole('button', {name: 'Resume'}).click();
    await card.getByRole('button', {name: 'Pause'}).waitFor();

    await c.page.click('#add');
    const form = c.page.getByRole('form', {name: 'Add a stream'});
    await form.getByLabel('Name').fill('second');
    await form.getByLabel('Address').fill('ftp://127.0.0.1/clip.mp4');
    await form.getByLabel('Model', {exact: true}).selectOption('motion');
    await form.getByLabel('Most frames/s of the model').fill('5');
    await form.getByRole('button', {name: 'Add', exact: true}).click();
    await refused(form, 'Address', /^"ftp" is not a known kind of source.*\(invalid_argument\)$/);
    c.forgive();
    await form.getByLabel('Address').fill(`${given.url}/console/clip.mp4`);
    await form.getByRole('button', {name: 'Add another model'}).click();
    await form.getByRole('group', {name: 'Model 2'}).getByLabel('Model', {exact: true}).selectOption('slow');
    await form.getByRole('button', {name: 'Add', exact: true}).click();
    const second = c.page.locator('[data-stream=second]');
    await second.waitFor();
    const {models} = await stream('second');
    assert.deepEqual(
      models.map(m => [m.model, m.policy.max_fps]),
      [
        ['motion', 5],
        ['slow', undefined],
      ],
    );
    c.page.on('dialog', d => d.accept());
    await second.getByRole('button', {name: 'Remove'}).click();
    await second.waitFor({state: 'detached'});
    c.forgive();
    await c.close();
  },

  // Every setting of a stream that runs: changed settings alone are sent, and a refused setting is shown at its field.
  async change(browser) {
    const c = await Console.open(browser, '/streams', {wait: '[data-stream=digits]'}),
      sent = [];
    c.page.on('request', r => r.method() === 'PATCH' && sent.push(r.postDataJSON()));
    c.page.on('dialog', d => d.accept());
    await c.page.locator('[data-stream=digits]').getByRole('button', {name: 'Change'}).click();
    const form = c.page.getByRole('form', {name: 'Change digits'}),
      apply = form.getByRole('button', {name: 'Apply'});
    const model = (group = 'Model') =>
      form.getByRole('group', {name: group, exact: true}).getByLabel('Model', {exact: true});
    const field = label => form.getByLabel(label, {exact: true});
    const press = async want => {
      await apply.click();
      await until('a request', () => sent.length > 0);
      assert.deepEqual(sent.splice(0), [want]);
    };
    const done = async (want, what, look) => {
      await press(want);
      await until('the page says so', async () => (await form.getByRole('status').textContent()) === 'Changed.');
      await until(what, async () => look(await stream('digits')));
      assert.equal(await apply.isDisabled(), true, 'what was sent can be sent again');
    };
    const wrong = async (want, label, text) => {
      await press(want);
      await refused(form, label, text);
    };
    assert.equal(await apply.isDisabled(), true, 'there is nothing to send yet');
    await until('the models are listed', async () => (await model().locator('option').count()) > 1);
    assert.deepEqual(await model().locator('option').allTextContents(), [
      'gone',
      'late',
      'motion',
      'slow',
      'spare',
      'spotter',
      'tensors',
      'tracked',
    ]);

    await field('Most frames/s of the model').fill('5');
    await done({max_fps: 5}, 'max_fps', s => s.policy.max_fps === 5);
    await model().selectOption('tensors');
    await wrong({model: 'tensors'}, 'Model', /^model tensors takes tensors, not pictures.*\(unsupported\)$/);
    await model().selectOption('motion');
    await done({model: 'motion'}, 'another model', s => s.model === 'motion' && s.policy.max_fps === 5);
    await field('When there are too many frames').selectOption('run every frame');
    await field('Priority').selectOption('low');
    await field('Most frames/s of the source').fill('');
    await field('Most frames/s of the model').fill('');
    await done(
      {policy: 'every', priority: 'low', fps: 0, max_fps: 0},
      'the policy',
      s => s.policy.policy === 'every' && s.policy.priority === 'low' && !s.policy.max_fps && !s.settings.fps,
    );
    await field('Most frames/s of the source').fill('5000');
    await wrong({fps: 5000}, 'Most frames/s of the source', /^5000 is not between.*\(invalid_argument\)$/);
    await field('Most frames/s of the source').fill('5');
    await done({fps: 5}, 'fps', s => s.settings.fps === 5);

    // The password of an address is neither shown nor sent back.
    await field('Address').fill('ftp://127.0.0.1/clip.mp4');
    await wrong({source: 'ftp://127.0.0.1/clip.mp4'}, 'Address', /^"ftp" is not a known/);
    const address = `${given.url.replace('//', '//eva:geheim@')}/console/clip.mp4`,
      shown = address.replace('eva:geheim', '***');
    await field('Address').fill(address);
    await done({source: address}, 'the source', s => s.source === shown && s.state === 'running' && s.width === 320);
    assert.equal(await field('Address').inputValue(), shown);
    await field('Oldest result, ms').fill('900');
    await done({max_age_ms: 900}, 'max_age_ms', s => s.models[0].policy.max_age_ms === 900);
    await field('Address').fill(`${shown}?x`);
    await wrong({source: `${shown}?x`}, 'Address', /has \*\*\* in the place of/);
    await field('Address').fill(shown);

    // A second model: errors are at the fields of the model that they are about.
    await form.getByRole('button', {name: 'Add another model'}).click();
    await model('Model 2').selectOption('tensors');
    await press({models: [{model: 'tensors'}]});
    await refused(form.getByRole('group', {name: 'Model 2'}), 'Model', /tensors takes tensors/);
    assert.equal(await model('Model 1').getAttribute('aria-invalid'), null);
    await model('Model 2').selectOption('spotter');
    await form.getByRole('group', {name: 'Model 2'}).getByLabel('Most frames/s of the model').fill('3');
    await done(
      {models: [{model: 'spotter', max_fps: 3}]},
      'two models',
      s => s.models.length === 2 && s.models[1].policy.max_fps === 3,
    );
    await check(c, 'change');
    await form.getByRole('button', {name: 'Take model 1 out'}).click();
    await done(
      {models: [{model: 'motion', remove: true}]},
      'one model',
      s => s.models.length === 1 && s.models[0].model === 'spotter',
    );

    await field('File').fill('../digits.jsonl');
    await wrong({sinks: {file: '../digits.jsonl'}}, 'File', /\(permission_denied|invalid_argument\)$/);
    await field('File').fill('digits.jsonl');
    await field('Largest size of the file').fill('1MiB');
    await field('Webhook').fill(`${given.url}/nothing`);
    await field('Secret of the webhook').fill('geheim');
    await done(
      {sinks: {file: 'digits.jsonl', max_size: '1MiB', webhook: `${given.url}/nothing`, webhook_secret: 'geheim'}},
      'the sinks',
      s => s.sinks.file?.sent > 0 && s.sinks.webhook,
    );
    assert.deepEqual([await field('File').inputValue(), await field('Secret of the webhook').inputValue()], ['', '']);
    await field('Remove the file').check();
    await done({sinks: {file: ''}}, 'no file', s => !s.sinks.file && s.sinks.webhook);

    await form.getByRole('button', {name: 'Reset to the configuration'}).click();
    const s = await until('the configuration', async () => {
      const now = await stream('digits');
      return now.model === 'spotter' && !now.sinks.webhook && now;
    });
    assert.deepEqual(
      [s.settings, s.policy.max_age_ms, s.source.endsWith('/clip.mp4')],
      [{fps: 10, loop: true}, undefined, true],
    );
    await until(
      'the form shows it',
      async () =>
        (await field('Most frames/s of the source').inputValue()) === '10' &&
        (await field('Address').inputValue()) === s.source,
    );

    await c.page.locator('[data-stream=digits]').getByRole('button', {name: 'Remove', exact: true}).click();
    const gone = c.page
      .getByRole('status')
      .filter({hasText: 'The stream digits was removed. It is a stream of the configuration, and returns when'});
    await gone.waitFor();
    await c.page.locator('[data-stream=digits]').waitFor({state: 'detached'});
    await gone.getByRole('button', {name: 'Bring digits back'}).click();
    await c.page.locator('[data-stream=digits]').waitFor();
    await gone.waitFor({state: 'detached'});
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
    for (const [view, wait] of [
      ['streams', '#add'],
      ['models', '[data-model=motion]'],
      ['tasks', '#submit-task'],
      ['traces', '#reason'],
      ['metrics', '#metrics .chart canvas'],
    ]) {
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
    const workers = async () =>
      Number((await (await fetch(`${given.url}/v2/status`)).json()).models.find(m => m.name === 'spare')?.workers ?? 0);
    await until('the inputs', async () => /in\s*image\s*UINT8/.test(await spare.textContent()));
    await spare.getByRole('button', {name: 'Add a worker'}).click();
    await until('a second worker', async () => (await workers()) === 2);
    await spare.getByRole('button', {name: 'Remove a worker'}).click();
    await until('one worker', async () => (await workers()) === 1);

    const spotter = c.page.locator('[data-model=spotter]');
    await spotter.getByText('Try it').click();
    await spotter.getByLabel('With a picture').setInputFiles(given.pictures[0]);
    await until('a reply', async () => /"name": "boxes"/.test(await spotter.getByRole('status').textContent()));
    await spotter
      .getByLabel(/^Request for/)
      .fill('{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}');
    await spotter.getByRole('button', {name: 'Send'}).click();
    await until('an error', async () =>
      /\(invalid_argument\)/.test((await spotter.getByRole('alert').allTextContents()).join()),
    );
    await until('a histogram', () => spotter.locator('svg.bars, .few').count());
    assert.match(await spotter.textContent(), /since the model was loaded \([1-9]/);
    await check(c, 'models');

    c.page.on('dialog', d => d.accept());
    await spare.getByRole('button', {name: 'Unload'}).click();
    await spare.getByRole('button', {name: 'Load', exact: true}).first().click();
    await until('the model again', async () => (await workers()) === 1);
    c.forgive();
    await c.close();
  },

  // From a frame to its trace, and from there into the tracing system.
  async traces(browser) {
    const c = await Console.open(browser, 'model=spotter&source=clip&autostart=1');
    await c.until('m.answered >= 30');
    const kept = async () =>
      (await (await fetch(`${given.url}/v2/traces?model=spotter&reason=sampled&limit=200`)).json()).traces.filter(
        t => t.endpoint === 'ws',
      ).length;
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
    for (const name of ['wait', 'batch', 'prepare', 'run', 'results', 'write'])
      assert.ok(spans.includes(name), `no span ${name} in ${spans}`);
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
    await until('charts', async () => (await c.page.locator('.chart canvas').count()) >= 8);
    await delay(given.screenshots ? 30_000 : 0);
    await check(c, 'metrics');
    // The switch of colours wins over the system's.
    await c.page.selectOption('#theme', 'dark');
    await until('dark', () => c.page.evaluate('getComputedStyle(document.body).colorScheme === "dark"'));
    await c.close();
  },

  // The page of the OpenAPI document: it calls a model, breaks no rule of its policy, and loads nothing from elsewhere.
  async docs(browser) {
    const page = await browser.newPage({colorScheme: 'dark'}),
      faults = [];
    page.on('console', m => m.type() === 'error' && faults.push(m.text()));
    page.on('pageerror', e => faults.push(e.stack));
    page.on(
      'request',
      r => new URL(r.url()).origin !== given.url && !r.url().startsWith('data:') && faults.push(r.url()),
    );
    await page.goto(`${given.url}/docs`);
    const model = page.locator('[id="operations-tag-model_slow"]');
    await model.click({timeout: TIMEOUT});
    await page.getByText('/v2/models/slow/infer').click();
    await page.getByText('Try it out').click();
    await page.getByText('Execute', {exact: true}).click();
    await until('the reply', async () =>
      /"model_name": "slow"/.test(await page.locator('.live-responses-table').textContent()),
    );
    for (const scheme of ['dark', 'light']) {
      await page.emulateMedia({colorScheme: scheme});
      await until(
        scheme,
        async () =>
          (await page.evaluate('document.documentElement.classList.contains("dark-mode")')) === (scheme === 'dark'),
      );
    }
    assert.deepEqual(faults, []);
    await page.close();
  },
};
