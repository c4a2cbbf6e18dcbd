"""The part of msgspec's interface that mosec's typed mixin needs, over msgpack, for tests: Debian has no msgspec.

Its wire form is msgpack, in which a Struct is a map by the names of its fields; see `install`.
"""

from __future__ import annotations

import sys
import types
import typing
from typing import Any

import msgpack as _msgpack


class DecodeError(Exception):
    """The bytes are not msgpack."""


class ValidationError(DecodeError):
    """The data are not of the type."""


class Struct:
    """A class with typed fields, whose class attributes are defaults."""

    def __init__(self, **values: Any):
        for name in typing.get_type_hints(type(self)):
            if name not in values and not hasattr(type(self), name):
                raise TypeError(f"missing required argument {name!r}")
            setattr(self, name, values.get(name, getattr(type(self), name, None)))

    def __repr__(self) -> str:
        members = ", ".join(f"{n}={getattr(self, n)!r}" for n in typing.get_type_hints(type(self)))
        return f"{type(self).__name__}({members})"


_NAMES = {
    str: "str",
    bytes: "bytes",
    int: "int",
    float: "float",
    bool: "bool",
    dict: "object",
    list: "array",
    type(None): "null",
}
_JSON = {
    str: {"type": "string"},
    bytes: {"type": "string", "contentEncoding": "base64"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    Any: {},
}


def _check(value: Any, typ: Any, path: str) -> Any:
    if typ is Any:
        return value
    if isinstance(typ, type) and issubclass(typ, Struct):
        if not isinstance(value, dict):
            raise ValidationError(f"Expected `object`, got `{_NAMES.get(type(value))}`{path}")
        hints, out = typing.get_type_hints(typ), {}
        for name, hint in hints.items():
            if name in value:
                out[name] = _check(value[name], hint, f" - at `$.{name}`")
            elif not hasattr(typ, name):
                raise ValidationError(f"Object missing required field `{name}`")
        return typ(**out)
    if not isinstance(value, typ):
        raise ValidationError(f"Expected `{_NAMES.get(typ)}`, got `{_NAMES.get(type(value))}`{path}")
    return value


def _decode(data: bytes, type: Any = Any) -> Any:  # noqa: A002 - the keyword is msgspec's
    try:
        value = _msgpack.unpackb(data)
    except Exception as e:
        raise DecodeError(str(e)) from e
    return _check(value, type, "")


def _components(types_: list[Any], ref_template: str) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
    schemas, components = [], {}
    for t in types_:
        if isinstance(t, type) and issubclass(t, Struct):
            hints = typing.get_type_hints(t)
            components[t.__name__] = {
                "title": t.__name__,
                "type": "object",
                "properties": {n: _JSON[h] for n, h in hints.items()},
                "required": [n for n in hints if not hasattr(t, n)],
            }
            schemas.append({"$ref": ref_template.format(name=t.__name__)})
        else:
            schemas.append(_JSON[t])
    return tuple(schemas), components


def install() -> None:
    """Makes this the module msgspec."""
    m = types.ModuleType("msgspec")
    m.Struct, m.DecodeError, m.ValidationError = Struct, DecodeError, ValidationError  # type: ignore[attr-defined]
    m.msgpack = types.SimpleNamespace(decode=_decode, encode=_msgpack.packb)  # type: ignore[attr-defined]
    m.json = types.SimpleNamespace(schema_components=_components)  # type: ignore[attr-defined]
    sys.modules["msgspec"] = m
