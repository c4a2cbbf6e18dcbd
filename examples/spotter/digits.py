"""Handwritten digits of scikit-learn as soft glyphs, cut by writer and varied at random.

A glyph is a float32 array of coverage, 0 (background) to 1 (ink), cut close to its ink and GLYPH rows high.
Run it to write a sheet of examples:  digits.py --out /tmp/digits.png
"""
import argparse

import cv2
import numpy as np

GLYPH = 56  # rows of a glyph; scenes show digits 24 to 56 px high, so that glyphs are never enlarged
INK = 0.35  # coverage from which a pixel belongs to a digit's box
SPLITS = {"train": (0, 1157), "val": (1157, 1287), "test": (1287, None)}


def load(split):
    """Images [N, 8, 8] of 0..1 and labels [N] of one split. The set is ordered by writer, so splits share none."""
    from sklearn.datasets import load_digits

    first, last = SPLITS[split]
    data = load_digits()
    return (data.images[first:last] / 16).astype(np.float32), data.target[first:last].astype(np.int64)


def ink_box(cover):
    """x1, y1, x2, y2 of the pixels with ink, x2 and y2 just outside; None where there is no ink."""
    rows, columns = np.flatnonzero((cover > INK).any(1)), np.flatnonzero((cover > INK).any(0))
    if not len(rows):
        return None
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def glyph(image, rng, strength=1.0):
    """A glyph of an 8x8 image: turned, sheared, stretched and bent; strength 0 leaves the writer's own shape."""
    side, pad = 112, 2
    source = np.pad(image, pad)
    turn, shear = np.radians(rng.uniform(-14, 14) * strength), rng.uniform(-0.25, 0.25) * strength
    stretch = np.exp(rng.uniform(-0.2, 0.2) * strength)
    unit = source.shape[0] / side
    y, x = np.mgrid[0:side, 0:side].astype(np.float32)
    x, y = (x - side / 2) * unit * stretch, (y - side / 2) * unit
    x = x + shear * y
    x, y = np.cos(turn) * x - np.sin(turn) * y, np.sin(turn) * x + np.cos(turn) * y
    bend = rng.normal(0, 0.22 * strength, (2, 5, 5)).astype(np.float32)
    x += cv2.resize(bend[0], (side, side), interpolation=cv2.INTER_CUBIC)
    y += cv2.resize(bend[1], (side, side), interpolation=cv2.INTER_CUBIC)
    middle = (source.shape[0] - 1) / 2
    cover = cv2.remap(source, (x + middle).astype(np.float32), (y + middle).astype(np.float32), cv2.INTER_CUBIC)
    # A soft edge: a hard one at this resolution closes the loops of 4, 7 and 8.
    level, width = 0.49 + rng.uniform(-0.08, 0.08) * strength, 0.55
    cover = np.clip((cover - level) / width + 0.5, 0, 1)
    return upright(cover * cover * (3 - 2 * cover))


def upright(cover):
    """Cut to the ink and scale to GLYPH rows, with a margin of two pixels for the soft edge."""
    box = ink_box(cover)
    if box is None:
        return np.zeros((GLYPH, GLYPH), np.float32)
    x1, y1, x2, y2 = box
    scale = GLYPH / (y2 - y1)
    cut = cover[max(0, y1 - 2) : y2 + 2, max(0, x1 - 2) : x2 + 2]
    way = cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR
    return cv2.resize(cut, None, fx=scale, fy=scale, interpolation=way)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--split", choices=SPLITS, default="train")
    parser.add_argument("--out", default="digits.png", help="the sheet to write")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    images, labels = load(args.split)
    sheet = np.zeros((10 * 80, 12 * 80), np.float32)
    for digit in range(10):
        for column in range(12):
            g = glyph(images[rng.choice(np.flatnonzero(labels == digit))], rng)[:78, :78]
            sheet[digit * 80 : digit * 80 + g.shape[0], column * 80 : column * 80 + g.shape[1]] = g
    cv2.imwrite(args.out, sheet * 255)


if __name__ == "__main__":
    main()
