// Pictures that a browser can encode.

/** A picture before encoding. */
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
