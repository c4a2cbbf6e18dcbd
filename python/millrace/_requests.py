"""Requests of a client over HTTP, without input and output: paths, headers and bodies."""

from __future__ import annotations

import json
import math
import uuid
from typing import Any, Callable, Iterable, Mapping, NamedTuple

from . import _oip
from ._client_errors import MillraceError, invalid, of_status
from ._http import Event, Reply, escape
from ._replies import HEADER_LENGTH, answer_of


class Call(NamedTuple):
    """A request, and the function that reads the reply."""

    method: str
    path: str
    read: Callable[[Reply], Any]
    headers: dict[str, str] = {}
    body: Any = None  # None, or a list of bytes-like parts
    query: dict = {}
    timeout: float | None = None  # seconds; None = the client's
    accept: Callable[[int], bool] = lambda status: status // 100 == 2
    # Called with the error of a reply that is not accepted.
    refused: Callable[[MillraceError], None] | None = None
    # Replaces the call when the server refuses an input. after.then may return None.
    again: After | None = None
    # The value of an event, of calls with events. Raises EndOfEvents at the end.
    event: Callable[[Event], Any] | None = None


class After(NamedTuple):
    """A call that depends on the reply to an earlier call."""

    first: Call
    then: Callable[[Any], Any]  # gets what first.read returned, and returns the call

    @property
    def timeout(self) -> float | None:
        """Seconds for both calls together; None = the timeout of the client."""
        return self.first.timeout


def parameters_of(given: Mapping | None, field: str = "parameters") -> dict:
    """Checks parameters for a model: strings, integers, floats and bools by name."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise invalid(field, f"is {type(given).__name__}: want a dict")
    for name, value in given.items():
        if not isinstance(name, str) or not isinstance(value, (str, int, float, bool)):
            raise invalid(f"{field}.{name}", f"is {type(value).__name__}: want a string, a number or a bool")
        if isinstance(value, float) and not math.isfinite(value):
            raise invalid(f"{field}.{name}", f"is {value}: want a finite number")
    return dict(given)


def seconds(value: Any, field: str) -> float | None:
    """Checks a time in seconds; None = none is given."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < math.inf:
        raise invalid(field, f"is {value!r}: want seconds above 0")
    return float(value)


def name_of(value: Any, field: str, what: str) -> str:
    """Checks a name for a path, and returns the name. Raises MillraceError."""
    if not isinstance(value, str) or not value:
        raise invalid(field, f"is {value!r}: want the name of a {what}")
    return value


