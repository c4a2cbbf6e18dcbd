"""Scenes: digits and things that are none of them over varied backgrounds, as stills or moving.

A scene yields pictures (uint8 RGB, 240x320) and their truth: a list of dicts with id, digit, box (the part inside the
picture) and visible, the share of the digit's ink that can be seen. Run it to look at some:  scenes.py --out
/tmp/scenes.png
"""
import argparse

import cv2
import numpy as np

import digits

WIDTH, HEIGHT = 320, 240
SMALLEST, LARGEST = 24, 56  # height of a digit, px
APART = 24  # least distance of two centres, px
LUMA = np.array([0.299, 0.587, 0.114], np.float32)


def colour(rng, luma):
    """A random colour of that brightness, as far as RGB allows."""
    c = rng.uniform(0, 255, 3) * rng.uniform(0, 1) + 80
    for _ in range(3):
        c = np.clip(c + luma - c @ LUMA, 0, 255)
    return c.astype(np.float32)


def smooth(rng, cells):
    """Noise of -1..1 whose features are about HEIGHT/cells px large."""
    grid = rng.uniform(-1, 1, (cells, cells * 4 // 3 + 1)).astype(np.float32)
    return cv2.resize(grid, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC)


def pattern(rng):
    """A grey pattern of about -1..1."""
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float32)
    angle = rng.uniform(0, 2 * np.pi)
    along = x * np.cos(angle) + y * np.sin(angle)
    kind = rng.choice(["flat", "gradient", "clouds", "grain", "stripes", "tiles", "patches"])
    if kind == "flat":
        return np.zeros((HEIGHT, WIDTH), np.float32)
    if kind == "gradient":
        return (along - along.mean()) / 160
    if kind == "clouds":
        return smooth(rng, 3) * 0.6 + smooth(rng, 8) * 0.3 + smooth(rng, 24) * 0.15
    if kind == "grain":
        return smooth(rng, int(rng.integers(30, 120)))
    if kind == "stripes":
        return np.sin(along * 2 * np.pi / rng.uniform(6, 80))
    if kind == "tiles":
        side = rng.uniform(12, 60)
        across = -x * np.sin(angle) + y * np.cos(angle)
        return np.sign(np.sin(along * np.pi / side) * np.sin(across * np.pi / side))
    canvas = np.zeros((HEIGHT, WIDTH), np.float32)
    for _ in range(int(rng.integers(4, 16))):
        middle = rng.uniform([-40, -40], [WIDTH + 40, HEIGHT + 40], (1, 2))
        corners = middle + rng.uniform(-110, 110, (int(rng.integers(3, 6)), 2))
        cv2.fillPoly(canvas, [corners.astype(np.int32)], float(rng.uniform(-1, 1)), cv2.LINE_AA)
    return canvas


def background(rng):
    """A float32 RGB picture of moderate contrast, so that digits can stand out from all of it."""
    base, swing = rng.uniform(25, 230), rng.uniform(4, 40)
    tint = (rng.uniform(-1, 1, 3) * 25).astype(np.float32)
    grey = np.clip(pattern(rng) + (0.3 * smooth(rng, 4) if rng.random() < 0.5 else 0), -1, 1)
    # Up to a third of the pattern's swing in colour.
    hue = (rng.uniform(-1, 1, 3) * swing / 3).astype(np.float32)
    return np.clip(base + grey[..., None] * (swing + hue) + tint, 0, 255).astype(np.float32)


def contrasting(rng, picture):
    """A colour clearly brighter or darker than nearly all of the picture."""
    luma = picture[::8, ::8] @ LUMA
    low, high = np.percentile(luma, 3), np.percentile(luma, 97)
    gaps = {"dark": low, "bright": 255 - high}
    ways = [w for w in gaps if gaps[w] > 75] or [max(gaps, key=gaps.get)]
    way = rng.choice(ways)
    gap = rng.uniform(min(55, gaps[way]), gaps[way])
    return colour(rng, low - gap if way == "dark" else high + gap)


def distractor(rng):
    """The glyph of something that is no digit: a long bar, a corner, a cross, a square frame or a blob."""
    side = 96
    canvas = np.zeros((side, side), np.float32)
    kind = rng.choice(["bar", "bar", "corner", "cross", "frame", "blob", "patch"])
    thick = int(rng.integers(4, 16))
    if kind == "bar":
        # Longer and flatter than any 1: a picture of an upright bar of a digit's size is one.
        canvas = np.zeros((int(rng.integers(6, 20)), 180), np.float32)
        canvas[2:-2, 2:-2] = 1
    elif kind == "corner":
        cv2.polylines(canvas, [np.array([[16, 16], [80, 16], [80, 80]])], False, 1.0, thick)
    elif kind == "cross":
        cv2.line(canvas, (10, 48), (86, 48), 1.0, thick)
        cv2.line(canvas, (48, 10), (48, 86), 1.0, thick)
    elif kind == "frame":
        cv2.rectangle(canvas, (14, 14), (82, 82), 1.0, thick)
        cv2.line(canvas, (14, 82), (82, 14), 1.0, max(1, thick // 2))
    elif kind == "blob":
        cv2.ellipse(canvas, (48, 48), (int(rng.integers(16, 40)), int(rng.integers(16, 40))), 0, 0, 360, 1.0, -1)
    else:
        corners = 48 + rng.uniform(-40, 40, (int(rng.integers(3, 7)), 2))
        cv2.fillPoly(canvas, [corners.astype(np.int32)], 1.0)
    return cv2.GaussianBlur(canvas, (0, 0), 1.2)


class Thing:
    """A digit (digit 0..9) or a distractor (digit None) at a place."""

    def __init__(self, number, glyph, digit, size, ink):
        self.id, self.glyph, self.digit, self.size, self.ink = number, glyph, digit, size, ink
        self.at, self.velocity, self.angle, self.blur = np.zeros(2), np.zeros(2), 0.0, None

    def patch(self):
        """Coverage around the thing and the picture's coordinates of the patch's corner."""
        rows, columns = self.glyph.shape
        scale = self.size / rows
        reach = int(np.hypot(rows, columns) * scale / 2) + 4
        corner = np.floor(self.at).astype(int) - reach
        turn = cv2.getRotationMatrix2D(((columns - 1) / 2, (rows - 1) / 2), self.angle, scale)
        turn[:, 2] += self.at - corner - np.array([(columns - 1) / 2, (rows - 1) / 2])
        cover = cv2.warpAffine(self.glyph, turn, (2 * reach + 1, 2 * reach + 1), flags=cv2.INTER_LINEAR)
        if self.blur is not None:
            cover = cv2.filter2D(cover, -1, self.blur)
        return cover, corner


def line_blur(rng):
    """A kernel that smears along a line of some pixels."""
    length, angle = rng.uniform(2, 6), rng.uniform(0, np.pi)
    kernel = np.zeros((9, 9), np.float32)
    for t in np.linspace(-length / 2, length / 2, 24):
        kernel[int(round(4 + t * np.sin(angle))), int(round(4 + t * np.cos(angle)))] += 1
    return kernel / kernel.sum()


class Scene:
    """A background with things on it. Things keep apart from each other; a later one covers an earlier one."""

    def __init__(self, rng, images, labels, count=None, strength=1.0, noise=None, blurred=True):
        self.rng, self.images, self.labels, self.strength, self.blurred = rng, images, labels, strength, blurred
        self.ground, self.things, self.next = background(rng), [], 1
        self.noise = rng.choice([0, rng.uniform(0, 9)]) if noise is None else noise
        if count is None:
            count = int(
                rng.choice([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], p=[0.06, 0.04, 0.06, 0.1, 0.12, 0.14, 0.14, 0.14, 0.1, 0.1])
            )
        for _ in range(count):
            self.add(self.digit())
        for _ in range(int(rng.choice([0, 1, 2, 3], p=[0.4, 0.25, 0.2, 0.15]))):
            self.add(self.other())

    def digit(self):
        # Every digit as often as any other, whatever the split holds.
        which = self.rng.choice(np.flatnonzero(self.labels == self.rng.integers(10)))
        glyph = digits.glyph(self.images[which], self.rng, self.strength)
        size = np.exp(self.rng.uniform(np.log(SMALLEST), np.log(LARGEST)))
        return Thing(0, glyph, int(self.labels[which]), size, contrasting(self.rng, self.ground))

    def other(self):
        thing = Thing(0, distractor(self.rng), None, 0, contrasting(self.rng, self.ground))
        thing.size = thing.glyph.shape[0] * self.rng.uniform(0.4, 1.1)
        thing.angle = self.rng.uniform(0, 360) if thing.glyph.shape[0] >= 90 else self.rng.uniform(-65, 65)
        return thing

    def add(self, thing):
        """Puts a thing where there is room; without room, nowhere."""
        thing.blur = line_blur(self.rng) if self.blurred and self.rng.random() < 0.4 else None
        for _ in range(30):
            # A little outside too: partly visible digits are part of the task.
            thing.at = self.rng.uniform([-6, -6], [WIDTH + 6, HEIGHT + 6])
            if all(np.hypot(*(thing.at - o.at)) > reach(thing, o) for o in self.things):
                thing.id, self.next = self.next, self.next + 1
                self.things.append(thing)
                return True
        return False

    def picture(self):
        """The picture and its truth now."""
        canvas, patches = self.ground.copy(), []
        for thing in self.things:
            cover, corner = thing.patch()
            patches.append((thing, cover, corner))
            (cut, y1, y2, x1, x2) = inside(cover, corner)
            if cut is not None:
                canvas[y1:y2, x1:x2] += (thing.ink - canvas[y1:y2, x1:x2]) * cut[..., None]
        if self.noise:
            canvas += self.rng.normal(0, self.noise, (HEIGHT, WIDTH, 1))
        return np.clip(canvas, 0, 255).astype(np.uint8), truth(patches)


def reach(a, b):
    """How near two centres may come, px."""
    if a.digit is None or b.digit is None:
        wide = max(max(t.glyph.shape) / t.glyph.shape[0] * t.size for t in (a, b) if t.digit is None)
        return 0.55 * wide + 20
    return max(APART, 0.42 * (a.size + b.size))


def inside(cover, corner):
    """The part of a patch inside the picture with its rows and columns there."""
    x, y = corner
    x1, y1, x2, y2 = max(x, 0), max(y, 0), min(x + cover.shape[1], WIDTH), min(y + cover.shape[0], HEIGHT)
    if x1 >= x2 or y1 >= y2:
        return None, 0, 0, 0, 0
    return cover[y1 - y : y2 - y, x1 - x : x2 - x], y1, y2, x1, x2


def truth(patches):
    """What can be seen of every digit. Patches are in the order of painting."""
    hidden, found = np.zeros((HEIGHT, WIDTH), np.float32), []
    for thing, cover, corner in reversed(patches):
        cut, y1, y2, x1, x2 = inside(cover, corner)
        if cut is None:
            continue
        box = digits.ink_box(cut)
        if thing.digit is not None and box is not None:
            seen = float((cut * (1 - hidden[y1:y2, x1:x2])).sum() / cover.sum())
            found.append(
                {
                    "id": thing.id,
                    "digit": thing.digit,
                    "visible": seen,
                    "box": [int(box[0] + x1), int(box[1] + y1), int(box[2] + x1), int(box[3] + y1)],
                }
            )
        hidden[y1:y2, x1:x2] = np.maximum(hidden[y1:y2, x1:x2], cut)
    return found[::-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--split", choices=digits.SPLITS, default="train")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="scenes.png", help="the sheet to write")
    args = parser.parse_args()
    rng, rows = np.random.default_rng(args.seed), []
    images, labels = digits.load(args.split)
    for _ in range(4):
        row = []
        for _ in range(4):
            picture, found = Scene(rng, images, labels).picture()
            for d in found:
                shade = (0, 255, 0) if d["visible"] >= 0.7 else (255, 0, 0)
                cv2.rectangle(picture, tuple(d["box"][:2]), tuple(d["box"][2:]), shade)
                cv2.putText(picture, str(d["digit"]), (d["box"][0], d["box"][1] + 9), 0, 0.4, shade)
            row.append(picture)
        rows.append(np.hstack(row))
    cv2.imwrite(args.out, np.vstack(rows)[..., ::-1])


if __name__ == "__main__":
    main()
