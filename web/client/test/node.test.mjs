// The client in Node against a real server: MILLRACE=.../bin/millrace node --test test/node.test.mjs

import assert from 'node:assert/strict';
import {execFileSync} from 'node:child_process';
import {mkdtemp, rm} from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import {after, before, test} from 'node:test';
import WebSocket from 'ws';
import {MillraceError, REST, connect} from '../dist/index.js';
import {Server, Way} from './server.mjs';

const MODELS = [
  'id=identity',
  'gone=identity',
  'slow=delay,fixed=40ms',
  'slower=delay,fixed=200ms',
  'batched=delay,fixed=20ms,batching.max_size=8',
  'find=motion',
];
const ARGS = MODELS.flatMap(model => ['--model', model]);
const BYTES = new Uint8Array([1, 2, 3]);

let server, connection;

before(async () => {
  server = await Server.start(ARGS);
  connection = await connect(server.url, {WebSocket});
});

after(async () => {
  connection.close();
  await server.stop();
});

/** Every frame that was sent has one ending, and all of them were told. */
function balanced(stream) {
  const {sent, results, dropped, errors, inFlight, drops} = stream.counts;
  assert.equal(sent, results + dropped + errors + inFlight, JSON.stringify(stream.counts));
  assert.equal(
    dropped,
    Object.values(drops).reduce((a, b) => a + b, 0),
  );
  return stream.counts;
}

/** Sends n frames with their numbers as notes, each when it may be sent. */
async function sendAll(stream, n, data = BYTES, options = {}) {
  for (let i = 0; i < n; i++) {
    await stream.whenReady();
    assert.ok(stream.send(data, {note: i, ...options}));
  }
}

/** Reads until n endings have come. */
async function read(stream, n) {
  const replies = [],
    iterator = stream[Symbol.asyncIterator]();
  while (replies.length < n) replies.push((await iterator.next()).value);
  return replies;
}

async function until(what) {
  while (!what()) await new Promise(done => setTimeout(done, 2));
}

async function fails(promise, code, field) {
  await assert.rejects(promise, e => {
    assert.ok(e instanceof MillraceError, String(e.stack));
    assert.deepEqual([e.code, e.field], [code, field], e.message);
    return true;
  });
}

test('a key, or a function that returns it, opens connections and is sent with calls', async () => {
  const folder = await mkdtemp(path.join(os.tmpdir(), 'millrace-keys-')),
    file = path.join(folder, 'keys.yaml');
  const key = execFileSync(process.env.MILLRACE, ['keys', 'add', file, 'camera', '--role', 'infer'], {
    encoding: 'utf8',
  }).trim();
  const guarded = await Server.start(['--model', 'id=identity', '--auth-keys', file]);
  try {
    let asked = 0;
    for (const token of [key, () => (asked++, key), async () => key]) {
      const rest = new REST(guarded.url, {token});
      assert.equal((await rest.model('id')).name, 'id');
      await fails(rest.unload('id'), 'permission_denied', '');
      const own = await connect(guarded.url, {WebSocket, token});
      try {
        const stream = await own.open({model: 'id', codec: 'opaque', policy: {mode: 'every'}});
        await sendAll(stream, 2);
        assert.deepEqual(
          (await read(stream, 2)).map(r => r.type),
          ['result', 'result'],
        );
      } finally {
        own.close();
      }
    }
    assert.equal(asked, 3);
    for (const [token, field] of [
      ['wrong', ''],
      [key.slice(0, -2) + 'AA', ''],
      ['a\nb: c', 'token'],
      [() => '', 'token'],
      [() => Promise.reject(new Error('no key')), 'token'],
    ]) {
      await fails(new REST(guarded.url, {token}).model('id'), 'unauthenticated', field);
      await fails(connect(guarded.url, {WebSocket, token}), 'unauthenticated', field);
    }
    await fails(new REST(guarded.url).model('id'), 'unauthenticated', '');
    await assert.rejects(connect(guarded.url, {WebSocket}));
  } finally {
    await guarded.stop();
    await rm(folder, {recursive: true});
  }
});

