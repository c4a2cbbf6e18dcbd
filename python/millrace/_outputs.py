"""Outputs of functions, declared by return types."""

from __future__ import annotations

import inspect
from typing import Any

from . import _hints, _types
from ._errors import LoadError
from ._pictures import MORE, OUTPUTS, Boxes, BoxesHint
from ._types import BytesType, ObjectType, TensorType

OUTPUT = "output"
"""The name of the only output."""


class Response:
    """The answer of an endpoint with a body other than JSON, or with a status or headers."""

    def __init__(
        self, body: Any = b"", status: int = 200, content_type: str | None = None, headers: dict[str, str] | None = None
    ):
        self.body, self.status, self.content_type, self.headers = body, status, content_type, headers


def outputs_of(hint: Any, where: str) -> list[dict[str, Any]]:
    """Returns the outputs that a return type declares; [] for a type without declared outputs."""
    if hint is inspect.Parameter.empty or hint is None or hint is Any or hint is Response or _hints.is_array(hint):
        return []
    if hint is Boxes or isinstance(hint, BoxesHint):
        return [*OUTPUTS, *(MORE[n] for n in getattr(hint, "names", ()))]
    try:
        t = _hints.of(hint, f"{where}: the result")
    except LoadError:
        return []
    if (
        isinstance(t, ObjectType)
        and t.members
        and all(isinstance(m, (TensorType, BytesType)) for m in t.members.values())
    ):
        return [{"name": n, "datatype": m.spec[0], "shape": m.spec[1]} for n, m in t.members.items() if m.spec]
    if isinstance(t, _types.DictType) and isinstance(t.item, (TensorType, BytesType, _types.AnyType)) or t.spec is None:
        return []
    return [{"name": OUTPUT, "datatype": t.spec[0], "shape": t.spec[1]}]
