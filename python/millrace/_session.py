"""Sessions and streams of millrace.v1 without input and output: docs/protocol.md as a state machine.

A SessionState is given what the server sends, and gives back what is to be sent. It is used from one thread. Each frame
that was sent ends exactly once, as a Result: a result, a drop, or an error; a frame that cannot be recovered after a
lost connection is an error with `lost`.
"""

from __future__ import annotations

import collections
import copy
import json
import math
import struct
import time
from typing import Any, Callable, Iterable, Mapping, Union

from . import _oip
from ._client_errors import MillraceError, bad_reply, invalid, of_message
from ._rest import Timing, parameters_of
from ._tensors import Tensor

PROTOCOL = "millrace.v1"
TICKET = "millrace.ticket."

CODECS = ("opaque", "jpeg", "png", "webp", "h264", "vp8", "vp9", "av1", "rgb24", "nv12", "pcm16", "pcmf32", "tensor")
_INTER_CODED = ("h264", "vp8", "vp9", "av1")
_FRAME, _CONFIG, _RESULT, _TENSORS, _AUDIO = 1, 2, 3, 4, 5
_KEY, _DISCONTINUITY, _MUST, _END = 1, 2, 4, 8
_HEADER = struct.Struct("<BBBBIQqHHHH")
_CONFIG_SEQ = (1 << 64) - 1  # in messages with a codec's parameters; no frame has it
_MAX_CONFIG = 64 << 10
MAX_UNENDED = 4096  # frames of a stream without an ending

# A message to send: (text or binary, parts).
Message = tuple

# Codes of errors by close code; others are internal.
_CLOSE_CODES = {
    1000: "unavailable",
    1001: "draining",
    4503: "draining",
    1008: "invalid_argument",
    4400: "invalid_argument",
    1009: "too_large",
    1013: "overloaded",
    4429: "overloaded",
    4401: "unauthenticated",
    4404: "not_found",
    4408: "timeout",
    4409: "conflict",
}

_CLOSE_REASONS = {
    "unloaded": ("unloaded", "the model was unloaded"),
    "draining": ("draining", "the server is shutting down"),
    "idle": ("timeout", "no frame was sent for too long"),
    "slow_consumer": ("overloaded", "replies were not received fast enough"),
}


class Result:
    """The ending of one frame, or with `partial` a part of its result.

    type        "result", "drop" or "error"
    seq         the frame's number, as send returned it
    outputs     Tensor by name; `result["name"]` is an output as a numpy array, or as nested lists without numpy
    parameters  of the model, a dict
    reason      of a drop, such as "superseded" or "stale"
    error       MillraceError of an error
    lost        the frame, or its ending, was lost with a connection; it is an error then
    width, height  of the frame as sent, upright, in pixels; 0 = it is no picture
    batch       rows of the batch that it was run in
    timing      Timing
    capture     as given to send, in seconds; 0 = none
    sent        when send was called, by time.monotonic()
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


class Policy:
    """What happens to frames that come faster than the model is: mode "latest" or "every"; 0 = the model's default."""

    __slots__ = ("mode", "max_age", "deadline", "max_fps", "window")

    def __init__(
        self, mode: str = "", max_age: float = 0, deadline: float = 0, max_fps: float = 0, window: int = 0
    ) -> None:
        if mode not in ("", "latest", "every"):
            raise invalid("policy", f'is {mode!r}: want "latest" or "every"')
        self.mode = mode
        self.max_age = _number(max_age, "max_age", "seconds")
        self.deadline = _number(deadline, "deadline", "seconds")
        self.max_fps = _number(max_fps, "max_fps", "frames per second")
        if isinstance(window, bool) or not isinstance(window, int) or window < 0:
            raise invalid("window", f"is {window!r}: want a number of frames")
        self.window = window

    def members(self, all_of_them: bool = True) -> dict:
        """The message's member `policy`."""
        m = {
            "mode": self.mode,
            "max_age_ms": _ms(self.max_age),
            "deadline_ms": _ms(self.deadline),
            "max_fps": self.max_fps,
            "window": self.window,
        }
        return m if all_of_them else {k: v for k, v in m.items() if v}

    @classmethod
    def of(cls, m: Mapping) -> Policy:
        """The policy of a message."""
        return cls(
            m.get("mode", ""),
            m.get("max_age_ms", 0) / 1000,
            m.get("deadline_ms", 0) / 1000,
            m.get("max_fps", 0),
            m.get("window", 0),
        )

    def changed(self, changes: Mapping) -> Policy:
        """The policy with changes of update."""
        now = {name: getattr(self, name) for name in self.__slots__}
        return Policy(**{**now, **{k: v for k, v in changes.items() if v is not None}})

    def __repr__(self) -> str:
        return f"Policy({', '.join(f'{n}={getattr(self, n)!r}' for n in self.__slots__)})"