test('every frame is answered, in order, with its note', async () => {
  const stream = await connection.open({model: 'batched', policy: {mode: 'every', window: 8}});
  const sent = sendAll(stream, 40);
  const replies = await read(stream, 40);
  await sent;
  assert.deepEqual(
    replies.map(r => [r.type, r.note, r.seq]),
    replies.map((_, i) => ['result', i, i]),
  );
  assert.ok(replies.some(r => r.batch > 1));
  await stream.close();
  assert.deepEqual([balanced(stream).results, stream.state], [40, 'closed']);
});

test('the loop ends when the stream is closed, and leaving the loop ends the stream', async () => {
  const stream = await connection.open({model: 'slow', policy: {mode: 'every', window: 4}});
  await sendAll(stream, 4);
  void stream.close(); // after what is in flight
  const types = [];
  for await (const reply of stream) types.push(reply.type);
  assert.deepEqual(types, Array(4).fill('result'));
  const paused = await connection.open({model: 'id'});
  paused.pause();
  await sendAll(paused, 1);
  await paused.close(); // without an answer
  assert.equal(balanced(paused).drops.closed, 1);
  const other = await connection.open({model: 'id'});
  other.send(BYTES);
  for await (const _ of other) break;
  assert.equal(other.state, 'closed');
  balanced(other);
});

test('tensors in and out, as arrays and as JSON', async () => {
  const inputs = [
    ...Object.entries({
      INT8: Int8Array,
      UINT8: Uint8Array,
      INT16: Int16Array,
      UINT16: Uint16Array,
      INT32: Int32Array,
      UINT32: Uint32Array,
      FP32: Float32Array,
      FP64: Float64Array,
    }).map(([datatype, Type]) => ({name: datatype, datatype, shape: [3], data: Type.of(1, 2, 3)})),
    {name: 'INT64', datatype: 'INT64', shape: [2], data: BigInt64Array.of(-(2n ** 62n), 1n)},
    {name: 'BYTES', datatype: 'BYTES', shape: [2], data: ['é', 'two']},
    {name: 'numbers', datatype: 'FP32', shape: [1], data: [1.5]},
    {name: 'booleans', datatype: 'BOOL', shape: [2], data: [true, false]},
    {name: 'large', datatype: 'UINT64', shape: [1], data: [2 ** 40]},
  ];
  for (const outputs of ['binary', 'json']) {
    const stream = await connection.open({model: 'id', outputs});
    stream.send(inputs);
    const [reply] = await read(stream, 1);
    assert.equal(reply.type, 'result', reply.error?.message);
    const plain = data => Array.from(data, x => (typeof x === 'string' ? x : Number(x)));
    assert.deepEqual(
      reply.outputs.map(o => [o.name, o.datatype, o.shape, plain(o.data)]),
      inputs.map(i => [i.name, i.datatype, i.shape, plain(i.data)]),
    );
    for (const {datatype, data} of reply.outputs)
      assert.equal(ArrayBuffer.isView(data), outputs === 'binary' && datatype !== 'BYTES', datatype);
    stream.abort();
  }
  const none = await connection.open({model: 'id', outputs: 'none'});
  none.send(inputs);
  const [reply] = await read(none, 1);
  assert.deepEqual(reply.outputs, []);
  none.abort();
});

