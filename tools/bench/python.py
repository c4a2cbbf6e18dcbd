"""The services of the rows about Python, and their counterparts for FastAPI."""

import os
import time
from typing import List

try:
    from millrace import Batch, Image, Tensor
except ImportError:  # of uvicorn's process
    Batch = None

if Batch is not None:

    class Identity:
        """Returns what it gets."""

        max_batch_size = 4

        def infer(self, x: Batch[Tensor["UINT8", 300 << 10]]) -> Tensor["UINT8", 300 << 10]:
            return x

    class Bright:
        """Tells how bright pictures are."""

        max_batch_size = 8

        def infer(self, images: Batch[Image[128, 128]]) -> Tensor["FP64", 3]:
            return images.mean(axis=(1, 2))


class Sleep:
    """Takes a thirtieth of a second."""

    def infer(self, n: int) -> int:
        time.sleep(1 / 30)
        return n


def describe(text: str, numbers: List[int]) -> dict:
    """A little work."""
    return {"words": len(text.split()), "sum": sum(numbers), "text": text.upper()}


class Small:
    """Takes and returns a little JSON."""

    def infer(self, text: str, numbers: List[int]) -> dict:
        return describe(text, numbers)


class Pid:
    """Says which process it is."""

    def setup(self):
        time.sleep(0.3)

    def infer(self, data: bytes) -> bytes:
        return b"%d" % os.getpid()


if Batch is None:
    from fastapi import Body, FastAPI

    threads, coroutines = FastAPI(), FastAPI()

    @threads.post("/infer")
    def in_thread(text: str = Body(...), numbers: List[int] = Body(...)) -> dict:
        return describe(text, numbers)

    @coroutines.post("/infer")
    async def in_loop(text: str = Body(...), numbers: List[int] = Body(...)) -> dict:
        return describe(text, numbers)
