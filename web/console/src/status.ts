// The server's state, once a second, and what its counters say between two replies.

import {useEffect, useState} from 'preact/hooks';
import type {Histogram, Status} from '@millrace/client';
import {describe, server} from './server';

const INTERVAL = 1000; // ms
const IDLE = 5000; // ms, while no view shows the state: then the last minutes are known at once
const KEEP = 300; // replies

/** A reply with the time when it came, seconds since 1970. */
export interface Sample {
  at: number;
  status: Status;
}

let samples: Sample[] = [];
let failed = '';
let timer: ReturnType<typeof setTimeout> | undefined;
const viewers = new Set<() => void>();

async function ask(): Promise<void> {
  try {
    const status = await server.status();
    const last = samples.at(-1);
    // Counters of another run of the server say nothing beside these.
    if (last && last.status.started !== status.started) samples = [];
    samples = [...samples.slice(1 - KEEP), {at: Date.now() / 1000, status}];
    failed = '';
  } catch (e) {
    failed = describe(e);
  }
  timer = setTimeout(ask, viewers.size === 0 ? IDLE : INTERVAL);
  for (const changed of viewers) changed();
}

/** Asks from now on, also while no view shows the state. */
export function begin(): void {
  timer ??= setTimeout(ask, 0);
}

/** The newest replies, the oldest first, while a component that uses them is shown. */
export function useStatus(): {samples: Sample[]; now?: Status; failed: string} {
  const [, changed] = useState({});
  useEffect(() => {
    const view = () => changed({});
    viewers.add(view);
    clearTimeout(timer);
    timer = setTimeout(ask, 0);
    return () => {
      viewers.delete(view);
    };
  }, []);
  return {samples, now: samples.at(-1)?.status, failed};
}

/** The change of a counter per second, for each sample; null for the first one, and where the counter began anew. */
export function rates(of: Sample[], count: (s: Status) => number | undefined): (number | null)[] {
  return of.map((s, i) => {
    const before = of[i - 1],
      from = before && count(before.status),
      to = count(s.status);
    if (!before || from === undefined || to === undefined || to < from) return null;
    return (to - from) / Math.max(0.001, s.at - before.at);
  });
}

/** The values that were counted after an earlier reply. */
export function since(later: Histogram, earlier?: Histogram): Histogram {
  const before = earlier?.counts ?? [];
  if (later.counts.some((n, i) => n < (before[i] ?? 0))) return later; // the model was loaded anew
  return {
    bounds: later.bounds,
    sum: later.sum - (earlier?.sum ?? 0),
    counts: later.counts.map((n, i) => n - (before[i] ?? 0)),
  };
}

export const total = (h: Histogram) => h.counts.reduce((a, b) => a + b, 0);

/** The value below which a share of the values lies, by interpolation within its bucket; NaN when there are none. */
export function quantile(h: Histogram, share: number): number {
  const all = total(h);
  let left = share * all;
  for (const [i, n] of h.counts.entries()) {
    if (n > 0 && left <= n) {
      const low = h.bounds[i - 1] ?? 0,
        high = h.bounds[i] ?? low;
      return low + ((high - low) * left) / n;
    }
    left -= n;
  }
  return NaN;
}
