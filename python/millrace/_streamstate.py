"""A stream of a session without input and output: frames, credits, endings, and a lost connection."""

from __future__ import annotations

import collections
import time
from typing import Any, Callable, Iterable, Mapping, Protocol

from ._client_errors import MillraceError, invalid
from ._frames import CODECS, CONFIG, CONFIG_SEQ, DISCONTINUITY, HEADER, INTER_CODED, Frame, Message, text
from ._policy import Policy, ms
from ._results import Result

MAX_UNENDED = 4096  # frames of a stream without an ending


class Session(Protocol):
    """The session of a StreamState."""

    limits: dict[str, int]
    streams: dict[int, StreamState]

    def new_sid(self) -> int:
        """Returns a stream id unused in the session."""
        ...


class _Unended:
    __slots__ = ("seq", "sent", "lost")

    def __init__(self, seq: int) -> None:
        self.seq, self.sent, self.lost = seq, time.monotonic(), False


OPENING, OPEN, CLOSED = "opening", "open", "closed"


class StreamState:
    """A stream of a session."""

    def __init__(
        self,
        session: Session,
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
            ("max_age", "max_age_ms", ms),
            ("deadline", "deadline_ms", ms),
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
        return [(True, (HEADER.pack(1, CONFIG, codec, 0, self.sid, CONFIG_SEQ, 0, 0, 0, 0, 0), data))]

    def check_send(self, size: int) -> None:
        """Raises the error that keeps the stream from ever sending a frame of this size."""
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
        """Whether unread results have reached the limit, so that a stream in `every` sends nothing."""
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
        """Numbers the frame, and returns the number and the message."""
        seq = self.next_seq
        self.next_seq += 1
        self.sent += 1
        self.at_server += 1
        self.counts["sent"] += 1
        self.unended.append(_Unended(seq))
        flags = DISCONTINUITY if self.discontinuity else 0
        self.discontinuity = False
        self.closing = self.closing or frame.last
        return seq, frame.message(self.sid, seq, flags, self.codec)

    # What ends.

    def settle(self, ranges: Iterable, ack: int, limit: int, reply: Result | None) -> None:
        """Ends frames: reply is the ending of the frames in ranges (sorted). ack is the number of frames of the stream
        that the server has ended. A repeated ending changes nothing. A sent ending that the server no longer keeps
        shows as a gap in ack: the frame is lost.
        """
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
        """Ends the lost frames before the first frame without an ending."""
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
        """Ends the stream and the remaining frames."""
        self.session.streams.pop(self.sid, None)
        self.state, self.error = CLOSED, error
        self.mark_lost()
        self.take_lost()
        self.changed()

    # A lost connection.

    def last_seq(self) -> int | None:
        """The number before the first frame without an ending. The newest ending would be wrong, since in `latest`
        endings come out of order.
        """
        for u in self.unended:
            if not u.lost:
                return u.seq - 1 if u.seq else None
        return self.next_seq - 1 if self.next_seq else None

    def reopen(self) -> list[Message]:
        """Gives the stream a new id, and returns the message `open`."""
        self.session.streams.pop(self.sid, None)
        self.sid = self.session.new_sid()
        self.session.streams[self.sid] = self
        self.state, self.reopened = OPENING, True
        self.sent = self.limit = self.ended = 0
        self.flushing = False
        return [self.open_message()]

    def resume(self, at: Mapping) -> list[Message]:
        """Marks frames that the server did not receive as lost, and returns messages that may have been lost."""
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
        return self.discontinuity and self.codec in INTER_CODED


def _lost(u: _Unended) -> Result:
    reply = Result("error", u.seq)
    reply.sent, reply.lost = u.sent, True
    reply.error = MillraceError("unavailable", "the frame, or its ending, was lost with the connection")
    return reply
