"""The types in the signature of forward."""

from __future__ import annotations

import enum
import typing
from typing import Any, Callable


class ParseTarget(enum.Enum):
    """Which type of a signature is wanted."""

    INPUT = "INPUT"
    RETURN = "RETURN"


def parse_func_type(func: Callable[..., Any], target: ParseTarget) -> Any:
    """Returns the type of one request's data or answer in the signature of forward; Any if it has none.

    A list is a batch, and its elements' type is returned. Raises TypeError for other generic types.
    """
    hints = typing.get_type_hints(func)
    result = hints.pop("return", Any)
    typ = result if target is ParseTarget.RETURN else next(iter(hints.values()), Any)
    origin = typing.get_origin(typ)
    if origin is None:
        return typ
    if origin is not list:
        raise TypeError(f"unsupported type {typ}")
    arguments = typing.get_args(typ)
    if len(arguments) != 1:
        raise TypeError(f"`{func.__name__}` of a stage with batches needs `List[TYPE]` as its annotation")
    return arguments[0]
