// The client in a real Chromium against a real server:
// MILLRACE=.../bin/millrace node --test test/browser.test.mjs

import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {readFileSync} from 'node:fs';
import {mkdtemp, readFile, rm, writeFile} from 'node:fs/promises';
import {tmpdir} from 'node:os';
import path from 'node:path';
import {after, before, test} from 'node:test';
import {chromium} from 'playwright-core';
import {DIST, Server, Way, site} from './server.mjs';

const FLAGS = [
  '--headless',
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  '--use-fake-device-for-media-stream',
  '--use-fake-ui-for-media-stream',
];
const MODELS = [
  'find=motion',
  'slow=delay,fixed=200ms',
  'id=identity',
  // On any machine the camera and the video are faster than these two.
  'slower=delay,fixed=1s',
  'late=motion,batching.kind=soft,batching.max_size=8,batching.max_delay=1s',
];
const INSTALLED = process.env.INSTALLED ?? DIST; // the files of the package as it is installed
const TIMEOUT = 60_000; // ms, for any one thing
const BLANK =
  '<!doctype html><html lang="en"><link rel="icon" href="data:,"><title>test</title>' +
  '<script type="module">import * as M from "/dist/index.js"; window.M = M</script>';

let pages, server, context, folder;
const files = {'blank.html': BLANK};
const complaints = [];

before(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'millrace-'));
  const page = /```html\n(.*?)```/s.exec(await readFile(new URL('../README.md', import.meta.url), 'utf8'))[1];
  for (const file of ['index.js', 'codecs.js', 'worker.js', 'pcm.js'])
    files[`node_modules/@millrace/client/dist/${file}`] = await readFile(path.join(INSTALLED, file));
  const make = (name, args) => {
    execFileSync('ffmpeg', ['-nostdin', '-v', 'error', ...args, path.join(folder, name)]);
    files[name] = readFileSync(path.join(folder, name));
  };
  make('clip.webm', [
    '-f',
    'lavfi',
    '-i',
    'testsrc2=size=640x480:rate=30',
    '-t',
    '2',
    '-c:v',
    'libvpx',
    '-deadline',
    'realtime',
    '-cpu-used',
    '8',
    '-b:v',
    '1M',
  ]);
  for (const name of ['one.png', 'one.bmp']) make(name, ['-i', path.join(folder, 'clip.webm'), '-frames:v', '1']);
  make('turned.mp4', ['-i', path.join(folder, 'clip.webm'), '-pix_fmt', 'yuv420p', '-preset', 'ultrafast']);
  turn(files['turned.mp4']);
  pages = await site(files);
  server = await Server.start([
    '--origins',
    pages.url,
    '--limits-max-decoders',
    '2',
    '--quotas-decoders',
    '2',
    ...MODELS.flatMap(model => ['--model', model]),
  ]);
  files['index.html'] = page.replace('http://127.0.0.1:8000', server.url);
  context = await chromium.launchPersistentContext(path.join(folder, 'profile'), {
    executablePath: '/usr/bin/chromium',
    args: FLAGS,
  });
  context.setDefaultTimeout(TIMEOUT);
});

/** Has whoever plays an MP4 turn its picture by a quarter: the matrix of its track says so (ISO 14496-12, 8.3.2). */
function turn(mp4) {
  const at = mp4.indexOf('tkhd\0', 0, 'latin1');
  assert.ok(at > 0);
  [0, 1 << 16, 0, -(1 << 16), 0, 0, 0, 0, 1 << 30].forEach((value, i) => mp4.writeInt32BE(value, at + 44 + 4 * i));
}

after(async () => {
  await context?.close();
  await server?.stop();
  pages?.close();
  if (folder) await rm(folder, {recursive: true, force: true});
  assert.deepEqual(complaints, []);
});

