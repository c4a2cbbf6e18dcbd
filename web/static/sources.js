// What can be streamed: a camera, a video, a picture.

import {Told} from './api.js';

const LARGEST = 640; // px: the longer side of frames as sent, unless the model wants more

const REFUSALS = {
  NotAllowedError: 'The camera was refused: this page has no permission. Allow the camera for it (the sign beside the address), then press Start again.',
  SecurityError: 'The camera was refused: this page has no permission. Allow the camera for it (the sign beside the address), then press Start again.',
  NotFoundError: 'No camera was found. Plug one in and press Start again, or stream a file or the clip.',
  OverconstrainedError: 'No camera was found that fits. Stream a file or the clip instead.',
  NotReadableError: 'The camera is there but cannot be read: another program seems to use it. Close that and press Start again.',
  AbortError: 'The camera stopped working. Plug it in again and press Start.',
};

/** Opens the visitor's camera into a video element. @returns {Promise<Source>} */
export async function camera(video) {
  if (!window.isSecureContext || !navigator.mediaDevices?.getUserMedia) {
    const port = location.port ? ':' + location.port : '';
    throw new Told(`The browser gives a camera only to pages on https or localhost, and this one is on ${location.host}. On the server's own machine open http://localhost${port}/console/; from elsewhere, start the server with --tls-self-signed or a certificate, and open https://${location.host}/console/.`);
  }
  let media;
  try {
    media = await navigator.mediaDevices.getUserMedia({video: {width: {ideal: LARGEST}, facingMode: {ideal: 'environment'}}, audio: false});
  } catch (e) {
    throw new Told(REFUSALS[e.name] ?? `The camera was refused: ${e.message || e.name}.`);
  }
  video.srcObject = media;
  await video.play();
  const source = new Moving(video, () => {
    media.getTracks().forEach(t => t.stop());
    video.srcObject = null;
  });
  media.getVideoTracks()[0].onended = () => source.onend?.(REFUSALS.AbortError);
  return source;
}

/** Opens a video by its address. @returns {Promise<Source>} */
export async function film(video, url, {loop = false, what = 'The video'} = {}) {
  video.srcObject = null;
  video.loop = loop;
  video.src = url;
  try {
    await video.play();
  } catch (e) {
    if (e.name === 'AbortError') throw new Told(`${what} was stopped before it began.`);
    throw new Told(`${what} cannot be played by this browser${video.error?.message ? ` (${video.error.message})` : ''}. H.264 in MP4, VP8 and VP9 in WebM are played by most.`);
  }
  const source = new Moving(video, () => {
    video.pause();
    video.removeAttribute('src');
    video.load();
  });
  video.onended = () => source.onend?.('');
  return source;
}

/** A picture goes as it is, once. @returns {Promise<Source>} */
export async function still(img, file) {
  const url = URL.createObjectURL(file);
  img.src = url;
  const shown = await img.decode().then(() => true, () => false); // what a browser cannot show the server may still read
  return {
    width: shown ? img.naturalWidth : 4,
    height: shown ? img.naturalHeight : 3,
    still: file,
    stop: () => URL.revokeObjectURL(url),
  };
}

/** A video that plays. */
class Moving {
  #video;
  #close;
  #canvas = document.createElement('canvas');
  #stopped = false;
  onend = null; // with a text for the visitor

  constructor(video, close) {
    this.#video = video;
    this.#close = close;
  }

  get width() { return this.#video.videoWidth; }
  get height() { return this.#video.videoHeight; }

  /** Calls back for each new frame, until stopped. */
  each(callback) {
    const next = 'requestVideoFrameCallback' in this.#video
      ? f => this.#video.requestVideoFrameCallback(f)
      : f => requestAnimationFrame(f);
    const turn = () => {
      if (this.#stopped) return;
      callback();
      next(turn);
    };
    next(turn);
  }

  /**
   * The present frame as JPEG, no larger than is of use.
   * @param {{width: number, height: number} | null} wanted by the model
   * @returns {Promise<Blob | null>}
   */
  encode(wanted) {
    const most = Math.max(LARGEST, wanted?.width ?? 0, wanted?.height ?? 0);
    const scale = Math.min(1, most / Math.max(this.width, this.height));
    const w = Math.round(this.width * scale), h = Math.round(this.height * scale);
    if (!w || !h) return Promise.resolve(null);
    const c = this.#canvas;
    if (c.width !== w || c.height !== h) [c.width, c.height] = [w, h];
    c.getContext('2d', {alpha: false}).drawImage(this.#video, 0, 0, w, h);
    return new Promise(done => c.toBlob(done, 'image/jpeg', 0.85));
  }

  stop() {
    this.#stopped = true;
    this.#video.onended = null;
    this.#close();
  }
}
