// The picture and what is drawn over it.

import type {Result, Source} from '@millrace/client';
import {clear, draw, type Scene} from '../draw';
import {read} from '../outputs';

const MAX_WAIT = 1000; // ms without a picture with its result, after which pictures are shown at once

/** What is shown of a frame. picture: undefined = it was not kept. */
export interface Shown {
  result: Result;
  scene: Scene;
  picture?: ImageBitmap;
}

/**
 * By default ("exact") a picture is shown when its result is there, so that the overlay
 * stands on the frame it belongs to. Pictures wait in the page while their frames are in
 * flight, so that none is held up by another: the rate is that of the results.
 */
export class Stage {
  readonly video: HTMLVideoElement;
  readonly still: HTMLImageElement;
  readonly #picture: HTMLCanvasElement;
  readonly #overlay: HTMLCanvasElement;
  readonly #box: HTMLElement;
  readonly #picked: (result?: Result) => void;
  readonly #resized: ResizeObserver;
  #last: Shown | undefined;
  #lastAt = 0;
  #paused = false;
  #exact = true;
  #threshold = 0;
  #isStill = false;

  /** picked is called with the frame that the user pauses on, and without one when it goes on. */
  constructor(within: HTMLElement, picked: (result?: Result) => void) {
    const find = <T extends Element>(id: string) => within.querySelector<T & Element>(`#${id}`)! as T;
    this.video = find('video');
    this.still = find('still');
    this.#picture = find('picture');
    this.#overlay = find('overlay');
    this.#box = find('stage');
    this.#picked = picked;
    this.#resized = new ResizeObserver(() => this.#drawOverlay());
    this.#resized.observe(this.#box);
  }

  close(): void {
    this.#resized.disconnect();
    this.stop();
  }

  set({exact, threshold}: {exact: boolean; threshold: number}): void {
    this.#exact = exact;
    this.#threshold = threshold;
    this.#choosePicture();
    this.#drawOverlay();
  }

  /** Shows the element of the source. */
  start({element, width, height}: Source): void {
    this.stop();
    const still = element instanceof HTMLImageElement;
    this.#isStill = still;
    this.still.hidden = !still;
    if (still) this.still.src = element.src;
    else this.still.removeAttribute('src');
    this.video.hidden = still;
    this.#box.style.aspectRatio = `${width} / ${height}`;
  }

  stop(): void {
    this.#paused = false;
    this.#forget();
    this.#choosePicture();
    clear(this.#overlay);
  }

  /** The source is a picture. */
  get isStill(): boolean {
    return this.#isStill;
  }

  /** Shows a frame, unless the user has paused. It keeps the picture, or closes it. */
  show(shown: Shown): void {
    if (this.#paused) {
      shown.picture?.close();
      return;
    }
    this.#last?.picture?.close();
    this.#last = shown;
    this.#lastAt = performance.now();
    this.#choosePicture();
    this.#drawOverlay();
  }

  /** Call it a few times a second: it shows the pictures at once when no result comes. */
  check(): void {
    if (this.#paused || this.#isStill || !this.#last || performance.now() - this.#lastAt < MAX_WAIT) return;
    this.clear();
  }

  /** Removes the overlay, and shows the source's own picture. */
  clear(): void {
    if (this.#paused || this.#isStill) return;
    this.#forget();
    this.#choosePicture();
    clear(this.#overlay);
  }

  /** Pauses on the frame that is shown, or goes on. */
  toggle(): void {
    if (!this.#paused && !this.#last) return;
    this.#paused = !this.#paused;
    this.#choosePicture();
    this.#picked(this.#paused ? this.#last?.result : undefined);
  }

  /** Offers the frame that is shown as a PNG file, with its overlay. */
  async snapshot(): Promise<void> {
    const last = this.#last,
      from = last?.picture ?? (this.#isStill ? this.still : this.video);
    const canvas = document.createElement('canvas');
    [canvas.width, canvas.height] =
      from instanceof HTMLVideoElement
        ? [from.videoWidth, from.videoHeight]
        : from instanceof HTMLImageElement
          ? [from.naturalWidth, from.naturalHeight]
          : [from.width, from.height];
    if (!canvas.width) return;
    const g = canvas.getContext('2d')!;
    g.drawImage(from, 0, 0, canvas.width, canvas.height);
    if (last) draw(g, last.scene, this.#threshold, Math.max(1, canvas.width / 640));
    const blob = await new Promise<Blob | null>(done => canvas.toBlob(done, 'image/png'));
    if (!blob) return;
    const link = document.createElement('a');
    link.href = URL.createObjectURL(blob);
    link.download = last ? `${last.result.model}-${last.result.seq}.png` : 'picture.png';
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }

  #forget(): void {
    this.#last?.picture?.close();
    this.#last = undefined;
  }

  /** Shows the picture that was kept, or lets the source's own be seen. */
  #choosePicture(): void {
    const picture = this.#last?.picture;
    this.#picture.hidden = !picture || !(this.#exact || this.#paused);
    if (this.#picture.hidden || !picture) return;
    if (this.#picture.width !== picture.width || this.#picture.height !== picture.height)
      [this.#picture.width, this.#picture.height] = [picture.width, picture.height];
    this.#picture.getContext('2d', {alpha: false})!.drawImage(picture, 0, 0);
  }

  #drawOverlay(): void {
    const g = clear(this.#overlay);
    if (this.#last) draw(g, this.#last.scene, this.#threshold, window.devicePixelRatio || 1);
  }
}

/** What is drawn of a result. */
export const sceneOf = (r: Result): Scene => ({...read(r.outputs), width: r.width, height: r.height});
