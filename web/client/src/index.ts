/**
 * The client of a Millrace server, for pages and Node:
 * streams of pictures, video, sound and tensors, and the server's REST calls.
 */

export {type Advice, type Counts, type State, type StreamEvents} from './accounting.js';
export {type Box, boxes, outputs} from './boxes.js';
export * from './clips.js';
export {type VideoCodec, videoCodecs} from './codecs.js';
export {
  type Connection,
  type ConnectionEvents,
  type ConnectionState,
  type ConnectOptions,
  type Socket,
  type Token,
  connect,
} from './connection.js';
export {type Code, MillraceError} from './errors.js';
export * from './history.js';
export {type FrameData, type SendOptions, type StreamOptions} from './options.js';
export {type Picture} from './picture.js';
export {type Policy} from './policy.js';
export {type Drop, type Ending, type Failure, type Reply, type Result, type Timings} from './replies.js';
export * from './rest.js';
export {
  type CapturedFrame,
  type MicrophoneOptions,
  type Source,
  type SourceOptions,
  type Target,
  type VideoOptions,
  type VideoSource,
  camera,
  canvas,
  file,
  microphone,
  screen,
} from './sources.js';
export {type Stream} from './stream.js';
export * from './tasks.js';
export {type Trace} from './trace.js';
export {type Codec, type Params, type Region, type Tensor} from './wire.js';
