"""Renders the training set: pictures.npy [N, 240, 320, 3] and truth.json, three quarters stills, the rest out of clips.

Stills are mostly JPEG of quality 35 to 95; the clips are H.264 at crf 20 to 35, and every fourth frame is kept.
"""
import argparse
import json
import multiprocessing
import pathlib
import tempfile

import cv2
import numpy as np

import clips
import digits
from scenes import HEIGHT, WIDTH, Scene

CLIP, KEEP = 80, 4  # frames of a clip, and one in how many is kept
BLOCK = 80  # stills rendered per piece of work


def stills(rng, images, labels):
    for _ in range(BLOCK):
        picture, found = Scene(rng, images, labels).picture()
        if rng.random() < 0.85:
            quality = [cv2.IMWRITE_JPEG_QUALITY, int(rng.integers(35, 96))]
            picture = cv2.imdecode(cv2.imencode(".jpg", picture[..., ::-1], quality)[1], cv2.IMREAD_COLOR)[..., ::-1]
        yield picture, found


def clip(rng, images, labels):
    shown = list(clips.frames(rng, images, labels, CLIP))
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "clip.mp4")
        clips.encode(path, [p for p, _ in shown], int(rng.integers(20, 36)))
        decoded = clips.decode(path)
    return [(decoded[i], shown[i][1]) for i in range(0, CLIP, KEEP)]


def work(job):
    """Pictures and truths of one piece of work; its own seed makes it the same whoever does it."""
    kind, split, seed = job
    cv2.setNumThreads(1)
    rng = np.random.default_rng(seed)
    made = list((stills if kind == "stills" else clip)(rng, *digits.load(split)))
    return np.stack([p for p, _ in made]), [t for _, t in made]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="out/spotter/train", help="folder for the set")
    parser.add_argument("--split", choices=digits.SPLITS, default="train")
    parser.add_argument("--pictures", type=int, default=10000, help="about how many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=multiprocessing.cpu_count())
    args = parser.parse_args()
    still, moving = args.pictures * 3 // 4 // BLOCK, args.pictures // 4 // (CLIP // KEEP)
    jobs = [("stills" if i < still else "clip", args.split, [args.seed, i]) for i in range(still + moving)]
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    count = still * BLOCK + moving * (CLIP // KEEP)
    pictures = np.lib.format.open_memmap(out / "pictures.npy", "w+", np.uint8, (count, HEIGHT, WIDTH, 3))
    told = []
    with multiprocessing.Pool(args.processes) as pool:
        for made, truths in pool.imap(work, jobs):
            pictures[len(told) : len(told) + len(made)] = made
            told += truths
            print(f"\r{len(told)} of {count} pictures", end="", flush=True)
    (out / "truth.json").write_text(json.dumps(told))
    print()


if __name__ == "__main__":
    main()
