// Lines, zones and conditions of a stream as the editor has them, and the request with the changed rules.

import type {Point, RuleLine, RuleWhen, RuleZone, ServerStreamRules} from '@millrace/client';
import type {Texts} from './change';

/** The texts of a rule's fields. */
const FIELDS = ['name', 'classes', 'dwell', 'over', 'for', 'if', 'within'] as const;

/** A line or a zone, or a condition (when), which has no points. The points are shares of the picture, y down. */
export interface Shape {
  readonly key: number;
  readonly kind: 'line' | 'zone' | 'when';
  readonly points: readonly Point[];
  readonly texts: Texts;
  /** The keys of the rule without a field. */
  readonly rest: object;
}

export const FEWEST = {line: 2, zone: 3, when: 0}; // points
export const MOST = {line: 2, zone: 64, when: 0};

let last = 0;

const shape = (kind: Shape['kind'], points: readonly Point[], texts: Texts, rest: object = {}): Shape => ({
  key: ++last,
  kind,
  points,
  texts,
  rest,
});

const within = (v: number) => Math.min(1, Math.max(0, v));

/** A point of the picture, to a ten-thousandth. */
export const pointAt = (x: number, y: number): Point => [
  Math.round(within(x) * 1e4) / 1e4,
  Math.round(within(y) * 1e4) / 1e4,
];

/** The lines, zones and conditions of the rules. */
export function shapesOf({width = 1, height = 1, lines = [], zones = [], when = []}: ServerStreamRules): Shape[] {
  const share = ([x, y]: Point): Point => [x / width, y / height];
  const classes = (list: string[] = []) => list.join(', ');
  return [
    ...lines.map(({name, from, to, classes: list, ...rest}) =>
      shape('line', [share(from), share(to)], {name, classes: classes(list)}, rest),
    ),
    ...zones.map(({name, polygon, classes: list, dwell, count, ...rest}) => {
      const texts = {name, classes: classes(list), dwell: dwell ?? ''};
      return shape(
        'zone',
        polygon.map(share),
        {...texts, over: count ? String(count.over) : '', for: count?.for ?? ''},
        rest,
      );
    }),
    ...when.map(({name, if: test, within = '', for: time = '', ...rest}) =>
      shape('when', [], {name, if: test, within, for: time}, rest),
    ),
  ];
}

/** The rules with the shapes in place of the lines, zones and conditions. Points are shares of the picture. */
export function rulesOf(shapes: readonly Shape[], before: ServerStreamRules = {}) {
  if (shapes.length === 0) return {};
  const {width = 1, height = 1, lines, zones, when, ground, ...rest} = before;
  const shares = ground && {...ground, points: ground.points.map(([x, y]): Point => [x / width, y / height])};
  const of = (kind: Shape['kind']) => shapes.filter(s => s.kind === kind);
  const own = ({texts, rest}: Shape) => {
    const classes = (texts['classes'] ?? '').split(',').map(text => text.trim());
    return {...rest, name: texts['name'] ?? '', ...(classes.some(Boolean) ? {classes: classes.filter(Boolean)} : {})};
  };
  return {
    ...rest,
    ...(shares ? {ground: shares} : {}),
    lines: of('line').map((s): RuleLine => ({...own(s), from: s.points[0]!, to: s.points[1]!})),
    zones: of('zone').map((s): RuleZone => {
      const {dwell, over, for: time} = s.texts;
      const count = over || time ? {count: {over: Number(over), ...(time ? {for: time} : {})}} : {};
      return {...own(s), polygon: s.points, ...(dwell ? {dwell} : {}), ...count};
    }),
    when: of('when').map((s): RuleWhen => {
      const {if: test = '', within, for: time} = s.texts;
      return {...own(s), if: test, ...(within ? {within} : {}), ...(time ? {for: time} : {})};
    }),
  };
}

/** The shape of an error's field, such as rules.zones[1].count.over, and the field's name in the form. */
export function placeOf(field: string, shapes: readonly Shape[]): {key?: number; name: string} {
  const [, list, at, name = ''] = /^rules\.(line|zone|when)s?\[(\d+)\]\.?(.*)$/.exec(field) ?? [];
  const own = name.split('.').at(-1)!.replace(/\[.*/, '');
  const key = shapes.filter(s => s.kind === list)[Number(at)]?.key;
  return {key, name: (FIELDS as readonly string[]).includes(own) ? own : ''};
}

/** A name that no shape has. */
function newName(prefix: string, shapes: readonly Shape[]): string {
  let n = 1;
  while (shapes.some(s => s.texts['name'] === `${prefix}-${n}`)) n++;
  return `${prefix}-${n}`;
}

/** A new line from a to b, or a rectangle with these corners. */
export const drawn = (kind: 'line' | 'zone', a: Point, b: Point, shapes: readonly Shape[]): Shape =>
  shape(kind, between(kind, a, b), {name: newName(kind, shapes)});

/** A new condition. */
export const condition = (shapes: readonly Shape[]): Shape =>
  shape('when', [], {name: newName('condition', shapes), if: ''});

/** What a condition may compare, such as now(yard). */
export const comparable = (shapes: readonly Shape[]): string[] =>
  shapes.flatMap(({kind, texts: {name}}) =>
    (kind === 'line' ? ['in', 'out'] : kind === 'zone' ? ['now', 'enter', 'leave'] : []).map(f => `${f}(${name})`),
  );

/** The points of a drawn shape. */
export const between = (kind: Shape['kind'], a: Point, b: Point): Point[] =>
  kind === 'line' ? [a, b] : [a, [b[0], a[1]], b, [a[0], b[1]]];

/** The middle of the side behind a corner. */
export function middle({points}: Shape, corner: number): Point {
  const [a, b] = [points[corner]!, points[(corner + 1) % points.length]!];
  return pointAt((a[0] + b[0]) / 2, (a[1] + b[1]) / 2);
}
