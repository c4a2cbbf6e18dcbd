"""Spans of programs: children of the span of the frame."""

from __future__ import annotations

import time
from types import TracebackType

from . import _loop
from ._application import current

MAX_SPANS = 256
"""Spans of a batch; further ones are left out."""


class span:
    """Measures a part of infer: `with millrace.span("tokenize"):`. Outside of a request, span does nothing."""

    __slots__ = ("_name", "_begun")

    def __init__(self, name: str):
        self._name = str(name)[:128]

    def __enter__(self) -> span:
        self._begun = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        loop = _loop.active
        request = current.get()
        batch = request._batch if request is not None else loop.runtime.batch if loop is not None else None
        if batch is None or len(batch.spans) >= MAX_SPANS:
            return
        start, end = self._begun - batch.started, time.perf_counter() - batch.started
        entry = {"name": self._name, "start_us": max(0, round(start * 1e6)), "end_us": max(0, round(end * 1e6))}
        if request is not None:
            entry["request"] = request.index
        batch.spans.append(entry)
