// The editor of a stream's lines and zones, on the stream's picture, and of its conditions.

import type {Point, ServerStream, ServerStreamRules} from '@millrace/client';
import {useEffect, useId, useRef, useState} from 'preact/hooks';
import {Text, type Fields} from './fields';
import {useAction} from './hooks';
import {Picture, ratioOf} from './picture';
import {
  FEWEST,
  MOST,
  between,
  comparable,
  condition,
  drawn,
  middle,
  placeOf,
  pointAt,
  rulesOf,
  shapesOf,
  type Shape,
} from './rules';
import {server} from './server';
import './rules.css';

type Kind = Exclude<Shape['kind'], 'when'>;

const STEP = 0.01; // of the picture, with an arrow key; a tenth with Shift
const SMALL = 0.02; // a drawn shape below this size is a click

const ARROWS: Record<string, Point> = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};

const percent = (share: number) => `${+(share * 100).toFixed(1)} %`;
const place = ([x, y]: Point) => `${percent(x)} from the left, ${percent(y)} from the top`;
const at = ([x, y]: Point) => ({left: percent(x).replace(' ', ''), top: percent(y).replace(' ', '')});

/** A line's arrow, from the middle to the side of "in": the right of the line, seen from its first end. */
function arrow([x1, y1]: Point, [x2, y2]: Point, length: number): string {
  const size = Math.hypot(x2 - x1, y2 - y1) || 1,
    [nx, ny] = [(y1 - y2) / size, (x2 - x1) / size];
  const [mx, my] = [(x1 + x2) / 2, (y1 + y2) / 2],
    [tx, ty] = [mx + nx * length, my + ny * length];
  const side = (turn: number) => {
    const [c, s] = [Math.cos(turn), Math.sin(turn)];
    return `M${tx} ${ty}l${(-nx * c + ny * s) * length * 0.4} ${(-nx * s - ny * c) * length * 0.4}`;
  };
  return `M${mx} ${my}L${tx} ${ty}${side(0.5)}${side(-0.5)}`;
}

/** The shapes over the picture, in a coordinate system with a height of 1000. */
function Drawing({shapes, ratio, chosen}: {shapes: readonly Shape[]; ratio: number; chosen?: number}) {
  const wide = ratio * 1000;
  return (
    <svg viewBox={`0 0 ${wide} 1000`} aria-hidden="true">
      {shapes.map(s => {
        const points = s.points.map(([x, y]): Point => [x * wide, y * 1000]),
          path = `M${points.map(p => p.join(' ')).join('L')}${s.kind === 'zone' ? 'Z' : ''}`;
        const d = s.kind === 'line' ? path + arrow(points[0]!, points[1]!, 70) : path,
          [x, y] = points.reduce((a, b) => (b[1] < a[1] ? b : a));
        return (
          <g key={s.key} class={`${s.kind}${s.key === chosen ? ' chosen' : ''}`}>
            <path class="under" d={d} />
            <path d={d} />
            <text x={Math.min(Math.max(x, 20), wide - 160)} y={Math.max(y - 20, 50)}>
              {s.texts['name']}
            </text>
          </g>
        );
      })}
    </svg>
  );
}

/** What is dragged: a corner, or the second corner of a new shape. */
interface Drag {
  key: number;
  corner: number;
  /** The first corner of a new shape. */
  start?: Point;
}

