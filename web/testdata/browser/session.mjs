// Functions that run in the page, and use a session without the console.

/** Puts what cases need to use a session without the console into window.prepared. */
export async function prepare(timeout) {
  const {Session} = await import('/console/session.js');
  const {sessionURL} = await import('/console/api.js');
  const canvas = document.createElement('canvas');
  canvas.getContext('2d').fillRect(0, 0, 64, 48);
  const session = new Session(sessionURL()), streams = [];
  const end = performance.now() + timeout;
  const sum = ({sent, answered, errors, dropped}) => ({sent, answered, errors, dropped: Object.values(dropped).reduce((a, b) => a + b, 0)});
  window.prepared = {
    streams,
    picture: await new Promise(done => canvas.toBlob(done, 'image/jpeg')),
    open(model, options) {
      const stream = session.stream(model, options);
      streams.push(stream);
      for (const type of ['state', 'result', 'drop', 'error']) {
        stream.addEventListener(type, () => {
          const {sent, answered, errors, dropped} = sum(stream);
          if (sent !== answered + errors + dropped + stream.inFlight) throw new Error(`${model}: ${JSON.stringify(sum(stream))} and ${stream.inFlight} on their way`);
        });
      }
      stream.start();
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
  const motion = open('motion', {codec: 'jpeg', policy: {mode: 'every', window: 4}});
  const slow = open('slow', {codec: 'jpeg', policy: {mode: 'latest', window: 16}});
  const video = open('motion', {codec: 'vp8'}), unknown = open('unknown', {codec: 'jpeg'});
  motion.addEventListener('state', e => saw.states.push(e.detail.state));
  motion.addEventListener('result', e => saw.inOrder.push(e.detail.note));
  video.addEventListener('keyframe', () => saw.keyframes++);
  unknown.addEventListener('state', e => saw.unknown = e.detail.fault);
  await until(() => saw.unknown && [motion, slow, video].every(stream => stream.state === 'running'));

  for (let i = 0; i < 20; i++) {
    await until(() => motion.ready);
    motion.send(picture, performance.now(), i);
  }
  await until(() => motion.inFlight === 0);

  video.send(new Uint8Array([1, 0, 0, 0]), performance.now(), null); // what it builds on has not been sent
  await until(() => saw.keyframes === 2);
  await until(() => video.inFlight === 0);
  saw.undecoded = video.dropped;

  while (!slow.advised) { // frames that come faster than it can
    await until(() => slow.credit > 0);
    slow.send(picture, performance.now(), null);
  }
  saw.advised = slow.advised;
  for (const stream of streams) stream.stop();
  saw.sums = sums();
  return saw;
}
