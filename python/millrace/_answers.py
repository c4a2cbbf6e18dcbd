"""Return values of services, as bodies of replies and as outputs of frames."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

from . import _plain, _tensors
from ._application import Batch as Requests
from ._application import Request
from ._endpoints import Bound, Endpoint
from ._errors import Error
from ._outputs import OUTPUT, Response, outputs_of
from ._pictures import OUTPUTS, Boxes
from ._tensors import Prepared, Tensor
from ._types import Invalid

_BYTES = (bytes, bytearray, memoryview)

_STATUS = {
    "invalid_argument": 400,
    "unsupported": 400,
    "not_found": 404,
    "too_large": 413,
    "unauthenticated": 401,
    "permission_denied": 403,
    "flow_control": 429,
    "overloaded": 429,
    "unavailable": 503,
    "unloaded": 503,
    "timeout": 504,
    "canceled": 499,
    "draining": 503,
    "conflict": 409,
}


class Answers:
    """Makes answers of results. rows: outputs of frames have an axis of rows."""

    def __init__(self, main: Endpoint | None, rows: bool):
        self._rows = rows and main is not None and main.dense_rows
        declared = [] if main is None else outputs_of(main.result, main.name)
        self._declared: dict[str, tuple[str, list[int]]] = {o["name"]: (o["datatype"], o["shape"]) for o in declared}

    def reply(self, e: Endpoint, r: Request, results: list[Any], bound: Bound) -> None:
        """Ends a request with the results of the rows."""
        if r.call is not None:
            self._body(e, r, results[0], bound, r.reply)
        else:
            r.reply(self._outputs(e, r, results))

    def emit(self, e: Endpoint, r: Request, value: Any, bound: Bound) -> None:
        """Sends a part of the answer to a request."""
        if r.call is not None:
            self._body(e, r, value, bound, r.emit)
        else:
            r.emit(self._outputs(e, r, [value]))

    def _body(self, e: Endpoint, r: Request, value: Any, bound: Bound | None, send: Any) -> None:
        status, headers = 200, None
        if bound is not None and bound.context is not None:
            status, headers = bound.context.status, bound.context.reply_headers or None
        if isinstance(value, Response):
            body = value.body
            if not isinstance(body, (bytes, bytearray, memoryview, str)):
                body = self._json(e, r, body)
                value.content_type = value.content_type or "application/json"
            send(body, value.status, value.content_type, value.headers or headers)
        elif isinstance(value, _BYTES):
            send(value, status, None, headers)
        else:
            send(self._json(e, r, value).encode("utf-8", "replace"), status, "application/json", headers)

    def _outputs(self, e: Endpoint, r: Request, results: list[Any]) -> dict[str, Any]:
        rows = [self._named(e, r, v) for v in results]
        if self._declared:
            rows = [self._fitted(e, row, of=v) for row, v in zip(rows, results)]
        if not self._rows:
            return rows[0]
        return {name: _stack(name, [row.get(name) for row in rows]) for name in rows[0]}

    def _named(self, e: Endpoint, r: Request, value: Any) -> dict[str, Any]:
        """Returns the outputs of a row, by name."""
        if isinstance(value, Boxes):
            return value.scaled(r.picture_map(self._size(e)))
        if isinstance(value, Response):
            raise Error(
                f"{e.name} returned a Response, which answers calls of routes: this request is a frame, whose result "
                "is arrays or JSON"
            )
        if isinstance(value, dict):
            if self._several(value):
                return self._flat(e, r, {str(k): v for k, v in value.items()})
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
            if self._several(fields):
                return self._flat(e, r, fields)
        if _is_array(value) or isinstance(value, (*_BYTES, str, bool, int, float)):
            return {OUTPUT: _scalar(value)}
        if isinstance(value, (list, tuple)) and self._declared.get(OUTPUT, ("BYTES",))[0] != "BYTES":
            return {OUTPUT: value}
        if inspect.isgenerator(value) or inspect.isasyncgen(value):
            raise Error(
                f"{e.name} returned a generator: say so by its type, -> Iterator[...], or yield in the function itself"
            )
        return {OUTPUT: self._json(e, r, value)}

    def _flat(self, e: Endpoint, r: Request, members: dict[str, Any]) -> dict[str, Any]:
        """Returns members with the outputs of a Boxes in place of the Boxes."""
        names = [n for n, v in members.items() if isinstance(v, Boxes)]
        if not names:
            return members
        if len(names) > 1:
            raise Error(
                f"{e.name} returned a Boxes as {' and as '.join(names)}: outputs of a frame have one, with the names "
                f"{', '.join(o['name'] for o in OUTPUTS)}"
            )
        boxes = members[names[0]].scaled(r.picture_map(self._size(e)))
        twice = [n for n in members if n in boxes and n != names[0]]
        if twice:
            raise Error(
                f"{e.name} returned the output {twice[0]} and a Boxes, which has an output of that name: choose "
                "another name"
            )
        return {**{n: v for n, v in members.items() if n != names[0]}, **boxes}

    def _several(self, members: dict[Any, Any]) -> bool:
        """Reports whether the members of a result are separate outputs: a member is an array or bytes, and the type
        does not declare one object.
        """
        return (OUTPUT not in self._declared or OUTPUT in members) and any(
            _is_array(v) or isinstance(v, _BYTES) for v in members.values()
        )

    def _json(self, e: Endpoint, r: Request, value: Any) -> str:
        """Returns the JSON text of a result, with boxes in pixels of the frame as sent."""
        try:
            return _plain.to_json(value, r.picture_map(self._size(e)))
        except ValueError as x:
            raise Error(f"the result of {e.name} {x}") from None

    def _fitted(
        self, e: Endpoint, outputs: dict[str, Any], lead: tuple[int, ...] = (), of: Any = None
    ) -> dict[str, Any]:
        """Returns the outputs in the datatypes that the function declares. lead has the first dimensions of shapes; of
        is the result.
        """
        if outputs.keys() != self._declared.keys():
            what = (
                "None"
                if of is None
                else type(of).__name__
                if outputs.keys() == {OUTPUT}
                else ', '.join(outputs) or 'nothing'
            )
            raise Error(
                f"{e.name} returned {what}, and declares {', '.join(self._declared)}"
                + (
                    ""
                    if "boxes" not in self._declared
                    else ': name keypoints and ids in the type, as in Boxes["ids"]'
                    if "boxes" in outputs
                    else ": return millrace.Boxes([[x1, y1, x2, y2], ...])"
                )
            )
        out = {}
        for name, (datatype, shape) in self._declared.items():
            out[name] = tensor = _tensors.convert(name, outputs[name], datatype)
            got, want = list(tensor.shape), [*lead, *shape]
            if len(got) != len(want) or any(w not in (-1, g) for g, w in zip(got, want)):
                raise Error(
                    f"{e.name} returned the shape {got}{'' if name == OUTPUT else ' as ' + name}, and declares "
                    f"{want}{' (-1 = any)' if -1 in want else ''}"
                )
        return out

    def _size(self, e: Endpoint) -> tuple[int, int]:
        return (e.picture.width, e.picture.height) if e.picture is not None else (0, 0)

    def reply_all(
        self, e: Endpoint, requests: Requests, group: list[Request], bound: list[Any], result: Any, count: int
    ) -> None:
        """Ends the requests of a function for several requests. count is the number of rows of all requests."""
        want = f"want one for each of {count} requests"
        arrays = _arrays(result)
        if arrays is not None:
            for name, a in arrays.items():
                shape = getattr(a, "shape", ())
                if not shape or shape[0] != count:
                    raise Error(
                        f"{e.name} returned an array {'' if name == OUTPUT else name + ' '}of shape {list(shape)}: "
                        f"{want} in front"
                    )
            if len(group) == len(requests) and requests.dense:
                requests.reply(self._fitted(e, arrays, (count,)) if self._declared else arrays)
                return
            names = list(arrays)
            single = not isinstance(result, dict) and not dataclasses.is_dataclass(result)
            result = [arrays[OUTPUT][i] if single else {n: arrays[n][i] for n in names} for i in range(count)]
        elif not isinstance(result, (list, tuple)):
            raise Error(
                f"{e.name} returned {type(result).__name__} for a batch: want a list with a result for each of "
                f"{count} requests, or arrays with as many in front"
            )
        if len(result) != count:
            raise Error(f"{e.name} returned {len(result)} results: {want}")
        at = 0
        for r, b in zip(group, bound):
            n = r.rows if b is None else len(b.rows)
            try:
                if isinstance(result[at], BaseException):
                    raise result[at]
                self.reply(e, r, list(result[at : at + n]), b)
            except Exception as x:
                fail(r, x)
            at += n


def _is_array(value: Any) -> bool:
    return isinstance(value, Tensor) or hasattr(value, "__array__") and getattr(value, "shape", None) is not None


def _scalar(value: Any) -> Any:
    """Returns a number or bool as a tensor of one element; other values unchanged."""
    if isinstance(value, (bool, int, float)):
        return _tensors._of_lists(OUTPUT, [value])
    return value


def _arrays(result: Any) -> dict[str, Any] | None:
    """Returns the arrays of a result for several requests, or None if the result is not an array."""
    if _is_array(result):
        return {OUTPUT: result}
    if dataclasses.is_dataclass(result) and not isinstance(result, type):
        result = {f.name: getattr(result, f.name) for f in dataclasses.fields(result)}
    if isinstance(result, dict) and result and all(_is_array(v) for v in result.values()):
        return {str(k): v for k, v in result.items()}
    return None


def _stack(name: str, values: list[Any]) -> Prepared:
    """Returns an output from the values of each row."""
    first: Any = None
    pieces: list[Any] = []
    for v in values:
        if v is None:
            raise Error(f"output {name} is not there for each row")
        d, p = _tensors.describe(name, v)
        if first is None:
            first = d
        elif (d["datatype"], d["shape"]) != (first["datatype"], first["shape"]):
            raise Error(
                f"output {name} is {first['datatype']} {first['shape']} for one row and {d['datatype']} {d['shape']} "
                "for another: rows of one request have equal shapes"
            )
        pieces += p
    return Prepared(first["datatype"], (len(values), *first["shape"]), pieces)


def fail(r: Request, error: BaseException) -> None:
    """Ends a request with an error. Errors of input have status 422, and the place and reason of each error."""
    if isinstance(error, Invalid):
        if r.call is not None and not r.emitted:
            r.reply({"error": str(error), "detail": error.errors}, status=422)
        else:
            r.fail(str(error), "invalid_argument", 422)
    elif isinstance(error, Error) and error.detail is not None and r.call is not None and not r.emitted:
        r.reply({"error": error.message, "detail": error.detail}, status=error.status or _STATUS.get(error.code, 500))
    else:
        r.fail_with(error)
