// What a frame's ending tells.

import type {MillraceError} from './errors.js';
import type {Params, Tensor} from './wire.js';

/**
 * The steps of a frame in ms, in order. Unknown steps are left out: a drop or an error has no times of the server. The
 * steps add up to total.
 */
export interface Timings {
  /** Time in the page, from capture until encoding began. */
  wait: number;
  /** Encoding in the worker thread, and making the message. */
  encode: number;
  /** From sending until the server has received the frame: an estimate from the clocks of both sides. */
  upload?: number;
  /** Time in the model's queue. */
  queue?: number;
  /** Decoding, resizing, and waiting for the batch to run. */
  prepare?: number;
  /** The batch's run. */
  run?: number;
  /** Time in the server after the run: stages, order, coding of the result. */
  finish?: number;
  /** From the server's result until the page has the result: an estimate, as upload. */
  download?: number;
  /** From capture until the ending. */
  total: number;
}

/** The common members of endings. */
export interface Ending {
  /** The number of the frame in the stream, from 0. Numbers continue over reconnects. */
  readonly seq: number;
  /** Time of capture, ms, as of performance.now(). */
  readonly captured: number;
  /** The note of the caller about the frame. */
  readonly note: unknown;
  /** The id of the frame's trace; '' = not known. The server sends the id in results and errors. */
  readonly traceId: string;
  /** Whether the server has announced that the server keeps the trace. The server may still keep more traces later. */
  readonly traceKept: boolean;
  /** Bytes of the frame as sent. */
  readonly bytes: number;
  readonly timings: Timings;
}

/** The frame was answered. */
export interface Result extends Ending {
  readonly type: 'result';
  /** A part of the result. Further parts follow, and the part is not the ending. */
  readonly partial: boolean;
  readonly model: string;
  readonly version: string;
  readonly outputs: Tensor[];
  readonly parameters: Params;
  /** The size of the picture as sent, upright, px; 0 = no picture. Boxes are in pixels of this picture. */
  readonly width: number;
  readonly height: number;
  /** The rows of the batch. */
  readonly batch: number;
}

/**
 * The frame was dropped by the server (docs/protocol.md, "Reasons of a drop"), or the ending will not come:
 * `connection` (lost with the connection) or `closed`.
 */
export interface Drop extends Ending {
  readonly type: 'drop';
  readonly reason: string;
}

/** The frame failed. */
export interface Failure extends Ending {
  readonly type: 'error';
  readonly error: MillraceError;
}

export type Reply = Result | Drop | Failure;

/** The times of a result, by the server's clock since 1970 and as lengths. */
export interface ServerTiming {
  received_us?: number;
  queue_us?: number;
  prepare_us?: number;
  run_us?: number;
  total_us?: number;
}

/** The times of the steps of a frame in the page, ms, as of performance.now(). */
export interface Times {
  captured: number;
  /** Encoding began. */
  taken: number;
  sent: number;
}

/**
 * The steps of a frame whose ending arrived at `now`.
 * @param offset the server's clock less performance.now(); undefined = not known: upload and download take equally long
 */
export function timings({captured, taken, sent}: Times, now: number, server?: ServerTiming, offset?: number): Timings {
  const known = {wait: taken - captured, encode: sent - taken};
  if (!server?.received_us) return {...known, total: now - captured};
  const {received_us, queue_us = 0, prepare_us = 0, run_us = 0, total_us = queue_us + prepare_us + run_us} = server;
  const network = Math.max(0, now - sent - total_us / 1000);
  const upload =
    offset === undefined ? network / 2 : Math.min(network, Math.max(0, received_us / 1000 - offset - sent));
  return {
    ...known,
    upload,
    queue: queue_us / 1000,
    prepare: prepare_us / 1000,
    run: run_us / 1000,
    finish: Math.max(0, total_us - queue_us - prepare_us - run_us) / 1000,
    download: network - upload,
    total: now - captured,
  };
}
