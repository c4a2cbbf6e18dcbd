"""Tensors of the Open Inference Protocol, with numpy where numpy is installed, otherwise without numpy."""

from __future__ import annotations

import math
import struct
import sys
from typing import Any, Union

from ._errors import Error

DATATYPES = {
    "BOOL": ("?", 1),
    "UINT8": ("B", 1),
    "UINT16": ("H", 2),
    "UINT32": ("I", 4),
    "UINT64": ("Q", 8),
    "INT8": ("b", 1),
    "INT16": ("h", 2),
    "INT32": ("i", 4),
    "INT64": ("q", 8),
    "FP16": ("e", 2),
    "FP32": ("f", 4),
    "FP64": ("d", 8),
    "BF16": ("H", 2),
}
"""Code in struct and bytes of an element of each datatype but BYTES."""

_NUMPY = {
    "BOOL": "bool",
    "UINT8": "u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "INT8": "i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
    "BF16": "<u2",
}
_DATATYPE = {
    "b1": "BOOL",
    "u1": "UINT8",
    "u2": "UINT16",
    "u4": "UINT32",
    "u8": "UINT64",
    "i1": "INT8",
    "i2": "INT16",
    "i4": "INT32",
    "i8": "INT64",
    "f2": "FP16",
    "f4": "FP32",
    "f8": "FP64",
}
_LENGTH = struct.Struct("<I")

_numpy: Any = None


def numpy() -> Any:
    """Returns the module numpy, or False where numpy is not installed. The first call imports numpy."""
    global _numpy
    if _numpy is None:
        try:
            import numpy as module

            _numpy = module
        except ImportError:
            _numpy = False
    return _numpy


def address(data: Any) -> int:
    """Returns the memory address of a contiguous memoryview; 0 where numpy is missing, and for other objects."""
    np = numpy()
    if not np or type(data) is not memoryview:
        return 0
    return np.frombuffer(data, "u1").__array_interface__["data"][0]


class Tensor:
    """A tensor of a request or of an answer: datatype, shape and data (bytes-like; of BYTES a list of bytes).

    An annotation Tensor["FP32", 3, 224, 224] declares an input or output: datatype and shape without the batch
    axis, -1 for a variable dimension. The value then is a numpy array where numpy is installed.
    """

    __slots__ = ("datatype", "shape", "data")

    def __init__(self, datatype: str, shape: Any, data: Any):
        if datatype != "BYTES" and datatype not in DATATYPES:
            raise Error(f"{datatype!r} is not a datatype: want BYTES, {', '.join(DATATYPES)}")
        self.datatype, self.shape, self.data = datatype, tuple(shape), data

    @classmethod
    def of(cls, value: Any, datatype: str, shape: Any = None) -> Tensor:
        """Returns a tensor of this datatype from a number, a bool, bytes, str or nested lists. shape None: the shape of
        the value.

        Raises Error for values of another datatype or shape.
        """
        tensor = _of_lists("value", value, datatype)
        if shape is not None and math.prod(shape) != math.prod(tensor.shape):
            raise Error(f"value has {math.prod(tensor.shape)} elements, which are no shape {list(shape)}")
        tensor.shape = tensor.shape if shape is None else tuple(shape)
        return tensor

    def __class_getitem__(cls, item: Any) -> TensorHint:
        return TensorHint(item)

    def __getattr__(self, name: str) -> Any:
        if numpy():
            raise AttributeError(f"a Tensor has no {name}")
        raise AttributeError(
            f"a Tensor has no {name}: arrays need numpy, which is not installed for {sys.executable}. Install it by "
            f"`{sys.executable} -m pip install numpy`"
        )

    def __repr__(self) -> str:
        return f"Tensor({self.datatype}, {list(self.shape)})"

    def elements(self) -> list[Any]:
        """Returns the elements in order."""
        if self.datatype == "BYTES":
            return list(self.data)
        if self.datatype == "BF16":
            halves = memoryview(self.data).cast("B").cast("H")
            return [struct.unpack("<f", struct.pack("<I", h << 16))[0] for h in halves]
        code, size = DATATYPES[self.datatype]
        return list(struct.unpack(f"<{len(self.data) // size}{code}", self.data))

    def tolist(self) -> Any:
        """Returns the elements as nested lists, as numpy's tolist does."""
        values: Any = self.elements()
        if not self.shape:
            return values[0]
        for size in reversed(self.shape[1:]):
            values = [values[i : i + size] for i in range(0, len(values), size)] if size else [[]] * self.shape[0]
        return values

    def row(self, i: int, rows: int, axis: bool = True) -> Tensor:
        """Returns row i of a tensor with this number of rows, without the axis of rows."""
        size = len(self.data) // max(rows, 1)
        return Tensor(self.datatype, self.shape[1:] if axis else self.shape, self.data[i * size : (i + 1) * size])

    def array(self) -> Any:
        """Returns a numpy array over the same memory (a copy of BYTES); the tensor itself where numpy is missing."""
        np = numpy()
        if not np:
            return self
        if self.datatype == "BYTES":
            out = np.empty(len(self.data), dtype=object)
            out[:] = self.data
            return out.reshape(self.shape)
        return np.frombuffer(self.data, dtype=_NUMPY[self.datatype]).reshape(self.shape)


