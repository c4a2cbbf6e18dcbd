"""Functions of a service: arguments, and how a request fills the arguments."""

from __future__ import annotations

import inspect
import json
import typing
from typing import Any

from . import _hints, _plain, _types
from ._application import Batch as Requests
from ._application import Request, binding
from ._errors import Error, LoadError
from ._outputs import outputs_of
from ._pictures import PARTS, Boxes, ImageType, boxes_inputs
from ._types import MISSING, AnyType, Errors, Invalid, ListType, TensorType, Type, UnionType, wrong
from ._wire import decode_json

MARK = "_millrace"
"""The attribute in which the decorators endpoint and batch leave their arguments."""

DEFAULT_BATCH = 8
DEFAULT_CONCURRENCY = 32


class BatchHint:
    """Batch[X]: several requests at once."""

    def __init__(self, item: Any):
        self.item = item

    def __call__(self) -> Any:
        """Lets typing accept an instance as a hint."""
        raise TypeError("a hint cannot be called")


class Batch:
    """A hint: Batch[X] for a function that takes several requests at once.

    X is the type for one request. The argument is a list, or for Batch[Tensor["FP32", 3]] and Batch[Image[640, 480]] an
    array with the requests as the first dimension. The result has as many elements as requests, in a list or as the
    first dimension of arrays.
    """

    def __class_getitem__(cls, item: Any) -> BatchHint:
        return BatchHint(item)


class Context:
    """The request of a function. An argument with this type, or with the name `context`, gets the request.

    user_id, stream (a number, or None), seq, deadline (seconds left, or None), trace (traceparent), cancelled,
    parameters; of a call also method, path, query, headers; width, height (pixels) and codec of a frame; state, a dict
    kept for the stream.
    """

    __slots__ = ("_request", "_stateful", "status", "reply_headers")

    def __init__(self, request: Request, stateful: bool):
        self._request, self._stateful = request, stateful
        self.status = 200
        self.reply_headers: dict[str, str] = {}

    @property
    def state(self) -> dict[Any, Any]:
        """A dict kept for the stream. The class needs stateful = True: then one worker gets all frames of a stream."""
        if not self._stateful:
            raise Error("context.state needs `stateful = True` in the class, or an argument named `state`")
        return self._request.state

    def __getattr__(self, name: str) -> Any:
        if name in (
            "user_id",
            "stream",
            "seq",
            "deadline",
            "trace",
            "cancelled",
            "parameters",
            "width",
            "height",
            "codec",
            "body",
        ):
            return getattr(self._request, name)
        call = self._request.call
        if name in ("method", "path", "query", "content_type"):
            return "" if call is None else getattr(call, name)
        if name == "headers":
            return {} if call is None else call.header
        raise AttributeError(f"Context has no {name}")


_NAMED: dict[str, tuple[Any, ...]] = {
    "context": (),
    "state": (dict, typing.Dict),
    "stream": (),
    "deadline": (),
    "trace": (),
    "user_id": (str, typing.Optional[str]),
    "cancelled": (),
    "parameters": (dict, typing.Dict),
}
"""Names of arguments that get something of the request, and the types with which they still do."""


class Parameter:
    """An argument of a function."""

    __slots__ = ("name", "type", "default", "keyword")

    def __init__(self, name: str, type_: Type, default: Any, keyword: bool):
        self.name, self.type, self.default, self.keyword = name, type_, default, keyword


class Bound:
    """The arguments of a request: for each row, the positional arguments and the arguments by name."""

    __slots__ = ("rows", "context")

    def __init__(self, rows: list[tuple[tuple[Any, ...], dict[str, Any]]], context: Context | None = None):
        self.rows, self.context = rows, context


