// What can be captured in a page: cameras, screens, videos, pictures, canvases, microphones.

import {type Code, MillraceError, throwIfAborted} from './errors.js';
import type {Policy} from './policy.js';
import type {Codec} from './wire.js';

// Pictures that the server decodes, so that they are sent unchanged.
const READABLE = ['image/jpeg', 'image/png', 'image/webp'];
const LARGEST_FILE = 8 << 20,
  LARGEST_STILL = 2048; // bytes; px, of pictures that are converted

/** A captured frame. */
export interface CapturedFrame {
  /** Time of capture, ms, as of performance.now(). */
  readonly captured: number;
  /** The position in a video, seconds. */
  readonly media: number;
  /** Whether the frame will be encoded and sent. */
  readonly taken: boolean;
  /** A copy of the picture. The caller closes the copy. null = no picture, or the browser has no VideoFrame. */
  picture(): VideoFrame | null;
}

/** Where a source's frames go. */
export interface Target {
  frame(frame: Omit<CapturedFrame, 'taken' | 'picture'> & {picture(): VideoFrame | null}): void;
  bytes(bytes: Blob | Uint8Array, captured: number): void;
  /** Resolves when a frame may be sent. */
  ready(): Promise<void>;
}

/** Captures once, for one stream. The stream stops the source at the end of the stream. */
export interface Source {
  /** The codec of streams without the option codec; undefined = the server recognises pictures by content. */
  readonly codec: Codec | 'auto' | undefined;
  readonly policy: Policy;
  /** Size of the picture, px; 0 = no picture. */
  readonly width: number;
  readonly height: number;
  /** The element with the picture, to put into a page. */
  readonly element?: HTMLVideoElement | HTMLCanvasElement | HTMLImageElement;
  /** Releases devices and memory. */
  stop(): void;
  /**
   * Captures for a stream. Resolves at the end of the source; rejects with MillraceError when the source breaks off.
   */
  start(target: Target): Promise<void>;
}

export interface SourceOptions {
  /** Stops the source, also while the user is asked for permission. */
  signal?: AbortSignal;
}

const REFUSALS: Record<string, [Code, string]> = {
  NotAllowedError: [
    'permission_denied',
    'was refused: this page has no permission. Allow it for this page (the sign beside the address), then try again',
  ],
  SecurityError: [
    'permission_denied',
    'was refused: this page has no permission. Allow it for this page (the sign beside the address), then try again',
  ],
  NotFoundError: ['not_found', 'was not found. Plug one in and try again'],
  OverconstrainedError: ['not_found', 'was not found that fits the constraints'],
  NotReadableError: [
    'unavailable',
    'is there but cannot be read: another program seems to use it. Close that program and try again',
  ],
  AbortError: ['unavailable', 'stopped working. Plug it in again and try again'],
};

function refusal(what: string, error: {name: string; message?: string}, cause?: unknown): MillraceError {
  const [code, why] = REFUSALS[error.name] ?? ['unavailable', `was refused: ${error.message || error.name}`];
  return new MillraceError(code, `source: ${what} ${why}`, {cause});
}

/** Opens devices by a function of the browser. Rejects with MillraceError. */
async function media(
  what: string,
  name: 'getUserMedia' | 'getDisplayMedia',
  constraints: MediaStreamConstraints,
  signal?: AbortSignal,
): Promise<MediaStream> {
  throwIfAborted(signal);
  if (!globalThis.navigator?.mediaDevices?.[name]) {
    const why =
      globalThis.isSecureContext === false
        ? `browsers give it only to pages on https or localhost, and this one is ${location.origin}`
        : 'this is no browser that can capture it';
    throw new MillraceError('unsupported', `source: ${what} cannot be opened: ${why}`);
  }
  let found: MediaStream;
  try {
    found = await navigator.mediaDevices[name](constraints);
  } catch (e) {
    throw refusal(what, e as Error, e);
  }
  if (signal?.aborted) off(found); // while the user was asked for permission
  throwIfAborted(signal);
  return found;
}

const off = (stream: MediaStream): void => stream.getTracks().forEach(track => track.stop());

export interface VideoOptions extends SourceOptions {
  /** Plays the video; default: a new element, which need not be in the page. */
  element?: HTMLVideoElement;
}