class TensorHint:
    """The hint Tensor["FP32", 3, 224, 224]: a datatype, and the dimensions without the batch axis."""

    def __init__(self, item: Any):
        items = item if isinstance(item, tuple) else (item,)
        datatype, shape = items[0], list(items[1:])
        if (
            not isinstance(datatype, str)
            or datatype != "BYTES"
            and datatype not in DATATYPES
            or any(type(d) is not int or d < -1 or d == 0 for d in shape)
        ):
            raise TypeError(
                f"Tensor[{', '.join(map(repr, items))}]: want a datatype (BYTES, {', '.join(DATATYPES)}) and the "
                "dimensions "
                "without the batch axis, -1 for a variable one, such as Tensor[\"FP32\", 3, 224, 224]"
            )
        self.datatype, self.shape = datatype, shape

    def __call__(self) -> Any:
        """Lets typing accept an instance as a hint."""
        raise TypeError("a hint cannot be called")

    def __or__(self, other: Any) -> Any:
        """Tensor[...] | None."""
        return Union[self, other]

    __ror__ = __or__


def stack(rows: list[Any]) -> Any:
    """Returns arrays of one shape as one array, with the number of arrays as the first dimension. Returns the list
    unchanged without numpy, and when an array is None.
    """
    np = numpy()
    if not np or any(row is None for row in rows):
        return rows
    return np.stack(rows)


class Prepared:
    """An output, as describe returns the output."""

    __slots__ = ("datatype", "shape", "pieces")

    def __init__(self, datatype: str, shape: tuple[int, ...], pieces: list[Any]):
        self.datatype, self.shape, self.pieces = datatype, shape, pieces


def read(description: dict[str, Any], data: memoryview) -> Tensor:
    """Returns the tensor of a message. The tensor shares the memory of the message or segment."""
    if description["datatype"] == "BYTES":
        return Tensor("BYTES", description["shape"], split(data))
    return Tensor(description["datatype"], description["shape"], data)


def split(data: Any) -> list[bytes]:
    """Returns the elements of BYTES data. Each element begins with its length."""
    out, at = [], 0
    while at < len(data):
        (size,) = _LENGTH.unpack_from(data, at)
        out.append(bytes(data[at + 4 : at + 4 + size]))
        at += 4 + size
    if at != len(data):
        raise Error("the last of the BYTES elements is cut")
    return out


def flat(data: Any) -> Any:
    """Returns bytes-like data for which len is the number of bytes. For a memoryview of numbers, len is the number of
    numbers.
    """
    if isinstance(data, memoryview) and (data.itemsize != 1 or data.ndim != 1 or not data.c_contiguous):
        return data.tobytes()
    return data


def join(elements: Any) -> list[Any]:
    """Returns the pieces of BYTES data."""
    out: list[Any] = []
    for e in map(flat, elements):
        out += (_LENGTH.pack(len(e)), e)
    return out


