"""The programs that the runtime serves (Application), and the objects that a program gets (Request, Batch, Call).

A style of program (services of this package, and stand-ins for other systems) is an Application. The loop in _loop.py
speaks to the server and calls the Application. The main thread of the child uses everything here. Any thread may call
Request.reply, fail and emit while run has not returned.
"""

from __future__ import annotations

import contextvars
import threading
import time
from typing import Any, Callable, Iterator, Protocol

from . import _tensors
from ._errors import CODES, Error, describe, user_traceback
from ._wire import BEGUN, RESERVED, SMALL, Inputs, Output, Segments, encode_json


class Application(Protocol):
    """A program."""

    def describe(self) -> dict[str, Any]:
        """Returns the message `model` (docs/process.md), without the type."""

    def setup(self) -> None:
        """Prepares the program for run; may raise."""

    def run(self, requests: Batch) -> None:
        """Ends each request by reply, fail or drop. An exception fails the requests without an ending."""

    def watchdog(self) -> Any:
        """Raises, or returns False, when the program is unhealthy."""

    def close(self) -> None:
        """Is called once, before the process ends."""


class Call:
    """The HTTP request of a route: endpoint, method, path, query, header (names in lower case), content_type, user."""

    __slots__ = ("endpoint", "method", "path", "query", "header", "content_type", "user")

    def __init__(self, message: dict[str, Any]):
        get = message.get
        self.endpoint: str = get("endpoint") or ""
        self.method: str = get("method") or "POST"
        self.path: str = get("path") or ""
        self.query: str = get("query") or ""
        self.header: dict[str, str] = get("header") or {}
        self.content_type: str = get("content_type") or ""
        self.user: str = get("user") or ""


_EMPTY = memoryview(b"")
MAX_MESSAGE = 4096  # characters of an error's message
_NOTHING = object()  # the outputs behind the last answer in parts


