// How a stream treats frames that come faster than their answers.

/** The choice of frames when frames come faster than answers. Undefined or 0 = the default of the model. */
export interface Policy {
  /** latest: the newest frame is answered, older frames are dropped. every: each frame is answered. */
  mode?: 'latest' | 'every';
  /** A frame is dropped when the frame would be older than this at the answer. */
  max_age_ms?: number;
  deadline_ms?: number;
  /** Frames above this rate, per second, are left out before encoding. */
  max_fps?: number;
  /** The most frames in flight. */
  window?: number;
}