/** Opens a camera. Default: 640 px wide, the camera at the back of a phone. Rejects with MillraceError. */
export async function camera({
  video = {width: {ideal: 640}, facingMode: {ideal: 'environment'}},
  ...options
}: VideoOptions & {video?: MediaTrackConstraints} = {}): Promise<VideoSource> {
  return live('the camera', await media('the camera', 'getUserMedia', {video, audio: false}, options.signal), options);
}

/** Opens a screen, window or tab of the user's choice. Rejects with MillraceError. */
export async function screen({
  video = true,
  ...options
}: VideoOptions & {video?: MediaTrackConstraints | boolean} = {}): Promise<VideoSource> {
  return live(
    'the screen',
    await media('the screen', 'getDisplayMedia', {video, audio: false}, options.signal),
    options,
  );
}

async function live(what: string, stream: MediaStream, {element, signal}: VideoOptions): Promise<VideoSource> {
  const source = new VideoSource(what, element ?? document.createElement('video'), signal, () => {
    off(stream);
    source.element.srcObject = null;
  });
  const [track] = stream.getVideoTracks();
  if (what === 'the screen')
    track!.onended = () => source.ended(); // the user has stopped sharing
  else track!.onended = () => source.ended(refusal(what, {name: 'AbortError'}));
  source.element.srcObject = stream;
  await source.play();
  return source;
}

/**
 * Opens a video or a picture, by address or as a file from the user. The type of the file, or `kind`, tells pictures
 * from videos. Rejects with MillraceError.
 */
export async function file(
  from: string | Blob,
  {kind, ...options}: VideoOptions & {kind?: 'video' | 'picture'; loop?: boolean} = {},
): Promise<Source> {
  kind ??= (
    from instanceof Blob
      ? from.type.startsWith('image/')
      : /\.(jpe?g|png|webp|gif|avif|bmp)$/i.test(new URL(from, location.href).pathname)
  )
    ? 'picture'
    : 'video';
  return kind === 'picture' ? picture(from, options) : video(from, options);
}

const nameOf = (from: string | Blob, fallback: string): string =>
  from instanceof File ? from.name : typeof from === 'string' ? from : fallback;

async function video(
  from: string | Blob,
  {loop = false, element = document.createElement('video'), signal}: VideoOptions & {loop?: boolean},
): Promise<VideoSource> {
  const url = from instanceof Blob ? URL.createObjectURL(from) : from;
  const source = new VideoSource(nameOf(from, 'the video'), element, signal, () => {
    element.pause();
    element.onended = null;
    element.removeAttribute('src');
    element.load();
    if (url !== from) URL.revokeObjectURL(url);
  });
  element.onended = () => source.ended();
  element.loop = loop;
  element.preload = 'auto';
  element.src = url;
  await source.load();
  throwIfAborted(signal);
  return source;
}

/** A picture, sent as one frame. The picture is sent unchanged if the server can decode the file. */
async function picture(from: string | Blob, {signal}: SourceOptions): Promise<PictureSource> {
  const what = nameOf(from, 'the picture'),
    image = new Image(),
    url = from instanceof Blob ? URL.createObjectURL(from) : from;
  try {
    image.crossOrigin = 'anonymous';
    image.src = url;
    await image.decode();
    throwIfAborted(signal);
    const blob = from instanceof Blob ? from : await (await fetch(from)).blob();
    const asIs = READABLE.includes(blob.type) && blob.size <= LARGEST_FILE;
    return new PictureSource(
      image,
      asIs ? blob : await jpeg(image),
      signal,
      () => url !== from && URL.revokeObjectURL(url),
    );
  } catch (cause) {
    if (url !== from) URL.revokeObjectURL(url);
    throwIfAborted(signal);
    throw new MillraceError(
      'unsupported',
      `source: ${what} is no picture that this browser can show: choose JPEG, PNG or WebP`,
      {cause},
    );
  }
}

/** The picture as JPEG, no larger than LARGEST_STILL. */
async function jpeg(image: HTMLImageElement): Promise<Blob> {
  const scale = Math.min(1, LARGEST_STILL / Math.max(image.naturalWidth, image.naturalHeight));
  const canvas = new OffscreenCanvas(Math.round(image.naturalWidth * scale), Math.round(image.naturalHeight * scale));
  canvas.getContext('2d', {alpha: false})!.drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.convertToBlob({type: 'image/jpeg', quality: 0.85});
}

