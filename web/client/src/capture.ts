// Sends what a source captures to a stream.

import type {State} from './accounting.js';
import {MillraceError} from './errors.js';
import type {SendOptions} from './options.js';
import type {CapturedFrame, Source} from './sources.js';

/** The target stream of capture. */
export interface Sink {
  readonly state: State;
  readonly ready: boolean;
  whenReady(): Promise<void>;
  send(data: VideoFrame | Blob | Uint8Array, options: SendOptions): boolean;
  /** Counts an unsent frame. */
  leftOut(note: unknown): void;
  /** Resolves when no frame is in flight. */
  drain(): Promise<void>;
  close(): Promise<void>;
  /** Ends the stream. */
  finish(error: MillraceError): void;
}

/**
 * Captures until the source or the stream ends. At the end of the source, closes the stream after the frames in flight.
 */
export async function capture(source: Source, stream: Sink, each?: (frame: CapturedFrame) => unknown): Promise<void> {
  try {
    await source.start({
      frame: frame => {
        const taken = stream.ready,
          note = each?.({...frame, taken, picture: frame.picture});
        const picture = taken && frame.picture();
        if (picture) stream.send(picture, {captured: frame.captured, note});
        else stream.leftOut(note);
      },
      bytes: async (bytes, captured) => {
        const note = each?.({captured, media: 0, taken: stream.ready, picture: () => null});
        stream.send(bytes, {captured, note});
      },
      ready: () => stream.whenReady(),
    });
    await stream.drain(); // close drops frames that are not yet in a batch
    await stream.close();
  } catch (e) {
    if (stream.state !== 'closed' && stream.state !== 'closing') {
      stream.finish(
        e instanceof MillraceError
          ? e
          : new MillraceError('internal', `source: ${e instanceof Error ? e.message : e}`, {cause: e}),
      );
    }
  }
}
