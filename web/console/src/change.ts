// What the forms of a server stream send: what was changed in them, and nothing else.

import type {ServerStream, ServerStreamChange} from '@millrace/client';

/**
 * The texts of fields by the names of their settings. '' = the default; of a sink, whose target the server does not
 * show, '' = no change.
 */
export type Texts = Readonly<Record<string, string>>;

/** Texts as the server has them, and as they are in the form. */
interface Edited {
  before: Texts;
  now: Texts;
}

export interface Draft extends Edited {
  /** The names of the models that the stream has. */
  had: readonly string[];
  models: readonly Edited[];
}

/** The settings of each model, in the order of the form. */
export const OF_MODELS = [
  'model',
  'version',
  'policy',
  'max_fps',
  'max_age_ms',
  'deadline_ms',
  'window',
  'priority',
] as const;

const NUMBERS = new Set(['fps', 'width', 'max_fps', 'max_age_ms', 'deadline_ms', 'window']);

const same = (texts: Texts): Edited => ({before: texts, now: texts});
const textsOf = (values: object): Texts =>
  Object.fromEntries(Object.entries(values).map(([name, v]) => [name, String(v ?? '')]));

/** The form of a stream that exists, or of a new one. */
export function draftOf(s?: ServerStream): Draft {
  if (!s) return {...same({}), had: [], models: [same({})]};
  return {
    ...same(textsOf({source: s.source, ...s.settings})),
    had: s.models.map(m => m.model),
    models: s.models.map(({model, version, policy}) => same(textsOf({model, version, ...policy}))),
  };
}

/** The fields that differ, as the server takes them. */
const changed = ({before, now}: Edited): Record<string, unknown> =>
  Object.fromEntries(
    Object.entries(now)
      .filter(([name, text]) => text !== (before[name] ?? ''))
      .map(([name, text]) => [name, name === 'loop' ? text !== '' : NUMBERS.has(name) ? Number(text) : text]),
  );

/** The fields of a model that differ. The server forgets the version when it gets another model. */
function changedModel({before, now}: Edited): Record<string, unknown> {
  const change = changed({before, now});
  return 'model' in change && now['version'] ? {...change, version: now['version']} : change;
}

/** A request, and for each entry of its models the place of the model in the form, -1 = it is not there any more. */
export interface Request {
  body: ServerStreamChange & Record<string, unknown>;
  places: readonly number[];
}

/** What is sent. The body is empty when nothing was changed. */
export function requestOf({models, had, ...own}: Draft): Request {
  const body: Request['body'] = {},
    sinks: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(changed(own))) {
    const [, what, sink] = /^(sinks|remove)\.(.*)$/.exec(name) ?? [];
    if (what === 'remove') sinks[sink!] = '';
    else if (sink) sinks[sink] = value;
    else body[name] = value;
  }
  if (Object.keys(sinks).length > 0) body.sinks = sinks;
  if (had.length <= 1 && models.length === 1) return {body: {...body, ...changedModel(models[0]!)}, places: []};
  const entries = models.flatMap((m, place) => {
    const model = m.now['model'] ?? '',
      change = changedModel(m);
    return had.includes(model) && Object.keys(change).length === 0 ? [] : [{place, entry: {...change, model}}];
  });
  for (const model of had) {
    if (!models.some(m => m.now['model'] === model))
      entries.push({place: -1, entry: {model, remove: true} as {model: string}});
  }
  if (entries.length > 0) body.models = entries.map(e => e.entry);
  return {body, places: entries.map(e => e.place)};
}

/** The name in the form, such as 0.max_fps of the first model, of the field that an error names. */
export function fieldOf(field: string, places: readonly number[]): string {
  const [, entry, name = 'model'] = /^models\[(\d+)\](?:\.(\w+))?$/.exec(field) ?? [];
  // The list of models has their versions.
  const own = name === 'version' || field === 'version' || field === 'models' ? 'model' : entry ? name : field;
  if (entry) return `${places[Number(entry)] ?? 0}.${own}`;
  return (OF_MODELS as readonly string[]).includes(own) ? `0.${own}` : own;
}