function Area({
  of: s,
  shapes,
  edit,
  tool,
  put,
  done,
  chosen,
  choose,
}: {
  of: ServerStream;
  shapes: readonly Shape[];
  edit: (key: number, points: readonly Point[]) => void;
  tool: Kind | '';
  put: (a: Point, b: Point) => number;
  done: () => void;
  chosen?: number;
  choose: (key: number) => void;
}) {
  const area = useRef<HTMLDivElement>(null),
    drag = useRef<Drag>(undefined);
  const ratio = ratioOf(s) ?? 4 / 3;
  const pointer = (e: PointerEvent): Point => {
    const {left, top, width, height} = area.current!.getBoundingClientRect();
    return pointAt((e.clientX - left) / width, (e.clientY - top) / height);
  };
  const start = (e: PointerEvent, d: Drag) => {
    e.preventDefault();
    e.stopPropagation();
    drag.current = d;
    area.current!.setPointerCapture(e.pointerId);
    choose(d.key);
  };
  const move = (e: PointerEvent) => {
    const d = drag.current,
      shape = d && shapes.find(s => s.key === d.key);
    if (!shape) return;
    const to = pointer(e);
    edit(d.key, d.start ? between(shape.kind, d.start, to) : shape.points.with(d.corner, to));
  };
  const end = (e: PointerEvent) => {
    const d = drag.current;
    drag.current = undefined;
    if (!d?.start) return;
    const [x, y] = d.start,
      to = pointer(e);
    if (Math.hypot(to[0] - x, to[1] - y) < SMALL) {
      const shape = shapes.find(s => s.key === d.key)!;
      edit(d.key, between(shape.kind, pointAt(x - 0.1, y - 0.1), pointAt(x + 0.1, y + 0.1)));
    }
    done();
  };
  const press = (e: KeyboardEvent, shape: Shape, corner: number) => {
    const way = ARROWS[e.key],
      step = STEP * (e.shiftKey ? 0.1 : 1);
    if (way) {
      const [x, y] = shape.points[corner]!;
      edit(shape.key, shape.points.with(corner, pointAt(x + way[0] * step, y + way[1] * step)));
    } else if ((e.key === 'Delete' || e.key === 'Backspace') && shape.points.length > FEWEST[shape.kind]) {
      edit(shape.key, shape.points.toSpliced(corner, 1));
    } else return;
    e.preventDefault();
  };
  const split = (shape: Shape, side: number) =>
    edit(shape.key, shape.points.toSpliced(side + 1, 0, middle(shape, side)));
  const name = (shape: Shape) => shape.texts['name'] || `a ${shape.kind} without a name`;
  return (
    <div
      ref={area}
      class={`area${tool ? ' drawing' : ''}`}
      style={{'--ratio': String(ratio)}}
      data-area
      onPointerDown={e => {
        if (!tool || e.button !== 0) return;
        const from = pointer(e);
        start(e, {key: put(from, from), corner: 1, start: from});
      }}
      onPointerMove={move}
      onPointerUp={end}
      onPointerCancel={end}
    >
      {s.state === 'running' ? (
        <Picture of={s} />
      ) : (
        <p class="soft">There is no picture, because the stream does not run.</p>
      )}
      <Drawing shapes={shapes} ratio={ratio} chosen={chosen} />
      {shapes.map(shape =>
        shape.points.map((point, corner) => (
          <button
            key={`${shape.key}-${corner}`}
            type="button"
            class={`corner ${shape.kind}`}
            style={at(point)}
            aria-label={`${name(shape)}, ${shape.kind === 'line' ? 'end' : 'corner'} ${corner + 1}: ${place(point)}`}
            onPointerDown={e => start(e, {key: shape.key, corner})}
            onKeyDown={e => press(e, shape, corner)}
            onFocus={() => choose(shape.key)}
          />
        )),
      )}
      {shapes
        .filter(s => s.key === chosen && s.points.length < MOST[s.kind])
        .map(shape =>
          shape.points.map((_, side) => (
            <button
              key={`${shape.key}+${side}`}
              type="button"
              class="corner more"
              style={at(middle(shape, side))}
              aria-label={`${name(shape)}: add a corner behind corner ${side + 1}`}
              onPointerDown={e => {
                split(shape, side);
                start(e, {key: shape.key, corner: side + 1});
              }}
              onClick={e => e.detail === 0 && split(shape, side)}
            >
              +
            </button>
          )),
        )}
    </div>
  );
}

const TITLES = {line: 'Line', zone: 'Zone', when: 'Condition'};

/** The fields of a line, zone or condition. */
function Rule({shape, of, turn, remove}: {shape: Shape; of: Fields; turn: () => void; remove: () => void}) {
  const name = shape.texts['name'] ?? '';
  return (
    <fieldset data-shape={name}>
      <legend>{`${TITLES[shape.kind]} ${name}`}</legend>
      <div class="fields">
        <Text of={of} name="name" label="Name" />
        {shape.kind === 'when' ? (
          <>
            <Text of={of} name="if" label="Event if" placeholder="now(yard) > 2 and in(door) == 0" />
            <Text of={of} name="for" label="for at least" placeholder="at once; such as 10s" />
            <Text of={of} name="within" label="with the events of the last" placeholder="only for now; such as 30s" />
          </>
        ) : (
          <Text of={of} name="classes" label="Classes" placeholder="all; such as person, car" />
        )}
        {shape.kind === 'zone' && (
          <>
            <Text of={of} name="dwell" label="Event after a stay of" placeholder="none; such as 30s" />
            <Text of={of} name="over" label="Event at more objects than" type="number" min="0" placeholder="none" />
            <Text of={of} name="for" label="for at least" placeholder="at once; such as 10s" />
          </>
        )}
        {of.wrong('') && (
          <p class="wrong long" role="alert">
            {of.wrong('')}
          </p>
        )}
        {shape.kind === 'line' && (
          <button type="button" onClick={turn}>
            Swap in and out
          </button>
        )}
        <button type="button" class="danger" onClick={remove}>
          Remove {name}
        </button>
      </div>
    </fieldset>
  );
}