class Endpoint:
    """A function with a route."""

    def __init__(self, function: Any, name: str, path: str, max_batch: int, example: Any = None):
        mark = getattr(function, MARK, {})
        self.function, self.name, self.path = function, name, mark.get("path") or path
        self.method: str = mark.get("method") or "POST"
        self.openai: bool = bool(mark.get("openai"))
        self.example = mark.get("example") if mark.get("example") is not None else example
        plain = inspect.unwrap(function)
        asynchronous_parts = inspect.isasyncgenfunction(plain)
        self.is_async = inspect.iscoroutinefunction(plain) or asynchronous_parts
        if self.is_async:
            import asyncio  # noqa: F401 - which takes a third of a child's start: now rather than in the first request
        hints = _hints.hints_of(getattr(plain, "__func__", plain), name)
        self.batch = "batch" in mark
        self.parameters: list[Parameter] = []
        self.injected: dict[str, str] = {}
        self.takes_any_keyword = False
        known: dict[Any, Type] = {}
        for p in inspect.signature(function).parameters.values():
            self._take(p, hints.get(p.name, inspect.Parameter.empty), known, bool(max_batch > 1))
        self.data = [p for p in self.parameters if not p.keyword]
        self.picture = next((p.type.picture for p in self.parameters if p.type.picture is not None), None)
        self.by_name = {p.name: p for p in self.parameters}
        self.boxes = self._boxes()
        self._defaults = {p.name: p.default for p in self.parameters}
        result = hints.get("return", inspect.Parameter.empty)
        self.streams = inspect.isgeneratorfunction(plain) or asynchronous_parts or _is_iterator(result)
        self.result = _item(result) if self.streams or self.batch else result
        if self.batch and self.streams:
            raise LoadError(
                f"{name} takes several requests at once and yields: answers in parts need a function for one request"
            )
        if self.batch and not self.data:
            raise LoadError(f"{name} takes several requests at once, and has no argument for them")
        if self.batch and self.is_async:
            self.is_async = False  # it is awaited as a whole
        self.max_batch: int = (
            mark.get("batch")
            or max_batch
            or (DEFAULT_BATCH if self.batch else DEFAULT_CONCURRENCY if self.is_async else 1)
        )
        self.whole = len(self.data) == 1 and self.data[0].type.whole
        self.arrays = bool(self.data) and all(isinstance(p.type, (TensorType, ImageType)) for p in self.data)
        self.raw = next((p for p in self.data if p.type.raw), None)
        self.stateful = "state" in self.injected
        self.dense_rows = False  # requests have an axis of rows
        self._any = True
        self.model()
        self._check_example()

    def _take(self, p: inspect.Parameter, hint: Any, known: dict[Any, Type], batches: bool) -> None:
        where = f"{self.name}: {p.name}"
        if p.kind is p.VAR_KEYWORD:
            self.takes_any_keyword = True
            return
        if p.kind is p.VAR_POSITIONAL or p.kind is p.POSITIONAL_ONLY:
            raise LoadError(f"{where} has no name that a request could give: leave out * and /")
        if (
            hint is Context
            or p.name in _NAMED
            and (
                hint is p.empty
                or hint in _NAMED[p.name]
                or not _NAMED[p.name]
                and not isinstance(hint, type)
                and p.name != "context"
                or typing.get_origin(hint) is dict
                and dict in _NAMED[p.name]
            )
        ):
            self.injected[p.name] = "context" if hint is Context else p.name
            return
        keyword = p.kind is p.KEYWORD_ONLY
        if isinstance(hint, BatchHint):
            self.batch, hint = True, hint.item
        elif typing.get_origin(hint) is list and not keyword and "batch" not in getattr(self.function, MARK, {}):
            item = typing.get_args(hint)[0]
            if batches or _hints.is_array(item) or isinstance(_maybe(item, where), (TensorType, ImageType)):
                self.batch, hint = True, item
        elif typing.get_origin(hint) is list and not keyword:
            hint = typing.get_args(hint)[0]
        t = AnyType() if hint is p.empty else _hints.of(hint, where, known)
        default = MISSING if p.default is p.empty else p.default
        if default is None and not isinstance(t, (AnyType, UnionType)):
            t = UnionType([t, _hints.of(None, where)])
        self.parameters.append(Parameter(p.name, t, default, keyword))

    def default(self, name: str) -> Any:
        """Returns the default of an argument."""
        return self._defaults.get(name)

    def _boxes(self) -> Parameter | None:
        """Returns the argument of the type Boxes. The inputs of the argument have the names of the parts of Boxes."""
        found = [p for p in self.parameters if p.type.boxes]
        if not found:
            return None
        if len(found) > 1 or self.batch or found[0].keyword:
            raise LoadError(
                f"{self.name}: {found[-1].name} has the type Boxes, which one argument of a function for one request "
                "may have, in front of *: "
                'take the others as millrace.Tensor["FP32", -1, 4]'
            )
        taken = [n for n in PARTS if n in self.by_name and n != found[0].name]
        if taken:
            raise LoadError(
                f"{self.name}: {found[0].name} has the type Boxes, which takes the input {taken[0]}, too: leave out "
                f"the argument {taken[0]}, and use {found[0].name}.{taken[0]}"
            )
        return found[0]

    # The model.

    def model(self) -> dict[str, Any]:
        """Returns the members inputs, outputs, any, batch and image of the message `model`."""
        self._any = (
            not self.data
            or any(p.type.spec is None or p.default is not MISSING for p in self.data)
            or self.takes_any_keyword
        )
        out: dict[str, Any] = {"any": self._any, "batch": self.max_batch > 1, "outputs": self._outputs()}
        out["inputs"] = [
            t
            for p in self.data
            for t in (boxes_inputs(p.default is not MISSING) if p.type.boxes else [_described(p)])
            if t
        ]
        first = self.data[0].type.picture if self.data else None
        if first is not None and (self._any or len(self.data) == 1):
            out["image"] = {"width": first.width, "height": first.height, "color": first.color, "layout": "NHWC"}
            if self._any or not first.width:  # the server decodes the picture of a frame for the first input
                out["inputs"][0] = _pixels(self.data[0])
        self.dense_rows = self.max_batch > 1 and not self._any
        return out

    def _outputs(self) -> list[dict[str, Any]]:
        return outputs_of(self.result, self.name)

    def _check_example(self) -> None:
        if self.example is None or self.method == "GET":
            return
        errors: Errors = []
        value = json.loads(_plain.to_json(self.example))
        self._from_json(value, errors)
        if errors:
            raise LoadError(f"the example of {self.name} does not fit: {Invalid(errors)}")

    # Arguments.

    def bind(self, r: Request, stateful: bool, skip_arrays: bool = False) -> Bound:
        """Returns the arguments of a request. Raises Invalid."""
        errors: Errors = []
        if self.picture is not None:
            self.picture.sent = None
        token = binding.set(r)
        try:
            rows = [self._from_call(r, errors)] if r.call is not None else self._from_frame(r, errors, skip_arrays)
        finally:
            binding.reset(token)
        if self.picture is not None and self.picture.sent is not None:  # it came in a body or in BYTES
            r.picture_sent(self.picture.sent)
        # Boxes are in pixels of the picture that the function gets.
        if self.boxes is not None and self.picture is not None and not errors:
            place = r.picture_map((self.picture.width, self.picture.height))
            for row in rows:
                if isinstance(given := row.get(self.boxes.name), Boxes):
                    row[self.boxes.name] = given.placed(place)
        if errors:
            raise Invalid(errors)
        context = None
        if self.injected:
            context = Context(r, stateful)
            for keywords in rows:
                for name, what in self.injected.items():
                    if what == "context":
                        keywords[name] = context
                    elif what == "cancelled":
                        keywords[name] = lambda: r.cancelled
                    else:
                        keywords[name] = getattr(r, what)
        return Bound([((), keywords) for keywords in rows], context)

    def _from_call(self, r: Request, errors: Errors) -> dict[str, Any]:
        call = r.call
        assert call is not None
        kind = call.content_type
        body = r.body
        if not len(body):
            out: dict[str, Any] = {}
        elif kind == "application/json" or not kind or kind.partition(";")[0].strip().lower().endswith("json"):
            try:
                value = decode_json(str(body, "utf-8"))
            except (ValueError, RecursionError) as e:
                raise Error(f"the body is not JSON: {e}", "invalid_argument", 400) from None
            out = self._from_json(value, errors)
        else:
            out = self._from_other(kind, body, errors)
        if call.query:
            self._from_query(call.query, out, errors)
        if len(out) < len(self.parameters):
            self._complete(out, errors, "body" if call.method != "GET" else "query")
        return out

    def _from_json(self, value: Any, errors: Errors) -> dict[str, Any]:
        if self.whole:
            p = self.data[0]
            if len(self.parameters) == 1:
                return {p.name: p.type.check(value, ("body",), errors)}
            if type(value) is dict:
                rest = {k: v for k, v in value.items() if k in self.by_name and k != p.name}
                out = {k: self.by_name[k].type.check(v, ("body", k), errors) for k, v in rest.items()}
                out[p.name] = p.type.check({k: v for k, v in value.items() if k not in rest}, ("body",), errors)
                return out
            return {p.name: p.type.check(value, ("body",), errors)}
        if type(value) is not dict:
            names = ", ".join(p.name for p in self.parameters)
            wrong(
                errors,
                ("body",),
                f"is {_types.named(value)}, want an object with {names or 'no members'}",
                "object_type",
            )
            return {}
        out = {}
        by_name = self.by_name
        for k, v in value.items():
            p = by_name.get(k)
            if p is not None:
                out[k] = p.type.check(v, ("body", k), errors)
            elif self.takes_any_keyword:
                out[k] = v
            else:
                wrong(
                    errors,
                    ("body", k),
                    f"is not an argument of {self.name}: it takes {', '.join(by_name) or 'none'}",
                    "extra_forbidden",
                )
        return out

    def _from_other(self, content_type: str, body: Any, errors: Errors) -> dict[str, Any]:
        """Reads forms, and other bodies for the argument of type bytes."""
        from . import _forms

        kind = content_type.partition(";")[0].strip().lower()
        if kind == "application/x-www-form-urlencoded" and bytes(body[:1]) in (b"{", b"["):  # as curl -d sends it
            try:
                return self._from_json(decode_json(str(body, "utf-8")), errors)
            except (ValueError, RecursionError) as e:
                raise Error(
                    f"the body looks like JSON, and is none: {e}. Send it with Content-Type: application/json",
                    "invalid_argument",
                    400,
                ) from None
        if kind not in ("application/x-www-form-urlencoded", "multipart/form-data"):
            needed = [p for p in self.data if p.default is MISSING]
            if self.raw is None or len(needed) > 1:
                more = ""
                if (kind.startswith("image/") or _types.is_picture(body)) and self.raw is None and self.data:
                    more = f". The body {_types.picture_hint((needed or self.data)[0].name)}"
                elif self.raw is not None:
                    more = (
                        f": a body of another type fills one argument, and {', '.join(p.name for p in needed)} are "
                        "needed. Send a form with a field or file for each"
                    )
                raise Error(f"{self.name} takes JSON or a form, not {kind[:100]}{more}", "unsupported", 415)
            if isinstance(self.raw.type, _types.Plain) and _types.is_picture(body):
                wrong(errors, ("body",), _types.picture_hint(self.raw.name), "picture")
                return {self.raw.name: MISSING}
            return {self.raw.name: self.raw.type.payload(body, ("body",), errors)}
        try:
            fields = _forms.read(body, content_type)
        except _forms.FormError as e:
            own = (
                ". A body that is no form is sent with its own Content-Type, such as image/jpeg or "
                "application/octet-stream"
                if self.raw is not None
                else ""
            )
            raise Error(str(e) + own, "invalid_argument", 400) from None
        parts: dict[str, list[Any]] = {}
        for name, part in fields:
            parts.setdefault(name, []).append(part)
        if self.whole and not any(n in self.by_name for n in parts):
            return self._whole_form(parts, errors)
        return self._from_parts(parts, self.by_name, ("body",), errors)

    def _whole_form(self, parts: dict[str, list[Any]], errors: Errors) -> dict[str, Any]:
        """The form's fields are the members of the only argument."""
        p = self.data[0]
        value: dict[str, Any] = {}
        members = getattr(p.type, "members", {})
        for name, texts in parts.items():
            t = members.get(name)
            values = []
            for text in texts:
                if not isinstance(text, str):
                    text = str(text.data, "utf-8", "replace")
                if isinstance(t, _types.Plain) and t.kind is str:
                    values.append(text)
                    continue
                try:
                    values.append(json.loads(text))
                except ValueError:
                    values.append(text)
            value[name] = (
                values
                if isinstance(t, ListType) and not (len(values) == 1 and isinstance(values[0], list))
                else values[0]
            )
            if len(values) > 1 and value[name] is not values:
                wrong(errors, ("body", name), f"is there {len(values)} times", "duplicate")
        return {p.name: p.type.check(value, ("body",), errors)}

    def _from_parts(
        self, parts: dict[str, list[Any]], known: dict[str, Parameter], loc: tuple[Any, ...], errors: Errors
    ) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for name, values in parts.items():
            p = known.get(name)
            where = loc + (name,)
            if p is None:
                if self.takes_any_keyword:
                    out[name] = values[0] if len(values) == 1 else values
                else:
                    wrong(
                        errors,
                        where,
                        f"is not an argument of {self.name}: it takes {', '.join(known) or 'none'}",
                        "extra_forbidden",
                    )
                continue
            t = p.type
            if isinstance(t, UnionType):
                t = next((o for o in t.options if isinstance(o, ListType)), t)
            if isinstance(t, ListType) and (len(values) > 1 or not isinstance(values[0], str)):
                out[name] = t.texts(values, where, errors)
            elif len(values) > 1:
                wrong(errors, where, f"is there {len(values)} times", "duplicate")
            else:
                out[name] = _types.from_part(t, values[0], where, errors)
        return out

    def _from_query(self, query: str, out: dict[str, Any], errors: Errors) -> None:
        from urllib.parse import parse_qsl

        parts: dict[str, list[Any]] = {}
        try:
            for name, value in parse_qsl(query, keep_blank_values=True, max_num_fields=1000):
                parts.setdefault(name, []).append(value)
        except ValueError:
            raise Error("the query has more than 1000 fields", "invalid_argument", 400) from None
        for name in list(parts):
            if name in out:
                wrong(errors, ("query", name), "is in the body, too", "duplicate")
                del parts[name]
        out.update(self._from_parts(parts, self.by_name, ("query",), errors))

    def _complete(self, out: dict[str, Any], errors: Errors, where: str) -> None:
        for p in self.parameters:
            if p.name not in out and p.default is MISSING:
                wrong(
                    errors, (where,) if self.whole and p is self.data[0] else (where, p.name), "is missing", "missing"
                )

    def _from_frame(self, r: Request, errors: Errors, skip_arrays: bool) -> list[dict[str, Any]]:
        rest: dict[str, Any] = {}
        given = r.parameters
        if given:
            for k, v in given.items():
                p = self.by_name.get(k)
                if p is not None:
                    rest[k] = (
                        p.type.text(v, ("parameters", k), errors)
                        if isinstance(v, str)
                        else p.type.check(v, ("parameters", k), errors)
                    )
                elif self.takes_any_keyword:
                    rest[k] = v
                elif "parameters" not in self.injected and "context" not in self.injected.values():
                    wrong(
                        errors,
                        ("parameters", k),
                        f"is not a parameter of {self.name}: it takes {', '.join(self.by_name) or 'none'}",
                        "extra_forbidden",
                    )
        if skip_arrays:
            rows = [dict(rest) for _ in range(r.rows)]
        elif r.has_tensors:
            rows = self._from_tensors(r, rest, errors)
        else:
            row = dict(rest)
            if self.data:
                p = self.data[0]
                row[p.name] = p.type.payload(r.body, ("inputs", p.name), errors)
            elif len(r.body):
                wrong(errors, ("inputs",), f"{self.name} takes no input", "extra_forbidden")
            rows = [row]
        if not skip_arrays:
            for row in rows[:1]:
                if len(row) < len(self.parameters):
                    self._complete_frame(row, errors)
        return rows

    def _complete_frame(self, row: dict[str, Any], errors: Errors) -> None:
        for p in self.parameters:
            if p.name not in row and p.default is MISSING:
                wrong(errors, ("parameters" if p.keyword else "inputs", p.name), "is missing", "missing")

    def _from_tensors(self, r: Request, rest: dict[str, Any], errors: Errors) -> list[dict[str, Any]]:
        tensors = r.tensors
        split = self.dense_rows or r.dense
        rows: list[dict[str, Any]] = [dict(rest) for _ in range(r.rows if split else 1)]
        parts: dict[str, Any] = {}  # of the argument of the type Boxes
        for name, t in tensors.items():
            if self.boxes is not None and name in PARTS and (name != self.boxes.name or t.datatype != "BYTES"):
                parts[name] = t
                continue
            p = self.by_name.get(name)
            if p is None and not self.takes_any_keyword:
                wrong(
                    errors,
                    ("inputs", name),
                    f"is not an input of {self.name}: it takes {', '.join(self.by_name) or 'none'}",
                    "extra_forbidden",
                )
                continue
            of = AnyType() if p is None else p.type
            if not split:
                rows[0][name] = of.tensor(t, ("inputs", name), errors)
                continue
            for i, row in enumerate(rows):
                row[name] = of.tensor(t.row(i, r.rows, split), ("inputs", name), errors)
        if self.boxes is not None and parts:
            rows[0][self.boxes.name] = self.boxes.type.boxes.of_parts(parts, ("inputs",), errors)
        return rows

    def array(self, p: Parameter, requests: Requests) -> Any:
        """Returns the input of a dense batch, with all rows in front."""
        return requests.tensors[p.name].array()


