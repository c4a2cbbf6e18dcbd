// The REST calls that the console makes.

/** An error with a text for the visitor. */
export class Told extends Error {}

async function ask(path) {
  let reply;
  try {
    reply = await fetch(path, {headers: {Accept: 'application/json'}});
  } catch {
    throw new Told('The server does not answer. Is it still running?');
  }
  const body = await reply.json().catch(() => ({}));
  if (!reply.ok) throw new Told(body.error ?? `The server answered ${reply.status}.`);
  return body;
}

/** @returns {Promise<{name: string, state: string, reason: string}[]>} */
export const models = () => ask('/v2/repository/index');

/** @returns {Promise<{name: string, platform: string, inputs: {name: string, datatype: string, shape: number[]}[]}>} */
export const metadata = name => ask(`/v2/models/${encodeURIComponent(name)}`);

/**
 * The size of a model's pictures, or null when its first input is none.
 * @returns {{width: number, height: number} | null} 0 = any
 */
export function pictureSize(model) {
  const shape = model.inputs[0]?.shape?.slice(-3) ?? [];
  if (shape.length < 3) return null;
  const channels = n => n === 1 || n === 3;
  if (channels(shape[0]) && !channels(shape[2])) return {height: Math.max(shape[1], 0), width: Math.max(shape[2], 0)};
  if (channels(shape[2])) return {height: Math.max(shape[0], 0), width: Math.max(shape[1], 0)};
  return null;
}
