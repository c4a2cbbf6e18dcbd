// Tasks: inferences whose results the server keeps (docs/tasks.md).

import type {Code} from './errors.js';

export type TaskState = 'queued' | 'running' | 'finished' | 'failed' | 'cancelled' | 'expired';

/** An input or a result, as stored by the server. */
export interface TaskFile {
  size: number;
  sha256: string;
  /** The media type. */
  type?: string;
  /** The name of the client's file. */
  name?: string;
  /** The length of the JSON in front of binary tensors. */
  head?: string;
}

/** Times are RFC 3339; a member without a value is absent. */
export interface Task {
  id: string;
  model: string;
  version?: string;
  /** The account that submitted the task. */
  owner?: string;
  /** The idempotency key of the submission. */
  key?: string;
  priority?: number;
  traceparent?: string;
  state: TaskState;
  /** The number of the newest attempt; 0 = none. */
  attempt: number;
  /** Attempts allowed after a submission or a retry. */
  attempts: number;
  /** The attempt after which the task fails. */
  last_attempt: number;
  /** The consumer of the newest attempt. */
  consumer?: string;
  created: string;
  /** The earliest begin; after a failed attempt, the end of the wait. */
  not_before?: string;
  expires?: string;
  /** The begin of the newest attempt. */
  started?: string;
  ended?: string;
  /** Seconds from the end to the deletion; absent = the setting of the server. */
  retention?: number;
  webhook?: {
    url: string;
    state: 'waiting' | 'delivered' | 'given_up';
    attempts?: number;
    next?: string;
    error?: string;
  };
  input: TaskFile;
  result?: TaskFile;
  /** The error of the newest failed attempt. */
  error?: {code: Code; message: string};
  /** The progress of the newest attempt; without `total`, the end is not known. */
  progress?: {done: number; total?: number; unit?: string};
}

export interface TaskQuery {
  /** States, with commas between. */
  state?: string;
  model?: string;
  /** A part of the id, of the input's name, of the consumer or of the error. */
  text?: string;
  /** Tasks of a page: 1 to 1000, 100 unless set. */
  limit?: number;
  /** `next` of the page before. */
  after?: string;
}

/** Times are RFC 3339, or durations from now such as `10m`. */
export interface TaskOptions {
  version?: string;
  /** A name of the input for people, such as a file's name. */
  name?: string;
  /** -100 to 100: tasks with a higher number begin first. */
  priority?: number;
  /** 1 to 100. */
  attempts?: number;
  not_before?: string;
  expires?: string;
  /** The result of a video is the video, with the results drawn over the frames; JSON lines unless set. */
  annotate?: 'mp4';
  /** Duration from the end of the task to the deletion. */
  retention?: string;
  webhook?: string;
  /** The idempotency key: another submission with the key returns the first task. */
  key?: string;
}

/** Whether a task has ended, so that the state stays until a retry. */
export const taskEnded = ({state}: Task): boolean => state !== 'queued' && state !== 'running';
