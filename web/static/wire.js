// The binary frames of millrace.v1: a header and the payload.

const HEADER = 32, VERSION = 1, FRAME = 1;
const CODECS = {opaque: 0, jpeg: 1, png: 2, webp: 3, h264: 4, vp8: 5, vp9: 6, av1: 7};
const KEY = 1, DISCONTINUITY = 2;

/**
 * Encodes a frame.
 * @param {Blob | Uint8Array} payload
 * @param {{codec: keyof CODECS, sid: number, seq: number, captured: number, key: boolean, discontinuity: boolean}} frame
 *   captured: ms; discontinuity: frames before it were lost
 * @returns {Blob | Uint8Array}
 */
export function encodeFrame(payload, {codec, sid, seq, captured, key, discontinuity}) {
  const whole = new Uint8Array(HEADER + (payload.byteLength ?? 0));
  const h = new DataView(whole.buffer);
  h.setUint8(0, VERSION);
  h.setUint8(1, FRAME);
  h.setUint8(2, CODECS[codec]);
  h.setUint8(3, (key ? KEY : 0) | (discontinuity ? DISCONTINUITY : 0));
  h.setUint32(4, sid, true);
  h.setBigUint64(8, BigInt(seq), true);
  h.setBigInt64(16, BigInt(Math.round(captured * 1000)), true);
  if (payload instanceof Blob) return new Blob([whole, payload]);
  whole.set(payload, HEADER);
  return whole;
}
