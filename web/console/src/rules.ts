// Lines and zones of a stream as the editor has them, and the request with the changed rules.

import type {Point, RuleLine, RuleZone, ServerStreamRules} from '@millrace/client';
import type {Texts} from './change';

/** The texts of a rule's fields. */
const FIELDS = ['name', 'classes', 'dwell', 'over', 'for'] as const;

/** A line or a zone. The points are shares of the picture, y down. */
export interface Shape {
  readonly key: number;
  readonly kind: 'line' | 'zone';
  readonly points: readonly Point[];
  readonly texts: Texts;
  /** The keys of the rule without a field. */
  readonly rest: object;
}

export const FEWEST = {line: 2, zone: 3}; // points
export const MOST = {line: 2, zone: 64};

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

/** The lines and zones of the rules. */
export function shapesOf({width = 1, height = 1, lines = [], zones = []}: ServerStreamRules): Shape[] {
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
  ];
}

/** The rules with the shapes in place of the lines and zones. Points are shares of the picture. */
export function rulesOf(shapes: readonly Shape[], before: ServerStreamRules = {}) {
  if (shapes.length === 0) return {};
  const {width = 1, height = 1, lines, zones, ground, ...rest} = before;
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
  };
}

/** The shape of an error's field, such as rules.zones[1].count.over, and the field's name in the form. */
export function placeOf(field: string, shapes: readonly Shape[]): {key?: number; name: string} {
  const [, list, at, name = ''] = /^rules\.(line|zone)s\[(\d+)\]\.?(.*)$/.exec(field) ?? [];
  const own = name.split('.').at(-1)!.replace(/\[.*/, '');
  const key = shapes.filter(s => s.kind === list)[Number(at)]?.key;
  return {key, name: (FIELDS as readonly string[]).includes(own) ? own : ''};
}

/** A new line from a to b, or a rectangle with these corners, with a name that no shape has. */
export function drawn(kind: Shape['kind'], a: Point, b: Point, shapes: readonly Shape[]): Shape {
  let n = 1;
  while (shapes.some(s => s.texts['name'] === `${kind}-${n}`)) n++;
  return shape(kind, between(kind, a, b), {name: `${kind}-${n}`});
}

/** The points of a drawn shape. */
export const between = (kind: Shape['kind'], a: Point, b: Point): Point[] =>
  kind === 'line' ? [a, b] : [a, [b[0], a[1]], b, [a[0], b[1]]];

/** The middle of the side behind a corner. */
export function middle({points}: Shape, corner: number): Point {
  const [a, b] = [points[corner]!, points[(corner + 1) % points.length]!];
  return pointAt((a[0] + b[0]) / 2, (a[1] + b[1]) / 2);
}