def _number(value: Any, field: str, unit: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise invalid(field, f"is {value!r}: want {unit}, 0 or more")
    return value


def _ms(value: float) -> int:
    return math.ceil(value * 1000 - 1e-6)  # up, so that a short time does not become 0


def text(type: str, **members: Any) -> Message:
    """A control message."""
    return False, (json.dumps({"type": type, **members}, separators=(",", ":")).encode(),)


class Frame:
    """One frame to send: data or tensors, and what is said about it.

    data        the bytes of a picture, samples, a chunk of video or other bytes, depending on the codec; or a picture
                as a numpy array of uint8 with the shape (height, width, 3), in RGB
    inputs      instead of data: values by name, as for Client.infer
    codec       one of CODECS; None = the stream's
    width, height  pixels, of rgb24 and nv12
    key, discontinuity  of video in codecs with dependent frames: can be decoded alone; frames before it are missing
    must        is never superseded, overtaken or stale
    last        the stream is closed when this frame has ended
    capture     its time by the caller's clock, in seconds; the result repeats it
    deadline    seconds from receipt; None = the policy's
    region      (x, y, width, height): only this part of the picture, in pixels as sent
    parameters  for the model, instead of the stream's
    trace       a W3C traceparent
    """

    __slots__ = (
        "parts",
        "size",
        "kind",
        "codec",
        "flags",
        "width",
        "height",
        "capture",
        "deadline",
        "ext",
        "last",
        "inputs",
    )

    def __init__(
        self,
        data: Any = None,
        inputs: Any = None,
        *,
        codec: str | None = None,
        width: int = 0,
        height: int = 0,
        key: bool = False,
        discontinuity: bool = False,
        must: bool = False,
        last: bool = False,
        capture: float = 0.0,
        deadline: float | None = None,
        region: Iterable[int] | None = None,
        parameters: Mapping | None = None,
        trace: str = "",
    ) -> None:
        if (data is None) == (inputs is None):
            raise invalid("data", "and inputs: give one of them")
        if isinstance(data, Mapping):
            data, inputs = None, data
        if codec is not None and codec != "auto" and codec not in CODECS[:-1]:
            raise invalid("codec", f"{codec!r} is unknown: want auto, {', '.join(CODECS[:-1])}")
        self.codec, self.kind = codec, _FRAME
        self.inputs: Any = None
        if _oip.has_numbers(inputs):
            self.inputs, self.parts = dict(inputs), ()  # until a stream knows the datatypes of its model
        elif inputs is not None:
            self._put_inputs(_oip.inputs_of(inputs))
        elif _oip.is_array(data):
            if data.dtype != "uint8" or data.ndim != 3 or data.shape[2] != 3:
                raise invalid(
                    "data",
                    f"is an array of {data.dtype} with the shape {data.shape}: a picture is uint8 with (height, "
                    f"width, 3); other arrays go by inputs={{name: array}}",
                )
            height, width = data.shape[:2]
            self.codec, self.parts = "rgb24", (data.tobytes(),)
        else:
            try:
                self.parts = (memoryview(data).cast("B"),) if not isinstance(data, bytes) else (data,)
            except TypeError:
                raise invalid("data", f"is {type(data).__name__}: want bytes, an array, or inputs by name") from None
        self.width, self.height = _u16(width, "width", "pixels"), _u16(height, "height", "pixels")
        self.capture = round(_finite(capture, "capture") * 1e6)
        self.deadline = _u16(_ms(_number(deadline or 0, "deadline", "seconds")), "deadline", "milliseconds")
        self.last = bool(last)
        self.flags = (
            (_KEY if key else 0)
            | (_DISCONTINUITY if discontinuity else 0)
            | (_MUST if must else 0)
            | (_END if last else 0)
        )
        self.ext = _ext(trace, region, parameters_of(parameters) if parameters else None)
        self._measure()

    def _measure(self) -> None:
        self.size = _HEADER.size + len(self.ext) + sum(map(_oip.size, self.parts))

    def converted(self, declared: Mapping[str, str]) -> Frame:
        """The frame with its numbers as the datatypes that the model declares."""
        frame = copy.copy(self)
        frame._put_inputs(_oip.inputs_of(self.inputs, declared))
        frame.inputs = None
        frame._measure()
        return frame

    def _put_inputs(self, given: list[_oip.Input]) -> None:
        head = json.dumps({"inputs": [t.binary() for t in given]}, separators=(",", ":")).encode()
        self.kind, self.codec = _TENSORS, "tensor"
        self.parts = (len(head).to_bytes(4, "little") + head, *(piece for t in given for piece in t.pieces))

    def message(self, sid: int, seq: int, flags: int, default: str) -> Message:
        """The frame as a message; default is the stream's codec."""
        codec = self.codec or default
        code = CODECS.index(codec) if codec in CODECS else 0  # auto: the server recognises it by its content
        kind = _AUDIO if codec in ("pcm16", "pcmf32") else self.kind
        return True, (
            _HEADER.pack(
                1,
                kind,
                code,
                self.flags | flags,
                sid,
                seq,
                self.capture,
                self.width,
                self.height,
                len(self.ext),
                self.deadline,
            )
            + self.ext,
            *self.parts,
        )


def _u16(value: Any, field: str, unit: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 16:
        raise invalid(field, f"is {value!r}: want 0 to 65535 {unit}")
    return value


def _finite(value: Any, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise invalid(field, f"is {value!r}: want seconds")
    return value


def _ext(trace: str, region: Iterable[int] | None, parameters: dict | None) -> bytes:
    entries = []
    if trace:
        entries.append((1, trace.encode()))
    if region is not None:
        sides = list(region)
        if len(sides) != 4:
            raise invalid("region", f"is {sides!r}: want (x, y, width, height)")
        entries.append((2, struct.pack("<4H", *(_u16(n, "region", "pixels") for n in sides))))
    if parameters:
        entries.append((4, json.dumps(parameters).encode()))
    out = b""
    for kind, value in entries:
        if len(value) > 0xFFFF or len(out) + len(value) + 3 > 0xFFFF:
            raise MillraceError(
                "too_large", "parameters: a frame carries at most 65535 bytes of them", field="parameters"
            )
        out += bytes((kind,)) + len(value).to_bytes(2, "little") + value
    return out


class _Unended:
    __slots__ = ("seq", "sent", "lost")

    def __init__(self, seq: int) -> None:
        self.seq, self.sent, self.lost = seq, time.monotonic(), False


OPENING, OPEN, CLOSED = "opening", "open", "closed"


class StreamState:
    """One stream of a session."""

    def __init__(
        self,
        session: SessionState,
        model: str,
        version: str,
        codec: str,
        width: int,
        height: int,
        policy: Policy,
        outputs: str,
        stateful: bool,
        parameters: dict,
        trace: bool,
        buffer: int,
    ) -> None:
        if not isinstance(model, str) or not model:
            raise invalid("model", f"is {model!r}: want the name of a model")
        if codec != "auto" and codec not in CODECS[:-1]:
            raise invalid("codec", f"{codec!r} is unknown: want auto, {', '.join(CODECS[:-1])}")
        if outputs not in ("binary", "json", "none"):
            raise invalid("outputs", f'is {outputs!r}: want "binary", "json" or "none"')
        if isinstance(buffer, bool) or not isinstance(buffer, int) or buffer < 1:
            raise invalid("buffer", f"is {buffer!r}: want how many results may wait to be read, 1 or more")
        self.session, self.model, self.version, self.codec = session, model, str(version or ""), codec
        self.width, self.height = width, height
        self.asked, self.policy, self.outputs = policy, policy, outputs
        self.stateful, self.parameters, self.trace, self.buffer = stateful, parameters, trace, buffer
        self.state = OPENING
        self.error: MillraceError | None = None  # why it ended
        self.replies: collections.deque[Result] = collections.deque()  # those that nobody has read
        self.counts = {"sent": 0, "results": 0, "drops": 0, "errors": 0, "unread": 0}
        self.totals: dict[str, int] = {}  # of the server, when it has closed the stream
        self.advice: dict[str, Any] = {}
        self.stats: dict[str, Any] = {}
        self.changed: Callable[[], None] = lambda: None  # is called after each change
        self.refused: Callable[[MillraceError], None] = lambda error: None  # is called with the error of a frame
        self.told: Callable[[str, Any], None] = lambda what, value: None  # advice, stats, refused
        self.sid = 0
        self.next_seq = 0
        self.unended: list[_Unended] = []
        self.at_server = 0  # unended frames that may be at the server
        self.sent = self.limit = self.ended = 0  # as the server's credits count them
        self.paused = self.closing = self.flushing = self.abandoned = self.reopened = False
        self.update: dict[str, Any] = {}  # all changes by update
        self.updated = False  # since the message open was sent
        self.config: tuple[int, bytes] | None = None
        self.discontinuity = False

    # What is sent.

    def open_message(self) -> Message:
        self.updated = False
        m: dict[str, Any] = {
            "sid": self.sid,
            "model": self.model,
            "outputs": self.update.get("outputs") or self.outputs,
        }
        changes = {k: v for k, v in self.update.items() if k in Policy.__slots__}
        policy = self.asked.changed(changes).members(False)
        given = self.update.get("parameters")
        for name, value in (
            ("version", self.version),
            ("width", self.width),
            ("height", self.height),
            ("policy", policy),
            ("params", self.parameters if given is None else given),
            ("stateful", self.stateful),
            ("trace", self.trace),
        ):
            if value:
                m[name] = value
        if self.codec != "auto":
            m["codec"] = self.codec
        return text("open", **m)

    def update_message(self, changes: Mapping | None = None) -> Message:
        changes = self.update if changes is None else changes
        m: dict[str, Any] = {"sid": self.sid}
        policy = {}
        for name, member, convert in (
            ("max_age", "max_age_ms", _ms),
            ("deadline", "deadline_ms", _ms),
            ("max_fps", "max_fps", float),
            ("window", "window", int),
        ):
            if changes.get(name) is not None:
                policy[member] = convert(changes[name])
        if policy:
            m["policy"] = policy
        if changes.get("outputs"):
            m["outputs"] = changes["outputs"]
        if changes.get("parameters") is not None:
            m["params"] = changes["parameters"]
        return text("update", **m)

    def config_messages(self) -> list[Message]:
        if self.config is None:
            return []
        codec, data = self.config
        return [(True, (_HEADER.pack(1, _CONFIG, codec, 0, self.sid, _CONFIG_SEQ, 0, 0, 0, 0, 0), data))]

    def check_send(self, size: int) -> None:
        """Raises what keeps a frame of this size from ever being sent."""
        most = self.session.limits.get("max_message", 0)
        if self.error is not None:
            raise self.error
        if self.state == CLOSED or self.closing:
            raise MillraceError("canceled", "the stream is closed")
        if most and size > most:
            raise MillraceError(
                "too_large",
                f"limits.max_message: the frame's message would have {size} bytes, and the server accepts {most}",
                field="limits.max_message",
            )

    @property
    def full(self) -> bool:
        """Whether too many results wait to be read, so that nothing more may be sent in `every`."""
        return self.policy.mode != "latest" and len(self.replies) >= self.buffer

    def may_send(self, connected: bool, wait: bool) -> bool:
        """Whether a frame may be sent now. In `latest`, a frame that may wait needs no credit: the server drops older
        frames.
        """
        if not connected or self.state != OPEN or len(self.unended) >= MAX_UNENDED or self.full:
            return False
        if wait and self.policy.mode == "latest":
            return True
        window = self.policy.window  # 0 = the model's, which bounds the credit
        return self.sent < self.limit and (not window or self.at_server < window)

    def send(self, frame: Frame) -> tuple[int, Message]:
        """Gives the frame its number, and returns the message."""
        seq = self.next_seq
        self.next_seq += 1
        self.sent += 1
        self.at_server += 1
        self.counts["sent"] += 1
        self.unended.append(_Unended(seq))
        flags = _DISCONTINUITY if self.discontinuity else 0
        self.discontinuity = False
        self.closing = self.closing or frame.last
        return seq, frame.message(self.sid, seq, flags, self.codec)

    # What ends.

    def settle(self, ranges: Iterable, ack: int, limit: int, reply: Result | None) -> None:
        """Ends frames: reply for those in ranges, which are sorted. ack is how many frames of the stream the server has
        ended. A repeated ending changes nothing. An ending that the server has sent but no longer keeps shows as a gap
        in ack: that frame is lost."""
        self.limit = max(self.limit, limit)
        if reply is not None and reply.partial:
            for u in self.unended:
                if u.seq == reply.seq and not u.lost:
                    reply.sent = u.sent
                    self._deliver(reply)
            ranges = ()
        ranges = list(ranges)
        ending = set()
        if len(self.unended) == 1 or not ranges:  # the usual cases, quickly
            ending = {u.seq for u in self.unended if not u.lost and any(a <= u.seq <= b for a, b in ranges)}
        else:
            at = 0
            for u in self.unended:
                while at < len(ranges) and ranges[at][1] < u.seq:
                    at += 1
                if at < len(ranges) and ranges[at][0] <= u.seq and not u.lost:
                    ending.add(u.seq)
        before = self.ended + len(ending)
        self.ended = max(before, ack)
        missing = self.ended - before
        if ending or missing:
            keep = []
            for u in self.unended:
                if u.seq in ending:
                    one = reply if len(ending) == 1 else reply.copy()  # type: ignore[union-attr]
                    one.seq, one.sent = u.seq, u.sent  # type: ignore[union-attr]
                    self.at_server -= 1
                    self._deliver(one)  # type: ignore[arg-type]
                elif missing > 0 and not u.lost:
                    missing -= 1
                    self.at_server -= 1
                    self._deliver(_lost(u))
                else:
                    keep.append(u)
            self.unended = keep
            self.take_lost()
        self.changed()

    def take_lost(self) -> None:
        """Ends the lost frames before which no frame is without an ending."""
        n = 0
        while n < len(self.unended) and self.unended[n].lost:
            self._deliver(_lost(self.unended[n]))
            n += 1
        del self.unended[:n]

    def mark_lost(self, which: Callable[[_Unended], bool] = lambda u: True) -> None:
        for u in self.unended:
            if not u.lost and which(u):
                u.lost = True
                self.at_server -= 1
                self.discontinuity = True

    def _deliver(self, reply: Result) -> None:
        if not reply.partial:
            self.counts[{"result": "results", "drop": "drops", "error": "errors"}[reply.type]] += 1
        if self.abandoned:
            self.counts["unread"] += 1
            return
        if self.policy.mode == "latest" and len(self.replies) >= self.buffer:
            self.replies.popleft()
            self.counts["unread"] += 1
        self.replies.append(reply)

    def end(self, error: MillraceError | None) -> None:
        """Ends the stream, and the frames that are left."""
        self.session.streams.pop(self.sid, None)
        self.state, self.error = CLOSED, error
        self.mark_lost()
        self.take_lost()
        self.changed()

    # A lost connection.

    def last_seq(self) -> int | None:
        """The number before that of the first frame whose ending has not come. The newest ending would not do, since in
        `latest` endings do not come in order."""
        for u in self.unended:
            if not u.lost:
                return u.seq - 1 if u.seq else None
        return self.next_seq - 1 if self.next_seq else None

    def reopen(self) -> list[Message]:
        """Gives the stream a new id, and returns the message that opens it."""
        self.session.streams.pop(self.sid, None)
        self.sid = self.session.new_sid()
        self.session.streams[self.sid] = self
        self.state, self.reopened = OPENING, True
        self.sent = self.limit = self.ended = 0
        self.flushing = False
        return [self.open_message()]

    def resume(self, at: Mapping) -> list[Message]:
        """Marks frames that the server did not receive as lost, and returns the messages that may have been lost."""
        received = at.get("received_seq")
        self.mark_lost(lambda u: received is None or u.seq > received)
        self.sent, self.limit = at["received_count"], at["credit_limit"]
        # The reply to an update is a credit, whose ack shows the endings that the server no longer keeps.
        messages = [self.update_message(), text("pause" if self.paused else "resume", sid=self.sid)]
        if self.flushing:
            messages.append(text("flush", sid=self.sid))
            self.flushing = False
        if self.closing:
            messages.append(text("close", sid=self.sid))
        return messages

    @property
    def needs_key_frame(self) -> bool:
        return self.discontinuity and self.codec in _INTER_CODED


def _lost(u: _Unended) -> Result:
    reply = Result("error", u.seq)
    reply.sent, reply.lost = u.sent, True
    reply.error = MillraceError("unavailable", "the frame, or its ending, was lost with the connection")
    return reply


class SessionState:
    """The streams of one session, and how it is resumed."""

    def __init__(self) -> None:
        self.token = ""
        self.limits: dict[str, int] = {}
        self.streams: dict[int, StreamState] = {}
        self.server_error: MillraceError | None = None  # why the server will close the connection
        self.going_away: float | None = None  # seconds that the server announced
        self.unknown: collections.Counter[
            str
        ] = collections.Counter()  # messages of types that this client does not know
        self.retry: Callable[
            [StreamState, MillraceError], bool
        ] = lambda stream, error: False  # reopens a stream later, or does not
        self.pong: Callable[[dict], None] = lambda message: None
        self._last_sid = 0

    def new_sid(self) -> int:
        while True:
            self._last_sid = (self._last_sid + 1) & 0xFFFFFFFF
            if self._last_sid and self._last_sid not in self.streams:
                return self._last_sid

    def ready(self, message: Mapping) -> None:
        """The server's first message."""
        if message.get("type") == "error":
            raise of_message(dict(message))
        if message.get("type") != "ready":
            raise bad_reply(f"its first message is {message.get('type')!r}: want ready")
        self.token, self.limits = message.get("resume_token", ""), message.get("limits") or {}

    def in_order(self) -> list[StreamState]:
        return [self.streams[sid] for sid in sorted(self.streams)]

    def attach_message(self) -> Message:
        streams = []
        for st in self.in_order():
            if st.state == OPEN:
                last = st.last_seq()
                streams.append({"sid": st.sid} if last is None else {"sid": st.sid, "last_seq": last})
        return text("attach", token=self.token, streams=streams)

    def attached(self, reply: Mapping, ready: Mapping) -> tuple[bool, list[Message]]:
        """Handles the reply to attach. It returns whether the session was resumed (otherwise its streams are opened
        again), and the messages to send. It raises what ends the session."""
        kind = reply.get("type")
        messages: list[Message] = []
        ended: list[tuple[StreamState, MillraceError | None]] = []
        if kind == "attached":
            self.token = reply["resume_token"]
            known = {s["sid"]: s for s in reply.get("streams") or ()}
            for st in self.in_order():
                at = known.get(st.sid)
                if st.state == OPENING:
                    if at is not None:  # the message opened was lost with the connection
                        messages.append(text("close", sid=st.sid))
                    messages += st.reopen()
                elif at is None:
                    ended.append(
                        (
                            st,
                            None
                            if st.closing
                            else MillraceError(
                                "unavailable", "the stream ended while there was no connection: open it again"
                            ),
                        )
                    )
                else:
                    messages += st.resume(at)
                    messages += st.config_messages()
        elif kind == "error" and not reply.get("fatal"):
            self.ready(ready)
            for st in self.in_order():
                if st.closing:
                    ended.append((st, None))
                    continue
                st.mark_lost()
                messages += st.reopen()
        elif kind == "error":
            raise of_message(dict(reply))
        else:
            raise bad_reply(f"its answer to attach is {kind!r}")
        for st, error in ended:
            st.end(error)
        for st in self.in_order():
            st.take_lost()
            if st.needs_key_frame:
                st.told("advice", {"keyframe": True})
            st.changed()
        return kind == "attached", messages

    def message(self, binary: bool, data: Any) -> list[Message]:
        """Handles a message of the server, and returns what is to be sent."""
        if binary:
            self._result(*_binary_result(data))
            return []
        try:
            m = json.loads(data)
            handle = self._handlers.get(m["type"])
            if handle is None:
                self.unknown[str(m["type"])] += 1
                return []
            return handle(self, m) or []
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise bad_reply(f"{bytes(data[:200])!r}: {error!r}") from None

    def _result(self, m: dict, reply: Result) -> None:
        st = self.streams.get(m["sid"])
        if st is not None:
            st.settle([(reply.seq, reply.seq)], m.get("ack", 0), m.get("credit_limit", 0), reply)

    def _on_result(self, m: dict) -> None:
        reply = Result("result", m["seq"])
        t = m.get("timing") or {}
        reply.outputs = _oip.outputs_of(m.get("outputs"), b"")
        reply.parameters = dict(m.get("parameters") or {})
        _fill(reply, m, t)
        self._result(m, reply)

    def _on_drop(self, m: dict) -> None:
        st = self.streams.get(m["sid"])
        if st is not None:
            reply = Result("drop")
            reply.reason = m["reason"]
            st.settle([tuple(r) for r in m["seqs"]], m.get("ack", 0), m.get("credit_limit", 0), reply)

    def _on_error(self, m: dict) -> None:
        error = of_message(m)
        st = self.streams.get(m["sid"]) if "sid" in m else None
        if m.get("fatal"):
            self.server_error = self.server_error or error
        elif st is None:
            return
        elif "seq" in m and m["seq"] != _CONFIG_SEQ:
            reply = Result("error", m["seq"])
            reply.error, reply.trace = error, m.get("traceresponse", "")
            st.refused(error)
            st.settle([(m["seq"], m["seq"])], m.get("ack", 0), m.get("credit_limit", 0), reply)
        elif st.state == OPENING and st.reopened and is_temporary(error) and self.retry(st, error):
            pass  # a server that has just been started may still load the model
        elif st.state == OPENING:
            st.end(error)
        else:
            st.told("refused", error)

    def _on_credit(self, m: dict) -> None:
        st = self.streams.get(m["sid"])
        if st is not None:
            st.settle((), m.get("ack", 0), m["credit_limit"], None)

    def _on_opened(self, m: dict) -> list[Message]:
        st = self.streams.get(m["sid"])
        if st is None or st.state != OPENING:
            return []
        st.state, st.limit = OPEN, m["credit_limit"]
        st.policy = Policy.of(m.get("policy") or {})
        messages = []
        if st.updated:
            st.policy = st.policy.changed({k: v for k, v in st.update.items() if k in Policy.__slots__})
            messages.append(st.update_message())
        messages += st.config_messages()
        if st.paused:
            messages.append(text("pause", sid=st.sid))
        if st.closing:
            messages.append(text("close", sid=st.sid))
        st.changed()
        return messages

    def _on_closed(self, m: dict) -> None:
        st = self.streams.get(m["sid"])
        if st is None:
            return
        st.totals = m["totals"]
        reason = m["reason"]
        if reason == "client":
            error = None
        elif reason in _CLOSE_REASONS:
            error = MillraceError(*_CLOSE_REASONS[reason])
        else:
            error = self.server_error or MillraceError("internal", f"the server closed the stream: {reason}")
        st.end(error)

    def _on_advise(self, m: dict) -> None:
        self._tell(m, "advice", ("fps", "width", "height", "quality", "keyframe"))

    def _on_stats(self, m: dict) -> None:
        self._tell(m, "stats", ("counts", "waiting", "fps", "age_us"))

    def _tell(self, m: dict, what: str, names: Iterable[str]) -> None:
        st = self.streams.get(m["sid"])
        if st is not None:
            st.told(what, {name: m[name] for name in names if name in m})

    def _on_goaway(self, m: dict) -> None:
        self.going_away = m["time_left_ms"] / 1000
        self.server_error = self.server_error or MillraceError("draining", "the server is shutting down")

    def _on_pong(self, m: dict) -> None:
        self.pong(m)

    _handlers: dict[str, Callable[[SessionState, dict], Union[list, None]]] = {
        "result": _on_result,
        "drop": _on_drop,
        "error": _on_error,
        "credit": _on_credit,
        "opened": _on_opened,
        "closed": _on_closed,
        "advise": _on_advise,
        "stats": _on_stats,
        "goaway": _on_goaway,
        "pong": _on_pong,
    }

    def closed_error(self, code: int, reason: str) -> tuple[bool, MillraceError]:
        """What a close frame means: whether the session may be resumed, and the error."""
        if self.server_error is not None:
            return False, self.server_error
        if code in (1005, 1006, 1012):
            return True, lost(f"close code {code}")
        words = "the server ended the session" + (
            "" if code == 1000 else f": close code {code}{': ' + reason if reason else ''}"
        )
        return False, MillraceError(_CLOSE_CODES.get(code, "internal"), words)


def lost(why: object) -> MillraceError:
    """The error of a connection that broke."""
    return MillraceError("unavailable", f"the connection to the server was lost: {why}")


def is_temporary(error: MillraceError) -> bool:
    """Whether another attempt may succeed: the server cannot be reached or is overloaded, but has not refused this
    client.
    """
    return error.code in ("unavailable", "overloaded", "timeout", "draining")


def _timing(t: Mapping) -> Timing:
    return Timing(*(t.get(name, 0) / 1e6 for name in ("queue_us", "prepare_us", "run_us", "total_us", "received_us")))


def _fill(reply: Result, m: Mapping, t: Mapping) -> None:
    reply.model, reply.version = m.get("model", ""), m.get("version", "")
    reply.width, reply.height, reply.batch = m.get("width", 0), m.get("height", 0), m.get("batch", 0)
    reply.partial, reply.trace = bool(m.get("partial")), m.get("traceresponse", "")
    reply.capture = m.get("capture_us", 0) / 1e6
    reply.timing = _timing(t)


def _binary_result(data: Any) -> tuple[dict, Result]:
    data = memoryview(data)
    if len(data) < _HEADER.size or data[0] != 1 or data[1] != _RESULT:
        raise bad_reply(f"a binary message begins with {bytes(data[:4])!r}, and is no result")
    _, _, _, _, sid, seq, capture, width, height, ext, _ = _HEADER.unpack_from(data)
    at = _HEADER.size + ext
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
    _fill(reply, own, own)
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
