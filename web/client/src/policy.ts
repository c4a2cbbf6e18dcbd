// How a stream treats frames that come faster than their answers.

/** Undefined or 0 = the model's default. */
export interface Policy {
  /** latest: the newest frame is answered, older ones are dropped. every: each frame is answered. */
  mode?: 'latest' | 'every';
  /** A frame that would be older than this when it is answered is dropped. */
  max_age_ms?: number;
  deadline_ms?: number;
  /** Frames above this rate are left out before they are encoded. */
  max_fps?: number;
  /** The most frames in flight. */
  window?: number;
}
