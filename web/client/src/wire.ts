// The binary messages of millrace.v1 (docs/protocol.md, "Media").

import {MillraceError} from './errors.js';

const HEADER = 32,
  VERSION = 1;
const KIND = {frame: 1, result: 3, tensor: 4, audio: 5};
const CODEC = {
  opaque: 0,
  jpeg: 1,
  png: 2,
  webp: 3,
  h264: 4,
  vp8: 5,
  vp9: 6,
  av1: 7,
  rgb24: 8,
  nv12: 9,
  pcm16: 10,
  pcmf32: 11,
  tensor: 12,
};
const FLAG = {key: 1, discontinuity: 2, mustProcess: 4, endOfStream: 8};
const EXT = {traceparent: 1, roi: 2, params: 4};

/** How the bytes of a frame are coded; opaque = pictures are recognised by their content. */
export type Codec = Exclude<keyof typeof CODEC, 'tensor'>;

/** The numbers of a tensor's datatype, little-endian as in memory. */
export type Numbers =
  | Int8Array
  | Uint8Array
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array
  | Float32Array
  | Float64Array
  | BigInt64Array
  | BigUint64Array;

/** A tensor with a name. The data of FP16 and BF16 are the bits of the numbers, a Uint16Array; of BYTES, texts. */
export interface Tensor {
  name: string;
  /** An Open Inference Protocol datatype, such as FP32. */
  datatype: string;
  shape: number[];
  data: Numbers | readonly (number | string | boolean)[];
}

export type Params = Record<string, string | number | boolean>;

