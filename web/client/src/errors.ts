// The one error type of the client.

/**
 * A code of docs/protocol.md ("Codes"): codes of the server, and codes of the client: `invalid_argument` (a wrong
 * option), `unsupported` (not possible in this browser), `permission_denied` (the user refused a camera), `not_found`
 * (no camera), `unavailable` (the server cannot be reached), `canceled` (by close or a signal).
 */
export type Code =
  | 'invalid_argument'
  | 'unsupported'
  | 'unsupported_version'
  | 'not_found'
  | 'too_large'
  | 'unauthenticated'
  | 'permission_denied'
  | 'flow_control'
  | 'overloaded'
  | 'unavailable'
  | 'unloaded'
  | 'timeout'
  | 'canceled'
  | 'draining'
  | 'conflict'
  | 'internal';

interface Details {
  field?: string;
  retryable?: boolean;
  retryAfterMs?: number;
  cause?: unknown;
}

/** An error of the server or of the client. */
export class MillraceError extends Error {
  override readonly name = 'MillraceError';
  /** The kind of the failure; a newer server may send codes outside Code. */
  readonly code: Code;
  /**
   * The setting, option or field at fault, such as `limits.max_decoders`; '' = none. The message begins with the field.
   */
  readonly field: string;
  /** Whether the same request may succeed later. */
  readonly retryable: boolean;
  /** How long to wait before trying again, ms; 0 = not known. */
  readonly retryAfterMs: number;

  constructor(code: Code, message: string, {field, retryable = false, retryAfterMs = 0, cause}: Details = {}) {
    super(message, cause === undefined ? undefined : {cause});
    this.code = code;
    this.field = field ?? fieldOf(message);
    this.retryable = retryable;
    this.retryAfterMs = retryAfterMs;
  }
}

/**
 * The server's own words. Errors about unknown models have the words in brackets, behind words for clients of the Open
 * Inference Protocol.
 */
export const ownText = (message?: string): string | undefined =>
  /^Request for unknown model: .*? is not found \((.*)\)$/s.exec(message ?? '')?.[1] ?? message;

/** The field of an error's text, `FIELD: text`. */
const fieldOf = (message: string): string => /^([a-z]\w*(?:[.[][\w\]]+)*): /.exec(message)?.[1] ?? '';

/** The members of an error message of the server. */
export interface ErrorMessage {
  code: string;
  message: string;
  retryable?: boolean;
  retry_after_ms?: number;
}

/** The error of a server's message. */
export const errorOf = (m: ErrorMessage): MillraceError =>
  new MillraceError(m.code as Code, m.message, {retryable: m.retryable ?? false, retryAfterMs: m.retry_after_ms ?? 0});

/** The error of an aborted signal. */
export const aborted = (signal: AbortSignal): MillraceError =>
  new MillraceError('canceled', 'the signal was aborted', {field: 'signal', cause: signal.reason});

/** Throws a MillraceError if the signal was aborted. */
export function throwIfAborted(signal: AbortSignal | undefined): void {
  if (signal?.aborted) throw aborted(signal);
}
