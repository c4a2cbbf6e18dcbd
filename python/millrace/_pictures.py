"""Pictures as arrays, and detections in pictures."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from . import _application, _tensors
from ._errors import Error
from ._tensors import Tensor
from ._types import Errors, Loc, Type, wrong

CODECS = ("jpeg", "png", "webp", "rgb24", "nv12")
"""How the payload of a frame that is a picture is coded."""


class Image:
    """A hint for a picture: an array of height x width x 3 of uint8, in RGB.

    The server decodes the picture, and the service needs numpy only. Image[640, 480] (width, height) is scaled to this
    size, in pixels; "BGR" or "GRAY" after the size is another colour (GRAY has one channel). Image without a size keeps
    the size of the sent picture.
    """

    def __new__(cls, *_: Any, **__: Any) -> Any:
        """Refuses calls: Image is a hint."""
        raise TypeError("millrace.Image is a hint, and cannot be called: write Image[width, height], or Image")

    @staticmethod
    def __millrace_type__() -> ImageType:
        """Returns the type of the hint Image without a size."""
        return ImageType()

    def __class_getitem__(cls, item: Any) -> ImageType:
        items = item if isinstance(item, tuple) else (item,)
        size, rest = items[:2], items[2:]
        if (
            len(size) != 2
            or any(type(n) is not int or not 1 <= n <= 16384 for n in size)
            or len(rest) > 1
            or any(c not in ("RGB", "BGR", "GRAY") for c in rest)
        ):
            raise TypeError(
                f"Image[{', '.join(map(repr, items))}]: want Image, Image[width, height] in pixels, or with \"BGR\" "
                "or \"GRAY\" after them"
            )
        return ImageType(size[0], size[1], rest[0] if rest else "RGB")


class ImageType(Type):
    """The type of Image; width and height are 0 without a size."""

    name, raw = "a picture", True

    def __init__(self, width: int = 0, height: int = 0, color: str = "RGB"):
        self.width, self.height, self.color = width, height, color
        self.picture = self
        # The server's message about the last picture of payload: width, height, map.
        self.sent: dict[str, Any] | None = None
        self.fixed = width > 0
        if width:
            self.spec = ("UINT8", [height, width, self.channels])

    @property
    def channels(self) -> int:
        """1 or 3."""
        return 1 if self.color == "GRAY" else 3

    def copy(self) -> ImageType:
        """Implements Type: each argument notes the size of a picture separately."""
        return ImageType(self.width, self.height, self.color)

    def __call__(self) -> Any:
        """Lets typing accept an instance as a hint."""
        raise TypeError("a hint cannot be called")

    def __or__(self, other: Any) -> Any:
        """Image[...] | None."""
        from typing import Union

        return Union[self, other]

    __ror__ = __or__

    def check(self, value: Any, loc: Loc, errors: Errors) -> Any:
        """Implements Type: base64 of a picture file."""
        if isinstance(value, str):
            if value.startswith("data:"):
                value = value.partition(",")[2]
            try:
                return self.payload(base64.b64decode(value, validate=True), loc, errors)
            except (binascii.Error, ValueError):
                pass
        return wrong(errors, loc, "want a string of base64: a JPEG, PNG or WebP file", "picture")

    def text(self, text: str, loc: Loc, errors: Errors) -> Any:
        """Implements Type."""
        return self.check(text, loc, errors)

    def tensor(self, tensor: Tensor, loc: Loc, errors: Errors) -> Any:
        """Implements Type: pixels, or BYTES with a picture file, raw or in base64."""
        if tensor.datatype == "BYTES" and len(tensor.data) == 1:
            data = tensor.data[0]
            try:
                data = base64.b64decode(data, validate=True)  # as JSON has it
            except (binascii.Error, ValueError):
                pass
            return self.payload(data, loc, errors)
        shape = tensor.shape[1:] if len(tensor.shape) == 4 and tensor.shape[0] == 1 else tensor.shape
        if (
            tensor.datatype != "UINT8"
            or len(shape) != 3
            or shape[2] != self.channels
            or self.width
            and shape[:2] != (self.height, self.width)
        ):
            return wrong(
                errors,
                loc,
                f"is {tensor.datatype} {list(shape)}, want UINT8 [height, width, {self.channels}]"
                + (f" of {self.height} x {self.width}" if self.width else ""),
                "picture",
            )
        return Tensor("UINT8", shape, tensor.data).array()

    def payload(self, data: Any, loc: Loc, errors: Errors) -> Any:
        """Implements Type: a picture file. The server decodes the file."""
        np = _tensors.numpy()
        if not np:
            raise Error("the service takes a picture, and numpy is not installed for its interpreter")
        request = _application.binding.get()
        if request is None:  # the example of an endpoint
            return data
        try:
            self.sent, pixels = request.decode(data, self.width, self.height, self.color)
        except Error as e:
            if e.code == "overloaded":
                raise
            return wrong(errors, loc, f"is no picture that can be decoded: {e.message}", "picture")
        return np.frombuffer(pixels, "u1").reshape(self.sent["shape"])

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        """Implements Type."""
        return {"type": "string", "format": "byte", "description": "a JPEG, PNG or WebP file"}


class Boxes:
    """Objects in a picture, as a service's answer: the console, `millrace infer --draw` and recordings draw the
    objects.

    boxes are n rows of x1, y1, x2, y2 in pixels of the picture that the service got; clients get the boxes in pixels of
    the frame as sent. scores are n numbers from 0 to 1, classes n numbers, labels n texts, ids n numbers of tracked
    objects, and all four may be left out. keypoints are n x k x 3: x, y, score. A result with ids or keypoints is
    declared as Boxes["ids", "keypoints"].

    Raises ValueError for other shapes.
    """

    __slots__ = ("boxes", "scores", "classes", "labels", "ids", "keypoints")

    @staticmethod
    def __millrace_type__() -> BoxesType:
        """Returns the type of an argument with the hint Boxes."""
        return BoxesType()

    def __init__(
        self,
        boxes: Any,
        scores: Any = None,
        classes: Any = None,
        labels: Any = None,
        ids: Any = None,
        keypoints: Any = None,
    ):
        self.boxes, self.scores, self.classes, self.labels, self.ids, self.keypoints = map(
            _kept, (boxes, scores, classes, labels, ids, keypoints)
        )
        self._check()

    def _check(self) -> None:
        """Raises ValueError for a wrong shape, with the right way to write the argument."""
        shape = _shape(self.boxes, "boxes")
        if shape[1:] != [4] and shape[:1] != [0]:
            more = ""
            if shape == [4]:
                more = f"; for one box write Boxes([{_list(self.boxes)}])"
            elif len(shape) == 3 and shape[0] == 1 and shape[2] == 4:
                more = "; the boxes of one picture have no batch axis: write Boxes(boxes[0])"
            raise ValueError(
                f"Boxes: boxes must be [n, 4], x1, y1, x2, y2 of each box, got {_told(self.boxes, shape)}{more}"
            )
        n = shape[0]
        for name in ("scores", "classes", "labels", "ids"):
            values = getattr(self, name)
            if values is not None:
                self._check_each(name, values, n)
        if self.keypoints is not None:
            got = _shape(self.keypoints, "keypoints")
            if got[:1] != [n] or n and (len(got) != 3 or got[2] != 3) and got[1:] != [0]:
                raise ValueError(
                    f"Boxes: keypoints must be [{n}, k, 3], x, y, score of each point of each of {n} boxes, got "
                    f"{_told(self.keypoints, got)}"
                )

    @staticmethod
    def _check_each(name: str, values: Any, n: int) -> None:
        kind = "a text" if name == "labels" else "a number"
        want = f"Boxes: {name} must be [{n}], {kind} for each of {n} box{'' if n == 1 else 'es'}"
        got = _shape(values, name)
        if not got:
            one = values.item() if hasattr(values, "item") else values
            example = f"[{', '.join([repr(one)[:100]] * min(n, 4))}{', ...' if n > 4 else ''}]"
            raise ValueError(f"{want}, got {one!r:.100}; write {'labels' if isinstance(one, str) else name}={example}")
        text = next((v for v in values if isinstance(v, str)), None) if name != "labels" else None
        if text is not None:
            raise ValueError(
                f"{want}, got {text!r:.100}; texts are labels: write "
                f"labels=[{text!r:.100}{', ...' if got[0] > 1 else ''}]"
            )
        if got != [n]:
            raise ValueError(f"{want}, got {got}")

    def __class_getitem__(cls, item: Any) -> BoxesHint:
        return BoxesHint(item if isinstance(item, tuple) else (item,))

    def scaled(self, place: tuple[float, float, float, float]) -> dict[str, Tensor]:
        """Returns the outputs by their conventional names, with coordinates x*a + b and y*c + d."""
        import array

        a, b, c, d = place
        rows = [[float(v) for v in box] for box in _list(self.boxes)]
        n = len(rows)
        numbers = array.array(
            "f", [v for x1, y1, x2, y2 in rows for v in (x1 * a + b, y1 * c + d, x2 * a + b, y2 * c + d)]
        )
        scores = array.array("f", map(float, self._of(self.scores, n, "scores", 1.0)))
        classes = array.array("q", map(int, self._of(self.classes, n, "classes", 0)))
        out = {
            "boxes": Tensor("FP32", (n, 4), numbers.tobytes()),
            "scores": Tensor("FP32", (n,), scores.tobytes()),
            "classes": Tensor("INT64", (n,), classes.tobytes()),
        }
        names = (
            self._of(self.labels, n, "labels", "")
            if self.labels is not None
            else [str(c) if self.classes is not None else "" for c in classes]
        )
        out["labels"] = Tensor("BYTES", (n,), [str(v).encode() for v in names])
        if self.ids is not None:
            out["ids"] = Tensor("INT64", (n,), array.array("q", map(int, self._of(self.ids, n, "ids", 0))).tobytes())
        if self.keypoints is not None:
            points = [[[float(v) for v in p] for p in k] for k in self._of(self.keypoints, n, "keypoints", [])]
            k = len(points[0]) if points else 0
            flat = array.array("f", [v for p in points for x, y, score in p for v in (x * a + b, y * c + d, score)])
            out["keypoints"] = Tensor("FP32", (n, k, 3), flat.tobytes())
        return out

    def placed(self, place: tuple[float, float, float, float]) -> Boxes:
        """Returns the boxes in pixels of a picture. The pixels x, y of the picture are x*a + b, y*c + d here."""
        a, b, c, d = place
        if place == (1.0, 0.0, 1.0, 0.0) or not a or not c:
            return self
        np = _tensors.numpy()
        moved, points = [
            [(x1 - b) / a, (y1 - d) / c, (x2 - b) / a, (y2 - d) / c] for x1, y1, x2, y2 in _list(self.boxes)
        ], None
        if self.keypoints is not None:
            points = [[[(x - b) / a, (y - d) / c, score] for x, y, score in k] for k in _list(self.keypoints)]
        if np:
            moved = np.array(moved, "f4").reshape(-1, 4)
            points = None if points is None else np.array(points, "f4").reshape(np.shape(self.keypoints))
        return Boxes(moved, self.scores, self.classes, self.labels, self.ids, points)

    def filled(self) -> Boxes:
        """Returns the boxes with 1.0, 0 and the class as text in place of missing scores, classes and labels: arrays
        where the boxes are an array.
        """
        n, names = _shape(self.boxes, "boxes")[0], self.labels
        if names is None:
            names = (
                [""] * n
                if self.classes is None
                else [str(int(c) if isinstance(c, float) and c.is_integer() else c) for c in _list(self.classes)]
            )
        scores, classes = ([1.0] * n if self.scores is None else self.scores), (
            [0] * n if self.classes is None else self.classes
        )
        if hasattr(self.boxes, "dtype"):
            np = _tensors.numpy()
            scores = np.ones(n, "f4") if self.scores is None else scores
            classes = np.zeros(n, "i8") if self.classes is None else classes
        return Boxes(self.boxes, scores, classes, names, self.ids, self.keypoints)

    def _of(self, values: Any, n: int, name: str, default: Any) -> list[Any]:
        if values is None:
            return [default] * n
        values = _list(values)
        if len(values) != n:  # they were changed later
            raise Error(f"Boxes: there are {n} boxes and {len(values)} {name}")
        return values

    def _json(self, place: tuple[float, float, float, float]) -> dict[str, Any]:
        """Returns scaled for JSON."""
        return {
            name: [e.decode() for e in t.data] if t.datatype == "BYTES" else t.tolist()
            for name, t in self.scaled(place).items()
        }


OUTPUTS = [
    {"name": "boxes", "datatype": "FP32", "shape": [-1, 4]},
    {"name": "scores", "datatype": "FP32", "shape": [-1]},
    {"name": "classes", "datatype": "INT64", "shape": [-1]},
    {"name": "labels", "datatype": "BYTES", "shape": [-1]},
]
"""The outputs of Boxes that are always there."""

MORE = {
    "ids": {"name": "ids", "datatype": "INT64", "shape": [-1]},
    "keypoints": {"name": "keypoints", "datatype": "FP32", "shape": [-1, -1, 3]},
}
"""Those that have to be declared."""


PARTS = ("boxes", "scores", "classes", "labels", "ids", "keypoints")
"""The names of what Boxes have: those of the inputs of an argument, too."""


def boxes_inputs(optional: bool) -> list[dict[str, Any]]:
    """Returns the inputs of an argument of the type Boxes, in the form of the message `model`."""
    return [
        {**t, **({"optional": True} if optional or t["name"] != "boxes" else {})} for t in (*OUTPUTS, *MORE.values())
    ]


class BoxesType(Type):
    """The type of an argument with the hint Boxes: the results of a detector, in pixels of the picture that the
    function gets.
    """

    name = "boxes"

    def __init__(self) -> None:
        self.boxes = self

    def check(self, value: Any, loc: Loc, errors: Errors) -> Any:
        """Implements Type: an object in the form of answers, or the list of boxes."""
        members = value if isinstance(value, dict) else {"boxes": value}
        for k in members:
            if k not in PARTS:
                return wrong(
                    errors, (*loc, k), f"is not a member of boxes: they have {', '.join(PARTS)}", "extra_forbidden"
                )
        if "boxes" not in members:
            return wrong(errors, (*loc, "boxes"), "is missing", "missing")
        try:
            return Boxes(**members).filled()
        except ValueError as e:
            return wrong(errors, loc, str(e), "boxes")

    def of_parts(self, parts: dict[str, Tensor], loc: Loc, errors: Errors) -> Any:
        """Returns Boxes of tensors by the names of PARTS. A first axis of one row is allowed."""
        ranks = {"boxes": 2, "keypoints": 3}
        values = {}
        for name, t in parts.items():
            rank = ranks.get(name, 1)
            if len(t.shape) == rank + 1 and t.shape[0] == 1:
                t = Tensor(t.datatype, t.shape[1:], t.data)
            values[name] = (
                [str(e, "utf-8", "replace") for e in t.data]
                if t.datatype == "BYTES"
                else t.array()
                if _tensors.numpy()
                else t.tolist()
            )
        if "boxes" not in values:
            return wrong(errors, (*loc, "boxes"), "is missing", "missing")
        try:
            return Boxes(**values).filled()
        except ValueError as e:
            return wrong(errors, (*loc, "boxes"), str(e), "boxes")

    def schema(self, defs: dict[str, Any]) -> dict[str, Any]:
        """Implements Type."""
        numbers = {"type": "array", "items": {"type": "number"}}
        return {
            "type": "object",
            "required": ["boxes"],
            "additionalProperties": False,
            "properties": {
                "boxes": {"type": "array", "items": {**numbers, "minItems": 4, "maxItems": 4}},
                "scores": numbers,
                "classes": {"type": "array", "items": {"type": "integer"}},
                "labels": {"type": "array", "items": {"type": "string"}},
                "ids": {"type": "array", "items": {"type": "integer"}},
                "keypoints": {
                    "type": "array",
                    "items": {"type": "array", "items": {**numbers, "minItems": 3, "maxItems": 3}},
                },
            },
        }


class BoxesHint:
    """Boxes["ids", "keypoints"]."""

    def __init__(self, names: tuple[str, ...]):
        if not set(names) <= set(MORE):
            raise TypeError(f"Boxes[{', '.join(map(repr, names))}]: want \"ids\", \"keypoints\" or both")
        self.names = names

    def __millrace_type__(self) -> BoxesType:
        """Returns the type of an argument with the hint."""
        return BoxesType()

    def __call__(self) -> Any:
        """Lets typing accept an instance as a hint."""
        raise TypeError("a hint cannot be called")


def _shape(values: Any, name: str) -> list[int]:
    """Returns the shape of an array or of nested lists; [] of a number, a text and other values."""
    shape = getattr(values, "shape", None)
    if shape is not None:
        return list(shape)
    if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
        return []
    inner = [[] if type(v) in (float, int, str) else _shape(v, name) for v in values]
    other = next((i for i in inner if i != inner[0]), None)
    if other is not None:
        raise ValueError(f"Boxes: {name} has items of the shapes {inner[0]} and {other}: want items of one shape")
    return [len(values), *(inner[0] if inner else [])]


def _told(value: Any, shape: list[int]) -> str:
    """Describes an argument: the shape, or a value without a shape."""
    return str(shape) if shape else "Boxes" if isinstance(value, Boxes) else f"{value!r:.100}"


def _kept(values: Any) -> Any:
    """Returns values that can be read several times: an iterator becomes a list."""
    return list(values) if hasattr(values, "__next__") else values


def _list(values: Any) -> list[Any]:
    return values.tolist() if hasattr(values, "tolist") else list(values)
