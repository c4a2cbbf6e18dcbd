// Small parts of several views.

import type {Histogram} from '@millrace/client';
import type {ComponentChildren} from 'preact';
import {total} from './status';

/** What is wrong, read out by screen readers when it changes. */
export function Alert({text}: {text: string}) {
  return (
    <p class="message" id="message" role="alert" hidden={!text}>
      {text}
    </p>
  );
}

export function Figure({name, unit, children}: {name: string; unit?: string; children: ComponentChildren}) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>
        {children}
        {unit && <small> {unit}</small>}
      </dd>
    </div>
  );
}

const GOOD = new Set(['READY', 'ready', 'running', 'result', 'finished']),
  BAD = new Set(['UNAVAILABLE', 'failed', 'error', 'degraded']);

export function State({of}: {of: string}) {
  return <span class={`badge ${GOOD.has(of) ? 'good' : BAD.has(of) ? 'bad' : 'warn'}`}>{of}</span>;
}

/** Where the server is managed, if not at the address of the page. */
export function Elsewhere({what}: {what: string}) {
  return (
    <p class="soft" data-elsewhere>
      The server {what} at its management address only: open the console there (management.address).
    </p>
  );
}

/** A number, or a dash where there is none. */
export const number = (v: number | null | undefined, digits = 0) =>
  v === null || v === undefined || !Number.isFinite(v) ? '–' : v.toFixed(digits);

export const bytes = (n: number) =>
  n < 1e3
    ? `${n.toFixed(0)} B`
    : n < 1e6
      ? `${(n / 1e3).toFixed(0)} KB`
      : n < 1e9
        ? `${(n / 1e6).toFixed(1)} MB`
        : `${(n / 1e9).toFixed(2)} GB`;

/** JSON with indentation. Long lists of values are cut. */
export const pretty = (json: string | object): string =>
  JSON.stringify(
    typeof json === 'string' ? JSON.parse(json) : json,
    (_, v) =>
      Array.isArray(v) && v.length > 200 && typeof v[0] !== 'object'
        ? [...v.slice(0, 200), `… ${v.length - 200} more`]
        : v,
    1,
  );

const FEW = 6; // bars that are shown with a label each

/** A histogram as bars, from the first bucket with a value to the last. */
export function Bars({of, label, unit, scale = 1}: {of: Histogram; label: string; unit: string; scale?: number}) {
  const first = of.counts.findIndex(n => n > 0),
    all = total(of);
  if (first < 0) return <p class="soft">{label}: no value in this time</p>;
  const counts = of.counts.slice(first, of.counts.findLastIndex(n => n > 0) + 1),
    most = Math.max(...counts),
    width = 100 / counts.length;
  const bound = (i: number) => `${+((of.bounds[i] ?? of.bounds.at(-1) ?? 0) * scale).toPrecision(3)}`;
  const last = first + counts.length - 1;
  if (counts.length <= FEW)
    return (
      <figure style={{margin: '.5rem 0'}}>
        <figcaption class="soft">
          {label} ({all})
        </figcaption>
        <div
          class="few"
          role="img"
          aria-label={`${label}: ${counts.map((n, i) => `${n} up to ${bound(first + i)} ${unit}`).join(', ')}`}
        >
          {counts.flatMap((n, i) => [
            <span>
              ≤ {bound(first + i)} {unit}
            </span>,
            <span class="track">
              <span style={{width: `${(100 * n) / most}%`}} />
            </span>,
            <span class="n">{n}</span>,
          ])}
        </div>
      </figure>
    );
  return (
    <figure style={{margin: '.5rem 0'}}>
      <figcaption class="soft">
        {label} ({all})
      </figcaption>
      <svg
        class="bars"
        role="img"
        aria-label={`${label}: ${all} values from ${bound(first)} to ${bound(last)} ${unit}`}
        viewBox="0 0 100 50"
        preserveAspectRatio="none"
      >
        {counts.map((n, i) => (
          <rect
            key={i}
            x={i * width + width * 0.05}
            width={width * 0.9}
            y={50 - (50 * n) / most}
            height={(50 * n) / most}
          >
            <title>{`up to ${bound(first + i)} ${unit}: ${n}`}</title>
          </rect>
        ))}
      </svg>
      <div class="row soft" style={{justifyContent: 'space-between'}}>
        <span>{bound(first)}</span>
        <span>
          {bound(last)} {unit}
        </span>
      </div>
    </figure>
  );
}

/** A title and what can be done with the whole view. */
export function View({
  title,
  alert = '',
  id,
  children,
}: {
  title: string;
  alert?: string;
  id: string;
  children: ComponentChildren;
}) {
  return (
    <>
      <Alert text={alert} />
      <main id={id} tabIndex={-1} aria-label={title}>
        {children}
      </main>
    </>
  );
}