class PictureSource implements Source {
  readonly codec = undefined;
  readonly policy: Policy = {mode: 'every'};
  readonly width: number;
  readonly height: number;

  constructor(
    readonly element: HTMLImageElement,
    readonly blob: Blob,
    signal: AbortSignal | undefined,
    readonly stop: () => void,
  ) {
    this.width = element.naturalWidth;
    this.height = element.naturalHeight;
    signal?.addEventListener('abort', () => this.stop());
  }

  async start(target: Target): Promise<void> {
    await target.ready();
    target.bytes(this.blob, performance.now());
  }
}

/** A copy of a picture with the time of now, as encoders need it. */
const stamped = (picture: CanvasImageSource | VideoFrame): VideoFrame =>
  new VideoFrame(picture, {timestamp: Math.round(performance.now() * 1000)});

/** A playing video: a camera, a screen, a file. */
export class VideoSource implements Source {
  readonly codec = 'auto';
  readonly policy: Policy = {mode: 'latest'};
  readonly #what: string;
  readonly #close: () => void;
  #stopped = false;
  #resolve!: () => void;
  #reject!: (error: unknown) => void;
  readonly #end = new Promise<void>((resolve, reject) => ([this.#resolve, this.#reject] = [resolve, reject]));

  /** @internal */
  constructor(
    what: string,
    readonly element: HTMLVideoElement,
    signal: AbortSignal | undefined,
    close: () => void,
  ) {
    this.#what = what;
    this.#close = close;
    this.#end.catch(() => {}); // start may not have been called
    element.muted = true; // otherwise browsers play it only after a click
    element.playsInline = true;
    signal?.addEventListener('abort', () => this.stop());
  }

  get width(): number {
    return this.element.videoWidth;
  }
  get height(): number {
    return this.element.videoHeight;
  }

  /**
   * @internal Resolves when the first picture of a device has come. Otherwise stops, and rejects with MillraceError.
   */
  async play(): Promise<void> {
    try {
      await this.element.play();
    } catch (cause) {
      this.#unplayable(cause);
    }
    if (!this.width) this.#unplayable();
  }

  /**
   * @internal Resolves when the size of a file's picture is known; start plays the file. Otherwise stops, and rejects
   * with MillraceError.
   */
  async load(): Promise<void> {
    const {element} = this;
    await new Promise<void>(done => {
      element.onloadedmetadata = element.onerror = () => done();
      element.onemptied = () => this.#stopped && done(); // a source that used the element before may have emptied it
    });
    element.onloadedmetadata = element.onerror = element.onemptied = null;
    if (!this.width && !this.#stopped) this.#unplayable();
  }

  #unplayable(cause?: unknown): never {
    const why = this.element.error?.message;
    this.stop();
    throw new MillraceError(
      'unsupported',
      `source: ${this.#what} cannot be played by this browser${why ? ` (${why})` : ''}. ` +
        'Most play H.264 in MP4, and VP8 or VP9 in WebM: ffmpeg -i IN out.webm makes one',
      {cause},
    );
  }

  /** @internal The source has ended without stop. */
  ended(error?: MillraceError): void {
    if (error) this.#reject(error);
    else this.#resolve();
  }

  start(target: Target): Promise<void> {
    const element = this.element;
    const next: (f: (captured: number, media: number) => void) => void =
      'requestVideoFrameCallback' in element
        ? f =>
            element.requestVideoFrameCallback((_, frame) => f(frame.captureTime ?? performance.now(), frame.mediaTime))
        : f => requestAnimationFrame(() => f(performance.now(), (element as HTMLVideoElement).currentTime));
    const frame = (captured: number, media: number): void => {
      if (this.#stopped) return;
      // The element may show a later picture by now. The time of a file's picture is in the picture.
      const shown = element.srcObject ? null : this.#shown();
      const picture = (): VideoFrame | null => (shown?.codedWidth ? stamped(shown) : this.picture());
      try {
        target.frame({captured, media: shown ? shown.timestamp / 1e6 : media, picture});
      } finally {
        shown?.close();
      }
      next(frame);
    };
    next(frame);
    element
      .play()
      .catch(cause =>
        this.ended(
          new MillraceError('unsupported', `source: ${this.#what} cannot be played: ${cause.message}`, {cause}),
        ),
      );
    return this.#end;
  }

  /** The current frame, which the caller closes; null = no frame yet. */
  picture(): VideoFrame | null {
    return this.#ready ? stamped(this.element) : null;
  }

  get #ready(): boolean {
    return this.element.readyState >= HTMLMediaElement.HAVE_CURRENT_DATA;
  }

