"""Moving scenes as H.264 clips with their truth: OUT/clip-NN.mp4 and OUT/clip-NN.json.

Digits and other things drift, bounce off the edges and off each other, and sway a little. The truth is the format of
Millrace's rendered clips: frames of objects with id, box, moving and class, and the boxes to ignore, which are digits
of which less than 70 % can be seen.
"""
import argparse
import json
import pathlib
import subprocess

import numpy as np

import digits
from scenes import HEIGHT, WIDTH, Scene, reach

FPS = 30
VISIBLE = 0.7  # share of a digit that must be seen for it to count
EDGE = 10  # how near to the edge a centre comes, px


class Motion:
    """A scene whose things move. Speeds are px per frame."""

    def __init__(self, rng, scene):
        self.scene, self.frame = scene, 0
        for thing in scene.things:
            speed, way = rng.uniform(0.5, 3), rng.uniform(0, 2 * np.pi)
            thing.velocity = speed * np.array([np.cos(way), np.sin(way)])
            thing.rest, thing.size0 = thing.angle, thing.size
            thing.sway, thing.beat, thing.phase = rng.uniform(0, 8), rng.uniform(0.01, 0.05), rng.uniform(0, 2 * np.pi)

    def step(self):
        things = self.scene.things
        for i, a in enumerate(things):
            for b in things[:i]:
                between = a.at - b.at
                apart = np.hypot(*between)
                closing = (a.velocity - b.velocity) @ between
                if apart < reach(a, b) + 4 and closing < 0:
                    # Equal masses: they exchange what they have along the line between them.
                    change = closing / max(apart, 1e-6) ** 2 * between
                    a.velocity, b.velocity = a.velocity - change, b.velocity + change
        for thing in things:
            thing.at = thing.at + thing.velocity
            for axis, size in enumerate((WIDTH, HEIGHT)):
                if thing.at[axis] < EDGE:
                    thing.velocity[axis] = abs(thing.velocity[axis])
                elif thing.at[axis] > size - EDGE:
                    thing.velocity[axis] = -abs(thing.velocity[axis])
            wave = np.sin(thing.phase + self.frame * thing.beat * 2 * np.pi)
            thing.angle = thing.rest + thing.sway * wave
            thing.size = thing.size0 * (1 + 0.01 * thing.sway * wave)
        self.frame += 1


def frames(rng, images, labels, length, **options):
    """Yields pictures and their truth."""
    motion = Motion(rng, Scene(rng, images, labels, blurred=False, **options))
    for _ in range(length):
        yield motion.scene.picture()
        motion.step()


def describe(index, found):
    """One frame of a truth file."""
    shown = [d for d in found if d["visible"] >= VISIBLE]
    frame = {
        "index": index,
        "t": round(index / FPS, 6),
        "objects": [{"id": d["id"], "box": d["box"], "moving": True, "class": d["digit"]} for d in shown],
    }
    if len(shown) < len(found):
        frame["ignore"] = [d["box"] for d in found if d["visible"] < VISIBLE]
    return frame


def encode(path, pictures, crf, preset="veryfast"):
    """Writes H.264 in MP4 that every browser plays."""
    command = [
        "ffmpeg",
        "-v",
        "error",
        "-y",
        "-f",
        "rawvideo",
        "-pix_fmt",
        "rgb24",
        "-s",
        f"{WIDTH}x{HEIGHT}",
        "-r",
        str(FPS),
        "-i",
        "-",
        "-c:v",
        "libx264",
        "-profile:v",
        "high",
        "-preset",
        preset,
        "-crf",
        str(crf),
        "-g",
        "60",
        "-pix_fmt",
        "yuv420p",
        "-threads",
        "1",
        "-movflags",
        "+faststart",
        str(path),
    ]
    subprocess.run(command, input=b"".join(p.tobytes() for p in pictures), check=True)


def decode(path):
    """The pictures of a clip, uint8 [N, 240, 320, 3] RGB."""
    command = ["ffmpeg", "-v", "error", "-i", str(path), "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, HEIGHT, WIDTH, 3)


def write(path, rng, split, length, crf, preset="veryfast", **options):
    """Renders one clip and the truth beside it."""
    pictures, told = [], []
    for index, (picture, found) in enumerate(frames(rng, *digits.load(split), length, **options)):
        pictures.append(picture)
        told.append(describe(index, found))
    encode(path, pictures, crf, preset)
    head = json.dumps({"width": WIDTH, "height": HEIGHT, "fps": FPS})[:-1]
    lines = ",\n".join(json.dumps(f, separators=(",", ":")) for f in told)
    path.with_suffix(".json").write_text(f'{head}, "frames": [\n{lines}\n]}}\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="out/spotter/test", help="folder of the clips")
    parser.add_argument("--split", choices=digits.SPLITS, default="test", help="whose digits")
    parser.add_argument("--clips", type=int, default=12)
    parser.add_argument("--frames", type=int, default=150, help="frames of a clip")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    for number in range(args.clips):
        rng = np.random.default_rng([args.seed, number])
        write(
            out / f"clip-{number:02}.mp4",
            rng,
            args.split,
            args.frames,
            int(rng.integers(20, 36)),
            count=int(rng.integers(4, 9)),
            strength=0.5,
        )


if __name__ == "__main__":
    main()
