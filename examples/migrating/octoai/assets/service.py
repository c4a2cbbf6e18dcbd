"""A service in the form of OctoAI whose weights are stored once, in the volume."""

import json
import pathlib
from typing import List

from octoai.service import Service, volume_path

WEIGHTS = "weights.json"


class Linear(Service):
    """A sum of products."""

    def store_assets(self) -> None:
        """Store the weights. Others would download them here."""
        folder = pathlib.Path(volume_path())
        folder.mkdir(parents=True, exist_ok=True)
        (folder / WEIGHTS).write_text(json.dumps([0.5, 2.0, -1.0]))

    def setup(self) -> None:
        """Read the weights. It fails when they are not stored."""
        self.weights = json.loads((pathlib.Path(volume_path()) / WEIGHTS).read_text())

    def infer(self, inputs: List[float]) -> float:
        """Return the sum of the products with the weights."""
        if len(inputs) != len(self.weights):
            raise ValueError(f"want {len(self.weights)} inputs")
        return sum(x * w for x, w in zip(inputs, self.weights))
