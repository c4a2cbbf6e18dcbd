// The worker thread that encodes pictures: as JPEG, or as chunks of video.

import {type VideoCodec, configuration, isVideo} from './codecs.js';

/** A picture to encode, or the question whether all until a timestamp have been encoded. */
export type Job =
  | {
      timestamp: number; // us
      frame: VideoFrame | ImageBitmap;
      codec: VideoCodec | 'jpeg';
      width: number; // px
      height: number;
      key: boolean; // it must be a key frame
      quality: number; // of JPEG, 0 to 1
    }
  | {idle: number};

/** An encoded picture; idleness of the encoder after the jobs up to a timestamp; or a failure. */
export type Reply =
  {timestamp: number; codec: VideoCodec | 'jpeg'; bytes: ArrayBuffer; key: boolean} | {idle: number} | {error: string};

type Picture = Exclude<Job, {idle: number}>;

const reply = (message: Reply, transfer: Transferable[] = []): void =>
  (self as unknown as Worker).postMessage(message, transfer);

let canvas: OffscreenCanvas | undefined;
let encoder: VideoEncoder | undefined;
let configured = ''; // codec and size of the encoder

function paint(frame: VideoFrame | ImageBitmap, width: number, height: number): OffscreenCanvas {
  canvas ??= new OffscreenCanvas(width, height);
  if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
  canvas.getContext('2d', {alpha: false})!.drawImage(frame, 0, 0, width, height);
  return canvas;
}

async function asJPEG({frame, width, height, quality, timestamp}: Picture): Promise<void> {
  const drawn = paint(frame, width, height);
  frame.close();
  const bytes = await (await drawn.convertToBlob({type: 'image/jpeg', quality})).arrayBuffer();
  reply({timestamp, codec: 'jpeg', bytes, key: false}, [bytes]);
}

/** Makes a new encoder for each size: a reconfigured AV1 encoder keeps the old size in the headers. */
function configure(codec: VideoCodec, width: number, height: number): boolean {
  const wanted = `${codec} ${width}x${height}`;
  if (configured === wanted) return false;
  if (encoder?.state === 'configured') encoder.close();
  encoder = new VideoEncoder({
    output: chunk => {
      const bytes = new ArrayBuffer(chunk.byteLength);
      chunk.copyTo(bytes);
      reply({timestamp: chunk.timestamp, codec, bytes, key: chunk.type === 'key'}, [bytes]);
    },
    error: e => reply({error: e.message}),
  });
  encoder.configure(configuration(codec, width, height));
  configured = wanted;
  return true;
}

/** The frame upright, since encoders do not rotate frames, and with the job's timestamp. */
function upright({frame, width, height, timestamp}: Picture): VideoFrame {
  const {rotation, flip} = frame as {rotation?: number; flip?: boolean};
  if (!rotation && !flip) return new VideoFrame(frame, {timestamp});
  return new VideoFrame(paint(frame, width, height), {timestamp, alpha: 'discard'});
}

function asVideo(job: Picture, codec: VideoCodec): void {
  const keyFrame = configure(codec, job.width, job.height) || job.key;
  const frame = upright(job);
  job.frame.close();
  try {
    encoder!.encode(frame, {keyFrame});
  } finally {
    frame.close();
  }
}

async function run(job: Job): Promise<void> {
  try {
    if ('idle' in job) {
      if (!encoder?.encodeQueueSize) reply({idle: job.idle});
    } else if (isVideo(job.codec)) {
      asVideo(job, job.codec);
    } else {
      await asJPEG(job);
    }
  } catch (e) {
    reply({error: e instanceof Error ? e.message : String(e)});
  }
}

let last = Promise.resolve(); // one after another: JPEGs are coded from one canvas
onmessage = ({data}: MessageEvent<Job>) => (last = last.then(() => run(data)));
