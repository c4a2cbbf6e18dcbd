// Drives the console in a real Chromium. The one argument is JSON, see
// browser_test.go. Prints a line of JSON for each case, {"case", "of", "error"?,
// "saw"?}, and {"ask"} where the test has to do something: it answers with a
// line on standard input.

import assert from 'node:assert/strict';
import readline from 'node:readline';
import {setTimeout as delay} from 'node:timers/promises';
import {chromium} from 'playwright-core';
import {Console, TIMEOUT, Way, given} from './page.mjs';
import {rules} from './rules.mjs';
import {prepare, session} from './session.mjs';
import {tasks} from './tasks.mjs';
import {check, until, views} from './views.mjs';

const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  `--host-resolver-rules=MAP ${given.foreign} 127.0.0.1`,
];
const DEVICE = '--use-fake-device-for-media-stream';
const CAMERA = [DEVICE, '--use-fake-ui-for-media-stream', `--use-file-for-fake-video-capture=${given.camera}`];

const JPEG = 1,
  VP8 = 5; // in the header of a frame

const answers = readline.createInterface({input: process.stdin})[Symbol.asyncIterator]();
let running = ''; // the name of a function in withCamera or withoutCamera
const say = line => process.stdout.write(JSON.stringify({...line, of: running}) + '\n');
async function ask(what) {
  say({ask: what});
  await answers.next();
}

/** Streams the clip as inter-coded video. @returns {Promise<number>} bytes a frame */
async function clipAs(browser, codec) {
  const c = await Console.open(browser, `model=spotter&source=clip&codec=${codec}&autostart=1`);
  assert.equal(await c.page.inputValue('#codec'), codec);
  await c.until('m.answered >= 60');
  const view = await c.balanced(),
    results = await c.seen();
  assert.equal(view.errors, 0);
  await c.shows('rate');
  // The middle one: after frames that a busy machine discarded, the server asks for key frames, which are larger.
  const size = (await c.sent()).map(f => f.size).sort((a, b) => a - b)[view.sent >> 1];
  assert.ok(size < 5000, `${size} bytes a frame: as JPEG it is some 10 KB`);
  await c.close();
  say({case: `clip/${codec}`, saw: {view, results}});
  return Math.round(size);
}

/** Frames are left out before they are encoded, not sent to wait. */
async function behind(browser, codec) {
  const c = await Console.open(browser, `model=slow&source=clip&codec=${codec}&autostart=1`);
  await c.until('m.answered >= 8 && m.skipped > 0');
  const view = await c.balanced();
  assert.ok(2 * view.dropped < view.answered, `frames were sent that had to wait: ${JSON.stringify(view)}`);
  assert.match(await c.page.textContent('#texts'), /delay_us {2}INT64/);
  await c.close();
  return view;
}

/** VP8 was chosen, JPEG is sent, and the page says so. @returns {Promise<string>} what it says */
async function fellBack(c, why) {
  await c.until('m.note !== "" && m.answered >= 10 && m.message === ""');
  const view = await c.balanced();
  assert.match(view.note, /^The server cannot decode VP8.*as JPEG/);
  assert.match(view.note, why);
  assert.equal(await c.page.textContent('[role=status]'), view.note);
  assert.deepEqual([view.message, view.errors, await c.page.inputValue('#codec')], ['', 0, 'vp8']);
  assert.equal((await c.sent()).at(-1).codec, JPEG);
  return view.note;
}

/** VP8 was chosen and is sent. */
async function asChosen(c) {
  await c.until('m.answered >= 10 && m.message === ""');
  const view = await c.balanced();
  assert.deepEqual([view.note, view.message, await c.page.isVisible('#note')], ['', '', false]);
  const codecs = (await c.sent()).map(f => f.codec);
  assert.deepEqual([...new Set(codecs)], [VP8]);
}

/** The server decodes no video any more: of streams that were stopped it takes a while. */
const noVideos = () =>
  until('no video of clients', async () =>
    /^millrace_videos{from="sent"} 0$/m.test(await (await fetch(`${given.url}/metrics`)).text()),
  );

