// The player of clips: the video, the objects over it, and the way from event to event.

import type {Clip, ClipObjects} from '@millrace/client';
import {useEffect, useRef, useState} from 'preact/hooks';
import {clear, draw} from './draw';
import {useAction, useMayManage, usePolled} from './hooks';
import {cutOf, told, type Moment} from './moments';
import {bytes} from './parts';
import {server} from './server';

/** How long boxes stay without a new line: frames without objects have no line. */
function holdOf(frames: readonly ClipObjects[]): number {
  const gaps = frames.slice(1, 500).map((f, i) => f.at_us - frames[i]!.at_us);
  const middle = gaps.filter(g => g > 0).toSorted((a, b) => a - b)[gaps.length >> 1] ?? 0;
  return Math.min(1e6, Math.max(5e4, 1.5 * middle));
}

/** The objects at a time: those of the newest frame up to it. Models have a line each. */
export function objectsAt(frames: readonly ClipObjects[], us: number, hold: number): ClipObjects[] {
  let low = 0,
    high = frames.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (frames[middle]!.at_us <= us) low = middle + 1;
    else high = middle;
  }
  const newest = frames[low - 1];
  if (!newest || us - newest.at_us > hold) return [];
  let first = low - 1;
  while (first > 0 && frames[first - 1]!.at_us === newest.at_us) first--;
  return frames.slice(first, low);
}

function paint(canvas: HTMLCanvasElement, frames: readonly ClipObjects[]) {
  const g = clear(canvas);
  for (const f of frames) {
    const boxes = f.objects.map(({box: [x1, y1, x2, y2], class: of, score, track}) => ({
      x1,
      y1,
      x2,
      y2,
      label: String(of ?? ''),
      score,
      class: typeof of === 'number' ? of : undefined,
      ...(track === undefined ? {} : {id: track}),
    }));
    const scene = {width: f.width, height: f.height, boxes, poses: [], classes: [], lines: []};
    draw(g, scene, 0, window.devicePixelRatio || 1);
  }
}

/** The video of a clip with its objects. A clip that is being written goes on when there is more of it. */
function Screen({of: clip, at, turn}: {of: Clip; at: number; turn: number}) {
  const video = useRef<HTMLVideoElement>(null),
    canvas = useRef<HTMLCanvasElement>(null),
    frames = useRef<ClipObjects[]>([]),
    repaint = useRef(() => {}), // the objects of the picture that is shown
    origin = useRef<number>(undefined), // the video's time of the first picture
    loaded = useRef(clip), // when the video was loaded
    hold = useRef(0),
    next = useRef({at, play: true}); // after the first picture
  const [failed, setFailed] = useState(''),
    [ratio, setRatio] = useState(4 / 3),
    [ended, setEnded] = useState(false);

  useEffect(() => {
    const v = video.current!;
    let over = false;
    const picture = (_: number, {mediaTime}: {mediaTime: number}) => {
      if (over || !canvas.current) return;
      if (origin.current === undefined) {
        origin.current = mediaTime;
        if (next.current.at > 0) v.currentTime = mediaTime + next.current.at;
        if (next.current.play) void v.play().catch(() => {}); // where the browser forbids it, the user plays
      }
      // By at most half a microsecond the time is rounded.
      const us = Math.round((mediaTime - origin.current) * 1e6) + 1;
      repaint.current = () => {
        if (canvas.current) paint(canvas.current, objectsAt(frames.current, us, hold.current));
      };
      repaint.current();
      v.requestVideoFrameCallback(picture);
    };
    v.requestVideoFrameCallback(picture);
    return () => void (over = true);
  }, []);

  useEffect(() => {
    const end = new AbortController();
    server
      .clipObjects(clip.id, end.signal)
      .then(list => {
        frames.current = list;
        hold.current = holdOf(list);
        repaint.current();
      })
      .catch(() => {}); // a clip without objects
    return () => end.abort();
  }, [clip.state, Math.floor(clip.seconds)]);

  useEffect(() => {
    if (turn === 0 || origin.current === undefined) return;
    video.current!.currentTime = origin.current + at;
    void video.current!.play().catch(() => {});
  }, [turn]);

  const load = (of: Clip, play: boolean) => {
    const v = video.current!;
    if (origin.current !== undefined) next.current = {at: v.currentTime - origin.current, play};
    loaded.current = of;
    origin.current = undefined;
    setEnded(false);
    v.load();
  };
  useEffect(() => {
    if (ended && clip.seconds > loaded.current.seconds) load(clip, true);
  }, [ended, clip.seconds]);

  return (
    <>
      <div class="screen" style={{'--ratio': String(ratio)}}>
        <video
          ref={video}
          src={server.url('v2', 'clips', clip.id, 'video')}
          aria-label={`Clip of ${clip.stream}, ${new Date(clip.begin).toLocaleString()}`}
          controls
          muted
          playsInline
          onLoadedMetadata={e => {
            const {videoWidth, videoHeight} = e.currentTarget;
            if (videoHeight) setRatio(videoWidth / videoHeight);
          }}
          onEnded={() => setEnded(true)}
          onPlay={() => setEnded(false)}
          onError={async () => {
            // At the end of a clip, a file with an index replaces the file that the browser has read in part.
            const now = loaded.current.fragmented ? await server.clip(clip.id).catch(() => undefined) : undefined;
            if (!video.current) return;
            if (now && !now.fragmented) load(now, !video.current.paused);
            else setFailed(`The browser cannot play this clip (${clip.codec}). Download it.`);
          }}
        >
          {/* In full screen the browser shows no canvas. */}
          <track
            key={clip.state}
            kind="captions"
            srclang="en"
            label="Objects"
            src={server.url('v2', 'clips', clip.id, 'boxes.vtt')}
          />
        </video>
        <canvas ref={canvas} aria-hidden="true" />
      </div>
      {failed && (
        <p class="message" role="alert">
          {failed}
        </p>
      )}
    </>
  );
}

