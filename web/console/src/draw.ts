// Draws what was read from a reply over its picture.

import type {Box} from '@millrace/client';
import type {Class, Mask, Reading} from './outputs';

/** A reading of a frame of this size; both in pixels of the frame as sent. */
export interface Scene extends Reading {
  width: number;
  height: number;
}

const hue = (i = 0) => (i * 137.5 + 140) % 360; // by the golden angle, so that neighbouring classes differ
const colour = (i?: number) => `oklch(80% 0.16 ${hue(i)})`; // equally light, so that black can be read on it
const percent = (score?: number) => (score === undefined ? '' : `${Math.round(100 * score)} %`);
const text = (c: {label: string; score?: number}) => [c.label, percent(c.score)].filter(Boolean).join(' ');

/** Whether a box or class is shown at this threshold; one without a score always is. */
export const shown = (threshold: number) => (c: {score?: number}) => c.score === undefined || c.score >= threshold;

/** Makes the canvas as large as it is on the screen, and clears it. */
export function clear(canvas: HTMLCanvasElement): CanvasRenderingContext2D {
  const ratio = window.devicePixelRatio || 1;
  const w = Math.round(canvas.clientWidth * ratio),
    h = Math.round(canvas.clientHeight * ratio);
  if (canvas.width !== w || canvas.height !== h) [canvas.width, canvas.height] = [w, h];
  const g = canvas.getContext('2d')!;
  g.clearRect(0, 0, w, h);
  return g;
}

/**
 * Draws a scene over a picture that is fitted into the context's canvas as by object-fit: contain.
 * unit is the size of a CSS pixel.
 */
export function draw(g: CanvasRenderingContext2D, scene: Scene, threshold: number, unit: number): void {
  const {width: w, height: h} = g.canvas;
  if (!scene.width || !scene.height) return;
  const scale = Math.min(w / scene.width, h / scene.height);
  const x = (v: number) => (w - scene.width * scale) / 2 + v * scale,
    y = (v: number) => (h - scene.height * scale) / 2 + v * scale;
  const size = Math.max(11, Math.min(15, w / unit / 40)) * unit; // of the font
  const visible = shown(threshold);
  if (scene.mask) tint(g, scene.mask, scene.width, scene.height, x, y, scale);
  g.font = `600 ${size}px system-ui, sans-serif`;
  g.textBaseline = 'top';
  const boxes = scene.boxes.filter(visible);
  for (const b of boxes) {
    for (const [style, line] of [
      ['rgb(0 0 0 / 70%)', 5],
      [colour(b.class), 2.5],
    ] as const) {
      g.strokeStyle = style;
      g.lineWidth = line * unit;
      if (!b.corners) {
        g.strokeRect(x(b.x1), y(b.y1), (b.x2 - b.x1) * scale, (b.y2 - b.y1) * scale);
        continue;
      }
      g.beginPath();
      for (const [cx, cy] of b.corners) g.lineTo(x(cx), y(cy));
      g.closePath();
      g.stroke();
    }
  }
  for (const b of boxes) captions(g, b, x, y, size); // after all boxes, so that no box covers a caption
  for (const points of scene.poses) {
    points.forEach(([px = 0, py = 0, score = 0], k) => {
      if (score <= 0 || score < threshold) return;
      g.beginPath();
      g.arc(x(px), y(py), 4 * unit, 0, 7);
      g.fillStyle = colour(k);
      g.fill();
      g.lineWidth = unit;
      g.strokeStyle = '#000';
      g.stroke();
    });
  }
  list(g, scene.classes.filter(visible), x(0), y(0), size);
}

/** Class and score stand above a box, the track's number below it. */
function captions(
  g: CanvasRenderingContext2D,
  b: Box,
  x: (v: number) => number,
  y: (v: number) => number,
  size: number,
): void {
  const height = 1.4 * size;
  const above = y(b.y1) - height;
  caption(g, text(b), x(b.x1), above >= 0 ? above : y(b.y1), colour(b.class), '#000', size);
  if (b.id === undefined) return;
  const below = y(b.y2);
  caption(
    g,
    `track ${b.id}`,
    x(b.x1),
    below + height <= g.canvas.height ? below : below - height,
    'rgb(0 0 0 / 75%)',
    '#fff',
    0.85 * size,
  );
}

/** The classes of the whole picture, in its upper left corner. */
function list(g: CanvasRenderingContext2D, classes: Class[], x: number, y: number, size: number): void {
  classes.forEach((c, i) =>
    caption(g, text(c), x + size / 2, y + size / 2 + 1.5 * i * size, colour(c.class ?? i), '#000', size),
  );
}

function caption(
  g: CanvasRenderingContext2D,
  words: string,
  x: number,
  y: number,
  background: string,
  ink: string,
  size: number,
): void {
  if (!words) return;
  g.font = `600 ${size}px system-ui, sans-serif`;
  const pad = size / 5,
    width = g.measureText(words).width + 2 * pad;
  const left = Math.max(0, Math.min(x, g.canvas.width - width));
  g.fillStyle = background;
  g.fillRect(left, y, width, size + 2 * pad);
  g.fillStyle = ink;
  g.fillText(words, left + pad, y + pad);
}

const layer = document.createElement('canvas'); // of the mask's own size

/** Tints the pixels that have a class. */
function tint(
  g: CanvasRenderingContext2D,
  m: Mask,
  width: number,
  height: number,
  x: (v: number) => number,
  y: (v: number) => number,
  scale: number,
): void {
  [layer.width, layer.height] = [m.width, m.height];
  const on = layer.getContext('2d')!,
    image = on.createImageData(m.width, m.height),
    table = new Map<number, [number, number, number]>();
  for (let i = 0; i < m.width * m.height; i++) {
    const c = Number(m.data[i]);
    if (!c) continue;
    let rgb = table.get(c);
    if (!rgb) table.set(c, (rgb = ofHue(hue(c))));
    image.data.set(rgb, 4 * i);
    image.data[4 * i + 3] = 110;
  }
  on.putImageData(image, 0, 0);
  const [x1, y1, x2, y2] = m.region ?? [0, 0, width, height];
  g.imageSmoothingEnabled = false;
  g.drawImage(layer, x(x1), y(y1), (x2 - x1) * scale, (y2 - y1) * scale);
  g.imageSmoothingEnabled = true;
}

/** The colour of a hue, as red, green and blue. */
function ofHue(h: number): [number, number, number] {
  const f = (n: number) => {
    const k = (n + h / 30) % 12;
    return Math.round(255 * (0.6 - 0.36 * Math.max(-1, Math.min(k - 3, 9 - k, 1))));
  };
  return [f(0), f(8), f(4)];
}