/** A new page with the client as M, and what the cases use. */
async function blank() {
  const page = await context.newPage();
  page.on('pageerror', e => complaints.push(e.message));
  await page.goto(`${pages.url}/blank.html`);
  await page.waitForFunction('window.M');
  await page.evaluate(() => {
    window.open = async (url, options, connecting) => {
      const connection = await M.connect(url, connecting);
      return Object.assign(await connection.open(options), {connection});
    };
    window.balanced = ({counts}) => {
      const {sent, results, dropped, errors, inFlight} = counts;
      if (sent !== results + dropped + errors + inFlight) throw new Error(JSON.stringify(counts));
      return counts;
    };
    window.results = async (stream, n) => {
      // reads n results, then closes
      const found = [],
        other = [];
      for await (const reply of stream) {
        if (reply.type !== 'result') other.push(reply.reason ?? reply.error.message);
        else if (found.push(reply) === n) break;
      }
      stream.connection.close();
      return {
        found,
        other,
        counts: balanced(stream),
        codec: stream.codec,
        refused: stream.refused.map(r => [r.codec, r.error.field]),
      };
    };
    window.jobs = 0; // pictures given to encoders
    const post = Worker.prototype.postMessage;
    Worker.prototype.postMessage = function (job, ...rest) {
      if (job.frame) window.jobs++;
      post.call(this, job, ...rest);
    };
    window.sizes = []; // bytes of each frame that was sent
    const send = WebSocket.prototype.send;
    WebSocket.prototype.send = function (data) {
      if (typeof data !== 'string') window.sizes.push(data.size ?? data.byteLength);
      send.call(this, data);
    };
    window.until = async what => {
      while (!what()) await new Promise(done => setTimeout(done, 5));
    };
    window.failure = promise =>
      promise.then(
        () => 'no error',
        e => [e.name, e.code, e.field, e.message],
      );
  });
  return page;
}

/** Waits until the server decodes no video: the decoders of a page are free a moment after the page has closed. */
async function undecoding() {
  while (!/^millrace_videos\{from="sent"\} 0$/m.test(await (await fetch(`${server.url}/metrics`)).text()))
    await new Promise(done => setTimeout(done, 20));
}

/** Runs a function in a new page. */
async function inPage(f, ...args) {
  const page = await blank();
  await undecoding();
  try {
    return await page.evaluate(f, [server.url, ...args]);
  } finally {
    await page.close();
  }
}

test('the page of the README', async () => {
  const own = await context.newPage();
  own.on('pageerror', e => complaints.push(e.message));
  await own.goto(`${pages.url}/index.html`);
  await own.click('button');
  await own.waitForFunction(() =>
    /^[1-9]\d+ results as \w+, the last after \d+ ms$/.test(document.querySelector('[role=status]').textContent),
  );
  const red = await own.evaluate(async () => {
    // boxes are drawn, on a picture
    const canvas = document.querySelector('canvas');
    for (;;) {
      const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      let edges = 0,
        other = 0;
      for (let i = 0; i < data.length; i += 4)
        data[i] > 200 && data[i + 1] < 60 && data[i + 2] < 60 ? edges++ : data[i + 1] > 60 && other++;
      if (edges > 100 && other > 1000) return edges;
      await new Promise(done => requestAnimationFrame(done));
    }
  });
  assert.ok(red > 100);
  await own.close();
});

test('a page of another origin with a key: calls, and streams by a ticket', async () => {
  const file = path.join(folder, 'keys.yaml');
  const key = execFileSync(process.env.MILLRACE, ['keys', 'add', file, 'page', '--role', 'infer'], {
    encoding: 'utf8',
  }).trim();
  const guarded = await Server.start(['--origins', pages.url, '--model', 'find=motion', '--auth-keys', file]);
  try {
    const saw = await inPage(
      async ([, url, key]) => {
        const token = async () => key,
          rest = new M.REST(url, {token});
        const model = (await rest.model('find')).name;
        const {found} = await results(
          await open(url, {model: 'find', codec: 'jpeg', source: await M.camera()}, {token}),
          5,
        );
        const refused = await Promise.all(
          [new M.REST(url).model('find'), M.connect(url, {token: 'wrong'}), rest.status()].map(failure),
        );
        return {model, found: found.length, refused: refused.map(r => r[1])};
      },
      guarded.url,
      key,
    );
    assert.deepEqual(saw, {
      model: 'find',
      found: 5,
      refused: ['unauthenticated', 'unauthenticated', 'permission_denied'],
    });
  } finally {
    await guarded.stop();
  }
});

