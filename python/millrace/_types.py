"""Types of input: accepted values in JSON, forms and tensors, and JSON schemas.

`_hints.of` makes a Type of a hint. Type.check takes a JSON value and returns the program's value; check appends errors
to a list, as dicts with loc, msg and type. Values are not converted between types, except integers to float and, in
forms, queries and parameters, text to numbers (Type.text).
"""

from __future__ import annotations

import base64
import binascii
import json
import typing
from typing import Any, Callable

from . import _tensors
from ._plain import plain
from ._tensors import Tensor
from ._wire import decode_json

Loc = typing.Tuple[Any, ...]
Errors = typing.List[typing.Dict[str, Any]]

MISSING: Any = object()
"""Says that there is no value."""

_JSON_NAMES = {
    dict: "an object",
    list: "a list",
    str: "a string",
    int: "an integer",
    float: "a number",
    bool: "true or false",
    type(None): "null",
}


class Invalid(Exception):
    """Wrong input; errors has the places and reasons."""

    def __init__(self, errors: Errors):
        first = errors[0]
        super().__init__(f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
        self.errors = errors


def wrong(errors: Errors, loc: Loc, msg: str, kind: str) -> Any:
    """Appends an error."""
    errors.append({"loc": list(loc), "msg": msg, "type": kind})
    return MISSING


def named(value: Any) -> str:
    """Names the JSON type of a value."""
    return _JSON_NAMES.get(type(value), type(value).__name__)


class Type:
    """A type of input. spec is the declaration as a tensor: datatype and shape, or None."""

    name = "any value"
    spec: tuple[str, list[int]] | None = None
    fixed = False  # values are arrays of one shape
    whole = False  # it is an object, and may be the whole body of a request
    raw = False  # it can be the bytes of a body or payload
    picture: Any = None
    boxes: Any = None

    def copy(self) -> Type:
        """Returns the type for another argument."""
        return self

    def check(self, value: Any, loc: Loc, errors: Errors) -> Any:
        """Returns the program's value of a JSON value."""
        return value

    def text(self, text: str, loc: Loc, errors: Errors) -> Any:
        """Returns the program's value of the text of a form, query or parameter."""
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        return self.check(value, loc, errors)

    def tensor(self, tensor: Tensor, loc: Loc, errors: Errors) -> Any:
        """Returns the program's value of a tensor: BYTES are JSON texts."""
        if tensor.datatype != "BYTES":
            return self.check(tensor.tolist(), loc, errors)
        elements = tensor.data
        if len(elements) != 1:
            return wrong(errors, loc, f"has {len(elements)} elements: want one, a JSON text", "length")
        return self.payload(elements[0], loc, errors)

    def payload(self, data: Any, loc: Loc, errors: Errors) -> Any:
        """Returns the program's value of the bytes of a body or payload: JSON."""
        try:
            value = decode_json(str(data, "utf-8"))
        except (ValueError, RecursionError) as e:
            hint = "; for text, use the type hint str or List[str]" if isinstance(self, AnyType) else ""
            if is_picture(data):
                return wrong(errors, loc, picture_hint(loc[-1]), "picture")
            return wrong(errors, loc, f"is not JSON: {e}{hint}", "json_invalid")
        return self.check(value, loc, errors)

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        """Returns the JSON schema; schemas with names go to defs."""
        return {}


class AnyType(Type):
    """No hint, or Any: tensors are arrays (BYTES lists of bytes), JSON is unchanged."""

    def tensor(self, tensor: Tensor, loc: Loc, errors: Errors) -> Any:
        """Implements Type."""
        return tensor.array()


class Plain(Type):
    """int, float, bool, str, None."""

    def __init__(self, kind: type, name: str, code: str, schema: dict[str, Any], spec: tuple[str, list[int]] | None):
        self.kind, self.name, self._code, self._schema, self.spec = kind, name, code, schema, spec

    def check(self, value: Any, loc: Loc, errors: Errors) -> Any:
        """Implements Type."""
        kind = type(value)
        if kind is self.kind:
            return value
        if kind is int and self.kind is float:
            try:
                return float(value)
            except OverflowError:
                pass
        if kind is float and self.kind is int and value.is_integer():
            return int(value)
        return wrong(errors, loc, f"is {named(value)}, want {self.name}", self._code)

    def text(self, text: str, loc: Loc, errors: Errors) -> Any:
        """Implements Type."""
        if self.kind is str:
            return text
        if self.kind is bool and text.lower() in ("true", "false", "1", "0"):
            return text.lower() in ("true", "1")
        try:
            if self.kind in (int, float):
                return self.kind(text)
        except ValueError:
            pass
        return wrong(errors, loc, f"is {text[:40]!r}, want {self.name}", self._code)

    def tensor(self, tensor: Tensor, loc: Loc, errors: Errors) -> Any:
        """Implements Type."""
        elements = tensor.elements()
        if len(elements) != 1:
            return wrong(errors, loc, f"has {len(elements)} elements, want one", "length")
        if isinstance(elements[0], bytes):
            return self.payload(elements[0], loc, errors)
        return self.check(elements[0], loc, errors)

    def payload(self, data: Any, loc: Loc, errors: Errors) -> Any:
        """Implements Type: text is not quoted."""
        try:
            return self.text(str(data, "utf-8"), loc, errors)
        except UnicodeDecodeError:
            return wrong(errors, loc, picture_hint(loc[-1]) if is_picture(data) else "is not UTF-8", "string_type")

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        """Implements Type."""
        return dict(self._schema)


class BytesType(Type):
    """bytes: base64 in JSON, raw everywhere else."""

    name, raw = "bytes", True
    spec = ("BYTES", [1])

    def check(self, value: Any, loc: Loc, errors: Errors) -> Any:
        """Implements Type."""
        if isinstance(value, str):
            try:
                return base64.b64decode(value, validate=True)
            except (binascii.Error, ValueError):
                pass
        return wrong(errors, loc, "want a string of base64", "base64")

    def text(self, text: str, loc: Loc, errors: Errors) -> Any:
        """Implements Type."""
        return text.encode("utf-8", "surrogateescape")

    def tensor(self, tensor: Tensor, loc: Loc, errors: Errors) -> Any:
        """Implements Type."""
        if tensor.datatype != "BYTES":
            return bytes(tensor.data)
        if len(tensor.data) != 1:
            return wrong(errors, loc, f"has {len(tensor.data)} elements, want one", "length")
        return tensor.data[0]

    def payload(self, data: Any, loc: Loc, errors: Errors) -> Any:
        """Implements Type."""
        return bytes(data)

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        """Implements Type."""
        return {"type": "string", "format": "byte"}


class Parsed(Type):
    """A type read from a string by a function, such as a date."""

    spec = ("BYTES", [1])

    def __init__(self, kind: type, read: Callable[[str], Any], form: str):
        self.kind, self._read, self._form, self.name = kind, read, form, f"a {form}"

    def check(self, value: Any, loc: Loc, errors: Errors) -> Any:
        """Implements Type."""
        if isinstance(value, str):
            try:
                return self._read(value)
            except ValueError:
                pass
        return wrong(errors, loc, f"want {self.name} as a string", self._form)

    def text(self, text: str, loc: Loc, errors: Errors) -> Any:
        """Implements Type."""
        return self.check(text, loc, errors)

    def payload(self, data: Any, loc: Loc, errors: Errors) -> Any:
        """Implements Type."""
        return self.check(str(data, "utf-8", "replace"), loc, errors)

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        """Implements Type."""
        return {"type": "string", "format": self._form}


class ListType(Type):
    """list, set, frozenset, and tuple of one item type and any length."""

    spec = ("BYTES", [1])

    def __init__(self, item: Type, make: Callable[[list[Any]], Any] | None):
        self.item, self._make, self.name = item, make, "a list"

    def check(self, value: Any, loc: Loc, errors: Errors) -> Any:
        """Implements Type."""
        if not isinstance(value, list):
            return wrong(errors, loc, f"is {named(value)}, want a list", "list_type")
        check = self.item.check
        return self._made([check(v, loc + (i,), errors) for i, v in enumerate(value)], errors)

    def _made(self, items: list[Any], errors: Errors) -> Any:
        return items if self._make is None or errors else self._make(items)

    def text(self, text: str, loc: Loc, errors: Errors) -> Any:
        """Implements Type: a JSON list, or the only item."""
        if text.lstrip().startswith("["):
            return super().text(text, loc, errors)
        return self.texts([text], loc, errors)

    def texts(self, texts: list[Any], loc: Loc, errors: Errors) -> Any:
        """Returns the value of several parts of a form with the same name."""
        return self._made([from_part(self.item, t, loc + (i,), errors) for i, t in enumerate(texts)], errors)

    def tensor(self, tensor: Tensor, loc: Loc, errors: Errors) -> Any:
        """Implements Type: elements of BYTES are the items, except a single element with a JSON list."""
        if tensor.datatype != "BYTES" or len(tensor.data) == 1 and tensor.data[0].lstrip()[:1] == b"[":
            return super().tensor(tensor, loc, errors)
        return self._made([self.item.payload(d, loc + (i,), errors) for i, d in enumerate(tensor.data)], errors)

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        """Implements Type."""
        return {
            "type": "array",
            "items": self.item.schema(defs),
            **({"uniqueItems": True} if self._make in (set, frozenset) else {}),
        }


class TupleType(Type):
    """tuple of given types."""

    spec = ("BYTES", [1])

    def __init__(self, items: list[Type]):
        self.items, self.name = items, f"a list of {len(items)}"

    def check(self, value: Any, loc: Loc, errors: Errors) -> Any:
        """Implements Type."""
        if not isinstance(value, list) or len(value) != len(self.items):
            return wrong(errors, loc, f"want {self.name}", "tuple_type")
        return tuple(t.check(v, loc + (i,), errors) for i, (t, v) in enumerate(zip(self.items, value)))

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        """Implements Type."""
        return {
            "type": "array",
            "prefixItems": [t.schema(defs) for t in self.items],
            "minItems": len(self.items),
            "maxItems": len(self.items),
        }


class DictType(Type):
    """dict."""

    name, whole = "an object", True
    spec = ("BYTES", [1])

    def __init__(self, key: Type, item: Type):
        self.key, self.item = key, item

    def check(self, value: Any, loc: Loc, errors: Errors) -> Any:
        """Implements Type."""
        if not isinstance(value, dict):
            return wrong(errors, loc, f"is {named(value)}, want an object", "dict_type")
        key, item = self.key.text, self.item.check
        out = {}
        for k, v in value.items():
            made = key(k, loc + (k,), errors)
            if made is not MISSING:
                out[made] = item(v, loc + (k,), errors)
        return out

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        """Implements Type."""
        return {"type": "object", "additionalProperties": self.item.schema(defs)}


class LiteralType(Type):
    """Literal, and Enum by the values of the members."""

    spec = ("BYTES", [1])

    def __init__(self, values: dict[Any, Any], kind: str):
        self.values, self._kind = values, kind
        self.name = " or ".join(repr(v) for v in values)

    def check(self, value: Any, loc: Loc, errors: Errors) -> Any:
        """Implements Type."""
        for v, made in self.values.items():
            if type(v) is type(value) and v == value:
                return made
        return wrong(errors, loc, f"want {self.name}", self._kind)

    def text(self, text: str, loc: Loc, errors: Errors) -> Any:
        """Implements Type."""
        for v, made in self.values.items():
            if str(v) == text:
                return made
        return wrong(errors, loc, f"is {text[:40]!r}, want {self.name}", self._kind)

    def payload(self, data: Any, loc: Loc, errors: Errors) -> Any:
        """Implements Type."""
        return self.text(str(data, "utf-8", "replace"), loc, errors)

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        """Implements Type."""
        kinds = {type(v) for v in self.values}
        names = {str: "string", int: "integer", bool: "boolean", float: "number"}
        out: dict[str, Any] = {"enum": list(self.values)}
        if len(kinds) == 1 and (only := kinds.pop()) in names:
            out["type"] = names[only]
        return out


class UnionType(Type):
    """Union and Optional: the first type that accepts the value."""

    spec = ("BYTES", [1])

    def __init__(self, options: list[Type]):
        self.options = options
        self.name = " or ".join(t.name for t in options)
        self.whole = any(t.whole for t in options) and all(t.whole or t.name == "null" for t in options)
        self.raw = any(t.raw for t in options)
        pictures = [t.picture for t in options if t.picture]
        self.picture = pictures[0] if pictures else None
        self.boxes = next((t.boxes for t in options if t.boxes), None)

    def _first(self, value: Any, method: str, loc: Loc, errors: Errors) -> Any:
        found: list[Errors] = []
        for t in self.options:
            mine: Errors = []
            made = getattr(t, method)(value, loc, mine)
            if not mine:
                return made
            found.append(mine)
        deep = [e for e in found if any(len(x["loc"]) > len(loc) for x in e)]
        if len(deep) == 1 or len(found) == 1:
            errors += (deep or found)[0]
        elif len(self.options) == 2 and self.options[-1].name == "null":
            errors += found[0]
        else:
            wrong(errors, loc, f"want {self.name}", "union")
        return MISSING

    def check(self, value: Any, loc: Loc, errors: Errors) -> Any:
        """Implements Type."""
        for t in self.options:  # 1 is an int, although a float would do
            if isinstance(t, Plain) and type(value) is t.kind:
                return value
        return self._first(value, "check", loc, errors)

    def text(self, text: str, loc: Loc, errors: Errors) -> Any:
        """Implements Type: a str takes any text, and so is the last."""
        options = sorted(self.options, key=lambda t: isinstance(t, Plain) and t.kind is str)
        return UnionType(options)._first(text, "text", loc, errors)

    def tensor(self, tensor: Tensor, loc: Loc, errors: Errors) -> Any:
        """Implements Type."""
        return self._first(tensor, "tensor", loc, errors)

    def payload(self, data: Any, loc: Loc, errors: Errors) -> Any:
        """Implements Type."""
        return self._first(data, "payload", loc, errors)

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        """Implements Type."""
        return {"anyOf": [t.schema(defs) for t in self.options]}


def without_null(t: Type) -> Type:
    """Returns X for Optional[X]. Returns other types unchanged."""
    if isinstance(t, UnionType) and len(t.options) == 2 and t.options[1].name == "null":
        return t.options[0]
    return t


class ObjectType(Type):
    """Dataclasses and TypedDicts: objects with members of given types; further members are refused."""

    whole = True
    spec = ("BYTES", [1])

    def __init__(self, kind: Any, make: Callable[[dict[str, Any]], Any]):
        self.kind, self._make, self.name = kind, make, f"an object ({kind.__name__})"
        self.members: dict[str, Type] = {}
        self.required: frozenset[str] = frozenset()
        self.defaults: dict[str, Any] = {}

    def check(self, value: Any, loc: Loc, errors: Errors) -> Any:
        """Implements Type."""
        if type(value) is not dict:
            return wrong(errors, loc, f"is {named(value)}, want an object ({self.kind.__name__})", "object_type")
        before = len(errors)
        members = self.members
        out = {}
        for k, v in value.items():
            t = members.get(k)
            if t is None:
                wrong(
                    errors,
                    loc + (k,),
                    f"is not a member of {self.kind.__name__}: it has {', '.join(members)}",
                    "extra_forbidden",
                )
            else:
                out[k] = t.check(v, loc + (k,), errors)
        if len(out) < len(members):
            for k in members:
                if k in self.required and k not in value:
                    wrong(errors, loc + (k,), "is missing", "missing")
        if len(errors) > before:
            return MISSING
        try:
            return self._make(out)
        except (ValueError, TypeError, AssertionError) as e:
            return wrong(errors, loc, str(e) or type(e).__name__, "value_error")

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        """Implements Type."""
        name = self.kind.__name__
        if name not in defs:
            defs[name] = {}  # for types that have themselves as a member
            properties = {}
            for k, t in self.members.items():
                properties[k] = t.schema(defs)
                if k in self.defaults:
                    properties[k] = {**properties[k], "default": plain(self.defaults[k])}
            defs[name] = {
                "type": "object",
                "title": name,
                "properties": properties,
                "required": [k for k in self.members if k in self.required],
                "additionalProperties": False,
            }
            doc = (self.kind.__doc__ or "").strip()
            if doc and not doc.startswith(name + "("):
                defs[name]["description"] = doc
        return {"$ref": "#/components/schemas/" + name}


class PydanticType(Type):
    """A model of pydantic 1 or 2."""

    whole = True
    spec = ("BYTES", [1])

    def __init__(self, kind: Any):
        self.kind, self.name = kind, f"an object ({kind.__name__})"
        self._second = hasattr(kind, "model_validate")

    def check(self, value: Any, loc: Loc, errors: Errors) -> Any:
        """Implements Type."""
        try:
            return self.kind.model_validate(value) if self._second else self.kind.parse_obj(value)
        except ValueError as e:
            if not hasattr(e, "errors"):
                return wrong(errors, loc, str(e), "value_error")
            for x in e.errors():
                wrong(errors, loc + tuple(p for p in x["loc"] if p != "__root__"), x["msg"], x["type"])
        return MISSING

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        """Implements Type."""
        template = "#/components/schemas/{model}"
        made = (
            self.kind.model_json_schema(ref_template=template)
            if self._second
            else self.kind.schema(ref_template=template)
        )
        for key in ("$defs", "definitions"):
            defs.update(made.pop(key, {}))
        if "$ref" in made:  # it has itself as a member
            return made
        defs[self.kind.__name__] = made
        return {"$ref": "#/components/schemas/" + self.kind.__name__}


class TensorType(Type):
    """Tensor["FP32", 3, 224, 224], and np.ndarray without datatype and shape: numpy arrays."""

    def __init__(self, datatype: str | None = None, shape: list[int] | None = None):
        self.datatype, self.shape = datatype, shape
        self.name = f"a tensor of {datatype} {shape}" if datatype else "a tensor"
        if datatype is not None and shape is not None:
            self.spec = (datatype, shape)
            self.fixed = datatype != "BYTES" and all(d > 0 for d in shape)

    def check(self, value: Any, loc: Loc, errors: Errors) -> Any:
        """Implements Type: nested lists of numbers."""
        if isinstance(value, (int, float, bool)):
            value = [value] if self.shape == [1] else value
        elif not isinstance(value, list):
            return wrong(errors, loc, f"is {named(value)}, want a list of numbers", "list_type")
        np = _tensors.numpy()
        if not np:
            return value
        try:
            array = (
                np.array(value)
                if self.datatype is None
                else np.array(value, dtype=_tensors._NUMPY.get(self.datatype, object))
            )
        except (ValueError, TypeError, OverflowError) as e:
            return wrong(errors, loc, f"is not an array: {e}", "array")
        return self._shaped(array, loc, errors)

    def _shaped(self, array: Any, loc: Loc, errors: Errors) -> Any:
        want = self.shape
        if want is not None and (
            len(array.shape) != len(want) or any(w not in (-1, d) for d, w in zip(array.shape, want))
        ):
            return wrong(
                errors,
                loc,
                f"has the shape {list(array.shape)}, want {want}{' (-1 = any)' if -1 in want else ''}",
                "shape",
            )
        return array

    def tensor(self, tensor: Tensor, loc: Loc, errors: Errors) -> Any:
        """Implements Type."""
        if self.datatype is not None and tensor.datatype != self.datatype:
            return wrong(errors, loc, f"is of {tensor.datatype}, want {self.datatype}", "datatype")
        return self._shaped(tensor.array(), loc, errors)

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        """Implements Type."""
        out: dict[str, Any] = {
            "type": "boolean" if self.datatype == "BOOL" else "string" if self.datatype == "BYTES" else "number"
        }
        for d in reversed(self.shape if self.shape is not None else [-1]):
            out = {"type": "array", "items": out}
            if d >= 0:
                out["minItems"] = out["maxItems"] = d
        return out


class UploadType(Type):
    """A file of a form: Upload."""

    name, raw = "a file", True

    def check(self, value: Any, loc: Loc, errors: Errors) -> Any:
        """Implements Type."""
        data = BytesType().check(value, loc, errors)
        from ._forms import Upload

        return data if data is MISSING else Upload(data, "", {})

    def payload(self, data: Any, loc: Loc, errors: Errors) -> Any:
        """Implements Type."""
        from ._forms import Upload

        return Upload(bytes(data), "", {})

    def tensor(self, tensor: Tensor, loc: Loc, errors: Errors) -> Any:
        """Implements Type."""
        data = BytesType().tensor(tensor, loc, errors)
        return data if data is MISSING else self.payload(data, loc, errors)

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        """Implements Type."""
        return {"type": "string", "format": "binary"}


def is_picture(data: Any) -> bool:
    """Reports whether bytes begin as a JPEG, PNG or WebP file does."""
    head = bytes(data[:12])
    return head.startswith((b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")) or head[:4] == b"RIFF" and head[8:] == b"WEBP"


def picture_hint(name: Any) -> str:
    """Names the hint for pictures."""
    return (
        "is a picture file, and its type hint takes none: give it the hint millrace.Image, as in "
        f"`{name}: millrace.Image` or `{name}: millrace.Image[640, 480]`"
    )


def from_part(t: Type, part: Any, loc: Loc, errors: Errors) -> Any:
    """Returns the program's value of a part of a form: a text, or an Upload."""
    if isinstance(part, str):
        return t.text(part, loc, errors)
    if isinstance(t, UploadType):
        return part
    if isinstance(t, UnionType):
        for option in t.options:
            if isinstance(option, UploadType):
                return part
    return t.payload(part.data, loc, errors)