  /** The current frame with its time in the file; null = no frame yet, or the browser has no VideoFrame. */
  #shown(): VideoFrame | null {
    return this.#ready && 'VideoFrame' in globalThis ? new VideoFrame(this.element) : null;
  }

  stop(): void {
    if (this.#stopped) return;
    this.#stopped = true;
    this.#close();
    this.#resolve();
  }
}

/** Captures a canvas, `fps` times a second. */
export function canvas(
  element: HTMLCanvasElement | OffscreenCanvas,
  {fps = 30, signal}: SourceOptions & {fps?: number} = {},
): Source {
  let timer: ReturnType<typeof setInterval> | undefined,
    end = (): void => {};
  const stop = (): void => {
    clearInterval(timer);
    end();
  };
  signal?.addEventListener('abort', stop);
  return {
    codec: 'auto',
    policy: {mode: 'latest'},
    get width() {
      return element.width;
    },
    get height() {
      return element.height;
    },
    ...(element instanceof OffscreenCanvas ? {} : {element}),
    stop,
    start: target =>
      new Promise(done => {
        end = done;
        const started = performance.now();
        const picture = (): VideoFrame => stamped(element);
        timer = setInterval(
          () => target.frame({captured: performance.now(), media: (performance.now() - started) / 1000, picture}),
          1000 / fps,
        );
      }),
  };
}

export interface MicrophoneOptions extends SourceOptions {
  audio?: MediaTrackConstraints;
  /** Sample rate, Hz, as the model needs; default 16000. */
  sampleRate?: number;
  /** Samples in a frame; default 1600. */
  samples?: number;
  /** Coding of samples. Default pcm16. */
  codec?: 'pcm16' | 'pcmf32';
}

/** Opens a microphone: one channel of PCM, for models with windows (docs/windows.md). Rejects with MillraceError. */
export async function microphone({
  audio = {channelCount: 1},
  sampleRate = 16000,
  samples = 1600,
  codec = 'pcm16',
  signal,
}: MicrophoneOptions = {}): Promise<Source> {
  const stream = await media('the microphone', 'getUserMedia', {audio, video: false}, signal);
  const context = new AudioContext({sampleRate});
  let end = (): void => {},
    broken = (_: unknown): void => {},
    stopped = false;
  const stop = (): void => {
    if (stopped) return;
    stopped = true;
    off(stream);
    void context.close();
    end();
  };
  signal?.addEventListener('abort', stop);
  stream.getAudioTracks()[0]!.onended = () => {
    broken(refusal('the microphone', {name: 'AbortError'}));
    stop();
  };
  try {
    await context.audioWorklet.addModule(new URL(/* @vite-ignore */ './pcm.js', import.meta.url));
    await context.resume();
  } catch (cause) {
    stop();
    throw new MillraceError(
      'unsupported',
      'source: the microphone cannot be read: the file pcm.js, beside the client’s index.js, cannot be loaded',
      {cause},
    );
  }
  return {
    codec,
    policy: {mode: 'every'},
    width: 0,
    height: 0,
    stop,
    start: target =>
      new Promise((resolve, reject) => {
        [end, broken] = [resolve, reject];
        const node = new AudioWorkletNode(context, 'millrace-pcm', {
          numberOfOutputs: 0,
          processorOptions: {samples, codec},
        });
        node.port.onmessage = ({data}: MessageEvent<ArrayBuffer>) =>
          target.bytes(new Uint8Array(data), performance.now() - (1000 * samples) / sampleRate);
        context.createMediaStreamSource(stream).connect(node);
      }),
  };
}
