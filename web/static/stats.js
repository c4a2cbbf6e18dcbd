// How a stream goes: rates and times of the last seconds, and their plot.

const SPAN = 3000; // ms that figures look back
const SECONDS = 60; // that the plot looks back

/** The value below which share of the numbers lie. */
export function quantile(numbers, share) {
  if (numbers.length === 0) return NaN;
  const sorted = [...numbers].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
}

export class Stats {
  #recent = []; // {at, age, timing}
  #seconds = []; // {age, fps} of the plot, the newest last
  #count = 0;

  add(reply) {
    const at = performance.now();
    this.#recent.push({at, age: reply.age, timing: reply.timing ?? {}});
    this.#count++;
  }

  /** The figures of the last seconds. */
  now() {
    const since = performance.now() - SPAN;
    this.#recent = this.#recent.filter(r => r.at >= since);
    const of = pick => quantile(this.#recent.map(pick).filter(Number.isFinite), 0.5);
    return {
      fps: this.#recent.length / (SPAN / 1000),
      age: of(r => r.age),
      age95: quantile(this.#recent.map(r => r.age), 0.95),
      queue: of(r => r.timing.queue_us / 1000),
      prepare: of(r => r.timing.prepare_us / 1000),
      run: of(r => r.timing.run_us / 1000),
      rest: of(r => r.age - r.timing.total_us / 1000),
    };
  }

  /** Call once a second. */
  second() {
    this.#seconds.push({age: this.now().age, fps: this.#count});
    this.#count = 0;
    if (this.#seconds.length > SECONDS) this.#seconds.shift();
  }

  plot(canvas) {
    const ratio = window.devicePixelRatio || 1;
    const w = Math.round(canvas.clientWidth * ratio), h = Math.round(canvas.clientHeight * ratio);
    [canvas.width, canvas.height] = [w, h];
    const g = canvas.getContext('2d');
    const css = getComputedStyle(canvas);
    g.font = `${11 * ratio}px system-ui, sans-serif`;
    for (const [key, colour, right] of [['fps', '--orange', true], ['age', '--blue', false]]) {
      const most = Math.max(10, ...this.#seconds.map(s => s[key] || 0));
      const y = v => h - 4 * ratio - (v / most) * (h - 20 * ratio);
      g.strokeStyle = g.fillStyle = css.getPropertyValue(colour);
      g.lineWidth = 1.5 * ratio;
      g.beginPath();
      let drawing = false;
      this.#seconds.forEach((s, i) => {
        const x = w - (this.#seconds.length - 1 - i) * w / (SECONDS - 1);
        if (!Number.isFinite(s[key])) { drawing = false; return; }
        drawing ? g.lineTo(x, y(s[key])) : g.moveTo(x, y(s[key]));
        drawing = true;
      });
      g.stroke();
      g.textAlign = right ? 'right' : 'left';
      g.fillText(`${most.toFixed(0)} ${right ? 'fps' : 'ms'}`, right ? w - 4 * ratio : 4 * ratio, 12 * ratio);
    }
  }
}
