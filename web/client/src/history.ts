// Events and counts of the rules of server streams: docs/events.md.

/** An event of a rule. */
export interface StreamEvent {
  id: string;
  stream: string;
  type: 'cross' | 'enter' | 'leave' | 'dwell' | 'count' | 'appear' | 'vanish' | 'speed' | 'when' | (string & {});
  rule: string;
  /** Of an event `cross`. */
  direction?: 'in' | 'out';
  class?: string;
  tracks?: number[];
  /** Of an event `speed`, in metres a second. */
  speed?: number;
  /** In microseconds: of the source, or since 1970 for frames without a time. */
  start: number;
  end: number;
  model: string;
  /** By the server's clock. */
  time: string;
}

/** Selects events; left-out members select all. Times are as in RFC 3339, or durations before now, such as `1h`. */
export interface EventQuery {
  camera?: string;
  type?: string;
  rule?: string;
  class?: string;
  from?: string;
  to?: string;
  order?: 'newest' | 'oldest';
  limit?: number;
  /** The `next` of the page before. */
  after?: string;
}

interface Directions {
  in: number;
  out: number;
}

/** Crossings of a line since the last reset, and in the present minute, hour and day. */
export interface Crossings extends Directions {
  minute: Directions;
  hour: Directions;
  day: Directions;
}

interface Visits {
  enter: number;
  leave: number;
}

/** Objects in a zone now, and enters and leaves since the last reset, and in the present minute, hour and day. */
export interface Stays extends Visits {
  now: number;
  minute: Visits;
  hour: Visits;
  day: Visits;
}

/** The counts of a stream's rules, for each model with tracks. */
export interface StreamCounts {
  stream: string;
  models: {
    model: string;
    since: string;
    lines: ({name: string; classes: Record<string, Crossings>} & Crossings)[];
    zones: ({name: string; classes: Record<string, Stays>} & Stays)[];
  }[];
}

/** The time of all objects in the cells of the picture. */
export interface HeatMap {
  columns: number;
  rows: number;
  from: string;
  to: string;
  /** By cell, from left to right and from top to bottom. */
  seconds: number[];
}

/** Where the objects of a stream were, for each model with tracks. */
export interface StreamHeat {
  stream: string;
  models: ({model: string} & HeatMap)[];
}
