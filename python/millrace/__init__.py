"""Millrace's package for Python: services (docs/python.md) and a client of a running server.

The package needs Python 3.9 and nothing else. The package uses numpy where numpy is installed.
"""

from __future__ import annotations

import importlib
from typing import Any

_PLACES = {
    "Batch": "_endpoints",
    "Boxes": "_pictures",
    "Client": "client",
    "Context": "_endpoints",
    "Error": "_errors",
    "Image": "_pictures",
    "MillraceError": "client",
    "Request": "_application",
    "Response": "_outputs",
    "Tensor": "_tensors",
    "Upload": "_forms",
    "batch": "_services",
    "endpoint": "_services",
    "span": "_spans",
}


def __getattr__(name: str) -> Any:
    """Imports a public name at the first use: a service loads no client, and a client no service."""
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module millrace has no attribute {name!r}: it has {', '.join(sorted(_PLACES))}")
    value = getattr(importlib.import_module("millrace." + place), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Lists the names of the package."""
    return sorted(_PLACES)
