// The REST calls of the console, and advice for errors.

/** An error with a message for the user. */
export class UserError extends Error {}

/** The server cannot be reached. */
export class Unreachable extends UserError {}

// What the user, or the operator of the server, can do about an error code.
const ADVICE = {
  invalid_argument: 'Does this model take pictures? Choose another one.',
  unsupported: 'Does this model take pictures? Choose another one.',
  not_found: 'Load the model, or choose another one.',
  unloaded: 'Load it again, or choose another one.',
  unavailable: 'Wait until it is ready; the server’s log says why it is not.',
  overloaded: 'Stop other streams, or give the model more instances.',
  too_large: 'Choose a smaller picture, or raise limits.max_message or limits.max_pixels of the server.',
  timeout: 'The model takes longer than its limits.run allows.',
  internal: 'The server’s log says more.',
  unauthenticated: 'Log in, and press Start again.',
  permission_denied: 'Add this page’s name to hosts, or its origin to origins, of the server.',
};

/** The text of a server's error: message, code, and what to do. */
export function explain({code, message}) {
  return `${message} (${code}). ${ADVICE[code] ?? ''}`.trim();
}

/** Gets JSON. Rejects with UserError. */
async function getJSON(path) {
  let reply;
  try {
    reply = await fetch(path, {headers: {Accept: 'application/json'}});
  } catch {
    throw new Unreachable('The server does not answer. Is it still running?');
  }
  const body = await reply.json().catch(() => ({}));
  if (!reply.ok) throw new UserError(explain({code: body.code ?? reply.status, message: body.error ?? 'The server refused'}));
  return body;
}

/**
 * @typedef {{name: string, version: string, state: string, reason: string}} Entry
 * @typedef {{name: string, inputs: {name: string, datatype: string, shape: number[]}[]}} Metadata
 */

/** @returns {Promise<Entry[]>} every model that the server knows */
export const models = () => getJSON('/v2/repository/index');

/** @returns {Promise<Metadata>} */
export const metadata = name => getJSON(`/v2/models/${encodeURIComponent(name)}`);

/** What the server offers to the console. @returns {Promise<{clip: boolean}>} */
export const consoleInfo = () => getJSON('console.json');

/** The address of sessions of millrace.v1. */
export function sessionURL() {
  const url = new URL('/v2/stream', location.href);
  url.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:';
  return url.href;
}

/** Whether a model takes video: its input is a picture, or anything. @param {Metadata} model */
export const takesVideo = model => model.inputs.length === 0 || pictureSize(model) !== null;

/**
 * The size of a model's pictures, or null when its first input is no picture.
 * @param {Metadata} model
 * @returns {{width: number, height: number} | null} 0 = any
 */
export function pictureSize(model) {
  const [a, b, c] = (model.inputs[0]?.shape ?? []).slice(-3);
  const channels = n => n === 1 || n === 3, side = n => Math.max(n, 0);
  if (c === undefined) return null;
  if (channels(a) && !channels(c)) return {height: side(b), width: side(c)};
  if (channels(c)) return {height: side(a), width: side(b)};
  return null;
}
