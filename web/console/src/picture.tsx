// The newest picture of a stream.

import type {ServerStream} from '@millrace/client';
import {useEffect, useRef, useState} from 'preact/hooks';
import {playLive, playsLive} from './livevideo';
import {server} from './server';

const AGAIN = 3000; // ms after the server has ended the video, as for a restart

/** Width by height of the picture as shown, undefined before the first frame. Pixels need not be square. */
export const ratioOf = ({width, height, pixel_aspect}: ServerStream): number | undefined =>
  width && height ? (width * (pixel_aspect || 1)) / height : undefined;

/** The newest picture with its results, as long as the stream runs: as H.264, or as motion JPEG where that fails. */
export function Picture({of: s}: {of: ServerStream}) {
  const video = useRef<HTMLVideoElement>(null),
    [plays, setPlays] = useState(playsLive),
    [turn, setTurn] = useState(0);
  const ratio = ratioOf(s),
    address = server.url('v2', 'streams', s.name, 'video'),
    style = ratio ? {'--ratio': String(ratio)} : undefined,
    name = `Newest picture of ${s.name} with its results`;
  useEffect(() => {
    if (!plays) return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const again = () => (timer = setTimeout(() => setTurn(t => t + 1), AGAIN));
    const stop = playLive(video.current!, address, again, () => setPlays(false));
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [plays, address, turn]);
  return plays ? (
    <video ref={video} style={style} aria-label={name} muted playsInline />
  ) : (
    <img style={style} src={address} alt={name} />
  );
}
