"""Tensors in messages of the Open Inference Protocol, as the client sends and reads tensors."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from . import _tensors
from ._client_errors import MillraceError, bad_reply, invalid
from ._errors import Error
from ._tensors import Tensor


class Input(NamedTuple):
    """An input: name, datatype and shape as members of a message, and the pieces of the data."""

    members: dict
    pieces: list

    @property
    def size(self) -> int:
        """The bytes of the data."""
        return sum(map(size, self.pieces))

    def binary(self) -> dict:
        """The input as a member of `inputs`, with data after the JSON."""
        return {**self.members, "parameters": {"binary_data_size": self.size}}

    def json(self) -> dict:
        """The input as a member of `inputs`, with data as numbers or texts."""
        name, datatype = self.members["name"], self.members["datatype"]
        if datatype in ("FP16", "BF16"):
            raise invalid(f"inputs.{name}", f"is {datatype}, which has no form in JSON: leave json out")
        data = _tensors.read(self.members, memoryview(b"".join(self.pieces))).elements()
        if datatype == "BYTES":
            try:
                data = [element.decode() for element in data]
            except UnicodeDecodeError:
                raise invalid(f"inputs.{name}", "is no UTF-8, which JSON needs: leave json out") from None
        elif any(isinstance(x, float) and not math.isfinite(x) for x in data):
            raise invalid(
                f"inputs.{name}", "has numbers that are not finite, which JSON has no form for: leave json out"
            )
        return {**self.members, "data": data}


def size(data: Any) -> int:
    """The number of bytes of bytes-like data."""
    return data.nbytes if isinstance(data, memoryview) else len(data)


def is_array(value: Any) -> bool:
    """Whether value is a numpy array."""
    np = _tensors.numpy() if hasattr(value, "__array_interface__") else False
    return bool(np) and isinstance(value, np.ndarray)


def has_numbers(given: Any) -> bool:
    """Whether a value by name is a number or a list. The model declares the datatype of numbers."""
    return isinstance(given, Mapping) and any(
        isinstance(value, (bool, int, float, list, tuple)) for value in given.values()
    )


def declared_of(metadata: Any) -> dict[str, str]:
    """The datatypes of the inputs in the metadata of a model, by name, without datatypes unknown to the client."""
    inputs = metadata.get("inputs") if isinstance(metadata, dict) else None
    return {
        t["name"]: t["datatype"]
        for t in inputs or ()
        if isinstance(t, dict)
        and isinstance(t.get("name"), str)
        and (t.get("datatype") == "BYTES" or t.get("datatype") in _tensors.DATATYPES)
    }


def inputs_of(given: Any, declared: Mapping[str, str] | None = None, field: str = "inputs") -> list[Input]:
    """The inputs of an argument, a dict of values by name. Numbers and lists of numbers become tensors of the datatype
    that the model declares.
    """
    if not isinstance(given, Mapping):
        raise invalid(field, f"is {type(given).__name__}: want a dict of values by name")
    if not given:
        raise invalid(field, "is empty: want at least one tensor")
    out = []
    for name, value in given.items():
        if not isinstance(name, str) or not name:
            raise invalid(field, f"has the name {name!r}: want the name of an input")
        try:
            if declared and name in declared and has_numbers({name: value}):
                value = _tensors.of_numbers(f"input {name}", value, declared[name])
            out.append(Input(*_tensors.describe(name, value, "input")))
        except Error as error:
            raise MillraceError(
                "invalid_argument", f"{field}.{name}: {error.message}", field=f"{field}.{name}"
            ) from None
    return out


def outputs_of(outputs: Any, raw: Any) -> dict[str, Tensor]:
    """The tensors of a reply's `outputs`. raw has the bytes after the JSON."""
    out: dict[str, Tensor] = {}
    at = 0
    try:
        for o in outputs or ():
            name, datatype, shape = o["name"], o["datatype"], o["shape"]
            n = (o.get("parameters") or {}).get("binary_data_size")
            if n is None:
                out[name] = Tensor.of(o.get("data", []), datatype, shape)
                continue
            if not 0 <= n <= len(raw) - at:
                raise bad_reply(f"{name} has {n} bytes, and {len(raw) - at} follow")
            out[name] = _tensors.read(o, memoryview(raw)[at : at + n])
            if datatype == "BYTES":
                wrong = len(out[name].data) != math.prod(shape)
            else:
                wrong = n != math.prod(shape) * _tensors.DATATYPES[datatype][1]
            if wrong:
                raise bad_reply(f"{name} has {n} bytes, which are no {datatype} of shape {shape}")
            at += n
    except (KeyError, TypeError, ValueError, Error, struct.error) as error:
        raise bad_reply(f"outputs: {error!r}") from None
    return out


def value(tensor: Tensor) -> Any:
    """The tensor as a numpy array, or as nested lists without numpy."""
    return tensor.array() if _tensors.numpy() else tensor.tolist()


def classes(tensor: Tensor, name: str) -> list[tuple[float, int, str]]:
    """The classes of an output: value, index, label ("" without labels)."""
    out = []
    for element in tensor.elements():
        text = element.decode("utf-8", "replace") if isinstance(element, bytes) else str(element)
        number, _, rest = text.partition(":")
        index, _, label = rest.partition(":")
        try:
            out.append((float(number), int(index), label))
        except ValueError:
            raise invalid(
                f"outputs.{name}", f"has the element {text!r}, which is no class: ask for it with classes"
            ) from None
    return out
