// Inter-coded video, by the browser's own encoders.

const KEY_EVERY = 4000; // ms between key frames that nobody asked for
const BITS = 4; // a second for each pixel: 1.2 Mbit/s at 640 x 480
const LEAST = 300_000; // bits a second
const PATIENCE = 2000; // ms after which an encoder with nothing in its queue seems to have left a frame out

/** Codecs by the names of the protocol: what WebCodecs calls them, at levels that have room for 1920 x 1080. */
const CODECS = {
  vp8: {label: 'VP8', config: {codec: 'vp8'}},
  vp9: {label: 'VP9', config: {codec: 'vp09.00.40.08'}},
  h264: {label: 'H.264', config: {codec: 'avc1.42E028', avc: {format: 'annexb'}}},
  av1: {label: 'AV1', config: {codec: 'av01.0.08M.08'}},
};

const config = (codec, width, height) => ({
  ...CODECS[codec].config, width, height, bitrate: Math.max(LEAST, BITS * width * height), latencyMode: 'realtime',
});

/** What the visitor knows a codec by. */
export const label = codec => CODECS[codec].label;

/** What this browser can encode. @returns {Promise<{name: string, label: string}[]>} */
export async function codecs() {
  if (!window.VideoEncoder) return []; // an old browser, or a page that is not on https or localhost
  const all = Object.keys(CODECS).map(async name => {
    const {supported} = await VideoEncoder.isConfigSupported(config(name, 640, 480)).catch(() => ({}));
    return supported ? [{name, label: label(name)}] : [];
  });
  return (await Promise.all(all)).flat();
}

/**
 * Encodes a source for a Channel. What is encoded is sent, in order, for the
 * chunks after it need it: so frames are left out before. Only the chunks that
 * come between a gap and its key frame are not sent, as nobody could decode them.
 */
export class Encoder {
  #codec;
  #channel;
  #tell;
  #encoder = null;
  #size = {width: 0, height: 0};
  #pending = new Map(); // timestamp -> {captured, note, at}, the oldest first
  #timestamp = 0;
  #wanted = true; // a key frame
  #gap = true; // nothing is sent before a key frame
  #keyed = 0; // when the last key frame was asked for
  #keyframe = () => this.#wanted = this.#gap = true;

  /**
   * @param {string} codec one of codecs()
   * @param {import('./channel.js').Channel} channel
   * @param {{skipped: () => void, failed: (text: string) => void}} tell skipped: a frame that was not sent
   */
  constructor(codec, channel, tell) {
    this.#codec = codec;
    this.#channel = channel;
    this.#tell = tell;
    channel.addEventListener('keyframe', this.#keyframe);
  }

  /**
   * Encodes the source's present frame and sends it, unless it would have to wait.
   * @param {{width: number, height: number} | null} wanted by the model
   */
  take(source, wanted, captured, note) {
    const now = performance.now();
    this.#forget(now);
    const timestamp = this.#timestamp = Math.max(Math.round(captured * 1000), this.#timestamp + 1);
    const frame = this.#channel.ready && this.#channel.room > this.#pending.size ? source.frame(timestamp) : null;
    if (!frame) {
      this.#tell.skipped();
      return;
    }
    try {
      this.#configure(source.size(wanted, this.#channel.size));
      const keyFrame = this.#wanted || now - this.#keyed > KEY_EVERY;
      this.#encoder.encode(frame, {keyFrame});
      if (keyFrame) {
        this.#wanted = false;
        this.#keyed = now;
      }
      this.#pending.set(timestamp, {captured, note, at: now});
    } catch (e) {
      this.#failed(e);
    } finally {
      frame.close();
    }
  }

  close() {
    this.#channel.removeEventListener('keyframe', this.#keyframe);
    this.#drop();
  }

  /** Each size has an encoder of its own: one for AV1 that is told another goes on announcing the old one. */
  #configure({width, height}) {
    if (width === this.#size.width && height === this.#size.height) return;
    this.#drop();
    this.#encoder = new VideoEncoder({output: c => this.#chunk(c), error: e => this.#failed(e)});
    this.#size = {width, height};
    this.#encoder.configure(config(this.#codec, width, height));
    this.#wanted = true;
  }

  #chunk(chunk) {
    const frame = this.#pending.get(chunk.timestamp);
    for (const [timestamp] of this.#pending) { // those before it were left out, to keep to the bit rate
      if (timestamp > chunk.timestamp) break;
      this.#pending.delete(timestamp);
      if (timestamp < chunk.timestamp) this.#tell.skipped();
    }
    if (!frame) { // it was only slow, and is given up
      this.#keyframe();
      return;
    }
    const key = chunk.type === 'key';
    const bytes = new Uint8Array(chunk.byteLength);
    chunk.copyTo(bytes);
    if (this.#gap && !key || !this.#channel.send(bytes, frame.captured, frame.note, key)) {
      this.#gap = true;
      this.#tell.skipped();
    } else {
      this.#gap = false;
    }
  }

  /** Gives up the frames that an encoder has left out without another chunk to tell it. */
  #forget(now) {
    const [oldest] = this.#pending.values();
    if (!oldest || this.#encoder.encodeQueueSize > 0 || now - oldest.at < PATIENCE) return;
    this.#skip();
    this.#wanted ||= this.#gap;
  }

  #skip() {
    for (const _ of this.#pending) this.#tell.skipped();
    this.#pending.clear();
  }

  #drop() {
    this.#skip();
    if (this.#encoder && this.#encoder.state !== 'closed') this.#encoder.close();
    this.#encoder = null;
  }

  #failed(e) {
    this.#tell.failed(`This browser’s encoder for ${label(this.#codec)} failed: ${e.message}. Send as JPEG or as something else, and press Start again.`);
  }
}