test('what is said about a frame reaches the server', async () => {
  const stream = await connection.open({model: 'id'});
  stream.send(BYTES, {roi: {x: 1, y: 2, width: 3, height: 4}});
  const [refused] = await read(stream, 1);
  assert.deepEqual(
    [refused.type, refused.error.code, refused.error.field],
    ['error', 'unsupported', 'ext.roi'],
    refused.error?.message,
  );
  await sendAll(stream, 1, BYTES, {
    params: {mark: 'é', n: 7, on: true},
    deadlineMs: 5000,
    mustProcess: true,
    traceparent: `00-${'1'.repeat(32)}-${'2'.repeat(16)}-01`,
  });
  const [given] = await read(stream, 1);
  assert.deepEqual([given.type, given.traceId], ['result', '1'.repeat(32)], given.error?.message);
  await sendAll(stream, 1, BYTES, {params: {long: 'x'.repeat(65_000)}});
  assert.equal((await read(stream, 1)).length, 1);
  assert.throws(() => stream.send(BYTES, {params: {long: 'x'.repeat(66_000)}}), {code: 'too_large', field: 'params'});
  await until(() => stream.ready);
  stream.send(BYTES, {endOfStream: true});
  await stream.closed;
  balanced(stream);
});

test('traces: of the client’s decision, and of the server’s', async () => {
  const traced = async (options, own = connection) => {
    const stream = await own.open({model: 'id', policy: {mode: 'every', window: 4}, ...options});
    await sendAll(stream, 3);
    const replies = await read(stream, 3);
    stream.abort();
    return replies.map(r => [r.traceId, r.traceKept]);
  };
  const rest = new REST(server.url);
  for (const outputs of ['json', 'binary']) {
    const marked = await traced({trace: true, outputs});
    assert.equal(new Set(marked.map(([id]) => id)).size, 3);
    for (const [id, kept] of marked) {
      assert.match(id, /^(?!0{32})[0-9a-f]{32}$/);
      assert.ok(kept);
    }
    const [id] = marked[2],
      frame = await rest.trace(id);
    assert.deepEqual([frame.trace_id, frame.model, frame.outcome, frame.kept], [id, 'id', 'result', ['sampled']]);
    assert.ok(frame.spans.length > 1 && (await rest.traces({model: 'id', limit: 3})).some(f => f.trace_id === id));
  }
  for (const trace of [false, 0])
    assert.deepEqual(
      (await traced({trace})).map(([id, kept]) => [id.length, kept]),
      Array(3).fill([32, false]),
    );
  assert.deepEqual(await traced({trace: 'off'}), Array(3).fill(['', false]));
  for (const [ratio, expected] of [
    ['1', true],
    ['0', false],
  ]) {
    const other = await Server.start(['--model', 'id=identity', '--tracing-ratio', ratio]),
      own = await connect(other.url, {WebSocket});
    assert.deepEqual(
      (await traced({}, own)).map(([id, kept]) => [id.length, kept]),
      Array(3).fill([32, expected]),
    );
    own.close();
    await other.stop();
  }
});

test('the steps of a frame add up', async () => {
  const stream = await connection.open({model: 'slow', policy: {mode: 'every', window: 2}});
  const sent = sendAll(stream, 6);
  for (const {
    timings: {total, ...steps},
  } of await read(stream, 6)) {
    const sum = Object.values(steps).reduce((a, b) => a + b, 0);
    assert.deepEqual(Object.keys(steps), ['wait', 'encode', 'upload', 'queue', 'prepare', 'run', 'finish', 'download']);
    assert.ok(Math.abs(total - sum) < 1, `${sum} of ${total}: ${JSON.stringify(steps)}`);
    assert.ok(Object.values(steps).every(step => step >= 0) && steps.run >= 39, JSON.stringify(steps));
  }
  await sent;
  stream.abort();
  assert.ok(connection.rtt < 1000 && Math.abs(connection.clockOffset - performance.timeOrigin) < 1000);
});

test('without credit, frames are skipped before they are sent', async () => {
  const stream = await connection.open({model: 'slower', policy: {mode: 'latest', window: 1}});
  let skipped = 0;
  stream.addEventListener('skip', e => (skipped += e.detail.note));
  for (let i = 0; i < 5; i++) stream.send(BYTES, {note: 1});
  assert.deepEqual([stream.credit, stream.counts.sent, stream.counts.skipped, skipped], [0, 1, 4, 4]);
  assert.equal((await read(stream, 1))[0].type, 'result');
  await until(() => stream.credit === 1);
  stream.abort();
  balanced(stream);
});

