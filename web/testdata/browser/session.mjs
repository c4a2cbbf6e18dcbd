// Functions that run in the page, and use a session without the console.

/** Puts what cases need to use a session without the console into window.prepared. */
export async function prepare(timeout) {
  const {connect} = await import('/console/client/index.js');
  const canvas = document.createElement('canvas');
  canvas.getContext('2d').fillRect(0, 0, 64, 48);
  const connection = await connect(location.origin),
    streams = [];
  const end = performance.now() + timeout;
  const sum = ({counts: {sent, results, errors, dropped}}) => ({sent, results, errors, dropped});
  window.prepared = {
    connection,
    streams,
    canvas,
    picture: await new Promise(done => canvas.toBlob(done, 'image/jpeg')),
    async open(model, options) {
      const stream = await connection.open({model, buffer: 0, ...options});
      streams.push(stream);
      for (const type of ['state', 'result', 'drop', 'error']) {
        stream.addEventListener(type, () => {
          const {sent, results, errors, dropped, inFlight} = stream.counts;
          if (sent !== results + errors + dropped + inFlight)
            throw new Error(`${model}: ${JSON.stringify(stream.counts)}`);
        });
      }
      return stream;
    },
    sums: () => streams.map(sum),
    async until(what) {
      while (!what()) {
        if (performance.now() > end) throw new Error(`never came: ${what}`);
        await new Promise(done => setTimeout(done, 5));
      }
    },
  };
}

/** What streams of one session see. */
export async function session() {
  const {open, picture, until, sums, streams} = window.prepared;
  const saw = {states: [], inOrder: [], keyframes: 0};
  const motion = await open('motion', {codec: 'jpeg', policy: {mode: 'every', window: 4}});
  const slow = await open('slow', {codec: 'jpeg', policy: {mode: 'latest', window: 16}});
  const video = await open('motion', {codec: 'vp8'});
  saw.unknown = await open('unknown', {codec: 'jpeg'}).catch(e => ({code: e.code}));
  saw.states.push(motion.state);
  motion.addEventListener('state', e => saw.states.push(e.detail.state));
  motion.addEventListener('result', e => saw.inOrder.push(e.detail.note));
  video.addEventListener('keyframe', () => saw.keyframes++);

  for (let i = 0; i < 20; i++) {
    await motion.whenReady();
    motion.send(picture, {note: i});
  }
  await until(() => motion.inFlight === 0);

  await video.whenReady();
  video.send(new Uint8Array([1, 0, 0, 0])); // what it builds on has not been sent
  await until(() => saw.keyframes === 1);
  await until(() => video.inFlight === 0);
  saw.undecoded = video.counts.drops;

  while (!slow.advice.fps) {
    // frames that come faster than it can
    await slow.whenReady();
    slow.send(picture);
  }
  saw.advised = slow.advice.fps;
  for (const stream of streams) stream.abort();
  saw.sums = sums();
  return saw;
}
