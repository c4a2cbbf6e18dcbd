// Encodes pictures for a stream, in a worker thread.

import type {Advice} from './accounting.js';
import {isVideo} from './codecs.js';
import {MillraceError} from './errors.js';
import type {SendOptions} from './options.js';
import type {Picture} from './picture.js';
import type {Codec} from './wire.js';
import type {Job, Reply} from './worker.js';

const KEY_INTERVAL = 4000; // ms between key frames that were not requested
const ENCODE_TIMEOUT = 2000; // ms after which an encoder with an empty queue is taken to have skipped a frame
const MAX_PENDING = 4; // frames in the worker
const LARGEST = 640; // px: the longer side of frames as sent, unless told otherwise
const QUALITY = 85; // of JPEG

/**
 * The size to encode a picture at, px: no larger than needed. Only the longer side of the server's advice is used: the
 * aspect ratio of the advice belongs to earlier frames, and a camera may have been rotated since. Encoders of video
 * need even sides.
 */
export function sizeOf(
  width: number,
  height: number,
  longerSide: number,
  even: boolean,
): {width: number; height: number} {
  const scale = Math.min(1, longerSide / Math.max(width, height));
  const round = (n: number) =>
    even ? Math.max(2, 2 * Math.round((n * scale) / 2)) : Math.max(1, Math.round(n * scale));
  return {width: round(width), height: round(height)};
}

/** The options of a frame with times, as of performance.now(). */
export type TimedOptions = SendOptions & {captured: number; taken: number};

/** The stream of an Encoder. */
export interface Output {
  readonly codec: Codec;
  readonly advice: Advice;
  /** Sends encoded bytes. Returns false when the stream is not running. */
  transmit(bytes: Uint8Array, options: TimedOptions): boolean;
  /** Counts an unsent frame. */
  leftOut(note: unknown): void;
  /** Ends the stream. */
  finish(error: MillraceError): void;
  addEventListener(type: 'keyframe', listener: () => void): void;
  removeEventListener(type: 'keyframe', listener: () => void): void;
}

interface Pending {
  options: TimedOptions;
}

/**
 * Every chunk of video is sent, in order, because later chunks depend on earlier chunks: frames are skipped before
 * encoding. Only the chunks between a gap and the next key frame are not sent, because no decoder could decode the
 * chunks.
 */
export class Encoder {
  readonly #stream: Output;
  readonly #limits: {maxSide?: number; quality?: number};
  readonly #worker: Worker;
  #pending = new Map<number, Pending>(); // by timestamp, the oldest first
  #timestamp = 0; // us, of the newest frame
  #timer: ReturnType<typeof setTimeout> | undefined; // while frames are pending
  #keyWanted = true; // the next frame must be a key frame
  #awaitKey = true; // chunks are not sent until a key frame
  #lastKey = 0; // time of the last key frame
  #drained: (() => void)[] = [];
  #closed = false;

