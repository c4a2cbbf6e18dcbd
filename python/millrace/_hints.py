"""The Type of a type hint."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import enum
import sys
import types
import typing
import uuid
from typing import Any, Union

from ._errors import LoadError
from ._tensors import Tensor, TensorHint
from ._types import (
    AnyType,
    BytesType,
    DictType,
    ListType,
    LiteralType,
    ObjectType,
    Parsed,
    Plain,
    PydanticType,
    TensorType,
    TupleType,
    Type,
    UnionType,
    UploadType,
)

_INT = Plain(int, "an integer", "int_type", {"type": "integer"}, ("INT64", [1]))
_FLOAT = Plain(float, "a number", "float_type", {"type": "number"}, ("FP64", [1]))
_BOOL = Plain(bool, "true or false", "bool_type", {"type": "boolean"}, ("BOOL", [1]))
_STR = Plain(str, "a string", "string_type", {"type": "string"}, ("BYTES", [1]))
_NONE = Plain(type(None), "null", "none_type", {"type": "null"}, None)
_STR.raw = True

_SIMPLE: dict[Any, Type] = {
    int: _INT,
    float: _FLOAT,
    bool: _BOOL,
    str: _STR,
    type(None): _NONE,
    None: _NONE,
    bytes: BytesType(),
    Any: AnyType(),
    object: AnyType(),
    datetime.datetime: Parsed(
        datetime.datetime,
        lambda s: datetime.datetime.fromisoformat(s[:-1] + "+00:00" if s.endswith("Z") else s),
        "date-time",
    ),
    datetime.date: Parsed(datetime.date, datetime.date.fromisoformat, "date"),
    uuid.UUID: Parsed(uuid.UUID, uuid.UUID, "uuid"),
    list: ListType(AnyType(), None),
    dict: DictType(_STR, AnyType()),
    set: ListType(AnyType(), set),
    tuple: ListType(AnyType(), tuple),
    Tensor: TensorType(),
}

_LISTS: dict[Any, Any] = {
    list: None,
    set: set,
    frozenset: frozenset,
    collections.abc.Sequence: None,
    collections.abc.Iterable: None,
    collections.abc.MutableSequence: None,
    collections.abc.Set: set,
}


def of(hint: Any, where: str, known: dict[Any, Type] | None = None) -> Type:
    """Returns the Type of a hint. where names the parameter, for LoadError about unusable hints."""
    known = {} if known is None else known
    if isinstance(hint, Type):
        return hint.copy()
    try:
        if hint in _SIMPLE:
            return _SIMPLE[hint]
        if hint in known:
            return known[hint]
    except TypeError:
        pass
    if isinstance(hint, TensorHint):
        return TensorType(hint.datatype, hint.shape)
    # Subclasses of Image and Boxes are no hints.
    if "__millrace_type__" in (vars(hint) if isinstance(hint, type) else dir(hint)):
        return hint.__millrace_type__()
    from ._forms import Upload

    if hint is Upload:
        return UploadType()
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return of(args[0], where, known)
    if origin is Union or origin is getattr(types, "UnionType", Union):
        return UnionType([of(a, where, known) for a in sorted(args, key=lambda a: a is type(None))])
    if origin is typing.Literal:
        return LiteralType({v: v for v in args}, "literal")
    if origin in _LISTS:
        return ListType(of(args[0], where, known), _LISTS[origin])
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis:
            return ListType(of(args[0], where, known), tuple)
        return TupleType([of(a, where, known) for a in args])
    if origin in (dict, collections.abc.Mapping, collections.abc.MutableMapping):
        return DictType(of(args[0], where, known), of(args[1], where, known))
    if isinstance(hint, type):
        if issubclass(hint, enum.Enum):
            return LiteralType({m.value: m for m in hint}, "enum")
        if hasattr(hint, "parse_obj") or hasattr(hint, "model_validate"):
            return PydanticType(hint)
        if dataclasses.is_dataclass(hint):
            return _dataclass(hint, where, known)
        if hasattr(hint, "__total__") and issubclass(hint, dict):
            return _typed_dict(hint, where, known)
    if is_array(hint) or is_array(origin):
        return TensorType()
    if hasattr(hint, "__supertype__"):  # NewType
        return of(hint.__supertype__, where, known)
    text = hint.__name__ if isinstance(hint, type) else str(hint)
    raise LoadError(
        f"{where} has the type {text}, which requests cannot hold: use numbers, str, bytes, lists, dicts, dataclasses, "
        "np.ndarray, millrace.Tensor, millrace.Image, millrace.Boxes, or leave the type out"
    )


def is_array(hint: Any) -> bool:
    """Reports whether a hint is numpy's array. Does not import numpy."""
    np = sys.modules.get("numpy")
    return np is not None and hint is np.ndarray


def _dataclass(hint: Any, where: str, known: dict[Any, Type]) -> Type:
    t = ObjectType(hint, lambda members: hint(**members))
    known[hint] = t
    hints = hints_of(hint, where)
    required = []
    for f in dataclasses.fields(hint):
        if not f.init:
            continue
        t.members[f.name] = of(hints[f.name], f"{where}: {hint.__name__}.{f.name}", known)
        if f.default is not dataclasses.MISSING:
            t.defaults[f.name] = f.default
        elif f.default_factory is not dataclasses.MISSING:
            t.defaults[f.name] = f.default_factory()
        else:
            required.append(f.name)
    t.required = frozenset(required)
    return t


def _typed_dict(hint: Any, where: str, known: dict[Any, Type]) -> Type:
    t = ObjectType(hint, lambda members: members)
    known[hint] = t
    optional = set()
    for name, h in hints_of(hint, where).items():
        kind = getattr(typing.get_origin(h), "_name", None) or getattr(typing.get_origin(h), "__name__", "")
        if kind in ("Required", "NotRequired"):
            optional |= {name} if kind == "NotRequired" else set()
            h = typing.get_args(h)[0]
        t.members[name] = of(h, f"{where}: {hint.__name__}.{name}", known)
    t.required = frozenset(hint.__required_keys__) - optional
    return t


def hints_of(thing: Any, where: str) -> dict[str, Any]:
    """Returns the hints of a class or function by name, with strings evaluated. Raises LoadError."""
    try:
        return typing.get_type_hints(thing, include_extras=True)
    except Exception as e:
        more = ""
        if isinstance(e, TypeError) and "|" in str(e) and sys.version_info < (3, 10):
            more = ". Python 3.9 does not have X | Y: use Optional[X] or Union[X, Y]"
        raise LoadError(f"{where}: a type hint cannot be evaluated: {type(e).__name__}: {e}{more}") from None
