// Reads the outputs of models by their conventional names. It must not know the page.

import {boxes, type Box, type Tensor} from '@millrace/client';

/** The class of the whole picture. */
export interface Class {
  label: string;
  score?: number;
  class?: number;
}

/** Height rows of width classes, 0 = background, stretched over the region. */
export interface Mask {
  width: number;
  height: number;
  data: ArrayLike<number>;
  region?: [number, number, number, number]; // x1 y1 x2 y2; without it the whole frame
}

/** What a reply says of its frame, in pixels of the frame as sent. */
export interface Reading {
  boxes: Box[];
  poses: number[][][]; // of each pose its points: x, y, score
  classes: Class[];
  mask?: Mask;
  lines: string[]; // outputs that have no place in the picture
}

// Raw outputs have all candidate boxes, each with a score for each class. Those with
// lower scores are not shown.
const MIN_SCORE = 0.3;

const MAX_CLASSES = 5;

type Named = Record<string, Tensor | undefined>;

export function read(outputs: Tensor[] = []): Reading {
  const by: Named = Object.fromEntries(outputs.map(o => [o.name, o]));
  const known = new Set(['corners', 'scores', 'classes', 'labels', 'ids', 'keypoints', 'mask', 'region']);
  const reading: Reading = {boxes: [], poses: [], classes: [], lines: []};
  if (by.boxes?.shape.at(-1) === 4) {
    reading.boxes = boxes({outputs}, by.scores?.shape.length === 3 ? MIN_SCORE : 0);
    known.add('boxes');
  } else if (by.scores && (by.classes || by.labels)) {
    reading.classes = classes(by);
  } else if (!by.keypoints && !by.mask) {
    known.clear();
  }
  if (by.keypoints) reading.poses = poses(by.keypoints);
  if (by.mask) reading.mask = mask(by.mask, by.region);
  reading.lines = outputs.filter(o => !known.has(o.name)).map(o => `${o.name}  ${o.datatype} [${o.shape.join(', ')}]`);
  return reading;
}

const numbers = (o?: Tensor) => (o?.data ?? []) as ArrayLike<number>;

function classes(by: Named): Class[] {
  const scores = numbers(by.scores),
    kinds = numbers(by.classes);
  return Array.from({length: Math.min(scores.length, MAX_CLASSES)}, (_, i) => {
    const c: Class = {label: name(by, i), score: scores[i]!};
    if (by.classes) c.class = Number(kinds[i]);
    return c;
  });
}

/** The label of the i-th box or class; its number where the model has no labels. */
function name(by: Named, i: number): string {
  return String(by.labels?.data?.[i] ?? by.classes?.data?.[i] ?? '');
}

function poses(o: Tensor): number[][][] {
  const k = o.shape.at(-2) ?? 0,
    data = numbers(o),
    found = [];
  for (let at = 0; k > 0 && at < data.length; at += 3 * k) {
    found.push(Array.from({length: k}, (_, j) => [data[at + 3 * j]!, data[at + 3 * j + 1]!, data[at + 3 * j + 2]!]));
  }
  return found;
}

function mask(o: Tensor, region?: Tensor): Mask | undefined {
  const [height = 0, width = 0] = o.shape.slice(-2),
    data = numbers(o);
  if (!width || !height || data.length < width * height) return undefined;
  const r = numbers(region);
  return {width, height, data, ...(r.length >= 4 ? {region: [r[0]!, r[1]!, r[2]!, r[3]!] as Mask['region'] & {}} : {})};
}
