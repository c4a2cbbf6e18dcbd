// What callers tell a stream: its options, and the options of each frame.

import type {Picture} from './picture.js';
import type {Policy} from './policy.js';
import type {CapturedFrame, Source} from './sources.js';
import type {Trace} from './trace.js';
import type {Codec, Params, Region, Tensor} from './wire.js';

export interface StreamOptions {
  model: string;
  version?: string;
  /** Is captured, encoded and sent; at its end the stream is closed. Otherwise call send. */
  source?: Source;
  /**
   * How frames are coded; of a list the first that browser and server can do. Default:
   * for video auto, which is ['h264', 'vp8', 'vp9', 'av1', 'jpeg']; for sound the source's;
   * otherwise opaque, and the server recognises pictures by their content.
   */
  codec?: Codec | 'auto' | readonly Codec[];
  /** Of frames with the codecs rgb24 and nv12, px. */
  width?: number;
  height?: number;
  policy?: Policy;
  /** How tensors of results are sent; none = only the times. Default json. */
  outputs?: 'json' | 'binary' | 'none';
  /** Accepts only a model that keeps state for each stream. */
  stateful?: boolean;
  /** For frames without parameters of their own. */
  params?: Params;
  /** The longer side of pictures that are encoded here, px. Default 640. */
  maxSide?: number;
  /** Of JPEG, 1 to 100. Default 85. */
  quality?: number;
  /** Default: the server decides which traces are kept. */
  trace?: Trace;
  /** The most endings that wait to be read by `for await`; 0 = none, for programs that use events. Default 64. */
  buffer?: number;
  /** Called with each frame of the source; what it returns is the frame's note, which comes back with its ending. */
  each?: (frame: CapturedFrame) => unknown;
  /** Ends the stream at once. */
  signal?: AbortSignal;
}

/** What is sent: encoded bytes, a picture to encode here, or tensors. */
export type FrameData = Blob | ArrayBuffer | ArrayBufferView | Picture | readonly Tensor[];

export interface SendOptions {
  /** When the frame was captured, as of performance.now(). Default now. */
  captured?: number;
  /** Comes back with the ending. */
  note?: unknown;
  /** For encoded inter-coded video: it is a key frame. */
  key?: boolean;
  /** Instead of a new one. */
  traceparent?: string;
  /** The part of the picture that the model gets. */
  roi?: Region;
  params?: Params;
  deadlineMs?: number;
  /** The frame is never dropped for a newer one or for its age. */
  mustProcess?: boolean;
  /** It is the last frame. */
  endOfStream?: boolean;
}
