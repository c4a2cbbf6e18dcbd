// The newest picture of a stream.

import type {ServerStream} from '@millrace/client';
import {server} from './server';

/** Width by height of the picture as shown, undefined before the first frame. Pixels need not be square. */
export const ratioOf = ({width, height, pixel_aspect}: ServerStream): number | undefined =>
  width && height ? (width * (pixel_aspect || 1)) / height : undefined;

/** The newest picture with its results, as long as the stream runs. */
export function Picture({of: s}: {of: ServerStream}) {
  const ratio = ratioOf(s);
  return (
    <img
      style={ratio ? {'--ratio': String(ratio)} : undefined}
      src={server.url('v2', 'streams', s.name, 'video')}
      alt={`Newest picture of ${s.name} with its results`}
    />
  );
}
