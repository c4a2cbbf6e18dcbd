// Draws results over the picture.

const colour = i => `hsl(${((i ?? 0) * 137.5 + 140) % 360} 90% 60%)`; // by the golden angle, so that neighbouring classes differ

/**
 * Clears the canvas, and draws a result over a picture that is fitted into it as by
 * object-fit: contain.
 * @param {HTMLCanvasElement} canvas
 * @param {import('./results.js').Result | null} result
 */
export function draw(canvas, result) {
  const ratio = window.devicePixelRatio || 1;
  const w = Math.round(canvas.clientWidth * ratio), h = Math.round(canvas.clientHeight * ratio);
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  const g = canvas.getContext('2d');
  g.clearRect(0, 0, w, h);
  if (!result?.width) return;
  const scale = Math.min(w / result.width, h / result.height);
  const x0 = (w - result.width * scale) / 2, y0 = (h - result.height * scale) / 2;
  const size = Math.max(10, Math.min(14, canvas.clientWidth / 40)) * ratio; // of the font
  g.font = `600 ${size}px system-ui, sans-serif`;
  g.textBaseline = 'top';
  for (const b of result.boxes) {
    for (const [style, width] of [['rgb(0 0 0 / 70%)', 5], [colour(b.class), 2.5]]) {
      g.strokeStyle = style;
      g.lineWidth = width * ratio;
      g.strokeRect(x0 + b.x1 * scale, y0 + b.y1 * scale, (b.x2 - b.x1) * scale, (b.y2 - b.y1) * scale);
    }
  }
  for (const b of result.boxes) { // after all boxes, so that no box covers a caption
    const score = b.score === undefined ? '' : `${Math.round(100 * b.score)} %`;
    caption(g, [b.id ? `#${b.id}` : '', b.label, score].filter(Boolean).join(' '), x0 + b.x1 * scale, y0 + b.y1 * scale, colour(b.class), size);
  }
  for (const points of result.poses) {
    points.forEach(([x, y, score], k) => {
      if (score <= 0) return;
      g.beginPath();
      g.arc(x0 + x * scale, y0 + y * scale, 4 * ratio, 0, 7);
      g.fillStyle = colour(k);
      g.fill();
    });
  }
}

/** Writes text on a background above a box, or inside where there is no space above. */
function caption(g, text, x, y, background, size) {
  if (!text) return;
  const pad = size / 5, height = size + 2 * pad, width = g.measureText(text).width + 2 * pad;
  const top = y - height >= 0 ? y - height : y;
  const left = Math.max(0, Math.min(x, g.canvas.width - width));
  g.fillStyle = background;
  g.fillRect(left, top, width, height);
  g.fillStyle = '#000';
  g.fillText(text, left + pad, top + pad);
}