test('the camera, in each codec', async () => {
  const codecs = await inPage(() => M.videoCodecs());
  assert.deepEqual(codecs, ['h264', 'vp8', 'vp9', 'av1']);
  const sizes = {};
  for (const codec of [...codecs, 'jpeg']) {
    const saw = await inPage(async ([url, codec]) => {
      const saw = await results(await open(url, {model: 'find', codec, source: await M.camera()}), 25);
      return {...saw, sizes, found: saw.found.map(r => [r.width, r.height, M.boxes(r).length, r.timings])};
    }, codec);
    assert.equal(saw.codec, codec);
    // When the machine is busy, the server discards frames before the decoder: `undecoded`.
    assert.deepEqual(
      saw.other.filter(what => !['superseded', 'overtaken', 'undecoded'].includes(what)),
      [],
      codec,
    );
    // When the machine is busy, the server advises smaller pictures.
    assert.deepEqual(saw.found[0].slice(0, 2), [640, 480]);
    assert.ok(
      saw.found.every(([width, height]) => width <= 640 && width * 3 === height * 4),
      JSON.stringify(saw.found),
    );
    const whole = saw.found.every(([width]) => width === 640);
    assert.ok(
      saw.found.some(([, , n]) => n > 0),
      'nothing moved',
    );
    for (const [, , , {total, ...steps}] of saw.found) {
      assert.equal(Object.keys(steps).length, 8);
      assert.ok(
        Math.abs(Object.values(steps).reduce((a, b) => a + b) - total) < 1 &&
          Object.values(steps).every(step => step >= 0),
        JSON.stringify({total, ...steps}),
      );
    }
    // The middle one: after frames that were discarded, the server asks for key frames, which are larger.
    if (whole) sizes[codec] = saw.sizes.sort((a, b) => a - b)[saw.sizes.length >> 1];
  }
  for (const codec of codecs.filter(codec => sizes[codec] && sizes.jpeg)) {
    assert.ok(sizes[codec] < sizes.jpeg / 2, JSON.stringify(sizes));
  }
});

test('the screen', async () => {
  const {counts} = await inPage(async ([url]) =>
    results(await open(url, {model: 'find', source: await M.screen()}), 2),
  );
  assert.equal(counts.results, 2);
});

test('a video: the loop ends with it, and frames are told by their place in it', async () => {
  const saw = await inPage(async ([url]) => {
    const found = [],
      ends = [];
    while (found.length === 0) {
      // Of two seconds, the server may answer nothing on a slow machine.
      const stream = await open(url, {model: 'find', source: await M.file('/clip.webm'), each: frame => frame.media});
      for await (const r of stream) if (r.type === 'result') found.push([r.note, r.width, r.height]);
      stream.connection.close();
      ends.push([stream.state, balanced(stream).inFlight]);
    }
    return {found, ends};
  });
  assert.deepEqual(
    saw.ends,
    saw.ends.map(() => ['closed', 0]),
  );
  // When the machine is busy, the server advises smaller pictures.
  assert.ok(
    saw.found.every(([media, w, h]) => media >= 0 && media <= 2 && w <= 640 && w * 3 === h * 4),
    JSON.stringify(saw.found),
  );
});

test('a turned video is sent upright', async () => {
  for (const codec of ['vp8', 'jpeg']) {
    const saw = await inPage(async ([url, codec]) => {
      const source = await M.file('/turned.mp4', {loop: true}),
        saw = await results(await open(url, {model: 'find', codec, source}), 3);
      return saw.found.map(r => [r.width, r.height]);
    }, codec);
    assert.deepEqual([saw.length, saw[0]], [3, [480, 640]], codec);
    // When the machine is busy, the server advises smaller pictures.
    assert.ok(
      saw.every(([width, height]) => width <= 480 && width * 4 === height * 3),
      JSON.stringify(saw),
    );
  }
});

