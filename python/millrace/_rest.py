"""The calls of a server over HTTP, without input and output.

`Calls` has the methods of both clients. Each method gives a Call to `_do`. The synchronous client carries out the Call,
the asynchronous client awaits the Call.
"""

from __future__ import annotations

import ssl
from typing import Any, Callable, Iterable, Mapping

from . import _oip
from ._client_errors import MillraceError, invalid, is_of_input
from ._http import Reply, Trust, address, escape, head, target
from ._oip import size
from ._replies import answer_event, members_event, plain_event
from ._requests import (
    After,
    Call,
    app_call,
    inference,
    json_body,
    model_path,
    authorization,
    name_of,
    parameters_of,
    seconds,
)

_MAX_DECLARED = 256  # models whose datatypes a client keeps


class Calls:
    """The calls of a server. A failed call raises MillraceError.

    Common arguments: model, version (None = any), timeout (seconds for the whole call; None = the timeout of the
    client).
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
        """addr is "127.0.0.1:8000", "https://host/prefix", or "unix:/path" for a unix socket. The client connects at
        the first call.

        ca           a PEM file with the certificates to trust for https; default: the authorities of the system
        fingerprint  the SHA-256 of the server's certificate, as the server prints the fingerprint: trust only this
                     certificate
        ssl_context  for everything else about TLS, such as a certificate of the client
        token        an API key of the server, sent with each request and handshake as Authorization: Bearer
        headers      names and values, sent with each request and handshake
        timeout      seconds for a call; None = no limit
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
        """The call for the datatypes that a model declares for inputs; {} without an answer."""

        def read(reply: Reply) -> dict[str, str]:
            declared = _oip.declared_of(reply.json()) if reply.status == 200 else {}
            if reply.status == 200:
                if len(self._declared) >= _MAX_DECLARED:
                    self._declared.clear()
                self._declared[model, str(version or "")] = declared
            return declared

        return Call("GET", model_path(model, version), read, timeout=timeout, accept=lambda status: True)

    def _known(self, model: Any, version: Any) -> dict[str, str] | None:
        """The datatypes that a model declares for inputs, after the call of _declaring; otherwise None."""
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
        """The call of an inference. Numbers among the inputs need the declared datatypes of the model. Known datatypes
        may belong to an earlier model of this name: after a refused input, the call reads the datatypes again.
        """
        limit = seconds(timeout, "timeout")

        def then(declared: dict[str, str] | None) -> Call:
            call = inference(
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
            return call._replace(event=answer_event) if stream else call

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
        headers, body = json_body(members, "parameters") if members is not None else ({}, [])
        return self._do(Call("POST", path, read, headers, body))

    def live(self) -> Any:
        """Whether the health check of the server answers with status 200. Raises MillraceError (`unavailable`) when the
        server cannot be reached.
        """
        return self._do(Call("GET", "/v2/health/live", lambda reply: reply.status == 200, accept=lambda status: True))

    def ready(self, model: str | None = None, version: Any = None) -> Any:
        """Whether the server, or the model, is ready: every configured model has a worker."""
        path = "/v2/health/ready" if model is None else model_path(model, version, "ready")
        return self._do(
            Call("GET", path, lambda reply: reply.status == 200, accept=lambda status: status in (200, 404, 503))
        )

    def server(self) -> Any:
        """The server's name, version and extensions, a dict."""
        return self._get("/v2")

    def metadata(self, model: str, version: Any = None) -> Any:
        """The names, datatypes and shapes of the model's inputs and outputs, a dict."""
        return self._get(model_path(model, version))

    def config(self, model: str, version: Any = None) -> Any:
        """The model's configuration, a dict."""
        return self._get(model_path(model, version, "config"))

    def statistics(self, model: str | None = None, version: Any = None) -> Any:
        """The counts since the load of the model, or of every model: a dict with model_stats."""
        return self._get("/v2/models/stats" if model is None else model_path(model, version, "stats"))

    def status(self) -> Any:
        """The state of the server and the models, a dict."""
        return self._get("/v2/status")

    def openapi(self) -> Any:
        """The OpenAPI document of the server and the models, a dict."""
        return self._get("/openapi.json")

    def models(self, ready: bool = False) -> Any:
        """The models of the server, loaded or not (ready=True: only ready models), a list of dicts: name, version,
        state (READY, LOADING, UNAVAILABLE), reason.
        """
        return self._post("/v2/repository/index", {"ready": True} if ready else None)

    def load(self, model: str, parameters: Mapping | None = None) -> Any:
        """Loads a model. parameters are settings of models. Returns the name of the endpoint."""
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
        """Sets the number of workers of a loaded model. The model serves meanwhile."""
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
        """Runs one inference, and returns an Answer. Raises MillraceError.

        inputs      values by name (numpy arrays, numbers, text, bytes, nested lists, Tensor). Numbers and lists of
                    numbers become the datatype that the model declares; arrays and Tensor must have this datatype
        picture     instead of inputs: the bytes of a JPEG, PNG or WebP picture
        parameters  for the model and the queue: strings, numbers, bools
        outputs     names of the outputs to return; None = all
        classes     by output name, the number of largest elements to return as classes: Answer.classes(name)
        deadline    seconds from receipt. The server does not run a request that would end later: error timeout
        json        True: tensors as numbers in JSON, in both directions, for debugging; False: raw bytes
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
        """Runs an inference of a model that may answer several times, and iterates over the Answers. timeout: seconds
        until the next event; a heartbeat is not an event.
        """
        return self._events(
            self._inferring(model, inputs, None, version, parameters, outputs, None, id, deadline, False, True, timeout)
        )

    def generate(self, model: str, members: Mapping, *, version: Any = None, timeout: float | None = None) -> Any:
        """Runs an inference with inputs, parameters and outputs as members of JSON objects, and returns a dict."""
        headers, body = json_body(dict(members), "members")
        return self._do(
            Call(
                "POST",
                model_path(model, version, "generate"),
                Reply.json,
                headers,
                body,
                timeout=seconds(timeout, "timeout"),
            )
        )

    def generate_stream(
        self, model: str, members: Mapping, *, version: Any = None, timeout: float | None = None
    ) -> Any:
        """generate for a model that may answer several times: iterates over dicts."""
        headers, body = json_body(dict(members), "members")
        return self._events(
            Call(
                "POST",
                model_path(model, version, "generate_stream"),
                Reply.json,
                headers,
                body,
                timeout=seconds(timeout, "timeout"),
                event=members_event,
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
        """Calls a route of a service, /apps/APP/PATH. app=None: the only service, at the root. Returns a Reply with
        status, headers, content_type, body, text and json().

        method  default: GET without a body, POST with a body
        json    the body: a value, sent as JSON
        data    the body: bytes or text
        form    the body: fields of a form, by name
        files   uploads of the form, by name: bytes, open files, or (file name, data, content type)
        check   True: raise MillraceError for a status outside 2xx
        """
        call = app_call(app, path, method, data, json, form, files, query, headers, timeout, check)
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
        """Calls a route of a service with server-sent events, and iterates over the events: Event(name, data, id).
        Raises MillraceError for an event with the name error. timeout: seconds until the next event; a heartbeat is not
        an event.
        """
        call = app_call(
            app, path, method, data, json, form, files, query, headers, timeout, True  # type: ignore[arg-type]
        )
        return self._events(call._replace(headers={"Accept": "text/event-stream", **call.headers}, event=plain_event))

    def streams(self) -> Any:
        """The server streams, a list of dicts."""
        return self._do(Call("GET", "/v2/streams", lambda reply: reply.json()["streams"]))

    def stream(self, name: str) -> Any:
        """The state and the counts of a server stream, a dict."""
        return self._get(escape("v2", "streams", name_of(name, "name", "stream")))

    def add_stream(self, name: str, source: str, **settings: Any) -> Any:
        """Adds a server stream, and returns the state, a dict. source is an http, https, rtsp or rtsps address;
        docs/streams.md lists the settings, such as model, models, policy, fps, loop, sinks.
        """
        return self._post("/v2/streams", {"name": name_of(name, "name", "stream"), "source": source, **settings})

    def change_stream(self, name: str, **settings: Any) -> Any:
        """Changes settings of a running server stream, such as paused and max_fps: all settings or none."""
        headers, body = json_body(settings, "settings")
        return self._do(
            Call("PATCH", escape("v2", "streams", name_of(name, "name", "stream")), Reply.json, headers, body)
        )

    def remove_stream(self, name: str) -> Any:
        """Ends and removes a server stream."""
        return self._do(Call("DELETE", escape("v2", "streams", name_of(name, "name", "stream")), lambda reply: None))

    def stream_counts(self, name: str, reset: bool = False) -> Any:
        """The counts of the rules of a server stream by model, a dict. reset makes the counts 0."""
        path = escape("v2", "streams", name_of(name, "name", "stream"), "counts")
        return self._post(path + "/reset") if reset else self._get(path)

    def stream_events(self, **query: Any) -> Any:
        """A page of the events of server streams, a dict: `events`, and `next` if there are more, for the option after.
        query: camera, type, rule, class_, from_, to, order, limit, after, as in docs/events.md.
        """
        return self._get("/v2/events", {name.rstrip("_"): str(value) for name, value in query.items()})

    def ticket(self) -> Any:
        """A ticket, a string. The ticket opens one session within 30 s."""
        return self._post("/v2/tickets", None, lambda reply: reply.json()["ticket"])
