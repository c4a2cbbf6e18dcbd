// A frame's time, step by step, as bars under one another.

/** A step; times in ms from the beginning of the whole. */
export interface Step {
  name: string;
  kind: 'client' | 'network' | 'server' | 'model';
  start: number;
  duration: number;
  note?: string;
}

const ms = (v: number) => `${v.toFixed(v < 10 ? 2 : 1)} ms`;

export function Waterfall({steps, label}: {steps: Step[]; label: string}) {
  const from = Math.min(0, ...steps.map(s => s.start));
  const whole = Math.max(0.001, ...steps.map(s => s.start + s.duration)) - from;
  return (
    <div class="fall" role="table" aria-label={label}>
      {steps.map((s, i) => (
        <div role="row" style={{display: 'contents'}} key={i}>
          <span role="rowheader">{s.name}</span>
          <span role="cell" class="track" title={s.note}>
            <svg aria-hidden="true" viewBox="0 0 1000 10" preserveAspectRatio="none">
              <rect
                class={s.kind}
                x={(1000 * (s.start - from)) / whole}
                width={Math.max(2, (1000 * s.duration) / whole)}
                y="0"
                height="10"
              />
            </svg>
          </span>
          <span role="cell" class="n">
            {ms(s.duration)}
            {s.note && <span class="hidden"> {s.note}</span>}
          </span>
        </div>
      ))}
    </div>
  );
}
