// What callers tell a stream: its options, and the options of each frame.

import type {Picture} from './picture.js';
import type {Policy} from './policy.js';
import type {CapturedFrame, Source} from './sources.js';
import type {Trace} from './trace.js';
import type {Codec, Params, Region, Tensor} from './wire.js';

export interface StreamOptions {
  model: string;
  version?: string;
  /** Captured, encoded and sent; the end of the source closes the stream. Without a source, call send. */
  source?: Source;
  /**
   * The coding of frames; of a list, the first codec that browser and server support. Default: for video auto, the list
   * ['h264', 'vp8', 'vp9', 'av1', 'jpeg']; for sound the codec of the source; otherwise opaque, and the server
   * recognises pictures by content.
   */
  codec?: Codec | 'auto' | readonly Codec[];
  /** Size of frames with the codecs rgb24 and nv12, px. */
  width?: number;
  height?: number;
  policy?: Policy;
  /** How tensors of results are sent; none = only the times. Default json. */
  outputs?: 'json' | 'binary' | 'none';
  /** Accept only a model with state for each stream. */
  stateful?: boolean;
  /** Parameters of frames without parameters. */
  params?: Params;
  /** The longer side of pictures encoded here, px. Default 640. */
  maxSide?: number;
  /** Quality of JPEG, 1 to 100. Default 85. */
  quality?: number;
  /** Default: the server decides about keeping traces. */
  trace?: Trace;
  /** The most endings that wait for `for await`; 0 = none, for programs with events. Default 64. */
  buffer?: number;
  /** Called with each frame of the source. The return value is the frame's note, and comes back with the ending. */
  each?: (frame: CapturedFrame) => unknown;
  /** Ends the stream at once. */
  signal?: AbortSignal;
}

/** The content of a frame: encoded bytes, a picture to encode here, or tensors. */
export type FrameData = Blob | ArrayBuffer | ArrayBufferView | Picture | readonly Tensor[];

export interface SendOptions {
  /** Time of capture, ms, as of performance.now(). Default now. */
  captured?: number;
  /** A note, which comes back with the ending. */
  note?: unknown;
  /** For encoded inter-coded video: the frame is a key frame. */
  key?: boolean;
  /** A W3C traceparent, instead of a new traceparent. */
  traceparent?: string;
  /** The part of the picture for the model, px. */
  roi?: Region;
  params?: Params;
  deadlineMs?: number;
  /** The frame is never dropped for a newer frame or for age. */
  mustProcess?: boolean;
  /** The frame is the last frame. */
  endOfStream?: boolean;
}
