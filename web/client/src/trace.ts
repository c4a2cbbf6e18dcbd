// Trace ids of frames (W3C trace context).

/**
 * Which frames get a traceparent, and its flag `sampled`: true = every frame sampled, a
 * number = this share of the frames sampled, false = ids without the flag, so that the
 * server's own rules decide, 'off' = no ids.
 */
export type Trace = boolean | number | 'off';

const hex = (bytes: Uint8Array): string => Array.from(bytes, b => b.toString(16).padStart(2, '0')).join('');

/** A new traceparent; '' = none. */
export function traceparent(trace: Trace): string {
  if (trace === 'off') return '';
  const bytes = crypto.getRandomValues(new Uint8Array(24));
  bytes[0]! |= 1; // ids of zeros are not valid
  bytes[16]! |= 1;
  const sampled = trace === true || typeof trace === 'number' && Math.random() < trace;
  return `00-${hex(bytes.subarray(0, 16))}-${hex(bytes.subarray(16))}-${sampled ? '01' : '00'}`;
}

/** The trace id in a traceparent; '' = none. */
export const traceIdOf = (parent: string): string => parent.slice(3, 35);
