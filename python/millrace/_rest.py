"""The calls of a server over HTTP, without input and output: what is sent, and what the replies mean.

`Calls` has the methods of both clients. Each gives a Call to `_do`, which the synchronous client carries out and the
asynchronous one awaits.
"""

from __future__ import annotations

import json
import math
import ssl
import uuid
from typing import Any, Callable, Iterable, Mapping, NamedTuple

from . import _oip
from ._client_errors import MillraceError, bad_reply, invalid, is_of_input, of_message, of_status
from ._http import Event, Reply, Trust, address, escape, head, target
from ._oip import size
from ._tensors import Tensor

_MAX_DECLARED = 256  # models whose datatypes a client keeps
HEADER_LENGTH = "Inference-Header-Content-Length"


class Call(NamedTuple):
    """A request, and how its reply is read."""

    method: str
    path: str
    read: Callable[[Reply], Any]
    headers: dict[str, str] = {}
    body: Any = None  # None, or a list of bytes-like parts
    query: dict = {}
    timeout: float | None = None  # seconds; None = the client's
    accept: Callable[[int], bool] = lambda status: status // 100 == 2
    refused: Callable[[MillraceError], None] | None = None  # is called with the error of a reply that is not accepted
    again: After | None = (
        None  # what takes the place of the call when the server refuses an input; its then may return None
    )
    event: Callable[
        [Event], Any
    ] | None = None  # of calls with events: what the loop gets; it raises EndOfEvents at the end


class After(NamedTuple):
    """A call that depends on the reply to another one, which is made before it."""

    first: Call
    then: Callable[[Any], Any]  # gets what first.read returned, and returns the call

    @property
    def timeout(self) -> float | None:
        """The seconds that both calls together may take."""
        return self.first.timeout


class EndOfEvents(Exception):
    """The last event has come."""


class Timing(NamedTuple):
    """The time of a request or frame by its steps at the server, in seconds; 0 = not reached."""

    queue: float = 0.0  # until it was put into a batch
    prepare: float = 0.0  # until the batch's run began
    run: float = 0.0
    total: float = 0.0
    received: float = 0.0  # seconds since 1970 by the server's clock; 0 = not told


class Answer:
    """The result of an inference: `answer["name"]` is an output as a numpy array, or as nested lists without numpy.

    outputs     Tensor by name
    parameters  of the model, a dict
    width, height  of the picture as sent, upright, in pixels; 0 = it was none
    timing      Timing
    """

    def __init__(self, model: str, version: str, id: str, outputs: dict[str, Tensor], parameters: dict) -> None:
        self.model, self.version, self.id = model, version, id
        self.outputs, self.parameters = outputs, parameters
        self.width, self.height = _take(parameters, "width"), _take(parameters, "height")
        self.timing = Timing()

    def __getitem__(self, name: str) -> Any:
        try:
            return _oip.value(self.outputs[name])
        except KeyError:
            raise KeyError(f"{name}: the outputs are {', '.join(self.outputs) or 'none'}") from None

    def classes(self, name: str) -> list[tuple[float, int, str]]:
        """The classes of an output that was asked for with `classes`: value, index, label ("" without labels)."""
        return _oip.classes(self.outputs[name], name)

    def __repr__(self) -> str:
        return f"Answer({self.model!r}, {list(self.outputs.values())})"


def _take(parameters: dict, name: str) -> int:
    return parameters.pop(name) if isinstance(parameters.get(name), int) else 0


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
    """Checks a name that becomes a part of a path."""
    if not isinstance(value, str) or not value:
        raise invalid(field, f"is {value!r}: want the name of a {what}")
    return value