test('pictures: as they are if the server can decode them, otherwise as JPEG', async () => {
  const size = files['one.png'].length;
  for (const name of ['one.png', 'one.bmp']) {
    const saw = await inPage(async ([url, name]) => {
      const blob = await (await fetch(`/${name}`)).blob();
      // A File as of <input type=file>.
      const given = name === 'one.bmp' ? new File([blob], name, {type: 'image/bmp'}) : `/${name}`;
      const stream = await open(url, {model: 'find', source: await M.file(given)}),
        found = [];
      for await (const r of stream) found.push([r.type, r.width, r.height, r.error?.message]);
      stream.connection.close();
      return {found, counts: balanced(stream)};
    }, name);
    assert.deepEqual(
      saw.found.map(r => r.slice(0, 3)),
      [['result', 640, 480]],
      JSON.stringify(saw.found),
    );
    assert.equal(saw.counts.bytes - 32 === size, name === 'one.png', name);
  }
});

test('a canvas, and pictures given to send', async () => {
  const saw = await inPage(async ([url]) => {
    const canvas = document.createElement('canvas');
    [canvas.width, canvas.height] = [320, 240];
    const context = canvas.getContext('2d');
    let x = 0;
    const timer = setInterval(() => {
      context.fillStyle = 'navy';
      context.fillRect(0, 0, 320, 240);
      context.fillStyle = 'white';
      context.fillRect(x++ % 280, 100, 40, 40);
    }, 20);
    const {found} = await results(await open(url, {model: 'find', source: M.canvas(canvas, {fps: 20})}), 20);
    const boxed = found.filter(r => M.boxes(r).length > 0).length;
    const stream = await open(url, {model: 'find', codec: 'jpeg', maxSide: 160, policy: {mode: 'every', window: 4}});
    const given = [
      canvas,
      new VideoFrame(canvas, {timestamp: 0}),
      await createImageBitmap(canvas),
      await new Promise(done => canvas.toBlob(done, 'image/jpeg')),
    ];
    const sizes = [],
      sending = (async () => {
        for (const [note, picture] of given.entries()) {
          await stream.whenReady();
          stream.send(picture, {note});
        }
      })();
    for await (const r of stream) if (sizes.push([r.note, r.type, r.width]) === given.length) break;
    await sending;
    clearInterval(timer);
    stream.connection.close();
    return {boxed, sizes, closed: given[1].format === null && given[2].width === 0, counts: balanced(stream)};
  });
  assert.ok(saw.boxed > 0, 'nothing moved');
  assert.deepEqual(
    saw.sizes.sort(),
    [160, 160, 160, 320].map((width, i) => [i, 'result', width]),
  );
  assert.ok(saw.closed);
});

test('the microphone', async () => {
  for (const [codec, bytes] of [
    ['pcm16', 1600],
    ['pcmf32', 3200],
  ]) {
    const saw = await inPage(async ([url, codec]) => {
      const {found, counts} = await results(
        await open(url, {
          model: 'id',
          outputs: 'binary',
          source: await M.microphone({sampleRate: 8000, samples: 800, codec}),
        }),
        8,
      );
      return {sizes: found.map(r => r.bytes - 32), counts};
    }, codec);
    assert.deepEqual(
      saw.sizes,
      saw.sizes.map(() => bytes),
      JSON.stringify(saw),
    );
  }
});

