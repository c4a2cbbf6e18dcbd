// The drawn video of a stream, as H.264 over WebSocket; docs/streams.md describes the messages.

// Safari on phones has ManagedMediaSource alone.
declare global {
  interface Window {
    ManagedMediaSource?: typeof MediaSource;
  }
}

const Source = (): typeof MediaSource | undefined => window.ManagedMediaSource ?? window.MediaSource;

const KEPT = 10; // s of played video
const BEHIND = 1.5; // s behind the newest picture after which the video jumps: more than the longest picture
const NEAR = 0.3; // s behind from which the video plays faster

/** Whether the browser plays the video. */
export const playsLive = (): boolean => Source()?.isTypeSupported('video/mp4; codecs="avc1.42C01F"') ?? false;

/**
 * Plays the video at an address until the function that it returns is called. ended: the server has ended the video.
 * failed: another form is needed.
 */
export function playLive(video: HTMLVideoElement, address: string, ended: () => void, failed: () => void): () => void {
  const media = new (Source()!)(),
    url = URL.createObjectURL(media),
    socket = new WebSocket(address.replace(/^http/, 'ws'));
  let buffer: SourceBuffer | undefined,
    type = '',
    over = false;
  const queue: (ArrayBuffer | string)[] = []; // the type of the video, or its bytes

  const stop = () => {
    if (over) return;
    over = true;
    socket.close();
    video.removeAttribute('src');
    video.load();
    URL.revokeObjectURL(url);
  };
  const finish = (then: () => void) => {
    if (over) return;
    stop();
    then();
  };
  const fail = () => finish(failed);

  /** Keeps the player near the newest picture, and drops the oldest. It returns whether the buffer is busy. */
  const follow = (): boolean => {
    const {buffered} = buffer!;
    if (buffered.length === 0) return false;
    const end = buffered.end(buffered.length - 1),
      behind = end - video.currentTime;
    if (behind > BEHIND) video.currentTime = end - NEAR;
    video.playbackRate = behind > NEAR ? 1.1 : 1;
    if (video.paused) void video.play().catch(() => {}); // as in a hidden page
    if (end - buffered.start(0) < 2 * KEPT) return false;
    buffer!.remove(0, end - KEPT);
    return true;
  };
  const feed = () => {
    while (!over && media.readyState === 'open' && !buffer?.updating) {
      const next = queue.shift();
      if (next === undefined) return;
      try {
        if (typeof next !== 'string') {
          buffer?.appendBuffer(next);
        } else if (!buffer) {
          buffer = media.addSourceBuffer(next);
          buffer.mode = 'sequence'; // pauses of the stream are no gaps
          buffer.addEventListener('updateend', () => {
            if (!over && !follow()) feed();
          });
        } else if (next !== type) {
          buffer.changeType(next);
        }
        if (typeof next === 'string') type = next;
      } catch {
        fail();
      }
    }
  };

  media.addEventListener('sourceopen', feed);
  video.addEventListener('error', fail);
  video.disableRemotePlayback = true; // as ManagedMediaSource demands
  video.src = url;
  socket.binaryType = 'arraybuffer';
  socket.onclose = fail;
  socket.onmessage = ({data}: MessageEvent<ArrayBuffer | string>) => {
    if (typeof data === 'string') {
      const {mime, error, closed} = JSON.parse(data) as {mime?: string; error?: unknown; closed?: string};
      if (closed) finish(ended);
      else if (error) fail();
      else if (mime) queue.push(mime);
    } else queue.push(data);
    feed();
  };
  return () => {
    video.removeEventListener('error', fail);
    stop();
  };
}
