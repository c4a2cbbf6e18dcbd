// Reads the outputs of models. It must not know the page.

// Raw outputs have all candidate boxes, each with a score for each class. Those with
// lower scores are not shown.
const MIN_SCORE = 0.3;

/**
 * @typedef {{x1: number, y1: number, x2: number, y2: number, score: number | undefined, class: number | undefined, label: string, id?: number}} Box, id: of the tracker, if the model has one
 * @typedef {{seq: number, width: number, height: number, boxes: Box[], poses: number[][][], lines: string[]}} Result
 * Boxes and points (x, y, score) are in pixels of the frame as sent, which is
 * width x height. Lines describe outputs that have no place in the picture.
 */

/** Reads the outputs of a reply. @returns {Result} */
export function read(reply) {
  const by = Object.fromEntries((reply.outputs ?? []).map(o => [o.name, o]));
  const result = {seq: reply.seq, width: reply.width, height: reply.height, boxes: [], poses: [], lines: []};
  if (by.boxes?.shape.at(-1) === 4) {
    result.boxes = boxes(by);
  } else if (by.scores && (by.classes || by.labels)) {
    result.lines = by.scores.data.map((s, i) => `${name(by, i)}  ${(100 * s).toFixed(1)} %`);
  } else if (!by.keypoints) {
    result.lines = (reply.outputs ?? []).map(o => `${o.name}  ${o.datatype} [${o.shape.join(', ')}]`);
  }
  if (by.keypoints) result.poses = poses(by.keypoints);
  return result;
}

function boxes(by) {
  const n = by.boxes.shape.at(-2), of = by.boxes.data, scores = by.scores?.data ?? [];
  const each = by.scores?.shape.length === 3 ? by.scores.shape[2] : 1; // scores per box
  const found = [];
  for (let i = 0; i < n; i++) {
    const box = {x1: of[4 * i], y1: of[4 * i + 1], x2: of[4 * i + 2], y2: of[4 * i + 3], score: scores[i], class: by.classes?.data[i], label: name(by, i)};
    if (by.ids?.data[i]) box.id = by.ids.data[i];
    if (each > 1) {
      const row = scores.slice(i * each, (i + 1) * each);
      box.score = Math.max(...row);
      box.class = row.indexOf(box.score);
      box.label ||= String(box.class);
      if (box.score < MIN_SCORE) continue;
    }
    found.push(box);
  }
  return found;
}

/** The label of the i-th box or class; its number where the model has no labels. */
function name(by, i) {
  return by.labels?.data[i] ?? String(by.classes?.data[i] ?? '');
}

function poses({shape, data}) {
  const k = shape.at(-2), found = [];
  for (let at = 0; at < data.length; at += 3 * k) {
    found.push(Array.from({length: k}, (_, j) => data.slice(at + 3 * j, at + 3 * j + 3)));
  }
  return found;
}