/** A rectangle, px. */
export interface Region {
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Header {
  codec: Codec;
  sid: number;
  seq: number;
  captured: number; // ms
  key?: boolean;
  discontinuity?: boolean; // frames before it were lost
  mustProcess?: boolean;
  endOfStream?: boolean;
  width?: number;
  height?: number;
  deadlineMs?: number;
  traceparent?: string;
  roi?: Region;
  params?: Params;
}

const utf8 = new TextEncoder(),
  text = new TextDecoder();

/** The bytes of an entry of the extension. */
function entry(type: number, value: Uint8Array): Uint8Array {
  if (value.length > 0xffff)
    throw new MillraceError('too_large', `params: take ${value.length} bytes as JSON, and a frame can have 65535`);
  const bytes = new Uint8Array(3 + value.length);
  bytes.set([type, value.length & 0xff, value.length >> 8]);
  bytes.set(value, 3);
  return bytes;
}

function extension({traceparent, roi, params}: Header): Uint8Array[] {
  const entries: Uint8Array[] = [];
  if (traceparent) entries.push(entry(EXT.traceparent, utf8.encode(traceparent)));
  if (roi) entries.push(entry(EXT.roi, new Uint8Array(new Uint16Array([roi.x, roi.y, roi.width, roi.height]).buffer)));
  if (params) entries.push(entry(EXT.params, utf8.encode(JSON.stringify(params))));
  return entries;
}

const sum = (parts: readonly Uint8Array[]): number => parts.reduce((n, part) => n + part.length, 0);

/** The message of a frame: header, extension, payload. A Blob payload gives a Blob. */
export function encodeFrame(
  payload: Blob | Uint8Array | readonly Tensor[],
  header: Header,
): Blob | Uint8Array<ArrayBuffer> {
  const ext = extension(header),
    parts = payload instanceof Uint8Array ? [payload] : Array.isArray(payload) ? tensors(payload) : [];
  const start = HEADER + sum(ext),
    whole = new Uint8Array(start + sum(parts)),
    h = new DataView(whole.buffer);
  h.setUint8(0, VERSION);
  h.setUint8(1, Array.isArray(payload) ? KIND.tensor : header.codec.startsWith('pcm') ? KIND.audio : KIND.frame);
  h.setUint8(2, CODEC[Array.isArray(payload) ? 'tensor' : header.codec]);
  h.setUint8(
    3,
    Object.entries(FLAG).reduce((flags, [name, bit]) => (header[name as keyof typeof FLAG] ? flags | bit : flags), 0),
  );
  h.setUint32(4, header.sid, true);
  h.setBigUint64(8, BigInt(header.seq), true);
  h.setBigInt64(16, BigInt(Math.round(header.captured * 1000)), true);
  h.setUint16(24, header.width ?? 0, true);
  h.setUint16(26, header.height ?? 0, true);
  h.setUint16(28, start - HEADER, true);
  h.setUint16(30, header.deadlineMs ?? 0, true);
  place(whole, HEADER, [...ext, ...parts]);
  return payload instanceof Blob ? new Blob([whole, payload]) : whole;
}

const ARRAYS: Record<string, new (buffer: ArrayBuffer) => Numbers> = {
  INT8: Int8Array,
  UINT8: Uint8Array,
  BOOL: Uint8Array,
  INT16: Int16Array,
  UINT16: Uint16Array,
  INT32: Int32Array,
  UINT32: Uint32Array,
  FP32: Float32Array,
  FP64: Float64Array,
  INT64: BigInt64Array,
  UINT64: BigUint64Array,
};

/** The bytes of a tensor. */
function raw({name, datatype, data}: Tensor): Uint8Array {
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  if (datatype === 'BYTES') {
    const parts = data.flatMap(item => {
      const bytes = utf8.encode(String(item));
      return [new Uint8Array(new Uint32Array([bytes.length]).buffer), bytes];
    });
    return place(new Uint8Array(sum(parts)), 0, parts);
  }
  const type = ARRAYS[datatype];
  if (!type)
    throw new MillraceError(
      'invalid_argument',
      `data: tensor ${name} of ${datatype} needs a Uint16Array of its bits, or another datatype`,
    );
  const big = datatype.endsWith('INT64'); // of INT64 and UINT64
  return new Uint8Array(
    (type as unknown as {from(numbers: readonly unknown[]): Numbers}).from(big ? data.map(BigInt) : data).buffer,
  );
}

/** Copies parts in order. */
function place(whole: Uint8Array, at: number, parts: readonly Uint8Array[]): Uint8Array {
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

/** A payload of tensors: u32 length, JSON of this length, then the bytes of each tensor. */
function tensors(inputs: readonly Tensor[]): Uint8Array[] {
  const parts = inputs.map(raw);
  const json = utf8.encode(
    JSON.stringify({
      inputs: inputs.map(({name, datatype, shape}, i) => ({
        name,
        datatype,
        shape,
        parameters: {binary_data_size: parts[i]!.length},
      })),
    }),
  );
  return [new Uint8Array(new Uint32Array([json.length]).buffer), json, ...parts];
}

/** A binary result: the JSON message with tensors. */
export function decodeResult(message: ArrayBuffer): Record<string, unknown> {
  const h = new DataView(message),
    start = HEADER + h.getUint16(28, true),
    length = h.getUint32(start, true);
  const m = JSON.parse(text.decode(new Uint8Array(message, start + 4, length)));
  let at = start + 4 + length;
  for (const t of m.outputs ?? []) {
    const {binary_data_size: size, ...parameters} = t.parameters ?? {};
    if (size === undefined) continue;
    t.parameters = parameters;
    const bytes = message.slice(at, (at += size));
    t.data = t.datatype === 'BYTES' ? texts(bytes) : new (ARRAYS[t.datatype] ?? Uint16Array)(bytes);
  }
  const {
    ack,
    credit_limit,
    batch,
    partial,
    traceresponse,
    received_us,
    queue_us,
    prepare_us,
    run_us,
    total_us,
    ...parameters
  } = m.parameters ?? {};
  return {
    type: 'result',
    sid: h.getUint32(4, true),
    seq: Number(h.getBigUint64(8, true)),
    ack,
    credit_limit,
    model: m.model_name,
    version: m.model_version,
    outputs: m.outputs,
    parameters,
    batch,
    partial,
    traceresponse,
    width: h.getUint16(24, true),
    height: h.getUint16(26, true),
    timing: {received_us, queue_us, prepare_us, run_us, total_us},
  };
}

/** The elements of BYTES: u32 length, then the text. */
function texts(bytes: ArrayBuffer): string[] {
  const h = new DataView(bytes),
    found: string[] = [];
  for (let at = 0; at < bytes.byteLength;) {
    const length = h.getUint32(at, true);
    found.push(text.decode(new Uint8Array(bytes, at + 4, length)));
    at += 4 + length;
  }
  return found;
}