def json_body(members: Any, field: str = "json") -> tuple[dict[str, str], list]:
    try:
        text = json.dumps(members, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise invalid(field, f"cannot be written as JSON: {error}") from None
    return {"Content-Type": "application/json"}, [text]


def model_path(model: Any, version: Any, *rest: str) -> str:
    path = ["v2", "models", name_of(model, "model", "model")]
    if version not in (None, ""):
        path += ["versions", str(version)]
    return escape(*path, *rest)


def inference(
    model: Any,
    inputs: Any,
    picture: Any,
    version: Any,
    parameters: Mapping | None,
    outputs: Iterable[str] | None,
    classes: Mapping[str, int] | None,
    id: str,
    deadline: Any,
    as_json: bool,
    stream: bool,
    timeout: Any,
    declared: Mapping[str, str] | None = None,
) -> Call:
    query: dict = {}
    if deadline is not None:
        deadline_ms = seconds(deadline, "deadline") * 1000  # type: ignore[operator]
        query["deadline_ms"] = f"{deadline_ms:.3f}".rstrip("0").rstrip(".")
    path = model_path(model, version, "infer_stream" if stream else "infer")
    if picture is not None:
        for name, given in (
            ("inputs", inputs),
            ("parameters", parameters),
            ("outputs", outputs),
            ("classes", classes),
            ("id", id),
        ):
            if given:
                raise invalid(name, "does not go with picture, which is the whole request")
        if not isinstance(picture, (bytes, bytearray, memoryview)):
            raise invalid("picture", f"is {type(picture).__name__}: want the bytes of a JPEG, PNG or WebP picture")
        if not as_json and not stream:
            query["outputs"] = "binary"
        return Call("POST", path, answer_of, {"Content-Type": "application/octet-stream"}, [picture], query, timeout)
    members: dict = {"id": id} if id else {}
    given_parameters = parameters_of(parameters)
    if given_parameters:
        members["parameters"] = given_parameters
    if isinstance(outputs, str):
        raise invalid("outputs", "is a string: want a list of names")
    wanted = list(outputs or ())
    for name, count in (classes or {}).items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise invalid(f"classes.{name}", f"is {count!r}: want how many classes, 1 or more")
        if outputs is None:
            wanted.append(name)
        elif name not in wanted:
            raise invalid(f"classes.{name}", "is not among outputs")
    given = _oip.inputs_of(inputs, declared)
    binary = not as_json and not stream
    if wanted:
        members["outputs"] = [
            {
                "name": name,
                "parameters": {
                    **({"binary_data": True} if binary else {}),
                    **({"classification": classes[name]} if classes and name in classes else {}),
                },
            }
            for name in wanted
        ]
    if as_json:
        members["inputs"] = [t.json() for t in given]
        headers, body = json_body(members, "inputs")
        return Call("POST", path, answer_of, headers, body, query, timeout)
    members["inputs"] = [t.binary() for t in given]
    if binary:
        members.setdefault("parameters", {})["binary_data_output"] = True
    _, body = json_body(members, "inputs")
    headers = {"Content-Type": "application/octet-stream", HEADER_LENGTH: str(len(body[0]))}
    return Call("POST", path, answer_of, headers, body + [piece for t in given for piece in t.pieces], query, timeout)


def _form(form: Mapping[str, Any], files: Mapping[str, Any] | None) -> tuple[dict[str, str], list]:
    """A body of multipart/form-data."""
    boundary = uuid.uuid4().hex
    parts: list = []

    def quoted(text: Any) -> str:
        return str(text).replace("\\", "\\\\").replace('"', '%22').replace("\r", "%0D").replace("\n", "%0A")

    for name, value in form.items():
        data = value if isinstance(value, (bytes, bytearray)) else str(value).encode()
        parts += [
            f'--{boundary}\r\nContent-Disposition: form-data; name="{quoted(name)}"\r\n\r\n'.encode(),
            data,
            b"\r\n",
        ]
    for name, value in (files or {}).items():
        filename, data, kind = name, value, "application/octet-stream"
        if isinstance(value, (tuple, list)):
            if not 2 <= len(value) <= 3:
                raise invalid(f"files.{name}", "is a tuple: want (file name, data) or (file name, data, content type)")
            filename, data, kind = (*value, kind)[:3]
        if hasattr(data, "read"):
            data = data.read()
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise invalid(
                f"files.{name}",
                f"is {type(data).__name__}: want bytes, a file opened in binary mode, or (file name, data, content "
                "type)",
            )
        parts += [
            f'--{boundary}\r\nContent-Disposition: form-data; name="{quoted(name)}"; filename="{quoted(filename)}"\r\n'
            f'Content-Type: {kind}\r\n\r\n'.encode(),
            data,
            b"\r\n",
        ]
    parts.append(f"--{boundary}--\r\n".encode())
    return {"Content-Type": f"multipart/form-data; boundary={boundary}"}, parts


def _app_path(app: Any, path: str) -> str:
    if not isinstance(path, str) or not path.startswith("/"):
        raise invalid("path", f"is {path!r}: want the path of a route, which begins with /")
    own = "/" + "/".join(escape(part)[1:] if part else "" for part in path[1:].split("/"))
    return own if app is None else escape("apps", name_of(app, "app", "service")) + own


def app_call(
    app: Any,
    path: str,
    method: str,
    data: Any,
    json_members: Any,
    form: Any,
    files: Any,
    query: Any,
    headers: Any,
    timeout: Any,
    check: bool,
) -> Call:
    given = [
        name for name, value in (("json", json_members), ("data", data), ("form", form or files)) if value is not None
    ]
    if len(given) > 1:
        raise invalid(given[1], f"and {given[0]} are both given: a request has one body")
    own: dict[str, str] = {}
    body = None
    if json_members is not None:
        own, body = json_body(json_members)
    elif form or files:
        own, body = _form(form or {}, files)
    elif data is not None:
        if isinstance(data, str):
            own, body = {"Content-Type": "text/plain; charset=utf-8"}, [data.encode()]
        elif isinstance(data, (bytes, bytearray, memoryview)):
            own, body = {"Content-Type": "application/octet-stream"}, [data]
        else:
            raise invalid("data", f"is {type(data).__name__}: want bytes or a string (json= for other values)")
    if headers:
        lower = {name.lower() for name in headers}
        own = {**{k: v for k, v in own.items() if k.lower() not in lower}, **headers}
    if method is None:
        method = "GET" if body is None else "POST"
    return Call(
        method.upper(),
        _app_path(app, path),
        lambda reply: reply,
        own,
        body,
        query or {},
        seconds(timeout, "timeout"),
        **({} if check else {"accept": lambda status: True}),
    )


def authorization(token: str | None) -> dict[str, str]:
    """The headers for an API key; None = none."""
    if token is None:
        return {}
    if not isinstance(token, str) or not token or not all("!" <= c <= "~" for c in token):  # its text is not told
        raise invalid("token", "want a key: letters, digits and signs of ASCII")
    return {"Authorization": f"Bearer {token}"}


def failed(call: Call, reply: Reply) -> MillraceError | None:
    """The error of a reply with a status that the call does not accept."""
    if call.accept(reply.status):
        return None
    error = of_status(reply.status, reply.reason, reply.headers, bytes(reply.body))
    if call.refused is not None:
        call.refused(error)
    return error
