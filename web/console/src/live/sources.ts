// Opens what the user chose to stream.

import {MillraceError, camera, file, screen, type Source} from '@millrace/client';
import {UserError} from '../server';

export type Kind = 'camera' | 'screen' | 'clip' | 'file';

/** A source, and what the user calls it. */
export interface Opened {
  source: Source;
  what: string;
}

/** Opens a source into the video element. Rejects with UserError. */
export async function open(
  kind: Kind,
  element: HTMLVideoElement,
  chosen: File | undefined,
  signal: AbortSignal,
): Promise<Opened> {
  const what = {camera: 'The camera', screen: 'The screen', clip: 'The clip', file: chosen?.name ?? ''}[kind];
  if (kind === 'file' && !chosen) throw new UserError('Pick a video or a picture first.');
  try {
    switch (kind) {
      case 'camera':
        return {what, source: await camera({element, signal})};
      case 'screen':
        return {what, source: await screen({element, signal})};
      case 'clip':
        return {what, source: await file('clip.mp4', {element, signal, loop: true})};
      case 'file':
        return {what, source: await file(chosen!, {element, signal})};
    }
  } catch (e) {
    if (e instanceof MillraceError) throw new UserError(`${text(e)}. ${advice(kind)}`.trim(), {cause: e});
    throw e;
  }
}

/** The message of a source's error, as a sentence. */
export function text(e: MillraceError): string {
  const words = e.message.replace(/^source: /, '').replace(/\.$/, '');
  return words.charAt(0).toUpperCase() + words.slice(1);
}

function advice(kind: Kind): string {
  if (kind === 'file' || kind === 'clip') return '';
  if (window.isSecureContext) return 'Then press Start again, or stream a file or the clip.';
  const port = location.port ? ':' + location.port : '';
  return (
    `Open http://localhost${port}/console/ on the server’s own machine, ` +
    'or have the server speak https for other machines: millrace serve --tls-self-signed.'
  );
}
