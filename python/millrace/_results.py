"""Results of frames, read from messages of the server."""

from __future__ import annotations

import json
import time
from typing import Any, Mapping

from . import _oip
from ._client_errors import MillraceError, bad_reply
from ._frames import HEADER, RESULT
from ._replies import Timing
from ._tensors import Tensor


class Result:
    """The ending of a frame, or with `partial` a part of the result.

    type        "result", "drop" or "error"
    seq         the number of the frame, as send returned
    outputs     Tensor by name; `result["name"]` is an output as a numpy array, or as nested lists without numpy
    parameters  of the model, a dict
    reason      of a drop, such as "superseded" or "stale"
    error       MillraceError of an error
    lost        the frame or the ending was lost with a connection; type is "error"
    width, height  of the frame as sent, upright, in pixels; 0 = no picture
    batch       rows of the batch
    timing      Timing
    capture     as given to send, in seconds; 0 = none
    sent        time of the call of send, by time.monotonic(), in seconds
    trace       00-TRACE-SPAN-FLAGS, of streams with trace
    """

    __slots__ = (
        "type",
        "seq",
        "partial",
        "outputs",
        "parameters",
        "reason",
        "error",
        "lost",
        "model",
        "version",
        "width",
        "height",
        "batch",
        "timing",
        "capture",
        "sent",
        "received",
        "trace",
    )

    def __init__(self, type: str, seq: int = 0) -> None:
        self.type, self.seq = type, seq
        self.partial = self.lost = False
        self.outputs: dict[str, Tensor] = {}
        self.parameters: dict = {}
        self.reason = self.model = self.version = self.trace = ""
        self.error: MillraceError | None = None
        self.width = self.height = self.batch = 0
        self.timing = Timing()
        self.capture = self.sent = 0.0
        self.received = time.monotonic()

    def copy(self) -> Result:
        """The same ending for another frame."""
        other = Result(self.type)
        for name in self.__slots__:
            setattr(other, name, getattr(self, name))
        return other

    def __getitem__(self, name: str) -> Any:
        if self.error is not None:
            raise self.error
        try:
            return _oip.value(self.outputs[name])
        except KeyError:
            what = (
                f"the frame was dropped: {self.reason}"
                if self.type == "drop"
                else f"the outputs are {', '.join(self.outputs) or 'none'}"
            )
            raise KeyError(f"{name}: {what}") from None

    def __repr__(self) -> str:
        what = (
            self.reason if self.type == "drop" else self.error if self.type == "error" else list(self.outputs.values())
        )
        return f"Result({self.type!r}, seq={self.seq}{', partial' if self.partial else ''}, {what!r})"


def _timing(t: Mapping) -> Timing:
    return Timing(*(t.get(name, 0) / 1e6 for name in ("queue_us", "prepare_us", "run_us", "total_us", "received_us")))


def fill(reply: Result, m: Mapping, t: Mapping) -> None:
    reply.model, reply.version = m.get("model", ""), m.get("version", "")
    reply.width, reply.height, reply.batch = m.get("width", 0), m.get("height", 0), m.get("batch", 0)
    reply.partial, reply.trace = bool(m.get("partial")), m.get("traceresponse", "")
    reply.capture = m.get("capture_us", 0) / 1e6
    reply.timing = _timing(t)


def binary_result(data: Any) -> tuple[dict, Result]:
    data = memoryview(data)
    if len(data) < HEADER.size or data[0] != 1 or data[1] != RESULT:
        raise bad_reply(f"a binary message begins with {bytes(data[:4])!r}, and is no result")
    _, _, _, _, sid, seq, capture, width, height, ext, _ = HEADER.unpack_from(data)
    at = HEADER.size + ext
    n = int.from_bytes(data[at : at + 4], "little")
    try:
        if at + 4 + n > len(data):
            raise ValueError("it ends early")
        m = json.loads(bytes(data[at + 4 : at + 4 + n]))
        reply = Result("result", seq)
        reply.outputs = _oip.outputs_of(m.get("outputs"), data[at + 4 + n :])
        own = {
            "sid": sid,
            "width": width,
            "height": height,
            "capture_us": capture,
            "model": m.get("model_name", ""),
            "version": m.get("model_version", ""),
        }
        for name, value in (m.get("parameters") or {}).items():
            if name in _OWN_PARAMETERS and isinstance(value, _OWN_PARAMETERS[name]):
                own[name] = value
            else:
                reply.parameters[name] = value
    except (ValueError, TypeError, AttributeError) as error:
        raise bad_reply(f"a result: {error}") from None
    fill(reply, own, own)
    return own, reply


# Members of results that have the form of parameters in binary results.
_OWN_PARAMETERS = {
    "ack": int,
    "credit_limit": int,
    "batch": int,
    "received_us": int,
    "queue_us": int,
    "prepare_us": int,
    "run_us": int,
    "total_us": int,
    "partial": bool,
    "traceresponse": str,
}
