// What events and clips are called, and the moments of events in clips.

import type {Clip, StreamEvent} from '@millrace/client';

/** What happened. */
export type Happened = Pick<StreamEvent, 'type' | 'direction' | 'rule' | 'speed' | 'class'>;

/** What happened, in words. */
export function told({type, direction, rule, speed, class: of}: Happened): string {
  const object = of || 'object';
  switch (type) {
    case 'cross':
      return `${object} crossed ${rule}, ${direction}`;
    case 'enter':
      return `${object} entered ${rule}`;
    case 'leave':
      return `${object} left ${rule}`;
    case 'dwell':
      return `${object} stays in ${rule}`;
    case 'count':
      return `too many objects in ${rule}`;
    case 'appear':
      return `${object} appeared in ${rule}`;
    case 'vanish':
      return `${object} vanished in ${rule}`;
    case 'speed':
      return `${object} moved at ${speed} m/s in ${rule}`;
    case 'when':
      return `${rule} holds`;
    default:
      return `${type} of ${rule}`;
  }
}

/** A moment of a clip: of an event, or the begin. */
export interface Moment {
  clip: Clip;
  /** Seconds from the clip's begin. */
  at: number;
  /** The number of the event's picture. */
  picture?: number;
  event?: Happened & {id: string};
}

const CUTS: Record<string, string> = {
  reconnected: 'the source was opened again',
  codec: 'the source changed its codec',
  format: 'the client changed the size of its video',
  silent: 'the client sent no video',
  clock: 'the times of the source jumped',
  changed: 'the settings of the stream were changed',
  stopped: 'the stream or the server ended',
  long: 'it was too long',
  memory: 'memory.budget or clips.memory was used up',
  slow_disk: 'the disk was slower than the video',
  full_disk: 'the disk was full',
  file: 'the folder of clips could not be written',
  interrupted: 'the server was killed',
};

/** Why a clip ended early; '' = it did not. */
export const cutOf = ({cut}: Clip): string => (cut ? `ended early: ${CUTS[cut] ?? cut}` : '');

/** The moments of a clip: its events, or its begin. */
export function momentsOf(clip: Clip): Moment[] {
  const list = clip.events ?? [];
  if (list.length === 0) return [{clip, at: 0}];
  return list.map(({event, at_us, picture}) => ({clip, event, at: at_us / 1e6, ...(picture ? {picture} : {})}));
}