def describe(name: str, value: Any, what: str = "output") -> tuple[dict[str, Any], list[Any]]:
    """Returns the description of an output (what: or of an input), without the place of the data, and the pieces of the
    data.

    value is a numpy array, a Tensor, bytes, str, a number, a bool, or nested lists of these types. Raises Error for
    other types.
    """
    if isinstance(value, Prepared):
        return {"name": name, "datatype": value.datatype, "shape": list(value.shape)}, value.pieces
    if isinstance(value, Tensor):
        tensor = value
    elif isinstance(value, (bytes, bytearray, memoryview)):
        tensor = Tensor("BYTES", (1,), (value,))
    elif isinstance(value, str):
        tensor = Tensor("BYTES", (1,), (value.encode(),))
    elif hasattr(value, "__array__"):
        return _describe_array(name, value, f"{what} {name}")
    else:
        tensor = _of_lists(f"{what} {name}", value)
    if tensor.datatype == "BYTES":
        pieces = join(e.encode() if isinstance(e, str) else e for e in tensor.data)
    else:
        pieces = [memoryview(tensor.data).cast("B") if len(tensor.data) else b""]
        size = DATATYPES[tensor.datatype][1]
        for d in tensor.shape:
            size *= d
        if len(pieces[0]) != size:
            raise Error(
                f"output {name} has {len(pieces[0])} bytes, and {tensor.datatype} {list(tensor.shape)} has {size}"
            )
    return {"name": name, "datatype": tensor.datatype, "shape": list(tensor.shape)}, pieces


def _describe_array(name: str, value: Any, what: str) -> tuple[dict[str, Any], list[Any]]:
    np = numpy()
    if not np:
        raise Error(f"{what} is a {type(value).__name__}, and numpy is not installed to read it")
    a = np.asarray(value)
    kind = a.dtype.kind
    if kind in "OSU":
        pieces = []
        for e in a.reshape(-1).tolist():
            if isinstance(e, str):
                e = e.encode()
            elif not isinstance(e, (bytes, bytearray)):
                raise Error(f"{what} has an element of type {type(e).__name__}: want bytes, str or numbers")
            pieces += (_LENGTH.pack(len(e)), e)
        return {"name": name, "datatype": "BYTES", "shape": list(a.shape)}, pieces
    datatype = _DATATYPE.get(a.dtype.str[1:])
    if datatype is None:
        raise Error(f"{what} is an array of {a.dtype}, which is no datatype of the protocol")
    if a.dtype.byteorder == ">":
        a = a.astype(a.dtype.newbyteorder("<"))
    shape = list(a.shape)
    if not a.flags.c_contiguous:
        a = np.ascontiguousarray(a)
    return {"name": name, "datatype": datatype, "shape": shape}, [
        memoryview(a.reshape(-1).view("u1"))
    ] if a.size else []


def convert(name: str, value: Any, datatype: str) -> Tensor:
    """Returns a value as a tensor of a datatype. Raises Error where the conversion changes the value."""
    if isinstance(value, Tensor) and value.datatype == datatype:
        return value
    if datatype == "BYTES":
        if hasattr(value, "tolist"):
            shape, value = value.shape, value.tolist()
            return Tensor("BYTES", shape, _of_lists(f"output {name}", value).data if shape else [value])
        return _of_lists(f"output {name}", [value] if isinstance(value, (str, bytes)) else value)
    np = numpy()
    if np and hasattr(value, "__array__"):
        a = np.asarray(value)
        kind = np.dtype(_NUMPY[datatype])
        if a.dtype != kind and (a.dtype.kind not in "biuf" or datatype == "BF16"):
            raise Error(f"output {name} is an array of {a.dtype}, and is declared as {datatype}")
        if a.dtype != kind and kind.kind != "f" and not np.can_cast(a.dtype, kind, "same_kind"):
            raise Error(f"output {name} is an array of {a.dtype}, and is declared as {datatype}: convert it")
        a = np.ascontiguousarray(a, dtype=kind)
        return Tensor(datatype, np.shape(value), memoryview(a.reshape(-1).view("u1")) if a.size else b"")
    t = _of_lists(f"output {name}", [value] if isinstance(value, (bool, int, float)) else value)
    if t.datatype == "BYTES":
        raise Error(f"output {name} is text, and is declared as {datatype}")
    code, _ = DATATYPES[datatype]
    numbers = t.elements()
    try:
        return Tensor(datatype, t.shape, struct.pack(f"<{len(numbers)}{code}", *numbers))
    except (struct.error, OverflowError) as e:
        raise Error(f"output {name} does not fit into {datatype}: {e}") from None