class Request:
    """A request of a batch. Arrays and body are valid until run returns: copy data that is kept longer."""

    __slots__ = (
        "_message",
        "_data",
        "_batch",
        "index",
        "call",
        "rows",
        "row",
        "_tensors",
        "_cancelled",
        "ended",
        "emitted",
        "_ending",
        "_lone_state",
    )

    def __init__(self, message: dict[str, Any], data: memoryview, batch: Batch, index: int, row: int):
        self._message, self._data, self._batch, self.index, self.row = message, data, batch, index, row
        call = message.get("call")
        self.call: Call | None = None if call is None else Call(call)
        self.rows: int = message.get("rows", 1)
        self._tensors: dict[str, _tensors.Tensor] | None = None
        self._cancelled = False
        self.ended = False
        self.emitted = False  # a part of the answer
        self._ending: dict[str, Any] | None = None
        self._lone_state: dict[Any, Any] | None = None

    @property
    def body(self) -> memoryview:
        """The frame's payload, or the body of a call."""
        place = self._message.get("payload")
        return _EMPTY if place is None else self._batch.place(place, self._data)

    @property
    def tensors(self) -> dict[str, _tensors.Tensor]:
        """The inputs by name. Inputs of a dense batch have the rows of the request as the first dimension."""
        if self._tensors is None:
            own = self._message.get("inputs")
            if own is None:
                self._tensors = {n: self._slice(t) for n, t in self._batch.tensors.items()}
            else:
                self._tensors = {t["name"]: _tensors.read(t, self._batch.place(t, self._data)) for t in own}
        return self._tensors

    def _slice(self, t: _tensors.Tensor) -> _tensors.Tensor:
        size = len(t.data) // max(t.shape[0], 1)  # bytes of a row; of BYTES, elements
        data = t.data[self.row * size : (self.row + self.rows) * size]
        return _tensors.Tensor(t.datatype, (self.rows,) + t.shape[1:], data)

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs by name as numpy arrays (as tensors where numpy is not installed)."""
        return {n: t.array() for n, t in self.tensors.items()}

    @property
    def has_tensors(self) -> bool:
        """The input is tensors, and not a payload."""
        return "inputs" in self._message or self._batch.dense and "payload" not in self._message

    @property
    def dense(self) -> bool:
        """The tensors are rows of the tensors of the batch."""
        return "inputs" not in self._message and self._batch.dense

    def picture_map(self, size: tuple[int, int]) -> tuple[float, float, float, float]:
        """Returns a, b, c, d: x*a + b and y*c + d are pixels of the frame as sent.

        x and y are pixels of the picture that the program got. size is the width and height of this picture, 0 = the
        size of the frame's picture.
        """
        width, height = size
        place = self._message.get("map")
        if place is None:
            return (
                self.width / width if width and self.width else 1.0,
                0.0,
                self.height / height if height and self.height else 1.0,
                0.0,
            )
        return tuple(place)

    def decode(self, picture: Any, width: int, height: int, color: str) -> tuple[dict[str, Any], memoryview]:
        """Lets the server decode a picture file of the request, in the thread that receives messages while the batch
        runs.

        Returns the server's message, with shape, width, height and map, and the pixels. Size 0 is the size of the
        file's picture.
        """
        runtime = self._batch.runtime
        picture = _tensors.flat(picture)
        if 0 < runtime.max_result < len(picture):
            raise Error(
                f"it has {len(picture)} bytes, and the setting max_result allows {runtime.max_result}", "too_large"
            )
        message, pixels = runtime.ask(
            {
                "type": "decode",
                "id": self._batch.id,
                "request": self.index,
                "width": width,
                "height": height,
                "color": color,
            },
            picture,
        )
        error = message.get("error")
        if error is not None:
            raise Error(error["message"], error["code"])
        return message, pixels

    def picture_sent(self, picture: dict[str, Any]) -> None:
        """Notes the server's message about a picture that decode had decoded."""
        for name in ("width", "height", "map"):
            self._message[name] = picture[name]

    @property
    def codec(self) -> str:
        """How body is coded: opaque, jpeg, png, webp, rgb24, nv12, pcm16, pcmf32, tensor."""
        return self._message.get("codec") or "opaque"

    @property
    def width(self) -> int:
        """Pixels of the frame's picture; 0 = not known."""
        return self._message.get("width") or 0

    @property
    def height(self) -> int:
        """Pixels of the frame's picture; 0 = not known."""
        return self._message.get("height") or 0

    @property
    def parameters(self) -> dict[str, Any]:
        """The request's parameters: strings, numbers and bools by name."""
        return self._message.get("parameters") or {}

    @property
    def stream(self) -> Any:
        """The stream of the request, a number; None for a request without a stream."""
        return self._message.get("stream")

    @property
    def seq(self) -> int | None:
        """The number of the frame in the stream."""
        return self._message.get("seq")

    @property
    def deadline(self) -> float | None:
        """Seconds left until the deadline; None without a deadline."""
        ms = self._message.get("deadline_ms")
        return None if ms is None else ms / 1000 - (time.perf_counter() - self._batch.started)

    @property
    def trace(self) -> str:
        """The traceparent of the frame's span, or ""."""
        return self._message.get("trace") or ""

    @property
    def user_id(self) -> str:
        """The authenticated user, or ""."""
        return self._message.get("user") or (self.call.user if self.call else "")

    @property
    def cancelled(self) -> bool:
        """Nobody waits for the answer any more. Only the thread that runs the request gets the news from the server."""
        if not self._cancelled:
            self._batch.look()
        return self._cancelled

    @property
    def state(self) -> dict[Any, Any]:
        """A dict of the program, kept for the stream of the request; an empty dict for a request without a stream."""
        if self.stream is None:
            if self._lone_state is None:
                self._lone_state = {}
            return self._lone_state
        return self._batch.state(self)

    def reply(
        self,
        outputs: Any = None,
        status: int = 200,
        content_type: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        """Ends the request.

        outputs of a call is the body: bytes, str, or a value for JSON. outputs of a frame is a dict of arrays (see
        _tensors.describe), or one value, the output with the name `output`.
        """
        self._end({"outputs": outputs, "status": status, "content_type": content_type, "headers": headers})

    def emit(
        self, outputs: Any, status: int = 200, content_type: str | None = None, headers: dict[str, str] | None = None
    ) -> None:
        """Sends a partial answer at once; arguments as for reply. reply with a last answer, or done, ends a request."""
        if self.ended:
            raise RuntimeError("emit after the end of the request")
        self.emitted = True
        self._batch.emit(self, {"outputs": outputs, "status": status, "content_type": content_type, "headers": headers})

    def done(self) -> None:
        """Ends a request after answers by emit."""
        self._end({"outputs": _NOTHING, "status": 200, "content_type": None, "headers": None})

    def fail(
        self, message: str, code: str = "internal", status: int | None = None, traceback: str | None = None
    ) -> None:
        """Ends the request with an error. status is the HTTP status of a call's answer; None = the code's status."""
        error: dict[str, Any] = {"code": code if code in CODES else "internal", "message": message[:MAX_MESSAGE]}
        if status is not None:
            error["status"] = status
        if traceback:
            error["traceback"] = traceback
        self._end({"error": error})

    def fail_with(self, error: BaseException) -> None:
        """Ends the request with an exception of the program."""
        if isinstance(error, Error):
            self.fail(error.message, error.code, error.status)
        else:
            self.fail(describe(error), "internal", None, user_traceback(error))

    def drop(self) -> None:
        """Ends the request without a result."""
        self._end({"drop": True})

    def _end(self, ending: dict[str, Any]) -> None:
        if self.ended:
            raise RuntimeError("the request was ended already")
        self.ended, self._ending = True, ending


class Batch(list):
    """The requests of a run. inputs are the inputs of a dense batch, by name, with all rows."""

    def __init__(self, message: dict[str, Any], data: memoryview, runtime: Runtime):
        super().__init__()
        self.id: int = message["id"]
        self.started = time.perf_counter()
        self.runtime = runtime
        self.spans: list[dict[str, Any]] = []
        self.ends = ""  # why the process ends after the batch; "" = it does not
        self._region = message.get("results")
        self._inputs = message.get("inputs")
        self._data = data
        self._tensors: dict[str, _tensors.Tensor] | None = None
        self._outputs: dict[str, Any] | None = None
        row = 0
        for index, m in enumerate(message["requests"]):
            r = Request(m, data, self, index, row)
            row += r.rows
            if m.get("new"):
                runtime.states.pop(m.get("stream"), None)
            self.append(r)
        self.rows = row
        self.poll = runtime.poll
        self.place = runtime.segments.place

    def look(self) -> None:
        """Takes note of cancelled requests, while the batch runs and in the thread that receives messages."""
        if self.runtime.batch is self and self.runtime.thread == threading.get_ident():
            self.poll()

    @property
    def dense(self) -> bool:
        """The inputs of all requests are in one tensor each."""
        return self._inputs is not None

    @property
    def tensors(self) -> dict[str, _tensors.Tensor]:
        """The inputs of a dense batch."""
        if self._tensors is None:
            self._tensors = {t["name"]: _tensors.read(t, self.place(t, self._data)) for t in self._inputs or ()}
        return self._tensors

    @property
    def inputs(self) -> dict[str, Any]:
        """The same as numpy arrays."""
        return {n: t.array() for n, t in self.tensors.items()}

    def reply(self, outputs: dict[str, Any]) -> None:
        """Ends all requests of a batch with outputs for all rows, in the order of the requests."""
        for r in self:
            if r.ended:
                raise RuntimeError("a request was ended already")
        self._outputs = outputs
        for r in self:
            r.ended = True

    def state(self, request: Request) -> dict[Any, Any]:
        """Returns the state of the request's stream."""
        return self.runtime.state(request.stream)

    def emit(self, request: Request, answer: dict[str, Any]) -> None:
        """Sends a part of the answer to a request."""
        out = Output(limit=self.runtime.max_result)
        message = {"type": "part", "id": self.id, "request": request.index}
        message.update(encode(request, answer, out))
        self.runtime.connection.send(message, out.parts)

    def begin(self) -> None:
        """Tells the server that the batch has begun: if the process ends from now on, the batch is the cause."""
        if self._region is not None and self._region["size"] >= RESERVED:
            BEGUN.pack_into(self.place(self._region, _EMPTY), 0, self.id)
        elif self.runtime.says_begun:
            self.runtime.connection.send({"type": "begun", "id": self.id})

    def finish(self) -> None:
        """Sends the endings of all requests."""
        out = Output(
            self._region,
            None if self._region is None else self.place(self._region, _EMPTY),
            self.runtime.max_result,
            Inputs(self.runtime.segments, self._places),
        )
        message: dict[str, Any] = {"type": "result", "id": self.id}
        if self._outputs is not None:
            try:
                message["outputs"] = self._encode_rows(out)
            except Exception as e:
                error = {"code": e.code if isinstance(e, Error) else "internal", "message": str(e)}
                message["requests"] = [{"error": error} for _ in self]
        elif self.spans or self.ends:
            message["requests"] = [_ending(r, out) for r in self]
        else:
            endings = [_small(r, out) or encode_json(_ending(r, out)) for r in self]
            self.runtime.connection.send_text(
                f'{{"type":"result","id":{self.id},"requests":[{",".join(endings)}]}}', out.parts
            )
            return
        if self.spans:
            message["spans"] = self.spans
        if self.ends:
            message["ends"] = self.ends[:MAX_MESSAGE]
        self.runtime.connection.send(message, out.parts)

    def _places(self) -> Iterator[dict[str, Any]]:
        """Yields where the inputs are."""
        yield from self._inputs or ()
        for r in self:
            yield from r._message.get("inputs") or ()
            if "payload" in r._message:
                yield r._message["payload"]

    def _encode_rows(self, out: Output) -> list[dict[str, Any]]:
        tensors = []
        for name, value in (self._outputs or {}).items():
            t, pieces = _tensors.describe(name, value)
            if not t["shape"] or t["shape"][0] != self.rows:
                raise Error(
                    f"output {name} has the shape {t['shape']} for a batch of {self.rows}: the first dimension must "
                    f"be {self.rows}"
                )
            tensors.append(out.put(t, pieces))
        return tensors


_quoted: dict[str | None, str] = {"application/json": '"application/json"'}


def _small(r: Request, out: Output) -> str | None:
    """Returns the text of the ending of a call with a small answer of bytes; None for other calls."""
    answer = r._ending
    if (
        answer is None
        or r.call is None
        or type(body := answer.get("outputs")) is not bytes
        or len(body) > SMALL
        or answer["headers"]
    ):
        return None
    content_type, status = answer["content_type"], answer["status"]
    if content_type not in _quoted or type(status) is not int:
        return None
    size = len(body)
    at = out.put_small(size.to_bytes(4, "little"), body)
    return (
        f'{{"outputs":[{{"name":"body","datatype":"BYTES","shape":[1],"size":{size + 4},"at":{at}}}],'
        f'"reply":{{"status":{status},"content_type":{_quoted[content_type]}}}}}'
    )


def _ending(r: Request, out: Output) -> dict[str, Any]:
    answer = r._ending
    if answer is None:
        return {"error": {"code": "internal", "message": "the program did not answer the request"}}
    if "outputs" not in answer:
        return answer
    try:
        return encode(r, answer, out)
    except Exception as e:
        return {"error": {"code": e.code if isinstance(e, Error) else "internal", "message": str(e)}}


def encode(r: Request, answer: dict[str, Any], out: Output) -> dict[str, Any]:
    """Returns the members outputs and reply of an answer. The data go to out."""
    outputs = answer["outputs"]
    if outputs is _NOTHING:
        return {"outputs": []}
    if r.call is None:
        if outputs is None:
            return {"outputs": []}
        if not isinstance(outputs, dict):
            outputs = {"output": outputs}
        tensors = []
        for name, value in outputs.items():
            t, pieces = _tensors.describe(str(name), value)
            tensors.append(out.put(t, pieces))
        return {"outputs": tensors}
    content_type = answer["content_type"]
    body: Any = b""
    if outputs is None:
        pass
    elif isinstance(outputs, (bytes, bytearray, memoryview)):
        body, content_type = _tensors.flat(outputs), content_type or "application/octet-stream"
    elif isinstance(outputs, str):
        body, content_type = outputs.encode("utf-8", "replace"), content_type or "text/plain; charset=utf-8"
    else:
        body, content_type = to_json(outputs).encode("utf-8", "replace"), content_type or "application/json"
    status = answer["status"]
    if not isinstance(status, int) or not 200 <= status <= 599:
        raise Error(f"the answer has the status {status!r}: want 200 to 599")
    reply: dict[str, Any] = {"status": int(status)}
    if content_type:
        reply["content_type"] = str(content_type)
    if answer["headers"]:
        reply["header"] = {str(k): str(v) for k, v in answer["headers"].items()}
    if outputs is None:
        return {"outputs": [], "reply": reply}
    t = out.put({"name": "body", "datatype": "BYTES", "shape": [1]}, [len(body).to_bytes(4, "little"), body])
    return {"outputs": [t], "reply": reply}


def to_json(value: Any) -> str:
    """Returns JSON text. Raises Error for numbers that are not finite and for types without a form in JSON."""
    try:
        return encode_json(value)
    except (ValueError, TypeError, RecursionError) as e:
        raise Error(f"the answer cannot be written as JSON: {e}") from None


current: contextvars.ContextVar[Request | None] = contextvars.ContextVar("millrace_request", default=None)
"""The request that the code at hand runs for."""

binding: contextvars.ContextVar[Request | None] = contextvars.ContextVar("millrace_binding", default=None)
"""The request whose arguments are made now."""


class Runtime:
    """The part of the loop that requests need."""

    def __init__(
        self, connection: Any, segments: Segments, poll: Callable[[], None], ask: Callable[[dict[str, Any], Any], Any]
    ):
        self.connection, self.segments, self.poll = connection, segments, poll
        self.ask = ask  # sends a message decode, and returns the message decoded with its bytes
        self.thread = threading.get_ident()  # which receives the server's messages
        self.states: dict[Any, dict[Any, Any]] = {}
        self.batch: Batch | None = None
        self.max_result = 0  # bytes; 0 = as many as a message can have
        self.says_begun = False  # by a message, where there is no shared memory
        # Ids of batches that have not begun, and numbers of cancelled requests in the batches.
        self.cancelled: set[tuple[int, int]] = set()

    def state(self, stream: Any) -> dict[Any, Any]:
        """Returns the state of a stream."""
        found = self.states.get(stream)
        if found is None:
            found = self.states[stream] = {}
        return found