test('the codec is what browser and server can', async () => {
  const saw = await inPage(async ([url]) => {
    const auto = async (codec = 'auto') => open(url, {model: 'find', codec, source: await M.camera()});
    const [first, second] = [await auto(), await auto(['av1', 'vp9'])];
    // A stream has a decoder when the stream has sent a frame.
    for (const stream of [first, second]) await until(() => stream.counts.results > 0);
    const third = await auto(),
      told = [];
    const refused = await failure(auto('vp8'));
    third.addEventListener('codec', e => told.push(e.detail.codec));
    const seen = await results(third, 5);
    const codecs = [first, second, third].map(s => s.codec);
    for (const stream of [first, second]) stream.connection.close();
    return {codecs, refused, seen: seen.refused, n: seen.counts.results};
  });
  assert.deepEqual(saw.codecs, ['h264', 'av1', 'jpeg']);
  assert.deepEqual(
    saw.seen,
    ['h264', 'vp8', 'vp9', 'av1'].map(codec => [codec, 'limits.max_decoders']),
  );
  assert.deepEqual(saw.refused.slice(1, 3), ['overloaded', 'limits.max_decoders']);
  assert.equal(saw.n, 5);
});

test('a stream that has no decoder for its first key frame goes on with pictures', async () => {
  const saw = await inPage(async ([url]) => {
    const canvas = document.createElement('canvas');
    [canvas.width, canvas.height] = [320, 240];
    canvas.getContext('2d').fillRect(0, 0, 320, 240);
    const connection = await M.connect(url),
      streams = [],
      told = [];
    for (const codec of [['vp8'], ['vp8'], ['h264', 'vp8', 'jpeg'], ['vp8']])
      streams.push(await connection.open({model: 'find', codec, buffer: 0}));
    for (const stream of streams)
      stream.addEventListener('codec', e => told.push([e.detail.codec, e.detail.error.code, e.detail.error.field]));
    const failed = new Promise(done => streams[3].addEventListener('error', e => done(e.detail.error.field)));
    const answered = stream =>
      until(() => {
        if (stream.ready) stream.send(canvas);
        return stream.counts.results > 2;
      });
    for (const stream of streams.slice(0, 3)) await answered(stream);
    await streams[3].whenReady();
    streams[3].send(canvas);
    const alone = await failed;
    const states = streams.map(stream => stream.state),
      codecs = streams.map(stream => stream.codec);
    streams[0].abort(); // its place is free
    await answered(streams[3]);
    connection.close();
    return {told, alone, states, codecs, counts: balanced(streams[2])};
  });
  assert.deepEqual(saw.told, [['jpeg', 'overloaded', 'limits.max_decoders']]);
  assert.equal(saw.alone, 'limits.max_decoders');
  assert.deepEqual(
    [saw.states, saw.codecs],
    [
      ['running', 'running', 'running', 'running'],
      ['vp8', 'vp8', 'jpeg', 'vp8'],
    ],
  );
  assert.equal(saw.counts.errors, 0);
});

test('a client with as many decoders as its quota allows goes on with pictures', async () => {
  const limited = await Server.start(['--origins', pages.url, '--quotas-decoders', '1', '--model', 'find=motion']);
  try {
    const saw = await inPage(async ([, url]) => {
      const first = await open(url, {model: 'find', codec: 'vp8', source: await M.camera()});
      await until(() => first.counts.results > 0);
      const second = await results(
        await open(url, {model: 'find', codec: ['vp8', 'jpeg'], source: await M.camera()}),
        5,
      );
      const codecs = [first.codec, second.codec];
      first.connection.close();
      return {codecs, refused: second.refused, errors: second.counts.errors};
    }, limited.url);
    assert.deepEqual(saw, {codecs: ['vp8', 'jpeg'], refused: [['vp8', 'quotas.decoders']], errors: 0});
  } finally {
    await limited.stop();
  }
});

test('without credit, frames are skipped before they are encoded', async () => {
  for (const codec of ['vp8', 'jpeg']) {
    const counts = await inPage(async ([url, codec]) => {
      const stream = await open(url, {model: 'slow', codec, policy: {window: 1}, source: await M.camera()});
      for await (const _ of stream) {
        const {results, sent, skipped, dropped} = stream.counts;
        // Some skipped frames have been given to an encoder: those that the encoder left out.
        if (results >= 6 && (sent + skipped > jobs || dropped > 2)) break;
      }
      stream.connection.close();
      return balanced(stream);
    }, codec);
    assert.ok(counts.dropped <= 2, JSON.stringify(counts));
  }
});

