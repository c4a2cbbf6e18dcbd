// Trace ids of frames (W3C trace context).

/**
 * Decides about keeping the trace of a frame. undefined = the server decides by rules; replies have the id of the
 * trace. Otherwise each frame has a traceparent of the client: true = marked as sampled; a number = the share of marked
 * frames, 0 to 1; false = not marked, so that only events of a frame can keep the trace. 'off' = no traces.
 */
export type Trace = boolean | number | 'off' | undefined;

const hex = (bytes: Uint8Array): string => Array.from(bytes, b => b.toString(16).padStart(2, '0')).join('');

/** A new traceparent; '' = none. */
export function traceparent(trace: Trace): string {
  if (trace === undefined || trace === 'off') return '';
  const bytes = crypto.getRandomValues(new Uint8Array(24));
  bytes[0]! |= 1; // ids of zeros are not valid
  bytes[16]! |= 1;
  const sampled = trace === true || (typeof trace === 'number' && Math.random() < trace);
  return `00-${hex(bytes.subarray(0, 16))}-${hex(bytes.subarray(16))}-${sampled ? '01' : '00'}`;
}

/** The trace id in a traceparent or traceresponse; '' = none. */
export const traceIdOf = (parent = ''): string => parent.slice(3, 35);

/** Whether a traceresponse announces that the trace is kept. */
export const isSampled = (response = ''): boolean => (parseInt(response.slice(53), 16) & 1) === 1;
