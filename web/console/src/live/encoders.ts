// The codecs of "Send as".

import {videoCodecs} from '@millrace/client';

const LABELS: Record<string, string> = {jpeg: 'JPEG', h264: 'H.264', vp8: 'VP8', vp9: 'VP9', av1: 'AV1'};

/** A codec's name for the user. */
export const label = (codec: string): string => LABELS[codec] ?? codec;

/** The video codecs that this browser encodes. */
export const codecs = async (): Promise<{name: string; label: string}[]> =>
  (await videoCodecs()).map(name => ({name, label: label(name)}));
