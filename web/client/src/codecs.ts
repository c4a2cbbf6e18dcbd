// Inter-coded video, by the browser's own encoders.

import {MillraceError} from './errors.js';
import type {Codec} from './wire.js';

/** Codecs of browsers' video encoders. */
export type VideoCodec = 'h264' | 'vp8' | 'vp9' | 'av1';

const BITS_PER_PIXEL = 4; // and second: 1.2 Mbit/s at 640 x 480
const MIN_BITRATE = 300_000; // bits a second

/** WebCodecs configurations by the protocol's codec names, at levels that allow 1920 x 1080. */
const CODECS: Record<VideoCodec, Pick<VideoEncoderConfig, 'codec' | 'avc'>> = {
  h264: {codec: 'avc1.42E028', avc: {format: 'annexb'}},
  vp8: {codec: 'vp8'},
  vp9: {codec: 'vp09.00.40.08'},
  av1: {codec: 'av01.0.08M.08'},
};

export const isVideo = (codec: Codec): codec is VideoCodec => codec in CODECS;

export const configuration = (codec: VideoCodec, width: number, height: number): VideoEncoderConfig => ({
  ...CODECS[codec],
  width,
  height,
  bitrate: Math.max(MIN_BITRATE, BITS_PER_PIXEL * width * height),
  latencyMode: 'realtime',
});

/** The video codecs of this browser's encoders. Node, old browsers, and pages without https or localhost have none. */
export async function videoCodecs(): Promise<VideoCodec[]> {
  if (!('VideoEncoder' in globalThis)) return [];
  const all = (Object.keys(CODECS) as VideoCodec[]).map(async codec => {
    const {supported} = await VideoEncoder.isConfigSupported(configuration(codec, 640, 480)).catch(() => ({
      supported: false,
    }));
    return supported ? [codec] : [];
  });
  return (await Promise.all(all)).flat();
}

/** The codecs of a list that can be sent from here. Rejects with MillraceError when the list has no such codec. */
export async function usable(codecs: readonly Codec[], encodedHere: boolean): Promise<readonly Codec[]> {
  if (!encodedHere || !codecs.some(isVideo)) return codecs;
  const supported = await videoCodecs(),
    found = codecs.filter(codec => !isVideo(codec) || supported.includes(codec));
  if (found.length === 0) {
    const why = globalThis.isSecureContext === false ? ', since the page is not on https or localhost' : '';
    throw new MillraceError(
      'unsupported',
      `codec: this browser encodes none of ${codecs.join(', ')} here${why}: send jpeg`,
    );
  }
  return found;
}
