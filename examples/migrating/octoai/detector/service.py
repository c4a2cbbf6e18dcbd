"""A service in the form of OctoAI that finds the brightest area of a picture, and draws a box around it.

It needs numpy, Pillow and pydantic.
"""

from typing import List

import numpy as np
from octoai.service import Service
from octoai.types import Image
from PIL import ImageDraw
from pydantic import BaseModel


class Box(BaseModel):
    """Corners, in pixels."""

    x1: float
    y1: float
    x2: float
    y2: float


class Detection(BaseModel):
    """What was found."""

    name: str
    confidence: float
    box: Box


class Found(BaseModel):
    """The areas, and the picture with their boxes."""

    detections: List[Detection]
    image_with_boxes: Image


class Detector(Service):
    """Finds what is brighter than the mean of white and the picture's mean."""

    def setup(self) -> None:
        """Set the name of what is found."""
        self.name = "light"

    def infer(self, image: Image) -> Found:
        """Find the brightest area."""
        picture = image.to_pil().convert("RGB")
        grey = np.asarray(picture.convert("L"), np.float32) / 255
        rows, columns = np.nonzero(grey > (1 + grey.mean()) / 2)
        detections = []
        if len(rows):
            x1, y1, x2, y2 = int(columns.min()), int(rows.min()), int(columns.max()) + 1, int(rows.max()) + 1
            box = Box(x1=x1, y1=y1, x2=x2, y2=y2)
            inside = grey[y1:y2, x1:x2]
            detections.append(Detection(name=self.name, confidence=float(inside.mean()), box=box))
            ImageDraw.Draw(picture).rectangle((x1, y1, x2 - 1, y2 - 1), outline=(255, 0, 0))
        return Found(detections=detections, image_with_boxes=Image.from_pil(picture, format="PNG"))
