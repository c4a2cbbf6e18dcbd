// The sources: a camera, a video, a picture.

import {UserError} from './api.js';

const LARGEST = 640; // px: the longer side of frames as sent, unless the model needs more
const QUALITY = 0.85; // of JPEG

// Pictures that the server decodes, so that they are sent unchanged.
const READABLE = ['image/jpeg', 'image/png', 'image/webp'];
const LARGEST_FILE = 8 << 20, LARGEST_STILL = 2048; // bytes; px, of pictures that are converted

const NO_PERMISSION = 'The camera was refused: this page has no permission. Allow the camera for it (the sign beside the address), then press Start again.';
const REFUSALS = {
  NotAllowedError: NO_PERMISSION,
  SecurityError: NO_PERMISSION,
  NotFoundError: 'No camera was found. Plug one in and press Start again, or stream a file or the clip.',
  OverconstrainedError: 'No camera was found that fits. Stream a file or the clip instead.',
  NotReadableError: 'The camera is there but cannot be read: another program seems to use it. Close that program and press Start again.',
  AbortError: 'The camera stopped working. Plug it in again and press Start.',
};

/**
 * A signal aborts opening. After stop or abort a source does not touch its element,
 * which the next source may use.
 *
 * @typedef {{width: number, height: number}} Size in px
 * @typedef {object} Source
 * @property {number} width of the picture, px
 * @property {number} height
 * @property {Blob} [still] the only frame, of a picture
 * @property {() => void} stop releases camera, file and memory
 * @property {(text: string) => void} [onend] set by the caller; called with a text for the user when the source ends by itself
 */

/** Opens the user's camera into a video element. @returns {Promise<VideoSource>} */
export async function camera(video, signal) {
  if (!window.isSecureContext || !navigator.mediaDevices?.getUserMedia) {
    const port = location.port ? ':' + location.port : '';
    throw new UserError(`The browser gives a camera only to pages on https or localhost, and this one is http://${location.host}. Open http://localhost${port}/console/ on the server’s own machine, or have the server speak https for other machines: millrace serve --tls-self-signed.`);
  }
  let media;
  try {
    media = await navigator.mediaDevices.getUserMedia({video: {width: {ideal: LARGEST}, facingMode: {ideal: 'environment'}}, audio: false});
  } catch (e) {
    throw new UserError(REFUSALS[e.name] ?? `The camera was refused: ${e.message || e.name}.`);
  }
  const off = () => media.getTracks().forEach(t => t.stop());
  if (signal.aborted) off(); // while the user was asked for permission
  signal.throwIfAborted();
  const source = new VideoSource(video, signal, () => {
    off();
    video.srcObject = null;
  });
  media.getVideoTracks()[0].onended = () => source.onend?.(REFUSALS.AbortError);
  video.srcObject = media;
  await source.play('The camera');
  return source;
}

/**
 * Opens a video by its address, or a file that the user chose.
 * @param {string | File} from
 * @param {AbortSignal} signal
 * @param {{loop?: boolean, what?: string}} options what: its name for the user
 * @returns {Promise<VideoSource>}
 */
export async function videoFile(video, from, signal, {loop = false, what = 'The video'} = {}) {
  const url = from instanceof Blob ? URL.createObjectURL(from) : from;
  const source = new VideoSource(video, signal, () => {
    video.pause();
    video.onended = null;
    video.removeAttribute('src');
    video.load();
    if (url !== from) URL.revokeObjectURL(url);
  });
  video.onended = () => source.onend?.(`${what} has ended. Press Start to see it again.`);
  video.loop = loop;
  video.src = url;
  await source.play(what);
  return source;
}

/** Opens a picture, which is one frame. It is sent unchanged if the server can decode it. @returns {Promise<Source>} */
export async function picture(img, file, signal) {
  const url = URL.createObjectURL(file);
  let stop = () => {
    stop = () => {};
    img.removeAttribute('src');
    URL.revokeObjectURL(url);
  };
  signal.addEventListener('abort', () => stop());
  img.src = url;
  try {
    await img.decode();
  } catch {
    stop();
    throw new UserError(`${file.name} is no picture that this browser can show. Choose JPEG, PNG or WebP.`);
  }
  const asIs = READABLE.includes(file.type) && file.size <= LARGEST_FILE;
  return {
    width: img.naturalWidth,
    height: img.naturalHeight,
    still: asIs ? file : await jpeg(document.createElement('canvas'), img, img.naturalWidth, img.naturalHeight, LARGEST_STILL),
    stop: () => stop(),
  };
}