def of_numbers(what: str, value: Any, datatype: str) -> Tensor:
    """Returns a number, a bool or nested lists as a tensor of the datatype that a model declares. Texts stay BYTES.
    Raises Error for numbers outside the datatype: floats for integers, and integers outside the range.
    """
    shape, flat, kinds = _flatten(what, value)
    natural = _natural(what, kinds) if flat else datatype
    if natural in ("BYTES", datatype):
        return _pack(what, shape, flat, natural)
    is_integer = datatype.strip("U").startswith("INT")
    if "BOOL" in (natural, datatype) or datatype == "BYTES" or natural == "FP64" and is_integer:
        given = {"BOOL": "bools", "INT64": "integers", "FP64": "floats"}[natural]
        raise Error(f"{what} has {given}, and the model takes {datatype}: convert the values")
    if is_integer:
        bits = 8 * DATATYPES[datatype][1]
        least, most = (0, (1 << bits) - 1) if datatype[0] == "U" else (-1 << bits - 1, (1 << bits - 1) - 1)
        outside = next((n for n in flat if not least <= n <= most), None)
        if outside is not None:
            raise Error(f"{what} has {outside}, which {datatype} does not hold: want {least} to {most}")
    return _pack(what, shape, flat, datatype)


def _of_lists(what: str, value: Any, datatype: str = "") -> Tensor:
    shape, flat, kinds = _flatten(what, value)
    return _pack(what, shape, flat, datatype or _natural(what, kinds))


def _flatten(what: str, value: Any) -> tuple[list[int], list[Any], set[type]]:
    """Returns the shape of nested lists, their elements and the types of these."""
    shape: list[int] = []
    flat = [value]
    while flat and isinstance(flat[0], (list, tuple)):
        size = len(flat[0])
        if any(not isinstance(v, (list, tuple)) or len(v) != size for v in flat):
            raise Error(f"{what} has lists of different lengths")
        shape.append(size)
        flat = [e for v in flat for e in v]
    kinds = {type(e) for e in flat}
    if any(hasattr(k, "item") for k in kinds):  # numbers of numpy
        flat = [e.item() if hasattr(e, "item") and not getattr(e, "shape", ()) else e for e in flat]
        kinds = {type(e) for e in flat}
    return shape, flat, kinds


def _natural(what: str, kinds: set[type]) -> str:
    """Returns the datatype of elements of these types where no model declares a datatype."""
    if kinds <= {bool}:
        return "BOOL"
    if kinds <= {int}:
        return "INT64"
    if kinds <= {int, float}:
        return "FP64"
    if kinds <= {str, bytes}:
        return "BYTES"
    names = ", ".join(sorted(k.__name__ for k in kinds))
    raise Error(f"{what} is of type {names}: want an array, numbers, bytes, str or lists of one of them")


def _pack(what: str, shape: list[int], flat: list[Any], datatype: str) -> Tensor:
    try:
        if datatype == "BYTES":
            return Tensor(datatype, shape, [e.encode() if isinstance(e, str) else bytes(memoryview(e)) for e in flat])
        if datatype == "BF16":
            bits = struct.unpack(f"<{len(flat)}I", struct.pack(f"<{len(flat)}f", *flat))
            flat = [0x7FC0 if b & 0x7FFFFFFF > 0x7F800000 else (b + 0x7FFF + (b >> 16 & 1)) >> 16 for b in bits]
        return Tensor(datatype, shape, struct.pack(f"<{len(flat)}{DATATYPES.get(datatype, '?')[0]}", *flat))
    except (struct.error, TypeError, OverflowError) as e:
        raise Error(f"{what} does not fit into {datatype}: {e}") from None
