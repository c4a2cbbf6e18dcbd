// What models answer, and how it is drawn.

/**
 * @typedef {{boxes: number[][], scores: number[], classes: number[], labels: string[], keypoints: number[][][], lines: string[], width: number, height: number}} Result
 * Boxes are x1 y1 x2 y2 in pixels of the frame as sent, which is width x height.
 */

/** Reads the outputs of a reply. @returns {Result} */
export function read(reply) {
  const by = Object.fromEntries((reply.outputs ?? []).map(o => [o.name, o]));
  const result = {boxes: [], scores: [], classes: [], labels: [], keypoints: [], lines: [], width: reply.width, height: reply.height};
  const scores = by.scores?.data ?? [], classes = by.classes?.data ?? [], labels = by.labels?.data ?? [];
  if (by.boxes) {
    const n = by.boxes.shape.at(-2), each = by.scores?.shape.length === 3 ? by.scores.shape.at(-1) : 1;
    for (let i = 0; i < n; i++) {
      const of = scores.slice(i * each, (i + 1) * each);
      const best = each > 1 ? of.indexOf(Math.max(...of)) : 0;
      result.boxes.push(by.boxes.data.slice(4 * i, 4 * i + 4));
      result.scores.push(of[best] ?? 1);
      result.classes.push(each > 1 ? best : classes[i]);
      result.labels.push(labels[i] ?? (each > 1 ? String(best) : classes[i] === undefined ? '' : String(classes[i])));
    }
  } else if (by.keypoints) {
    const [n, k] = by.keypoints.shape.slice(-3);
    for (let i = 0; i < n; i++) {
      result.keypoints.push(Array.from({length: k}, (_, j) => by.keypoints.data.slice(3 * (i * k + j), 3 * (i * k + j) + 3)));
    }
  } else if (by.scores && by.classes) {
    classes.forEach((c, i) => result.lines.push(`${labels[i] ?? 'class ' + c}  ${(100 * scores[i]).toFixed(1)} %`));
  } else {
    for (const o of reply.outputs ?? []) result.lines.push(`${o.name}  ${o.datatype} [${o.shape.join(', ')}]`);
  }
  return result;
}

const colour = (i, light) => `hsl(${(i * 137.5 + 140) % 360} 90% ${light}%)`;

/** Draws a result over a picture that fills the canvas. */
export function draw(canvas, result) {
  const ratio = window.devicePixelRatio || 1;
  const w = Math.round(canvas.clientWidth * ratio), h = Math.round(canvas.clientHeight * ratio);
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  const g = canvas.getContext('2d');
  g.setTransform(1, 0, 0, 1, 0, 0);
  g.clearRect(0, 0, w, h);
  if (!result?.width) return;
  // The picture keeps its form inside the canvas, as object-fit: contain has it.
  const scale = Math.min(w / result.width, h / result.height);
  const x0 = (w - result.width * scale) / 2, y0 = (h - result.height * scale) / 2;
  g.font = `600 ${14 * ratio}px system-ui, sans-serif`;
  g.textBaseline = 'top';
  result.boxes.forEach(([x1, y1, x2, y2], i) => {
    const kind = result.classes[i] ?? 0;
    const [x, y, bw, bh] = [x0 + x1 * scale, y0 + y1 * scale, (x2 - x1) * scale, (y2 - y1) * scale];
    for (const [style, width] of [['rgb(0 0 0 / 70%)', 5], [colour(kind, 60), 2.5]]) {
      g.strokeStyle = style;
      g.lineWidth = width * ratio;
      g.strokeRect(x, y, bw, bh);
    }
    caption(g, `${result.labels[i]} ${Math.round(100 * result.scores[i])}`.trim(), x, y, kind, ratio);
  });
  for (const points of result.keypoints) {
    points.forEach(([x, y, score], k) => {
      if (score <= 0) return;
      g.beginPath();
      g.arc(x0 + x * scale, y0 + y * scale, 4 * ratio, 0, 7);
      g.fillStyle = colour(k, 60);
      g.fill();
    });
  }
}

function caption(g, text, x, y, kind, ratio) {
  const pad = 3 * ratio, height = 14 * ratio + 2 * pad, width = g.measureText(text).width + 2 * pad;
  const top = y - height >= 0 ? y - height : y;
  const left = Math.max(0, Math.min(x, g.canvas.width - width));
  g.fillStyle = colour(kind, 60);
  g.fillRect(left, top, width, height);
  g.fillStyle = '#000';
  g.fillText(text, left + pad, top + pad);
}
