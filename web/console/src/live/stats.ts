// Rates and times of a stream over the last seconds.

import type {Counts, Result} from '@millrace/client';

const SPAN = 3000; // ms over which rates and times are computed
const SECONDS = 60; // that the history has

/** The quantile of the numbers; NaN when there are none. */
function quantile(numbers: (number | undefined)[], share: number): number {
  const sorted = numbers.filter((v): v is number => Number.isFinite(v)).sort((a, b) => a - b);
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))]! : NaN;
}

/** Answers and bytes a second, and times in ms: medians, except age95. rest is the time outside of the server. */
export interface Now {
  fps: number;
  rate: number;
  age: number;
  age95: number;
  rest: number;
  queue: number;
  prepare: number;
  run: number;
}

/** Of the last seconds, the oldest first: when, seconds since 1970; median age in ms; answers. */
export interface History {
  times: number[];
  age: (number | null)[];
  fps: (number | null)[];
}

/** The statistics of one stream. */
export class Stats {
  #began = performance.now();
  #recent: {at: number; result: Result}[] = []; // the oldest first
  #sent: {at: number; bytes: number}[] = []; // the oldest first
  #history: History = {times: [], age: [], fps: []};
  #ended = 0; // seconds that are complete
  #count = 0; // answers in the current second

  add(result: Result): void {
    this.#recent.push({at: performance.now(), result});
    this.#count++;
  }

  /** The last seconds; call it a few times a second. */
  now(counts: Counts): Now {
    const at = performance.now();
    this.#sent.push({at, bytes: counts.bytes});
    while (this.#sent[0]!.at < at - SPAN) this.#sent.shift();
    this.#recent = this.#recent.filter(r => r.at >= at - SPAN);
    const of = (pick: (r: Result) => number | undefined, share = 0.5) =>
      quantile(
        this.#recent.map(r => pick(r.result)),
        share,
      );
    const first = this.#sent[0]!,
      last = this.#sent.at(-1)!;
    const server = ({timings: t}: Result) => (t.queue ?? 0) + (t.prepare ?? 0) + (t.run ?? 0) + (t.finish ?? 0);
    return {
      fps: (this.#recent.length / Math.min(SPAN, Math.max(at - this.#began, 1))) * 1000,
      rate: ((last.bytes - first.bytes) / (last.at - first.at)) * 1000, // NaN with fewer than two
      age: of(r => r.timings.total),
      age95: of(r => r.timings.total, 0.95),
      rest: of(r => r.timings.total - server(r)),
      queue: of(r => r.timings.queue),
      prepare: of(r => r.timings.prepare),
      run: of(r => r.timings.run),
    };
  }

  /** The seconds that are complete. Call it at least once a second. */
  history(age: number): History {
    const due = Math.floor((performance.now() - this.#began) / 1000) - this.#ended;
    if (due === 0) return this.#history;
    const h = {times: [...this.#history.times], age: [...this.#history.age], fps: [...this.#history.fps]};
    for (let i = 0; i < Math.min(due, SECONDS); i++) {
      h.times.push(Math.round(Date.now() / 1000) - due + i + 1);
      h.age.push(Number.isFinite(age) ? age : null); // a second without an answer is a gap
      h.fps.push(this.#count);
      this.#count = 0;
    }
    this.#ended += due;
    for (const of of [h.times, h.age, h.fps]) of.splice(0, of.length - SECONDS);
    return (this.#history = h);
  }
}