test('the advised rate and size are followed, by frames that are not encoded', async () => {
  const saw = await inPage(async ([url]) => {
    let captured = 0,
      taken = 0,
      fastest = 0; // frames a second, of the advice
    const at = []; // times of the frames that were taken after the advice
    const stream = await open(url, {
      model: 'slower',
      codec: 'vp8',
      policy: {window: 64},
      source: await M.file('/clip.webm', {loop: true}),
      each: frame => {
        captured++;
        fastest = Math.max(fastest, stream.advice.fps ?? 0);
        if (!frame.taken) return;
        taken++;
        if (fastest > 0) at.push(performance.now());
      },
    });
    let n = 0;
    for await (const r of stream) if (fastest > 0 && r.type === 'result' && ++n === 5) break;
    stream.connection.close();
    return {advice: stream.advice, counts: balanced(stream), captured, taken, jobs, fastest, at};
  });
  assert.ok(saw.advice.fps < 30, JSON.stringify(saw.advice));
  assert.ok(saw.jobs > 0 && saw.jobs <= saw.taken && saw.taken < saw.captured, JSON.stringify(saw));
  // A slow machine takes fewer frames than advised, and no machine takes more.
  assert.ok(saw.at.length >= 4, JSON.stringify(saw));
  assert.ok(saw.at.at(-1) - saw.at[0] > ((saw.at.length - 3) * 1000) / saw.fastest, JSON.stringify(saw));
  const sized = await inPage(async ([url]) => {
    const stream = await open(url, {
        model: 'late',
        codec: 'jpeg',
        maxSide: 640,
        source: await M.file('/clip.webm', {loop: true}),
      }),
      widths = [];
    for await (const r of stream) {
      if (r.type === 'result') widths.push(r.width);
      if (stream.advice.width && r.width === stream.advice.width) break;
      if (widths.length > 200) throw new Error(JSON.stringify([stream.advice, stream.counts]));
    }
    stream.connection.close();
    return {widths, advice: stream.advice};
  });
  assert.ok(
    sized.widths[0] === 640 && sized.widths.at(-1) === sized.advice.width && sized.advice.width < 640,
    JSON.stringify(sized),
  );
});

test('a stream goes on over a lost connection and a restart of the server', async () => {
  const way = await Way.open(server.port),
    page = await blank(),
    first = []; // of each connection the flags of the first frame
  page.on('websocket', socket => {
    let begun = false;
    socket.on('framesent', ({payload}) => {
      if (typeof payload !== 'string' && !begun) {
        begun = true;
        first.push(payload[3]);
      }
    });
  });
  await page.evaluate(
    async ([url]) => {
      window.stream = await open(url, {
        model: 'find',
        codec: 'vp8',
        policy: {mode: 'latest', window: 4},
        source: await M.file('/clip.webm', {loop: true}),
        buffer: 0,
      });
      window.ids = [stream.connection.id];
      stream.addEventListener('state', e => e.detail.state === 'running' && ids.push(stream.connection.id));
    },
    [way.url],
  );
  const more = async () => {
    const had = await page.evaluate('stream.counts.results');
    await page.waitForFunction(had => stream.state === 'running' && stream.counts.results > had + 10, had);
  };
  await more();
  way.cut();
  await page.waitForFunction('ids.length === 2');
  await more();
  await server.stop('SIGKILL');
  await page.waitForFunction('stream.state === "waiting"');
  await server.restart();
  await more();
  const saw = await page.evaluate('({ids, counts: balanced(stream)})');
  assert.equal(saw.ids[0], saw.ids[1], 'the session was not resumed');
  assert.notEqual(saw.ids[0], saw.ids.at(-1));
  assert.ok(first.length >= 3 && first.every(flags => flags & 1), `without a key frame: flags ${first}`);
  await page.close();
  way.close();
});