test('the rates of the server’s advice and of the policy are followed', async () => {
  const stream = await connection.open({model: 'slower', policy: {mode: 'latest', window: 64}, buffer: 0});
  while (!stream.advice.fps) {
    // frames that come faster than it can
    stream.send(BYTES);
    await new Promise(done => setTimeout(done, 5));
  }
  assert.ok(stream.advice.fps < 30, `${stream.advice.fps}`);
  const {sent} = stream.counts;
  await stream.whenReady();
  assert.ok(stream.send(BYTES));
  await until(() => stream.credit > 0);
  assert.ok(!stream.ready && !stream.send(BYTES)); // 5 a second
  assert.equal(stream.counts.sent, sent + 1);
  stream.abort();
  assert.ok(balanced(stream).drops.superseded > 0);

  const limited = await connection.open({model: 'id', policy: {max_fps: 0.01}, buffer: 0});
  await until(() => limited.ready);
  assert.deepEqual([limited.send(BYTES), limited.send(BYTES), limited.credit > 0], [true, false, true]);
  limited.abort();
});

test('a slow reader gets less in every, and loses the oldest in latest', async () => {
  const every = await connection.open({model: 'id', policy: {mode: 'every', window: 8}, buffer: 5});
  const sending = sendAll(every, 20);
  await until(() => every.counts.results === 5);
  await new Promise(done => setImmediate(done));
  assert.deepEqual([every.counts.sent, every.ready, every.credit], [5, false, 0]);
  assert.deepEqual(
    (await read(every, 20)).map(r => r.note),
    Array.from({length: 20}, (_, i) => i),
  );
  await sending;
  assert.equal(balanced(every).unread, 0);
  every.abort();

  const latest = await connection.open({model: 'id', policy: {mode: 'latest'}, buffer: 5});
  const endings = [];
  for (const type of ['result', 'drop', 'error']) latest.addEventListener(type, e => endings.push(e.detail.note));
  await sendAll(latest, 20);
  await until(() => latest.inFlight === 0);
  assert.equal(endings.length, 20);
  assert.equal(latest.counts.unread, 15);
  assert.deepEqual(
    (await read(latest, 5)).map(r => r.note),
    endings.slice(15),
  );
  latest.abort();
  balanced(latest);
});

test('drops by each reason, pause, resume, flush, update', async () => {
  const stream = await connection.open({model: 'slow', policy: {mode: 'latest', window: 32}});
  await sendAll(stream, 10);
  await until(() => stream.inFlight === 0);
  const {drops} = balanced(stream);
  assert.ok(drops.superseded > 0, JSON.stringify(drops));
  assert.ok((await read(stream, 10)).some(r => r.type === 'drop' && r.reason === 'superseded' && r.timings.total > 0));
  stream.pause();
  await sendAll(stream, 1);
  stream.flush();
  const [flushed] = await read(stream, 1);
  assert.deepEqual([flushed.type, flushed.reason], ['drop', 'flushed']);
  await sendAll(stream, 1);
  stream.resume();
  assert.equal((await read(stream, 1))[0].type, 'result');
  stream.update({outputs: 'none', params: {a: 1}, policy: {window: 1}});
  await until(() => stream.policy.window === 1);
  await sendAll(stream, 1);
  assert.deepEqual((await read(stream, 1))[0].outputs, []);
  let refused;
  stream.addEventListener('refusal', e => (refused = e.detail));
  stream.update({policy: {window: 99999}});
  await until(() => refused);
  assert.deepEqual(
    [refused.code, refused.field, stream.policy.window],
    ['invalid_argument', 'update.policy.window', 1],
    refused.message,
  );
  stream.abort();
  balanced(stream);
});