/** Shows and changes the lines, zones and conditions of a stream. */
export function Rules({of: s, refresh}: {of: ServerStream; refresh: () => void}) {
  const [before, setBefore] = useState<ServerStreamRules>(s.rules ?? {}),
    [shapes, setShapes] = useState(() => shapesOf(s.rules ?? {}));
  const [tool, setTool] = useState<Kind | ''>(''),
    [chosen, choose] = useState<number>(),
    [said, say] = useState('');
  const {busy, error, field, act} = useAction(refresh),
    id = useId(),
    wrong = placeOf(error && field, shapes);
  const change = (key: number, next: (s: Shape) => Shape) => {
    say('');
    setShapes(list => list.map(s => (s.key === key ? next(s) : s)));
  };
  const append = (added: Shape) => {
    say('');
    setShapes([...shapes, added]);
    choose(added.key);
    return added.key;
  };
  const put = (kind: Kind, a: Point, b: Point) => append(drawn(kind, a, b, shapes));
  const text = error.startsWith(`${field}: `) ? error.slice(field.length + 2) : error;
  const fields = (shape: Shape): Fields => ({
    get: name => shape.texts[name] ?? '',
    put: texts => change(shape.key, s => ({...s, texts: {...s.texts, ...texts}})),
    wrong: name => (wrong.key === shape.key && wrong.name === name ? text : ''),
    id: name => `${id}-${shape.key}-${name}`,
  });
  useEffect(() => {
    if (error && wrong.key) document.getElementById(`${id}-${wrong.key}-${wrong.name}`)?.focus();
  }, [error]);
  const rules = rulesOf(shapes, before),
    nothing = JSON.stringify(rules) === JSON.stringify(rulesOf(shapesOf(before), before));
  const add = (kind: Kind) => (
    <button
      type="button"
      aria-pressed={tool === kind}
      onClick={e => {
        // A keyboard draws nothing: the shape begins in the middle.
        if (e.detail === 0)
          put(kind, kind === 'line' ? [0.5, 0.25] : [0.25, 0.25], kind === 'line' ? [0.5, 0.75] : [0.75, 0.75]);
        else setTool(tool === kind ? '' : kind);
      }}
    >
      Add a {kind}
    </button>
  );
  return (
    <form
      class="settings rules"
      aria-label={`Lines and zones of ${s.name}`}
      onKeyDown={e => e.key === 'Escape' && setTool('')}
      onSubmit={e => {
        e.preventDefault();
        say('');
        void act(async () => {
          const next = (await server.changeStream(s.name, {rules})).rules ?? {};
          setBefore(next);
          say('Changed.');
        });
      }}
    >
      <div class="row">
        {add('line')}
        {add('zone')}
        <button type="button" onClick={() => append(condition(shapes))}>
          Add a condition
        </button>
        <span class="soft">
          {tool === 'line' && 'Drag on the picture: from one end of the line to the other.'}
          {tool === 'zone' && 'Drag on the picture: from one corner of the zone to the opposite corner.'}
          {!tool &&
            'Drag the corners, or move the focused corner with the arrow keys; Delete removes a corner of a zone.'}
        </span>
      </div>
      <Area
        of={s}
        shapes={shapes.filter(s => s.points.length > 0)}
        edit={(key, points) => change(key, s => ({...s, points}))}
        tool={tool}
        put={(a, b) => put(tool as Kind, a, b)}
        done={() => setTool('')}
        chosen={chosen}
        choose={choose}
      />
      {shapes.map(shape => (
        <Rule
          key={shape.key}
          shape={shape}
          of={fields(shape)}
          turn={() => change(shape.key, s => ({...s, points: s.points.toReversed()}))}
          remove={() => setShapes(shapes.filter(s => s.key !== shape.key))}
        />
      ))}
      {shapes.length === 0 && <p class="soft">The stream has no lines and no zones.</p>}
      {shapes.some(s => s.kind === 'when') && (
        <p class="soft">
          A condition joins comparisons by <code>and</code>. It can compare the objects inside a zone (now), and the
          events of a time: {comparable(shapes).join(', ') || 'there is no line and no zone yet'}.
        </p>
      )}
      <p class="soft">
        The arrow of a line points to “in”. The model of the stream needs tracking (<code>output.track</code>).
      </p>
      <div class="row">
        <button type="submit" class="main" disabled={busy || nothing}>
          Apply
        </button>
        <span class="soft" role="status">
          {said}
        </span>
      </div>
      {error && !wrong.key && (
        <p class="message" role="alert">
          {error}
        </p>
      )}
    </form>
  );
}
