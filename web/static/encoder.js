// Inter-coded video, by the browser's own encoders.

const KEY_INTERVAL = 4000; // ms between key frames that were not requested
const BITS_PER_PIXEL = 4; // and second: 1.2 Mbit/s at 640 x 480
const MIN_BITRATE = 300_000; // bits a second
const ENCODE_TIMEOUT = 2000; // ms after which an encoder with an empty queue is taken to have skipped a frame

/** WebCodecs configurations by the protocol's codec names, at levels that allow 1920 x 1080. */
const CODECS = {
  vp8: {label: 'VP8', config: {codec: 'vp8'}},
  vp9: {label: 'VP9', config: {codec: 'vp09.00.40.08'}},
  h264: {label: 'H.264', config: {codec: 'avc1.42E028', avc: {format: 'annexb'}}},
  av1: {label: 'AV1', config: {codec: 'av01.0.08M.08'}},
};

const config = (codec, width, height) => ({
  ...CODECS[codec].config, width, height, bitrate: Math.max(MIN_BITRATE, BITS_PER_PIXEL * width * height), latencyMode: 'realtime',
});

/** A codec's name for the user. */
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
 * Encodes a source for a Stream. Every chunk is sent, in order, because later ones
 * depend on it: frames are skipped before encoding. Only the chunks between a gap
 * and the next key frame are not sent, because they could not be decoded.
 */
export class Encoder {
  #codec;
  #stream;
  #callbacks;
  #encoder = null;
  #size = {width: 0, height: 0};
  #pending = new Map(); // timestamp -> {captured, note, at}, the oldest first
  #timestamp = 0;
  #keyWanted = true; // the next frame must be a key frame
  #awaitKey = true; // chunks are not sent until a key frame
  #lastKey = 0; // time of the last key frame
  #keyframe = () => this.#keyWanted = this.#awaitKey = true;

  /**
   * @param {string} codec one of codecs()
   * @param {import('./stream.js').Stream} stream
   * @param {{skipped: () => void, failed: (text: string) => void}} callbacks skipped: a frame that was not sent
   */
  constructor(codec, stream, callbacks) {
    this.#codec = codec;
    this.#stream = stream;
    this.#callbacks = callbacks;
    stream.addEventListener('keyframe', this.#keyframe);
  }

  /**
   * Encodes and sends the source's current frame, unless the stream is not ready.
   * @param {{width: number, height: number} | null} wanted by the model
   */
  take(source, wanted, captured, note) {
    const now = performance.now();
    this.#expire(now);
    const timestamp = this.#timestamp = Math.max(Math.round(captured * 1000), this.#timestamp + 1);
    const frame = this.#stream.ready && this.#stream.credit > this.#pending.size ? source.frame(timestamp) : null;
    if (!frame) {
      this.#callbacks.skipped();
      return;
    }
    try {
      this.#configure(source.size(wanted, this.#stream.size));
      const keyFrame = this.#keyWanted || now - this.#lastKey > KEY_INTERVAL;
      this.#encoder.encode(frame, {keyFrame});
      if (keyFrame) {
        this.#keyWanted = false;
        this.#lastKey = now;
      }
      this.#pending.set(timestamp, {captured, note, at: now});
    } catch (e) {
      this.#failed(e);
    } finally {
      frame.close();
    }
  }

  close() {
    this.#stream.removeEventListener('keyframe', this.#keyframe);
    this.#closeEncoder();
  }

  /** Makes a new encoder for each size: an AV1 encoder that is configured again keeps the old size in its headers. */
  #configure({width, height}) {
    if (width === this.#size.width && height === this.#size.height) return;
    this.#closeEncoder();
    this.#encoder = new VideoEncoder({output: c => this.#chunk(c), error: e => this.#failed(e)});
    this.#size = {width, height};
    this.#encoder.configure(config(this.#codec, width, height));
    this.#keyWanted = true;
  }

  #chunk(chunk) {
    const frame = this.#pending.get(chunk.timestamp);
    for (const [timestamp] of this.#pending) { // the encoder skipped earlier ones, to keep the bit rate
      if (timestamp > chunk.timestamp) break;
      this.#pending.delete(timestamp);
      if (timestamp < chunk.timestamp) this.#callbacks.skipped();
    }
    if (!frame) { // it came after ENCODE_TIMEOUT
      this.#keyframe();
      return;
    }
    const key = chunk.type === 'key';
    const bytes = new Uint8Array(chunk.byteLength);
    chunk.copyTo(bytes);
    if (this.#awaitKey && !key || !this.#stream.send(bytes, frame.captured, frame.note, key)) {
      this.#awaitKey = true;
      this.#callbacks.skipped();
    } else {
      this.#awaitKey = false;
    }
  }

  /** Counts frames as skipped that the encoder has skipped without a later chunk. */
  #expire(now) {
    const [oldest] = this.#pending.values();
    if (!oldest || this.#encoder.encodeQueueSize > 0 || now - oldest.at < ENCODE_TIMEOUT) return;
    this.#skip();
    this.#keyWanted ||= this.#awaitKey;
  }

  #skip() {
    for (const _ of this.#pending) this.#callbacks.skipped();
    this.#pending.clear();
  }

  #closeEncoder() {
    this.#skip();
    if (this.#encoder && this.#encoder.state !== 'closed') this.#encoder.close();
    this.#encoder = null;
  }

  #failed(e) {
    this.#callbacks.failed(`This browser’s encoder for ${label(this.#codec)} failed: ${e.message}. Send as JPEG or as something else, and press Start again.`);
  }
}
