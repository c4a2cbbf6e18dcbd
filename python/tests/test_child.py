"""The child's loop and the protocol."""

from __future__ import annotations

from .peer import TestCase


class TestChild(TestCase):
    """The child with the smallest of services."""

    def test_a_batch_is_answered(self) -> None:
        """Inputs reach the program, and outputs come back."""
        child = self.start(
            """
            def infer(x):
                return {"y": x}
        """
        )
        a, b = child.batch([{"inputs": {"x": ("BYTES", (1,), [b"a"])}}, {"inputs": {"x": ("BYTES", (1,), [b"b"])}}])
        self.assertEqual(a["outputs"]["y"].list(), [b"a"])
        self.assertEqual(b["outputs"]["y"].list(), [b"b"])
        self.assertEqual(child.close()[0], 0)
