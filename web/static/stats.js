// Rates and times of a stream over the last seconds, and their plot.

const SPAN = 3000; // ms over which rates and times are computed
const SECONDS = 60; // that the plot shows

/** The quantile of the numbers; NaN when there are none. */
function quantile(numbers, share) {
  const sorted = numbers.filter(Number.isFinite).sort((a, b) => a - b);
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] : NaN;
}

/** The statistics of a stream. */
export class Stats {
  #began = performance.now();
  #recent = []; // {at, age, timing}, the oldest first
  #sent = []; // {at, bytes}, the oldest first
  #seconds = []; // {age, fps}, the newest last
  #ended = 0; // seconds that are complete
  #count = 0; // answers in the current second

  /** Adds a result of a Stream. */
  add(reply) {
    this.#recent.push({at: performance.now(), age: reply.age, timing: reply.timing ?? {}});
    this.#count++;
  }

  /** Adds the total of bytes sent so far; call it a few times a second. @param {number} bytes */
  sent(bytes) {
    const at = performance.now();
    this.#sent.push({at, bytes});
    while (this.#sent[0].at < at - SPAN) this.#sent.shift();
  }

  /**
   * The last seconds: answers and bytes a second, and times in ms, medians except
   * age95. `rest` is the time outside of the server.
   */
  now() {
    const at = performance.now();
    this.#recent = this.#recent.filter(r => r.at >= at - SPAN);
    const of = (pick, share = 0.5) => quantile(this.#recent.map(pick), share);
    return {
      bytes: this.#rate(),
      fps: this.#recent.length / Math.min(SPAN, Math.max(at - this.#began, 1)) * 1000,
      age: of(r => r.age),
      age95: of(r => r.age, 0.95),
      queue: of(r => r.timing.queue_us / 1000),
      prepare: of(r => r.timing.prepare_us / 1000),
      run: of(r => r.timing.run_us / 1000),
      rest: of(r => r.age - r.timing.total_us / 1000),
    };
  }

  #rate() {
    const first = this.#sent[0], last = this.#sent.at(-1);
    return (last?.bytes - first?.bytes) / (last?.at - first?.at) * 1000; // NaN with fewer than two
  }

  /** Completes the seconds that have passed. */
  #advance() {
    const due = Math.floor((performance.now() - this.#began) / 1000) - this.#ended;
    for (let i = 0; i < Math.min(due, SECONDS); i++) {
      this.#seconds.push({age: this.now().age, fps: this.#count});
      this.#count = 0;
    }
    this.#ended += due;
    this.#seconds.splice(0, this.#seconds.length - SECONDS);
  }

  /** Plots age and answers a second over the last minute. Call it at least once a second. */
  plot(canvas) {
    this.#advance();
    const ratio = window.devicePixelRatio || 1;
    const w = canvas.width = Math.round(canvas.clientWidth * ratio);
    const h = canvas.height = Math.round(canvas.clientHeight * ratio);
    const g = canvas.getContext('2d');
    const css = getComputedStyle(canvas);
    g.font = `${11 * ratio}px system-ui, sans-serif`;
    g.lineWidth = 1.5 * ratio;
    for (const [key, unit, colour, side] of [['fps', 'fps', '--orange', 'right'], ['age', 'ms', '--blue', 'left']]) {
      const most = Math.max(10, ...this.#seconds.map(s => s[key] || 0));
      g.strokeStyle = g.fillStyle = css.getPropertyValue(colour);
      g.beginPath();
      let drawing = false; // a second without an answer is a gap
      this.#seconds.forEach((s, i) => {
        const x = w - (this.#seconds.length - 1 - i) * w / (SECONDS - 1);
        const y = h - 4 * ratio - (s[key] / most) * (h - 20 * ratio);
        if (Number.isFinite(y)) g[drawing ? 'lineTo' : 'moveTo'](x, y);
        drawing = Number.isFinite(y);
      });
      g.stroke();
      g.textAlign = side;
      g.fillText(`${most.toFixed(0)} ${unit}`, side === 'left' ? 4 * ratio : w - 4 * ratio, 12 * ratio);
    }
  }
}