  constructor(stream: Output, limits: {maxSide?: number; quality?: number}) {
    this.#stream = stream;
    this.#limits = limits;
    this.#worker = new Worker(new URL(/* @vite-ignore */ './worker.js', import.meta.url), {type: 'module'});
    this.#worker.onmessage = ({data}: MessageEvent<Reply>) => this.#reply(data);
    this.#worker.onerror = e =>
      this.#failed(e.message || 'the file worker.js, beside the client’s index.js, cannot be loaded');
    stream.addEventListener('keyframe', this.#keyframe);
  }

  /** How many frames are being encoded. */
  get pending(): number {
    return this.#pending.size;
  }

  /** Encoding is slower than capture. */
  get busy(): boolean {
    return this.#pending.size >= MAX_PENDING;
  }

  encode(picture: Picture, options: TimedOptions): void {
    const timestamp = (this.#timestamp = Math.max(Math.round(options.captured * 1000), this.#timestamp + 1));
    this.#pending.set(timestamp, {options});
    this.#timer ??= setTimeout(this.#check, ENCODE_TIMEOUT);
    if ('VideoFrame' in globalThis) {
      try {
        this.#post(
          timestamp,
          picture instanceof VideoFrame || picture instanceof ImageBitmap
            ? picture
            : new VideoFrame(picture, {timestamp}),
        );
      } catch (e) {
        // a video without a picture yet
        this.#skip(timestamp);
      }
    } else {
      createImageBitmap(picture).then(
        bitmap => this.#post(timestamp, bitmap),
        () => this.#skip(timestamp),
      );
    }
  }

  /** Resolves when no frame is being encoded. */
  async drain(): Promise<void> {
    while (this.#pending.size > 0) await new Promise<void>(done => this.#drained.push(done));
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#stream.removeEventListener('keyframe', this.#keyframe);
    clearTimeout(this.#timer);
    this.#worker.terminate();
    for (const timestamp of [...this.#pending.keys()]) this.#skip(timestamp);
  }

  #keyframe = (): void => {
    this.#keyWanted = this.#awaitKey = true;
  };

  #post(timestamp: number, frame: VideoFrame | ImageBitmap): void {
    if (this.#closed) {
      frame.close();
      return;
    }
    const {codec, advice} = this.#stream,
      video = isVideo(codec),
      now = performance.now();
    const longerSide = advice.width ? Math.max(advice.width, advice.height!) : (this.#limits.maxSide ?? LARGEST);
    const size = frame instanceof ImageBitmap ? frame : {width: frame.displayWidth, height: frame.displayHeight};
    const key = video && (this.#keyWanted || now - this.#lastKey > KEY_INTERVAL);
    if (key) {
      this.#keyWanted = false;
      this.#lastKey = now;
    }
    const job: Job = {
      timestamp,
      frame,
      codec: video ? codec : 'jpeg',
      ...sizeOf(size.width, size.height, longerSide, video),
      key,
      quality: (advice.quality ?? this.#limits.quality ?? QUALITY) / 100,
    };
    this.#worker.postMessage(job, [frame]);
  }

  #reply(reply: Reply): void {
    if ('error' in reply) return this.#failed(reply.error);
    if ('idle' in reply) {
      // the encoder skipped what it was given until then
      for (const timestamp of [...this.#pending.keys()]) if (timestamp <= reply.idle) this.#skip(timestamp);
      this.#keyWanted ||= this.#awaitKey;
      return;
    }
    const {timestamp, bytes, key} = reply,
      frame = this.#pending.get(timestamp),
      video = isVideo(reply.codec);
    if (!frame) {
      // it came after ENCODE_TIMEOUT
      if (video) this.#keyframe();
      return;
    }
    for (const earlier of [...this.#pending.keys()]) {
      // the encoder skipped them, to keep the bit rate
      if (earlier >= timestamp) break;
      this.#skip(earlier);
    }
    this.#pending.delete(timestamp);
    const current = video
      ? reply.codec === this.#stream.codec && (!this.#awaitKey || key)
      : !isVideo(this.#stream.codec);
    if (current && this.#stream.transmit(new Uint8Array(bytes), {...frame.options, key})) {
      this.#awaitKey &&= !video;
    } else {
      this.#awaitKey ||= video;
      this.#stream.leftOut(frame.options.note);
    }
    this.#wake();
  }

  /** Asks a late encoder about skipped frames. */
  #check = (): void => {
    const [oldest] = this.#pending.values(),
      [...timestamps] = this.#pending.keys();
    if (oldest && performance.now() - oldest.options.taken > ENCODE_TIMEOUT)
      this.#worker.postMessage({idle: timestamps.at(-1)!} satisfies Job);
    this.#timer = oldest && setTimeout(this.#check, ENCODE_TIMEOUT);
  };

  #skip(timestamp: number): void {
    const frame = this.#pending.get(timestamp);
    if (!frame) return;
    this.#pending.delete(timestamp);
    this.#stream.leftOut(frame.options.note);
    this.#wake();
  }

  #wake(): void {
    if (this.#pending.size === 0) for (const drained of this.#drained.splice(0)) drained();
  }

  #failed(why: string): void {
    this.#stream.finish(
      new MillraceError('unsupported', `codec: this browser’s encoder for ${this.#stream.codec} failed: ${why}`),
    );
  }
}