def _json_body(members: Any, field: str = "json") -> tuple[dict[str, str], list]:
    try:
        text = json.dumps(members, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:
        raise invalid(field, f"cannot be written as JSON: {error}") from None
    return {"Content-Type": "application/json"}, [text]


def _model_path(model: Any, version: Any, *rest: str) -> str:
    path = ["v2", "models", name_of(model, "model", "model")]
    if version not in (None, ""):
        path += ["versions", str(version)]
    return escape(*path, *rest)


def answer_of(reply: Reply) -> Answer:
    """Reads the reply to an inference."""
    length = reply.headers.get(HEADER_LENGTH.lower())
    body = memoryview(reply.body)
    n = len(body)
    if length is not None:
        n = int(length) if length.isdigit() else -1
        if not 0 <= n <= len(body):
            raise bad_reply(f"{HEADER_LENGTH} is {length!r}")
    answer = answer_of_json(_loads(bytes(body[:n])), body[n:])
    answer.timing = _server_timing(reply.headers.get("server-timing", ""))
    return answer


def _loads(text: Any) -> dict:
    try:
        members = json.loads(text)
    except ValueError as error:
        raise bad_reply(error) from None
    if not isinstance(members, dict):
        raise bad_reply(f"it is {str(members)[:80]!r}, and no object")
    return members


def answer_of_json(m: dict, raw: Any = b"") -> Answer:
    """The answer of an Open Inference Protocol reply, whose raw tensors follow it."""
    return Answer(
        m.get("model_name", ""),
        m.get("model_version", ""),
        m.get("id", ""),
        _oip.outputs_of(m.get("outputs"), raw),
        dict(m.get("parameters") or {}),
    )


def _server_timing(text: str) -> Timing:
    steps = {"queue": 0.0, "prepare": 0.0, "run": 0.0}
    for part in text.split(","):
        name, _, duration = part.strip().partition(";dur=")
        try:
            if name in steps:
                steps[name] = float(duration) / 1000
        except ValueError:
            continue
    return Timing(**steps, total=sum(steps.values()))


def _infer(
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
    path = _model_path(model, version, "infer_stream" if stream else "infer")
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
        headers, body = _json_body(members, "inputs")
        return Call("POST", path, answer_of, headers, body, query, timeout)
    members["inputs"] = [t.binary() for t in given]
    if binary:
        members.setdefault("parameters", {})["binary_data_output"] = True
    _, body = _json_body(members, "inputs")
    headers = {"Content-Type": "application/octet-stream", HEADER_LENGTH: str(len(body[0]))}
    return Call("POST", path, answer_of, headers, body + [piece for t in given for piece in t.pieces], query, timeout)


def _answer_event(event: Event) -> Answer:
    if event.name == "end":
        raise EndOfEvents
    members = event.json()
    if event.name == "error" or not isinstance(members, dict):
        failed = members.get("error") if isinstance(members, dict) else None
        raise of_message(
            failed
            if isinstance(failed, dict)
            else {
                "message": failed or event.data,
                "code": members.get("code", "internal") if isinstance(members, dict) else "internal",
            }
        )
    return answer_of_json(members)


def _members_event(event: Event) -> dict:
    members = event.json()
    if isinstance(members, dict) and isinstance(members.get("error"), str):
        raise of_message({"message": members["error"], "code": members.get("code", "internal")})
    return members


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


def _app_call(
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
        own, body = _json_body(json_members)
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


class Calls:
    """The calls of a server. A call that fails raises MillraceError.

    Common arguments: model, version (None = any), timeout (seconds that the whole call may take; None = the client's).
    """

    def __init__(
        self,
        addr: str = "127.0.0.1:8000",
        *,
        ca: str | None = None,
        fingerprint: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = 60.0,
    ) -> None:
        """addr is "127.0.0.1:8000", "https://host/prefix", or "unix:/path" for a unix socket. Nothing is connected yet.

        ca           a PEM file with the certificates to trust for https; default: the system's authorities
        fingerprint  the SHA-256 of the server's certificate, as the server prints it: only that one is trusted
        ssl_context  for everything else about TLS, such as a client's certificate
        token        an API key of the server, sent with each request and handshake as Authorization: Bearer
        headers      are sent with each request and handshake
        timeout      seconds that a call may take; None = any time
        """
        self._to = address(addr)
        self._trust = Trust(self._to.tls, ca, fingerprint, ssl_context)
        self._headers = {**authorization(token), **(headers or {})}
        self._timeout = seconds(timeout, "timeout")
        self._declared: dict[tuple[str, str], dict[str, str]] = {}  # datatypes of inputs by model and version
        head(self._to, "GET", "/", self._headers, None)  # checks the headers

    @property
    def addr(self) -> str:
        """The address of the server, as a URL."""
        return str(self._to)

    def _request(self, call: Call) -> list:
        """The parts of a request."""
        n = None if call.body is None else sum(map(size, call.body))
        return [
            head(self._to, call.method, target(self._to, call.path, call.query), {**self._headers, **call.headers}, n),
            *(call.body or ()),
        ]

    def _unreachable(self, error: BaseException) -> MillraceError:
        return MillraceError(
            "unavailable", f"the server at {self._to.named} cannot be reached: {error or type(error).__name__}"
        )

    def _late(self, timeout: float | None) -> MillraceError:
        return MillraceError(
            "timeout", f"timeout: the server at {self._to.named} has not answered within {timeout} s", field="timeout"
        )

    def _do(self, call: Call | After) -> Any:
        raise NotImplementedError

    def _events(self, call: Call | After) -> Any:
        raise NotImplementedError

    def _declaring(self, model: Any, version: Any, timeout: float | None) -> Call:
        """The call for the datatypes that the inputs of a model declare; without an answer, none is known."""

        def read(reply: Reply) -> dict[str, str]:
            declared = _oip.declared_of(reply.json()) if reply.status == 200 else {}
            if reply.status == 200:
                if len(self._declared) >= _MAX_DECLARED:
                    self._declared.clear()
                self._declared[model, str(version or "")] = declared
            return declared

        return Call("GET", _model_path(model, version), read, timeout=timeout, accept=lambda status: True)

    def _known(self, model: Any, version: Any) -> dict[str, str] | None:
        """The datatypes that the inputs of a model declare, where they have been asked for."""
        return self._declared.get((model, str(version or "")))

    def _forget(self, model: Any, version: Any, error: MillraceError | None) -> None:
        """Lets the next call ask again for the datatypes of a model, after an error about an input."""
        if error is not None and is_of_input(error.field):
            self._declared.pop((model, str(version or "")), None)

    def _inferring(
        self,
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
    ) -> Call | After:
        """The call of an inference. Numbers in its inputs need the datatypes that the model declares. Those that are
        known may be of a model that was loaded by this name before: when an input is refused, they are read again."""
        limit = seconds(timeout, "timeout")

        def then(declared: dict[str, str] | None) -> Call:
            call = _infer(
                model,
                inputs,
                picture,
                version,
                parameters,
                outputs,
                classes,
                id,
                deadline,
                as_json,
                stream,
                limit,
                declared,
            )
            call = call._replace(refused=lambda error: self._forget(model, version, error))
            return call._replace(event=_answer_event) if stream else call

        known = self._known(model, version)
        if picture is not None or not _oip.has_numbers(inputs):
            return then(known)
        first = self._declaring(model, version, limit)
        if known is None:
            return After(first, then)
        try:
            call = then(known)
        except MillraceError as error:
            if not is_of_input(error.field):
                raise
            return After(first, then)
        return call._replace(again=After(first, lambda declared: None if declared == known else then(declared)))

    def _get(self, path: str, query: dict | None = None) -> Any:
        return self._do(Call("GET", path, Reply.json, query=query or {}))

    def _post(self, path: str, members: Any = None, read: Callable[[Reply], Any] = Reply.json) -> Any:
        headers, body = _json_body(members, "parameters") if members is not None else ({}, [])
        return self._do(Call("POST", path, read, headers, body))

    def live(self) -> Any:
        """Whether the server runs: it answers. Nothing is raised when it does not."""
        return self._do(Call("GET", "/v2/health/live", lambda reply: reply.status == 200, accept=lambda status: True))

    def ready(self, model: str | None = None, version: Any = None) -> Any:
        """Whether the server, or the model, is ready: every configured model has a worker."""
        path = "/v2/health/ready" if model is None else _model_path(model, version, "ready")
        return self._do(
            Call("GET", path, lambda reply: reply.status == 200, accept=lambda status: status in (200, 404, 503))
        )

    def server(self) -> Any:
        """The server's name, version and extensions, a dict."""
        return self._get("/v2")

    def metadata(self, model: str, version: Any = None) -> Any:
        """The names, datatypes and shapes of the model's inputs and outputs, a dict."""
        return self._get(_model_path(model, version))

    def config(self, model: str, version: Any = None) -> Any:
        """The model's configuration, a dict."""
        return self._get(_model_path(model, version, "config"))

    def statistics(self, model: str | None = None, version: Any = None) -> Any:
        """What the model, or every one, has counted since it was loaded: a dict with model_stats."""
        return self._get("/v2/models/stats" if model is None else _model_path(model, version, "stats"))

    def status(self) -> Any:
        """The state of the server and of its models, a dict."""
        return self._get("/v2/status")

    def openapi(self) -> Any:
        """The OpenAPI document of the server and its models, a dict."""
        return self._get("/openapi.json")

    def models(self, ready: bool = False) -> Any:
        """The models that the server has or can load (ready: those that are ready), a list of dicts: name, version,
        state (READY, LOADING, UNAVAILABLE), reason."""
        return self._post("/v2/repository/index", {"ready": True} if ready else None)

    def load(self, model: str, parameters: Mapping | None = None) -> Any:
        """Loads a model with parameters, which are settings of models. Returns the name of its endpoint."""
        members = {"parameters": parameters_of(parameters)} if parameters else None
        return self._post(
            escape("v2", "repository", "models", name_of(model, "model", "model"), "load"),
            members,
            lambda reply: (reply.json() if reply.body else {}).get("endpoint", model),
        )

    def unload(self, model: str, parameters: Mapping | None = None) -> Any:
        """Unloads a model."""
        members = {"parameters": parameters_of(parameters)} if parameters else None
        return self._post(
            escape("v2", "repository", "models", name_of(model, "model", "model"), "unload"),
            members,
            lambda reply: None,
        )

    def scale(self, model: str, instances: int) -> Any:
        """Sets the number of workers of a loaded model, which serves meanwhile."""
        if isinstance(instances, bool) or not isinstance(instances, int) or instances < 1:
            raise invalid("instances", f"is {instances!r}: want 1 or more")
        return self._post(
            escape("v2", "workers", name_of(model, "model", "model"), "scale"),
            {"instances": instances},
            lambda reply: None,
        )

    def infer(
        self,
        model: str,
        inputs: Any = None,
        *,
        picture: Any = None,
        version: Any = None,
        parameters: Mapping | None = None,
        outputs: Iterable[str] | None = None,
        classes: Mapping[str, int] | None = None,
        id: str = "",
        deadline: float | None = None,
        json: bool = False,
        timeout: float | None = None,
    ) -> Any:
        """Runs one inference, and returns an Answer.

        inputs      values by name (numpy arrays, numbers, text, bytes, nested lists of them, Tensor). Numbers and lists
                    of them become the datatype that the model declares; arrays and Tensor must have it
        picture     instead of inputs: the bytes of a JPEG, PNG or WebP picture
        parameters  for the model and the queue: strings, numbers, bools
        outputs     which outputs to return; None = all
        classes     of outputs by name, how many of the largest elements to return as classes: Answer.classes(name)
        deadline    seconds from receipt; a request that would be answered later is not run, and is an error (timeout)
        json        tensors as numbers in JSON, in both directions, for debugging; otherwise they are raw bytes
        """
        return self._do(
            self._inferring(
                model, inputs, picture, version, parameters, outputs, classes, id, deadline, json, False, timeout
            )
        )

    def infer_stream(
        self,
        model: str,
        inputs: Any,
        *,
        version: Any = None,
        parameters: Mapping | None = None,
        outputs: Iterable[str] | None = None,
        id: str = "",
        deadline: float | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Runs an inference of a model that may answer several times, and iterates over its Answers. timeout: seconds
        until the next event; a heartbeat is none."""
        return self._events(
            self._inferring(model, inputs, None, version, parameters, outputs, None, id, deadline, False, True, timeout)
        )

    def generate(self, model: str, members: Mapping, *, version: Any = None, timeout: float | None = None) -> Any:
        """Runs an inference whose inputs, parameters and outputs are members of JSON objects, and returns a dict."""
        headers, body = _json_body(dict(members), "members")
        return self._do(
            Call(
                "POST",
                _model_path(model, version, "generate"),
                Reply.json,
                headers,
                body,
                timeout=seconds(timeout, "timeout"),
            )
        )

    def generate_stream(
        self, model: str, members: Mapping, *, version: Any = None, timeout: float | None = None
    ) -> Any:
        """generate of a model that may answer several times: iterates over dicts."""
        headers, body = _json_body(dict(members), "members")
        return self._events(
            Call(
                "POST",
                _model_path(model, version, "generate_stream"),
                Reply.json,
                headers,
                body,
                timeout=seconds(timeout, "timeout"),
                event=_members_event,
            )
        )

    def call(
        self,
        app: str | None,
        path: str = "/infer",
        *,
        method: str | None = None,
        json: Any = None,
        data: Any = None,
        form: Mapping | None = None,
        files: Mapping | None = None,
        query: Mapping | None = None,
        headers: Mapping | None = None,
        timeout: float | None = None,
        check: bool = True,
    ) -> Any:
        """Calls a route of a service, /apps/APP/PATH (app None: of the only one, at the root), and returns a Reply with
        status, headers, content_type, body, text and json().

        method  default: GET without a body, POST with one
        json, data, form + files  the body: a value as JSON; bytes or text; fields and uploads of a form, where files
                                  has
                bytes, open files, or (file name, data, content type)
        check   whether a status other than 2xx is raised as MillraceError
        """
        call = _app_call(app, path, method, data, json, form, files, query, headers, timeout, check)
        return self._do(call)  # type: ignore[arg-type]

    def events(
        self,
        app: str | None,
        path: str = "/infer",
        *,
        method: str | None = None,
        json: Any = None,
        data: Any = None,
        form: Mapping | None = None,
        files: Mapping | None = None,
        query: Mapping | None = None,
        headers: Mapping | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Calls a route of a service that answers with server-sent events, and iterates over these: Event(name, data,
        id). An event called error is raised. timeout: seconds until the next event; a heartbeat is none."""
        call = _app_call(
            app, path, method, data, json, form, files, query, headers, timeout, True  # type: ignore[arg-type]
        )
        return self._events(call._replace(headers={"Accept": "text/event-stream", **call.headers}, event=_plain_event))

    def streams(self) -> Any:
        """The server streams, a list of dicts."""
        return self._do(Call("GET", "/v2/streams", lambda reply: reply.json()["streams"]))

    def stream(self, name: str) -> Any:
        """The state and the counts of one server stream, a dict."""
        return self._get(escape("v2", "streams", name_of(name, "name", "stream")))

    def add_stream(self, name: str, source: str, **settings: Any) -> Any:
        """Adds a server stream: source is an http, https, rtsp or rtsps address; settings are those of docs/streams.md,
        such as model, models, policy, fps, loop, sinks. Returns its state, a dict."""
        return self._post("/v2/streams", {"name": name_of(name, "name", "stream"), "source": source, **settings})

    def change_stream(self, name: str, **settings: Any) -> Any:
        """Changes settings of a server stream while it runs, such as paused and max_fps: all of them or none."""
        headers, body = _json_body(settings, "settings")
        return self._do(
            Call("PATCH", escape("v2", "streams", name_of(name, "name", "stream")), Reply.json, headers, body)
        )

    def remove_stream(self, name: str) -> Any:
        """Ends a server stream and removes it."""
        return self._do(Call("DELETE", escape("v2", "streams", name_of(name, "name", "stream")), lambda reply: None))

    def ticket(self) -> Any:
        """A ticket, with which one session can be opened within 30 s."""
        return self._post("/v2/tickets", None, lambda reply: reply.json()["ticket"])


def _plain_event(event: Event) -> Event:
    if event.name == "end" and event.data in ("", "{}"):
        raise EndOfEvents
    if event.name == "error":
        try:
            members = json.loads(event.data)
        except ValueError:
            members = event.data
        failed = members.get("error", members) if isinstance(members, dict) else members
        raise of_message(
            failed
            if isinstance(failed, dict)
            else {
                "message": str(failed),
                "code": members.get("code", "internal") if isinstance(members, dict) else "internal",
            }
        )
    return event


def failed(call: Call, reply: Reply) -> MillraceError | None:
    """The error of a reply whose status the call does not accept."""
    if call.accept(reply.status):
        return None
    error = of_status(reply.status, reply.reason, reply.headers, bytes(reply.body))
    if call.refused is not None:
        call.refused(error)
    return error