test('a lost connection is resumed: what the server had received is answered', async () => {
  const way = await Way.open(server.port),
    own = await connect(way.url, {WebSocket});
  const stream = await own.open({model: 'slow', policy: {mode: 'every', window: 4}}),
    other = await own.open({model: 'id'}),
    states = [];
  stream.addEventListener('state', e => states.push(e.detail.state));
  const id = own.id;
  for (let round = 0; round < 2; round++) {
    await sendAll(stream, 4);
    await sendAll(other, 1);
    await read(other, 1); // so that the frames before have been received
    assert.ok(stream.inFlight > 0);
    way.cut();
    assert.deepEqual(
      (await read(stream, 4)).map(r => [r.type, r.note]),
      [0, 1, 2, 3].map(i => ['result', i]),
    );
  }
  assert.equal(own.id, id, 'the session was not resumed');
  assert.deepEqual(states, ['waiting', 'running', 'waiting', 'running']);
  assert.equal(balanced(stream).results, 8);
  await stream.close();
  own.close();
  way.close();
});

test('after a restart of the server its streams go on', async () => {
  const restarted = await Server.start(ARGS),
    own = await connect(restarted.url, {WebSocket});
  const stream = await own.open({model: 'slow', policy: {mode: 'every', window: 4}}),
    other = await own.open({model: 'id'});
  const id = own.id;
  for (const signal of ['SIGKILL', 'SIGTERM']) {
    const {results} = stream.counts;
    const sending = sendAll(stream, 12);
    await until(() => stream.counts.results > results && stream.inFlight > 1);
    await restarted.stop(signal);
    await until(() => stream.state === 'waiting');
    assert.equal(own.state, 'waiting');
    await restarted.restart();
    await sending;
    await until(() => stream.inFlight === 0 && other.state === 'running');
  }
  assert.notEqual(own.id, id);
  const {sent, results, drops, errors} = balanced(stream);
  assert.equal(sent, 24);
  assert.ok(drops.connection > 0, 'nothing was in flight when the server was killed');
  assert.ok(results + errors + drops.connection === 24 && results > 8, JSON.stringify(stream.counts));
  await sendAll(other, 1);
  assert.equal((await read(other, 1))[0].type, 'result');
  own.close();
  await own.close();
  assert.deepEqual([stream.state, other.state, own.state], ['closed', 'closed', 'closed']);
  await restarted.stop();
});

test('a model that is unloaded ends the loop with its error', async () => {
  const stream = await connection.open({model: 'gone'});
  await new REST(server.url).unload('gone');
  await fails(
    (async () => {
      for await (const _ of stream);
    })(),
    'unloaded',
    '',
  );
  assert.equal(stream.state, 'closed');
});

test('signals end what they were given to', async () => {
  await fails(connect(server.url, {WebSocket, signal: AbortSignal.abort()}), 'canceled', 'signal');
  const connecting = new AbortController(),
    promise = connect(server.url, {WebSocket, signal: connecting.signal});
  connecting.abort();
  await fails(promise, 'canceled', 'signal');
  await fails(connection.open({model: 'id', signal: AbortSignal.abort()}), 'canceled', 'signal');
  const one = new AbortController(),
    stream = await connection.open({model: 'slower', signal: one.signal});
  stream.send(BYTES);
  one.abort(new Error('enough'));
  await fails(
    (async () => {
      for await (const reply of stream) assert.deepEqual([reply.type, reply.reason], ['drop', 'closed']);
    })(),
    'canceled',
    'signal',
  );
  assert.deepEqual([stream.state, balanced(stream).drops.closed], ['closed', 1]);
  await fails(stream.whenReady(), 'canceled', '');
  const all = new AbortController(),
    own = await connect(server.url, {WebSocket, signal: all.signal}),
    last = await own.open({model: 'id'});
  all.abort();
  assert.deepEqual([own.state, last.state], ['closed', 'closed']);
  await fails(own.open({model: 'id'}), 'canceled', '');
});