def _maybe(hint: Any, where: str) -> Any:
    try:
        return _hints.of(hint, where)
    except LoadError:
        return None


def _is_iterator(hint: Any) -> bool:
    import collections.abc as abc

    return typing.get_origin(hint) in (abc.Iterator, abc.Generator, abc.AsyncIterator, abc.AsyncGenerator) or hint in (
        abc.Iterator,
        abc.Generator,
    )


def _item(hint: Any) -> Any:
    """Returns the type of one answer of a generator, or of a function for several requests."""
    if isinstance(hint, BatchHint):
        return hint.item
    args = typing.get_args(hint)
    if args and typing.get_origin(hint) is not dict:
        return args[0]
    return hint


def _described(p: Any) -> dict[str, Any] | None:
    """Returns an input in the form of the message `model`; None for a type without a tensor."""
    t = p.type if p.default is MISSING else _types.without_null(p.type)  # who wants null leaves the input out
    if isinstance(t, ImageType):
        out = _pixels(p)
    elif isinstance(t, ListType):  # one JSON text, or an element of BYTES for each item
        out = {"name": p.name, "datatype": "BYTES", "shape": [-1]}
    elif t.spec is not None:
        out = {"name": p.name, "datatype": t.spec[0], "shape": t.spec[1]}
    else:
        return None
    if p.default is not MISSING:
        out["optional"] = True
    return out


def _pixels(p: Any) -> dict[str, Any]:
    """Returns a picture input in the form of the message `model`."""
    t = p.type.picture
    return {"name": p.name, "datatype": "UINT8", "shape": [t.height or -1, t.width or -1, t.channels], "color": t.color}
