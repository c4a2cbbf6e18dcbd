"""JSON of services' answers."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import decimal
import enum
import functools
import json
import math
import pathlib
import uuid
from typing import Any, Tuple

from ._tensors import Tensor
from ._wire import encoder


Place = Tuple[float, float, float, float]
"""a, b, c, d: the coordinates x*a + b and y*c + d are pixels of the picture as it was sent."""

OWN: Place = (1.0, 0.0, 1.0, 0.0)
"""The coordinates stay as they are."""


def plain(value: Any, place: Place = OWN) -> Any:
    """Returns the JSON form of a value unknown to json; for JSONEncoder.default. place converts the pixels of Boxes."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if hasattr(value, "parse_obj"):
        return json.loads(value.json())
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Tensor):
        return value.tolist()
    if hasattr(value, "tolist"):  # numpy's arrays and numbers
        return value.tolist()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, (set, frozenset)):
        return list(value)
    if isinstance(value, (datetime.date, datetime.datetime, datetime.time)):
        return value.isoformat()
    if isinstance(value, (uuid.UUID, pathlib.PurePath)):
        return str(value)
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    if isinstance(value, decimal.Decimal):
        return (
            int(value)
            if value.is_finite() and value == value.to_integral_value() and value.as_tuple().exponent >= 0
            else float(value)
        )
    if hasattr(value, "_json"):
        return value._json(place)
    if isinstance(value, (int, float, str, bool, list, tuple, dict, type(None))):
        return value
    raise TypeError(f"{type(value).__name__} is no type of JSON")


_encode = encoder(plain)


def to_json(value: Any, place: Place = OWN) -> str:
    """Returns the JSON text of a value. place converts the pixels of Boxes.

    Raises ValueError with the place of a number that is not finite, or of an unknown type.
    """
    encode = _encode if place == OWN else encoder(functools.partial(plain, place=place))
    try:
        try:
            return encode(value)
        except TypeError as e:
            if "keys must be" not in str(e):
                raise
            return encode(_keyed(value, place))
    except (ValueError, TypeError, RecursionError) as e:
        if isinstance(e, RecursionError):
            reason = "it is nested too deeply, or holds itself"
        else:
            reason = _not_finite(value, "", 0) or str(e)
        raise ValueError(f"cannot be written as JSON: {reason}") from None


def _keyed(value: Any, place: Place) -> Any:
    """Returns a value with keys of JSON in dictionaries: keys of numpy, UUIDs, dates and similar keys become texts or
    numbers.
    """
    if isinstance(value, dict):
        return {_key(k): _keyed(v, place) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_keyed(v, place) for v in value]
    if isinstance(value, (str, int, float, type(None))):
        return value
    return _keyed(plain(value, place), place)


def _key(key: Any) -> Any:
    made = key if isinstance(key, (str, int, float, type(None))) else plain(key)
    if not isinstance(made, (str, int, float, type(None))):
        raise TypeError(f"a key is of type {type(key).__name__}, which is no key of JSON")
    return made


def _not_finite(value: Any, at: str, depth: int) -> str:
    """Returns the place of a number that is not finite in a value."""
    if depth > 50:
        return ""
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"{at or 'it'} is {value}, which JSON does not have"
    if isinstance(value, dict):
        items = [(f"{at}.{k}" if at else str(k), v) for k, v in value.items()]
    elif isinstance(value, (list, tuple)):
        items = [(f"{at}[{i}]", v) for i, v in enumerate(value)]
    elif isinstance(value, (str, int, type(None))):
        return ""
    else:
        try:
            return _not_finite(plain(value), at, depth + 1)
        except TypeError:
            return (
                ""
                if hasattr(value, "_json")
                else f"{at or 'it'} is of type {type(value).__name__}, which is no type of JSON"
            )
    for where, v in items:
        found = _not_finite(v, where, depth + 1)
        if found:
            return found
    return ""