/** A playing video. */
class VideoSource {
  #video;
  #close;
  #canvas = document.createElement('canvas');
  #stopped = false;
  onend = null;

  constructor(video, signal, close) {
    this.#video = video;
    this.#close = close;
    signal.addEventListener('abort', () => this.stop());
  }

  get width() { return this.#video.videoWidth; }
  get height() { return this.#video.videoHeight; }

  /** Resolves when there is a picture. Otherwise stops, and rejects with UserError. */
  async play(what) {
    try {
      await this.#video.play();
      if (!this.width) throw new UserError(`${what} has no picture.`);
    } catch (e) {
      const why = this.#video.error?.message;
      this.stop();
      if (e instanceof UserError) throw e;
      throw new UserError(`${what} cannot be played by this browser${why ? ` (${why})` : ''}. Most play H.264 in MP4, and VP8 or VP9 in WebM: ffmpeg -i IN out.webm makes one.`);
    }
  }

  /**
   * Calls callback for each new frame, until stopped, with its capture time (as of
   * performance.now()) and its position in the video, seconds.
   * @param {(captured: number, media: number) => void} callback
   */
  each(callback) {
    const video = this.#video;
    const next = video.requestVideoFrameCallback
      ? f => video.requestVideoFrameCallback((_, frame) => f(frame.captureTime ?? performance.now(), frame.mediaTime))
      : f => requestAnimationFrame(() => f(performance.now(), video.currentTime));
    const onFrame = (captured, media) => {
      if (this.#stopped) return;
      callback(captured, media);
      next(onFrame);
    };
    next(onFrame);
  }

  /**
   * The current frame as JPEG, no larger than needed.
   * @param {Size | null} wanted by the model
   * @param {Size | null} advised by the server
   * @returns {Promise<Blob | null>} null = no frame yet
   */
  encode(wanted, advised) {
    return jpeg(this.#canvas, this.#video, this.width, this.height, longerSide(wanted, advised));
  }

  /** The size needed for inter-coded video: encoders need even sides. */
  size(wanted, advised) {
    const scale = Math.min(1, longerSide(wanted, advised) / Math.max(this.width, this.height));
    const even = n => Math.max(2, 2 * Math.round(n * scale / 2));
    return {width: even(this.width), height: even(this.height)};
  }

  /**
   * The current frame, upright. The caller must close it.
   * @param {number} timestamp in microseconds
   * @returns {VideoFrame | null} null = no frame yet
   */
  frame(timestamp) {
    if (this.#video.readyState < HTMLMediaElement.HAVE_CURRENT_DATA) return null;
    const frame = new VideoFrame(this.#video, {timestamp});
    if (!frame.rotation && !frame.flip) return frame;
    frame.close(); // encoders do not rotate frames
    paint(this.#canvas, this.#video, this.width, this.height);
    return new VideoFrame(this.#canvas, {timestamp, alpha: 'discard'});
  }

  stop() {
    if (this.#stopped) return;
    this.#stopped = true;
    this.#close();
  }
}

/**
 * The longer side that is needed, px. Only the longer side of the advice is used: its
 * aspect ratio is that of earlier frames, and a camera may have been rotated since.
 */
const longerSide = (wanted, advised) => advised ? Math.max(advised.width, advised.height) : Math.max(LARGEST, wanted?.width ?? 0, wanted?.height ?? 0);

/** The picture as JPEG, scaled down so that its longer side has at most `longerSide` px. */
function jpeg(canvas, picture, width, height, longerSide) {
  const scale = Math.min(1, longerSide / Math.max(width, height));
  const w = Math.round(width * scale), h = Math.round(height * scale);
  if (!w || !h) return Promise.resolve(null);
  paint(canvas, picture, w, h);
  return new Promise(done => canvas.toBlob(done, 'image/jpeg', QUALITY));
}

function paint(canvas, picture, width, height) {
  if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
  canvas.getContext('2d', {alpha: false}).drawImage(picture, 0, 0, width, height);
}