test('errors name code and field', async () => {
  await fails(connection.open({model: 'nobody'}), 'not_found', 'open.model');
  await fails(connection.open({model: 'id', policy: {max_fps: -1}}), 'invalid_argument', 'open.policy.max_fps');
  await fails(connection.open({model: 'find', codec: 'nonsense'}), 'invalid_argument', 'open.codec');
  await fails(connect('127.0.0.1:8000', {WebSocket}), 'invalid_argument', 'url');
  await fails(connect('http://127.0.0.1:1', {WebSocket}), 'unavailable', '');
  await fails(connect(`${server.url}/somewhere`, {WebSocket}), 'unavailable', '');
  if (!globalThis.WebSocket) await fails(connect(server.url), 'unsupported', 'WebSocket');
  const stream = await connection.open({model: 'find'});
  stream.send(BYTES);
  const [{type, error}] = await read(stream, 1);
  assert.deepEqual([type, error.code, error.retryable], ['error', 'unsupported', false], error?.message);
  stream.abort();
});

test('with headers, a ticket is taken for each connection', async () => {
  const way = await Way.open(server.port),
    own = await connect(way.url, {WebSocket, headers: {Authorization: 'Bearer x'}});
  const stream = await own.open({model: 'id'});
  way.cut();
  await until(() => stream.state === 'waiting');
  await until(() => stream.state === 'running');
  await sendAll(stream, 1);
  assert.equal((await read(stream, 1))[0].type, 'result');
  own.close();
  way.close();
  await fails(connect(`${server.url}/nowhere`, {WebSocket, headers: {}}), 'not_found', '');
});

test('REST', async () => {
  const rest = new REST(server.url);
  const names = async () => (await rest.models()).filter(m => m.state === 'READY').map(m => m.name);
  assert.ok((await names()).includes('find'));
  assert.equal((await rest.model('find')).inputs.length, 1);
  const status = await rest.status(),
    slow = status.models.find(m => m.name === 'slow');
  assert.deepEqual([status.state, slow.state], ['ready', 'READY']);
  assert.ok(slow.stages_us.run.counts.length >= slow.stages_us.run.bounds.length);
  await rest.unload('batched');
  assert.ok(!(await names()).includes('batched'));
  assert.equal((await rest.load('batched')).name, 'batched');
  assert.ok((await names()).includes('batched'));
  const reply = await rest.infer('id', [{name: 'x', datatype: 'FP32', shape: [2], data: [1, 2]}]);
  assert.deepEqual([reply.model_name, reply.outputs[0].data], ['id', [1, 2]]);
  const added = await rest.addStream({
    name: 'yard',
    source: 'http://1.1.1.1:9/yard.m3u8',
    model: 'find',
    fps: 5,
    paused: true,
  });
  assert.deepEqual([added.name, added.paused], ['yard', true]);
  assert.equal((await rest.changeStream('yard', {paused: true})).paused, true);
  const changed = await rest.changeStream('yard', {
    model: 'slow',
    fps: 0,
    source: 'http://1.1.1.1:9/gate.m3u8',
    priority: 'low',
  });
  assert.deepEqual(
    [changed.model, changed.settings, changed.source, changed.policy.priority],
    ['slow', undefined, 'http://1.1.1.1:9/gate.m3u8', 'low'],
  );
  await fails(rest.changeStream('yard', {models: [{model: 'nobody'}]}), 'not_found', 'models[0].model');
  await fails(rest.resetStream('yard'), 'conflict', '');
  assert.deepEqual(
    (await rest.streams()).map(s => s.name),
    ['yard'],
  );
  assert.equal((await rest.stream('yard')).origin, 'request');
  await rest.removeStream('yard');
  assert.deepEqual(await rest.streams(), []);
  await fails(rest.model('nobody'), 'not_found', 'model');
  await fails(
    rest.infer('id', [{name: 'x', datatype: 'FP32', shape: [3], data: [1, 2]}]),
    'invalid_argument',
    'inputs[0].data',
  );
  await fails(new REST('http://127.0.0.1:1').models(), 'unavailable', '');
  await fails(rest.models(AbortSignal.abort()), 'canceled', 'signal');
});