/** A dialog with a clip, opened at a moment. */
export function Player({
  moments,
  index,
  go,
  close,
  changed,
}: {
  moments: readonly Moment[];
  index: number;
  go: (index: number) => void;
  close: () => void;
  changed: () => void;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const {clip: first, at, event} = moments[index]!;
  const [turn, setTurn] = useState(0),
    manage = useMayManage();
  const {value, failed, refresh} = usePolled(() => server.clip(first.id), 2000, first.id);
  const clip = value ?? first;
  const {busy, error, act} = useAction(changed);
  useEffect(() => dialog.current!.showModal(), []);
  const step = (by: number) => {
    if (!moments[index + by]) return;
    setTurn(t => t + 1);
    go(index + by);
  };
  const again = () => setTurn(t => t + 1);
  const keys: Record<string, () => void> = {n: () => step(1), p: () => step(-1), e: again};
  const name = event ? told(event) : `Clip of ${clip.stream}`;
  return (
    <dialog
      ref={dialog}
      class="player"
      aria-label={name}
      onClose={close}
      onKeyDown={e => {
        const act = keys[e.key];
        if (!act || e.ctrlKey || e.altKey || e.metaKey) return;
        e.preventDefault();
        act();
      }}
    >
      <div class="row">
        <h2>{name}</h2>
        <button type="button" onClick={() => dialog.current!.close()}>
          Close
        </button>
      </div>
      <Screen key={clip.id} of={clip} at={at} turn={turn} />
      <p class="soft" role="status">
        {[
          clip.stream,
          new Date(Date.parse(clip.begin) + 1000 * at).toLocaleString(),
          `${clip.seconds.toFixed(1)} s, ${bytes(clip.bytes)}`,
          clip.state === 'recording' ? 'still being written: the player goes on as the clip grows' : cutOf(clip),
          clip.favourite ? 'a favourite: stays beyond the limits' : '',
        ]
          .filter(Boolean)
          .join(' · ')}
      </p>
      <div class="row start">
        <button type="button" aria-keyshortcuts="p" disabled={index === 0} onClick={() => step(-1)}>
          Previous event <kbd>p</kbd>
        </button>
        <button type="button" aria-keyshortcuts="n" disabled={!moments[index + 1]} onClick={() => step(1)}>
          Next event <kbd>n</kbd>
        </button>
        <button type="button" aria-keyshortcuts="e" onClick={again}>
          {event ? 'To the event' : 'From the begin'} <kbd>e</kbd>
        </button>
        <a class="button" href={server.url('v2', 'clips', clip.id, 'video')} download={`${clip.stream}-${clip.id}.mp4`}>
          Download
        </a>
        {manage && (
          <>
            <button
              type="button"
              aria-pressed={clip.favourite ?? false}
              disabled={busy}
              onClick={() =>
                void act(async () => {
                  await server.keepClip(clip.id, !clip.favourite);
                  refresh();
                })
              }
            >
              Favourite
            </button>
            <button
              type="button"
              class="danger"
              disabled={busy || clip.state === 'recording'}
              onClick={() => {
                if (confirm('Delete this clip and its pictures?'))
                  void act(async () => {
                    await server.removeClip(clip.id);
                    dialog.current!.close();
                  });
              }}
            >
              Delete
            </button>
          </>
        )}
      </div>
      {(error || failed) && (
        <p class="message" role="alert">
          {error || failed}
        </p>
      )}
    </dialog>
  );
}