test('a slow network: frames are skipped, not queued', async () => {
  const page = await blank(),
    devtools = await context.newCDPSession(page);
  await page.evaluate(
    async ([url]) => {
      window.stream = await open(url, {
        model: 'find',
        codec: 'jpeg',
        quality: 90,
        source: await M.file('/clip.webm', {loop: true}),
        buffer: 0,
      });
      window.ages = [];
      stream.addEventListener('result', e => ages.push(e.detail.timings));
    },
    [server.url],
  );
  await page.waitForFunction('stream.counts.results > 20');
  await devtools.send('Network.enable');
  const fast = await page.evaluate('ages.splice(0)');
  await devtools.send('Network.emulateNetworkConditions', {
    offline: false,
    latency: 150,
    downloadThroughput: 60_000,
    uploadThroughput: 60_000,
  });
  await page.waitForFunction('ages.length > 5'); // Chromium lets some frames pass at once
  const before = await page.evaluate('({counts: stream.counts, at: performance.now()})');
  await page.waitForFunction(n => stream.counts.results > n + 10, before.counts.results);
  const slow = await page.evaluate('({counts: balanced(stream), at: performance.now(), ages: ages.splice(0)})');
  await devtools.send('Network.emulateNetworkConditions', {
    offline: false,
    latency: 0,
    downloadThroughput: -1,
    uploadThroughput: -1,
  });
  await page.waitForFunction(n => stream.counts.results > n + 20, slow.counts.results);
  const sent = slow.counts.sent - before.counts.sent,
    rate = (1000 * (slow.counts.bytes - before.counts.bytes)) / (slow.at - before.at);
  assert.ok(rate < 80_000, `${rate} bytes a second`);
  assert.ok(slow.counts.skipped - before.counts.skipped > sent, JSON.stringify([before, slow]));
  const middle = (ages, of) => ages.map(of).sort((a, b) => a - b)[ages.length >> 1];
  assert.ok(middle(slow.ages, a => a.upload) > middle(fast, a => a.upload), JSON.stringify([fast, slow.ages]));
  assert.ok(middle(slow.ages, a => a.upload / a.total) > 0.5, JSON.stringify(slow.ages)); // told as what it is
  await page.evaluate('stream.connection.close()');
  await page.close();
});

test('errors of sources name code and field', async () => {
  const saw = await inPage(async ([url]) => {
    const stopping = new AbortController(),
      stopped = failure(M.camera({signal: stopping.signal}));
    stopping.abort(new Error('enough'));
    const none = await failure(M.file('/nothing.webm')),
      text = await failure(M.file(new File(['x'], 'x.png', {type: 'image/png'})));
    const exact = await failure(M.camera({video: {width: {exact: 99999}}}));
    const aborted = await stopped;
    const ending = new AbortController(),
      source = await M.camera(),
      stream = await open(url, {model: 'find', source, signal: ending.signal});
    ending.abort();
    const [track] = source.element.srcObject?.getTracks() ?? [];
    const ended = await failure(
      (async () => {
        for await (const _ of stream);
      })(),
    );
    const unreachable = await failure(M.connect('http://127.0.0.1:1')),
      foreign = await failure(M.connect(url.replace('127.0.0.1', 'localhost')));
    return {none, text, exact, aborted, ended, track: track?.readyState ?? 'ended', unreachable, foreign};
  });
  const code = ([name, code, field]) => [name, code, field];
  assert.deepEqual(code(saw.none), ['MillraceError', 'unsupported', 'source']);
  assert.deepEqual(code(saw.text), ['MillraceError', 'unsupported', 'source']);
  assert.match(saw.text[3], /x\.png/);
  assert.deepEqual(code(saw.exact), ['MillraceError', 'not_found', 'source']);
  assert.deepEqual(code(saw.aborted), ['MillraceError', 'canceled', 'signal']);
  assert.deepEqual(code(saw.ended), ['MillraceError', 'canceled', 'signal']);
  assert.equal(saw.track, 'ended');
  assert.deepEqual(code(saw.unreachable), ['MillraceError', 'unavailable', '']);
});
