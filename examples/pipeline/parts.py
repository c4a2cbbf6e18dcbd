"""Two stages in Python: one finds bright parts of a picture, the other says what colour each has."""

from typing import List

import numpy as np

import millrace


class Bright:
    """Finds the bright parts of a picture, which are columns apart."""

    def infer(self, image: millrace.Image[320, 240]) -> millrace.Boxes:
        """Returns a box around each."""
        bright = image.max(axis=2) > 128
        edges = np.flatnonzero(np.diff(np.concatenate(([0], bright.any(axis=0), [0]))))
        boxes = []
        for left, right in zip(edges[::2], edges[1::2]):
            rows = np.flatnonzero(bright[:, left:right].any(axis=1))
            boxes.append([left, rows[0], right, rows[-1] + 1])
        return millrace.Boxes(boxes)


class Colour:
    """Names the strongest colour of pictures, several at once."""

    def infer(self, image: millrace.Batch[millrace.Image[8, 8]]) -> List[str]:
        """Returns the name of a colour for each."""
        means = image.reshape(len(image), -1, 3).mean(axis=1)
        return [("red", "green", "blue")[m.argmax()] for m in means]
