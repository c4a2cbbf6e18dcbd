// Pictures that a browser can encode.

/** A picture that is not yet encoded. */
export type Picture =
  VideoFrame | ImageBitmap | HTMLVideoElement | HTMLCanvasElement | HTMLImageElement | OffscreenCanvas;

const PICTURES = [
  'VideoFrame',
  'ImageBitmap',
  'HTMLVideoElement',
  'HTMLCanvasElement',
  'HTMLImageElement',
  'OffscreenCanvas',
];

export function isPicture(data: unknown): data is Picture {
  return PICTURES.some(name => {
    const type = (globalThis as Record<string, any>)[name];
    return type && data instanceof type;
  });
}
