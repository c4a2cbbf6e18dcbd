"""Finds things of a strong colour in a picture. It needs numpy only."""

import numpy as np

import millrace

NAMES = ("red", "yellow", "green", "cyan", "blue", "magenta")
CELL = 8  # pixels of a side of a cell: things are found on a grid


class Colours:
    def setup(self, parameters):
        self.smallest = parameters.get("smallest", 6)  # cells of a thing

    def infer(self, image: millrace.Image[320, 240]) -> millrace.Boxes:
        """Returns a box for each group of neighbouring cells of one colour."""
        cells = image.reshape(240 // CELL, CELL, 320 // CELL, CELL, 3).mean(axis=(1, 3))
        high, low = cells.max(axis=2), cells.min(axis=2)
        strong = (high > 80) & (high - low > 0.6 * high)
        hue = self.hue(cells, high, low)
        boxes, scores, classes = [], [], []
        for colour in range(len(NAMES)):
            for y, x in self.groups(strong & (hue == colour)):
                boxes.append([x.min() * CELL, y.min() * CELL, (x.max() + 1) * CELL, (y.max() + 1) * CELL])
                scores.append(len(x) / ((np.ptp(x) + 1) * (np.ptp(y) + 1)))  # share of the box
                classes.append(colour)
        return millrace.Boxes(boxes, scores, classes, [NAMES[c] for c in classes])

    def hue(self, cells, high, low):
        """Returns the index in NAMES of each cell's colour."""
        r, g, b = np.moveaxis(cells, 2, 0)
        spread = np.maximum(high - low, 1)
        angle = np.where(high == r, (g - b) / spread, np.where(high == g, 2 + (b - r) / spread, 4 + (r - g) / spread))
        return np.round(angle).astype(int) % 6

    def groups(self, mask):
        """Yields the rows and columns of neighbouring cells."""
        left = {(int(y), int(x)) for y, x in np.argwhere(mask)}
        while left:
            todo, found = [left.pop()], []
            while todo:
                y, x = todo.pop()
                found.append((y, x))
                for near in ((y - 1, x), (y + 1, x), (y, x - 1), (y, x + 1)):
                    if near in left:
                        left.remove(near)
                        todo.append(near)
            if len(found) >= self.smallest:
                yield np.array(found).T