/** Streams larger frames than the model looks at, to one that is slow. */
async function smaller(browser, codec) {
  const c = await Console.open(browser, `model=late&source=file&codec=${codec}`);
  await c.page.setInputFiles('#file', given.large);
  await c.until('m.last && m.last.width === 320 && m.last.boxes.length > 0');
  const at = (await c.seen()).length;
  await c.until(`m.answered >= ${at + 8}`);
  const view = await c.balanced(),
    results = await c.seen(),
    drawn = await c.drawn();
  assert.equal(view.errors, 0);
  assert.match(await c.page.textContent('#counts'), /size advised by the server320 × 240/);
  assert.ok(drawn.boxes > 0 && drawn.there === drawn.edges, JSON.stringify(drawn));
  const sizes = results.map(r => `${r.width}x${r.height}`);
  assert.deepEqual([...new Set(sizes)], ['640x480', '320x240']);
  assert.equal(sizes.lastIndexOf('640x480') + 1, sizes.indexOf('320x240'));
  await c.page.click('#start'); // anew, as large as before
  await c.until('m.last');
  assert.equal((await c.seen()).at(-1).width, 640);
  assert.doesNotMatch(await c.page.textContent('#counts'), /advises/);
  await c.close();
  say({case: `clip/smaller/${codec}`, saw: {view, drawn, results}});
  return sizes.indexOf('320x240');
}

