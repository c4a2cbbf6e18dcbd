// What is chosen when the page opens.

import type {ModelMetadata} from '@millrace/client';

export interface Size {
  width: number;
  height: number;
}

/** A model that is ready. size: of its pictures, 0 = any; null = it takes none. */
export interface Model {
  name: string;
  size: Size | null;
  video: boolean;
}

/** Whether a model takes video: its input is a picture, or anything. */
export const takesVideo = (model: ModelMetadata): boolean => model.inputs.length === 0 || pictureSize(model) !== null;

/** The size of a model's pictures, or null when its first input is no picture. */
export function pictureSize(model: ModelMetadata): Size | null {
  const [a, b, c] = (model.inputs[0]?.shape ?? []).slice(-3);
  const channels = (n: number) => n === 1 || n === 3,
    side = (n: number) => Math.max(n, 0);
  if (a === undefined || b === undefined || c === undefined) return null;
  if (channels(a) && !channels(c)) return {height: side(b), width: side(c)};
  if (channels(c)) return {height: side(a), width: side(b)};
  return null;
}

/** The choice of an address, and what is chosen where it says nothing, or nothing that there is. */
export function choose(
  query: URLSearchParams,
  models: Model[],
  codecs: {name: string}[],
): {model: string; source: string; codec: string} {
  const model = models.find(m => m.name === query.get('model')) ?? models[0];
  const source = query.get('source') ?? '',
    codec = query.get('codec') ?? '';
  return {
    model: model?.name ?? '',
    source: ['camera', 'screen', 'clip', 'file'].includes(source) ? source : 'clip',
    codec: codecs.some(c => c.name === codec) ? codec : 'jpeg',
  };
}
