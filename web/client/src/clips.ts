// Clips of streams: docs/events.md.

import type {StreamEvent} from './history.js';

/** A video of a stream with events. */
export interface Clip {
  id: string;
  stream: string;
  models: string[];
  state: 'recording' | 'ready';
  /** The time of the first picture, by the server's clock. */
  begin: string;
  /** The time of the first picture, on the clock of the events. */
  start_us: number;
  /** The time of the first picture in the video; left out = 0. */
  offset_us?: number;
  seconds: number;
  frames: number;
  /** By MP4's name, such as `avc1`. */
  codec: string;
  /** Of all files of the clip. */
  bytes: number;
  /** The number of pictures of events, of which the first has the number 1. */
  pictures: number;
  /** Known when the clip is ready. */
  events: ClipEvent[] | null;
  more_events?: number;
  /** Why the clip ended early. */
  cut?: string;
  short?: boolean;
  /** Kept beyond the limits of the server. */
  favourite?: boolean;
  /** The stream is a client's. */
  client?: boolean;
  /** The MP4 has no index in front of the pictures. */
  fragmented?: boolean;
}

/** An event in a clip. */
export interface ClipEvent {
  event: Omit<StreamEvent, 'model' | 'time'>;
  /** In the clip. */
  at_us: number;
  /** The number of the event's picture. */
  picture?: number;
}

/** Selects clips; left-out members select all. Times are as in RFC 3339, and of Clip.begin. */
export interface ClipQuery {
  stream?: string;
  /** The id of an event. */
  event?: string;
  from?: string;
  to?: string;
  limit?: number;
  /** The `next` of the page before. */
  before?: string;
}

/** When the server removes clips; favourites stay. */
export interface ClipRetention {
  /** Left out = clips of any age stay. */
  max_age_seconds?: number;
  /** Beyond the sum of all clips, the oldest are removed. */
  max_bytes: number;
}

export interface ClipPage {
  clips: Clip[];
  /** `before` of the next page; without `next`, this is the last page. */
  next?: string;
  /** Left out by a server without clips. */
  retention?: ClipRetention;
}

/** The objects in a frame of a clip, in pixels of the source. */
export interface ClipObjects {
  /** The frame's time in the clip. */
  at_us: number;
  width: number;
  height: number;
  objects: {box: [number, number, number, number]; track?: number; class?: string | number; score?: number}[];
}