const withCamera = {
  ...views,
  ...rules,
  ...tasks,

  async camera(browser) {
    const c = await Console.open(browser, 'model=spotter&source=camera&autostart=1');
    await c.until('m.answered >= 90');
    const view = await c.balanced(),
      seen = await c.seen(),
      drawn = await c.drawn();
    assert.ok(drawn.boxes > 0, 'no box was drawn');
    assert.equal(drawn.there, drawn.edges, 'not every edge of a box is on the overlay');
    await c.shows('fps', 'age', 'age95', 't-run');
    await c.until('m.message === ""');
    await c.page.click('#stop');
    await c.until('m.state === "stopped"');
    const stopped = await c.view();
    assert.equal(stopped.sent, stopped.answered + stopped.dropped + stopped.errors);
    assert.equal(
      await c.page.evaluate(() => {
        const o = document.getElementById('overlay');
        return o
          .getContext('2d')
          .getImageData(0, 0, o.width, o.height)
          .data.some(v => v > 0);
      }),
      false,
      'boxes are left after the end',
    );
    await c.close();
    return {view, drawn, results: seen};
  },

  async clip(browser) {
    const c = await Console.open(browser, 'model=spotter&source=clip&autostart=1');
    await c.until('m.answered >= 120');
    const view = await c.balanced(),
      results = await c.seen(),
      drawn = await c.drawn();
    assert.equal(drawn.there, drawn.edges);
    await c.close();
    return {view, drawn, results};
  },

  // The same as inter-coded video, by all that this browser encodes.
  async codecs(browser) {
    const c = await Console.open(browser);
    const names = await c.page.$$eval('#codec option', all => all.map(o => o.value));
    await c.close();
    assert.ok(names[0] === 'jpeg' && names.includes('vp8'), `this browser encodes ${names}`);
    const sizes = {};
    for (const name of names.slice(1)) sizes[name] = await clipAs(browser, name);
    return {sizes};
  },

  // Everything without a mouse, at the width of a phone; the model is changed on the way.
  async keyboard(browser) {
    const c = await Console.open(browser, '', {viewport: {width: 360, height: 740}, colorScheme: 'dark'});
    assert.equal(await c.page.inputValue('#model'), 'spotter', 'the model that is chosen beforehand');
    await c.page.focus('#model');
    await c.page.keyboard.press('Tab');
    await c.page.keyboard.press('Enter'); // the clip is chosen beforehand
    await c.until('m.answered >= 10');
    await c.page.focus('#model');
    await c.page.keyboard.type('motion');
    await c.until('m.last && m.last.boxes.length > 0 && m.last.boxes[0].label === ""');
    assert.match(c.page.url(), /#\/live\?model=motion&source=clip$/);
    assert.equal(
      await c.page.evaluate('document.scrollingElement.scrollWidth'),
      360,
      'the page is wider than the phone',
    );
    const unnamed = await c.page.$$eval('select, input, button', all =>
      all.filter(e => !e.labels?.length && !e.textContent.trim()).map(e => e.id),
    );
    assert.deepEqual(unnamed, [], 'controls without a name');
    await c.close();
  },

  async file(browser) {
    const c = await Console.open(browser, 'model=motion&source=file');
    await c.page.setInputFiles('#file', given.short);
    // Of two seconds, a slow machine may send so few frames that the model finds no motion.
    await c.untilReplayed('drawn.boxes > 0');
    await c.until('/has ended/.test(m.message)');
    const view = await c.view(),
      drawn = await c.drawn();
    assert.equal(view.sent, view.answered + view.dropped + view.errors);
    assert.equal(drawn.there, drawn.edges);
    await c.page.selectOption('#model', 'spotter');
    await c.page.selectOption('#codec', 'vp8'); // of no concern to pictures
    for (const picture of given.pictures) {
      await c.page.setInputFiles('#file', picture);
      await c.until('m.answered === 1 && m.last.boxes.length > 0');
      assert.equal(await c.page.evaluate('getComputedStyle(document.getElementById("still")).display'), 'block');
    }
    await c.page.setInputFiles('#file', given.turned); // as phones film: encoders do not turn it
    await c.untilReplayed('m.last && m.last.width === 320 && m.last.height === 240 && m.last.boxes.length >= 5');
    assert.equal((await c.sent()).at(-1).codec, VP8);
    await c.page.setInputFiles('#file', given.nonsense);
    await c.until('/cannot be played/.test(m.message)');
    const complaints = c.complaints.splice(0);
    await c.close();
    return {view, drawn, complaints};
  },

  // More frames than the model can take: the page leaves out the older ones, before it encodes them.
  async behind(browser) {
    return {jpeg: await behind(browser, 'jpeg'), vp8: await behind(browser, 'vp8')};
  },

  // The connection breaks: the session goes on over another one, with a key frame.
  async cut(browser) {
    const way = await Way.open();
    const c = await Console.open(browser, 'model=spotter&source=clip&codec=vp8&autostart=1', {base: way.url});
    await c.until('m.answered >= 10');
    const {session} = await c.view();
    for (let i = 0; i < 3; i++) {
      await c.page.evaluate('window.sent = []');
      way.cut();
      await c.until('m.state === "waiting"');
      const {answered} = await c.balanced();
      await c.until(`m.state === "running" && m.answered >= ${answered + 10} && m.message === ""`);
      assert.equal((await c.sent())[0].key, true, 'the first frame of the connection is no key frame');
    }
    const view = await c.balanced();
    assert.equal(view.session, session);
    assert.equal(view.errors, 0);
    await c.page.click('#stop');
    await c.until('m.state === "stopped"');
    const stopped = await c.view();
    assert.equal(stopped.sent, stopped.answered + stopped.dropped + stopped.errors);
    c.forgive();
    await c.close();
    way.close();
    return {view};
  },

  // What the server has of a session is answered, whatever becomes of the connection.
  async missed(browser) {
    const way = await Way.open();
    const c = await Console.open(browser, '', {base: way.url});
    await c.page.evaluate(prepare, TIMEOUT);
    await c.page.evaluate(async () => {
      const {open, picture, until} = window.prepared;
      const slow = await open('slow', {codec: 'jpeg', policy: {mode: 'every', window: 4}}),
        motion = await open('motion', {codec: 'jpeg'});
      for (let i = 0; i < 4; i++) {
        await slow.whenReady();
        slow.send(picture, {note: i});
      }
      await motion.whenReady();
      motion.send(picture);
      await until(() => motion.inFlight === 0); // so the server has those before it
      window.prepared.before = window.prepared.connection.id;
    });
    way.cut();
    const saw = await c.page.evaluate(async () => {
      const {
        streams: [slow],
        before,
        until,
        sums,
        connection,
      } = window.prepared;
      await until(() => slow.state === 'running' && slow.inFlight === 0);
      return {same: connection.id === before, slow: sums()[0]};
    });
    assert.deepEqual(saw, {same: true, slow: {sent: 4, results: 4, errors: 0, dropped: 0}});
    c.forgive();
    await c.close();
    way.close();
    return saw;
  },

  // Plain mode, with no more of a client than a browser has.
  async plain(browser) {
    const c = await Console.open(browser);
    await c.page.evaluate(prepare, TIMEOUT);
    const reply = await c.page.evaluate(
      () =>
        new Promise((done, failed) => {
          const socket = new WebSocket('/v2/models/motion/stream');
          socket.onopen = () => socket.send(window.prepared.picture);
          socket.onmessage = m => done(JSON.parse(m.data));
          socket.onclose = e => failed(new Error(`closed: ${e.code} ${e.reason}`));
        }),
    );
    assert.deepEqual([reply.seq, reply.width, reply.height], [0, 300, 150]); // a canvas as it comes
    await c.close();
    return {reply};
  },

  // A server that decodes as many videos as it may, or none: they go as JPEG until the visitor starts anew.
  async noDecoder(browser) {
    await noVideos(); // of the tests before
    const others = await Console.open(browser);
    await others.page.evaluate(prepare, TIMEOUT);
    await others.page.evaluate(async decoders => {
      const {open, until, canvas} = window.prepared;
      for (let i = 0; i < decoders; i++) {
        // a stream has a place when it has sent
        const stream = await open('motion', {codec: 'vp8'});
        await until(() => {
          if (stream.ready) stream.send(canvas);
          return stream.counts.results > 0;
        });
      }
    }, given.decoders);
    const c = await Console.open(browser, 'model=spotter&source=clip&codec=vp8&autostart=1');
    const notes = [await fellBack(c, /limits\.max_decoders: /)];
    await others.page.evaluate('window.prepared.streams.forEach(s => s.abort())');
    await others.close();
    await noVideos();
    await c.page.click('#start');
    await asChosen(c);
    await ask('hide ffmpeg');
    try {
      await c.page.click('#start');
      notes.push(await fellBack(c, /ffmpeg, which is not installed on the server/));
    } finally {
      await ask('show ffmpeg');
    }
    await c.page.click('#start');
    await asChosen(c);
    await c.close();
    return {notes};
  },

  // A server that is short of compute asks for frames as the model sees them.
  async smaller(browser) {
    const sizes = {};
    for (const codec of ['jpeg', 'vp8', 'av1']) sizes[codec] = await smaller(browser, codec);
    return {sizes};
  },

  // Streams of one session, each with what the server has to say of it.
  async session(browser) {
    const c = await Console.open(browser);
    await c.page.evaluate(prepare, TIMEOUT);
    const saw = await c.page.evaluate(session);
    assert.deepEqual(saw.states, ['running', 'closed']);
    assert.deepEqual(
      saw.inOrder,
      Array.from({length: 20}, (_, i) => i),
    );
    assert.ok(saw.advised > 0 && saw.advised <= 10, `advised: ${saw.advised} frames a second`);
    assert.deepEqual(saw.undecoded, {undecoded: 1});
    assert.equal(saw.keyframes, 1, 'the one that the server asked for');
    assert.equal(saw.unknown.code, 'not_found');
    for (const s of saw.sums) assert.equal(s.sent, s.results + s.dropped + s.errors, JSON.stringify(s));
    await c.close();
    return saw;
  },

  async encoderFails(browser) {
    const c = await Console.open(browser, 'model=spotter&source=clip&codec=vp8&autostart=1');
    await c.until('m.answered > 0');
    await c.page.route('**/client/worker.js', async route => {
      const reply = await route.fetch();
      await route.fulfill({
        response: reply,
        body:
          "VideoEncoder.prototype.encode = () => { throw new DOMException('out of order', 'OperationError'); };\n" +
          (await reply.text()),
      });
    });
    await c.page.click('#start');
    await c.until('m.state === "stopped"');
    const {message} = await c.view();
    assert.match(message, /out of order.*JPEG/);
    await c.page.selectOption('#codec', 'jpeg');
    await c.page.click('#start');
    await c.until('m.answered > 0 && m.message === ""');
    await c.close();
    return {message};
  },

  async outputs(browser) {
    const c = await Console.open(browser);
    const read = outputs => c.page.evaluate(outputs => window.millrace.read(outputs), outputs);
    const tensor = (name, shape, data) => ({name, datatype: name === 'labels' ? 'BYTES' : 'FP32', shape, data});
    const two = tensor('boxes', [1, 2, 4], [1, 2, 3, 4, 5, 6, 7, 8]);
    const first = {x1: 1, y1: 2, x2: 3, y2: 4},
      second = {x1: 5, y1: 6, x2: 7, y2: 8};
    for (const [outputs, want] of [
      [[], {}],
      [[tensor('boxes', [1, 0, 4], []), tensor('scores', [1, 0], [])], {}],
      [
        [two],
        {
          boxes: [
            {...first, label: ''},
            {...second, label: ''},
          ],
        },
      ],
      [
        [two, tensor('scores', [1, 2], [0.5, 0.25]), tensor('classes', [1, 2], [3, 0])],
        {
          boxes: [
            {...first, score: 0.5, class: 3, label: '3'},
            {...second, score: 0.25, class: 0, label: '0'},
          ],
        },
      ],
      [
        [
          two,
          tensor('scores', [1, 2], [0.5, 0.25]),
          tensor('classes', [1, 2], [3, 0]),
          tensor('labels', [1, 2], ['cat', 'dog']),
        ],
        {
          boxes: [
            {...first, score: 0.5, class: 3, label: 'cat'},
            {...second, score: 0.25, class: 0, label: 'dog'},
          ],
        },
      ],
      [
        [two, tensor('scores', [1, 2, 3], [0, 0.75, 0.5, 0.25, 0, 0])],
        {boxes: [{...first, score: 0.75, class: 1, label: '1'}]},
      ],
      [
        [tensor('boxes', [1, 1, 4], [1, 2, 3, 4]), tensor('corners', [1, 1, 4, 2], [2, 2, 3, 3, 2, 4, 1, 3])],
        {
          boxes: [
            {
              ...first,
              label: '',
              corners: [
                [2, 2],
                [3, 3],
                [2, 4],
                [1, 3],
              ],
            },
          ],
        },
      ],
      [
        [tensor('classes', [1, 2], [4, 9]), tensor('scores', [1, 2], [0.75, 0.125])],
        {
          classes: [
            {label: '4', class: 4, score: 0.75},
            {label: '9', class: 9, score: 0.125},
          ],
        },
      ],
      [
        [tensor('classes', [1, 1], [4]), tensor('scores', [1, 1], [0.75]), tensor('labels', [1, 1], ['<b>cat'])],
        {classes: [{label: '<b>cat', class: 4, score: 0.75}]},
      ],
      [[tensor('keypoints', [1, 2, 1, 3], [1, 2, 0.5, 3, 4, 0.25])], {poses: [[[1, 2, 0.5]], [[3, 4, 0.25]]]}],
      [
        [{...tensor('mask', [1, 2, 2], [0, 1, 2, 0]), datatype: 'UINT8'}, tensor('region', [1, 4], [0, 0, 20, 10])],
        {mask: {width: 2, height: 2, data: [0, 1, 2, 0], region: [0, 0, 20, 10]}},
      ],
      [[tensor('embedding', [1, 3], [0, 1, 0])], {lines: ['embedding  FP32 [1, 3]']}],
    ]) {
      const got = JSON.parse(JSON.stringify(await read(outputs))); // without what is undefined
      assert.deepEqual(got, {boxes: [], poses: [], classes: [], lines: [], ...want});
    }
    // A mask tints its pixels, a box and a key point are drawn, and a class is written in the corner.
    const drawn = await c.page.evaluate(() => {
      const {read, draw} = window.millrace,
        at = [];
      const tensor = (name, shape, data) => ({name, datatype: 'FP32', shape, data});
      for (const [outputs, threshold, points] of [
        [
          [tensor('mask', [1, 2, 2], [0, 1, 2, 0])],
          0,
          [
            [150, 25],
            [50, 75],
            [50, 25],
          ],
        ],
        [
          [tensor('boxes', [1, 1, 4], [60, 40, 160, 90]), tensor('scores', [1, 1], [0.5])],
          0,
          [
            [60, 65],
            [160, 65],
            [110, 65],
          ],
        ],
        [[tensor('boxes', [1, 1, 4], [60, 40, 160, 90]), tensor('scores', [1, 1], [0.5])], 0.6, [[60, 65]]],
        [
          [
            tensor('boxes', [1, 1, 4], [60, 20, 120, 80]),
            tensor('corners', [1, 1, 4, 2], [90, 20, 120, 50, 90, 80, 60, 50]),
          ],
          0,
          [
            [105, 35],
            [75, 65],
            [60, 30],
            [90, 50],
          ],
        ],
        [
          [tensor('keypoints', [1, 1, 1, 3], [100, 50, 0.9])],
          0,
          [
            [100, 50],
            [150, 50],
          ],
        ],
        [
          [tensor('classes', [1, 1], [4]), tensor('scores', [1, 1], [0.75])],
          0,
          [
            [9, 9],
            [150, 80],
          ],
        ],
      ]) {
        const canvas = document.createElement('canvas');
        [canvas.width, canvas.height] = [200, 100];
        const g = canvas.getContext('2d');
        draw(g, {...read(outputs), width: 200, height: 100}, threshold, 1);
        at.push(points.map(([x, y]) => g.getImageData(x, y, 1, 1).data[3] > 0));
      }
      return at;
    });
    assert.deepEqual(drawn, [
      [true, true, false],
      [true, true, false],
      [false],
      [true, true, false, false],
      [true, false],
      [true, false],
    ]);
    await c.close();
  },

  async unloaded(browser) {
    const all = await Promise.all(
      ['jpeg', 'vp8'].map(codec => Console.open(browser, `model=gone&source=clip&codec=${codec}&autostart=1`)),
    );
    for (const c of all) await c.until('m.answered > 0');
    await ask('unload gone');
    const messages = [];
    for (const c of all) {
      await c.until('m.state === "stopped"');
      const {message, ...view} = await c.view();
      assert.match(message, /unloaded.*\(unloaded\).*choose another/);
      assert.equal(view.sent, view.answered + view.dropped + view.errors);
      await c.close();
      messages.push(message);
    }
    return {messages};
  },

  async refused(browser) {
    const messages = [];
    for (const [codec, refused] of [
      ['jpeg', 'm.errors > 0'],
      ['vp8', 'm.state === "stopped"'],
    ]) {
      const c = await Console.open(browser, `model=tensors&source=clip&codec=${codec}&autostart=1`);
      await c.until(refused);
      const {message} = await c.view();
      assert.match(message, /^tensors: .*\((unsupported|invalid_argument)\).*Choose another/);
      await c.close();
      messages.push(message);
    }
    return {messages};
  },

  // The last one: the server is another one then.
  async restart(browser) {
    const all = await Promise.all(
      ['jpeg', 'vp8'].map(codec => Console.open(browser, `model=motion&source=clip&codec=${codec}&autostart=1`)),
    );
    for (const c of all) await c.until('m.answered > 10');
    await ask('stop');
    const before = [],
      after = [];
    for (const c of all) {
      await c.until('m.state === "waiting" && /Trying again/.test(m.message)');
      before.push(await c.balanced());
    }
    await ask('start');
    for (const [i, c] of all.entries()) {
      await c.until(`m.state === "running" && m.answered > ${before[i].answered + 10} && m.message === ""`);
      after.push(await c.balanced());
      c.forgive();
      await c.close();
    }
    assert.notEqual(after[1].session, before[1].session);
    return {before, after};
  },
};

const withoutCamera = {
  // The clients of this server need keys.
  async login(browser) {
    const {url, keys} = given.guarded;
    const c = await Console.open(browser, 'model=motion&source=clip&autostart=1', {base: url, wait: '#key'});
    const enter = async key => {
      await c.page.fill('#key', key);
      await c.page.keyboard.press('Enter');
    };
    const inside = () => c.page.isVisible('#logout');
    assert.equal(await c.page.locator('#live, nav + .row').count(), 0, 'there is a view without a login');
    for (const key of ['wrong', keys.old, 'wr€ng']) {
      await enter(key);
      await c.page
        .getByText(key === keys.old ? 'has expired' : key === 'wrong' ? 'key or token is wrong' : 'cannot be a key')
        .waitFor();
      assert.equal(await inside(), false);
    }
    await check(c, 'login');
    await enter(keys.viewer);
    await c.until('m.answered >= 10 && m.message === ""');
    assert.match(await c.page.textContent('#who'), /viewer$/);
    assert.doesNotMatch(
      c.page.url() + (await c.page.evaluate('document.cookie + JSON.stringify(localStorage)')),
      /mr_/,
      'the page or its address has the key',
    );
    await c.balanced();

    // The cookie is enough for the next page, whose video and connection have no header.
    await c.page.reload();
    await c.page.click('#start');
    await c.until('m.answered >= 10');
    await c.page.click('nav a:has-text("Models")');
    const model = c.page.locator('[data-model=motion]');
    await model.getByRole('button', {name: 'Add a worker'}).click();
    await model.getByText(/has not the role manage/).waitFor();
    assert.ok(await inside(), 'a role that lacks ends the login');

    await c.page.click('#logout');
    await c.page.waitForSelector('#key');
    assert.equal((await c.page.context().cookies()).length, 0);
    await c.page.fill('#user', 'eva');
    for (const password of ['wrong', 'sécret: of eva']) {
      await c.page.fill('#password', password);
      await c.page.keyboard.press('Enter');
      await (
        password === 'wrong' ? c.page.getByText('the name or the password is wrong') : c.page.locator('#who')
      ).waitFor();
    }
    assert.match(await c.page.textContent('#who'), /eva$/);
    await c.page.click('#logout');
    await c.page.reload();
    await c.page.waitForSelector('#key');
    await enter(keys.all);
    await c.page.click('nav a:has-text("Models")');
    await c.page.locator('[data-model=motion]').waitFor();
    await ask('revoke');
    await c.page.waitForSelector('#key');
    c.forgive();
    await c.close();
  },

  // Where management is apart, the page has its buttons there only.
  async apart(browser) {
    for (const [base, managed] of [
      [given.apart.url, false],
      [given.apart.management, true],
    ]) {
      const c = await Console.open(browser, '', {base});
      await c.page.click('nav a:has-text("Models")');
      const model = c.page.locator('[data-model=motion]');
      await model.getByText('Try it').waitFor();
      if (managed) {
        await model.getByRole('button', {name: 'Add a worker'}).click();
        await c.page.waitForSelector('[data-model=motion] button:has-text("Remove a worker"):not([disabled])');
      } else {
        await c.page.waitForSelector('#models [data-elsewhere]');
        assert.deepEqual(await model.getByRole('button', {name: /worker|load/i}).allTextContents(), []);
        assert.equal(await model.getByText('Load with parameters').count(), 0);
      }
      await c.page.click('nav a:has-text("Streams")');
      await c.page.waitForSelector(managed ? '#add' : '#streams [data-elsewhere]');
      assert.equal(await c.page.locator('#add').count(), managed ? 1 : 0);
      assert.equal(await c.page.locator('[data-elsewhere]:visible').count(), managed ? 0 : 1);
      await c.close();
    }
  },

  async denied(browser) {
    return told(browser, /permission.*Allow/s);
  },
  async insecure(browser) {
    const c = await Console.open(browser, '', {base: given.insecure});
    assert.equal(await c.page.isVisible('#codecs'), false, 'there is no encoder on such a page');
    await c.close();
    return told(browser, /http:\/\/localhost:\d+\/console\/.*--tls-self-signed/s, {base: given.insecure});
  },
  // The browser cannot be brought to these by itself, or not on every machine.
  async none(browser) {
    return told(browser, /camera was not found/, {}, 'NotFoundError');
  },
  async busy(browser) {
    return told(browser, /another program/, {}, 'NotReadableError');
  },
};

/** A camera is refused; the page says why, and can be used on. */
async function told(browser, text, options, fault) {
  const c = await Console.open(browser, 'source=camera', options);
  if (fault) {
    await c.page.evaluate(name => {
      navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException('', name));
    }, fault);
  }
  await c.page.click('#start');
  await c.until('m.message !== ""');
  const {message, state} = await c.view();
  assert.match(message, text);
  assert.equal(state, 'stopped');
  assert.equal(await c.page.textContent('[role=alert]'), message);
  await c.page.check('#source-clip');
  await c.page.click('#start');
  await c.until('m.answered > 0 && m.message === ""');
  await c.close();
  return {message};
}

for (const [flags, cases] of [
  [CAMERA, withCamera],
  [[DEVICE], withoutCamera],
]) {
  const browser = await chromium.launch({executablePath: given.chromium, args: [...FLAGS, ...flags]});
  for (const [name, run] of Object.entries(cases)) {
    if (!new RegExp(given.only).test(name)) continue;
    running = name;
    try {
      say({case: name, saw: await run(browser)});
    } catch (e) {
      say({case: name, error: e.stack});
    }
    // Of a case that failed: its streams would disturb the next cases.
    for (const left of browser.contexts()) await left.close();
  }
  await browser.close();
}
process.exit();
