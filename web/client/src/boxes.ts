// Reads the boxes of a result.

import type {Result} from './replies.js';
import type {Tensor} from './wire.js';

/** A box in pixels of the picture as sent. The picture is result.width x result.height. */
export interface Box {
  x1: number;
  y1: number;
  x2: number;
  y2: number;
  /** undefined = the model gives none. */
  score: number | undefined;
  class: number | undefined;
  /** The label of the class; the number of the class where the model has no labels; '' = neither. */
  label: string;
  /** The tracker's number of the object, if the model has a tracker. */
  id?: number;
  /** The corners of a rotated box, x and y of each; x1 to y2 is the upright box around them. */
  corners?: [number, number][];
}

/** The outputs of a result by name. */
export const outputs = (result: Pick<Result, 'outputs'>): Record<string, Tensor | undefined> =>
  Object.fromEntries(result.outputs.map(o => [o.name, o]));

/**
 * The boxes of a result: outputs `boxes` [1,n,4], `scores` [1,n] or [1,n,classes], `classes`, `labels`, `ids` [1,n],
 * `corners` [1,n,4,2].
 * @param minScore leaves out boxes with lower scores: raw outputs have all candidates
 */
export function boxes(result: Pick<Result, 'outputs'>, minScore = 0.3): Box[] {
  const {boxes: tensor, scores, classes, labels, ids, corners} = outputs(result),
    found: Box[] = [];
  if (tensor?.shape.at(-1) !== 4) return found;
  const at = tensor.data as ArrayLike<number>,
    n = tensor.shape.at(-2) ?? 1;
  const each = scores?.shape.length === 3 ? scores.shape[2]! : 1; // scores per box
  const number = (t: Tensor | undefined, i: number): number | undefined =>
    t && t.data[i] !== undefined ? Number(t.data[i]) : undefined;
  for (let i = 0; i < n; i++) {
    let score = number(scores, i * each),
      kind = each > 1 ? 0 : number(classes, i);
    for (let c = 1; c < each; c++) {
      const other = number(scores, i * each + c)!;
      if (other > score!) [score, kind] = [other, c];
    }
    if (score !== undefined && score < minScore) continue;
    const id = number(ids, i),
      box: Box = {
        x1: at[4 * i]!,
        y1: at[4 * i + 1]!,
        x2: at[4 * i + 2]!,
        y2: at[4 * i + 3]!,
        score,
        class: kind,
        label: String(labels?.data[i] ?? kind ?? ''),
      };
    if (id) box.id = id;
    if (corners?.shape.at(-1) === 2 && corners.shape.at(-2) === 4) {
      box.corners = [0, 2, 4, 6].map(k => [number(corners, 8 * i + k)!, number(corners, 8 * i + k + 1)!]);
    }
    found.push(box);
  }
  return found;
}
