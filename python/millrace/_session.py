"""Sessions and streams of millrace.v1 without input and output: docs/protocol.md as a state machine.

A SessionState gets the messages of the server, and returns the messages to send. One thread uses a SessionState. Each
sent frame ends exactly once, as a Result: a result, a drop, or an error. A frame that cannot be recovered after a lost
connection is an error with `lost`.
"""

from __future__ import annotations

import collections
import json
from typing import Any, Callable, Iterable, Mapping, Union

from . import _oip
from ._client_errors import MillraceError, bad_reply, of_message
from ._frames import CONFIG_SEQ, Message, text
from ._policy import Policy
from ._results import Result, binary_result, fill
from ._streamstate import OPEN, OPENING, StreamState

PROTOCOL = "millrace.v1"


TICKET = "millrace.ticket."


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


class SessionState:
    """The streams of a session, and the resumption of the session."""

    def __init__(self) -> None:
        self.token = ""
        self.limits: dict[str, int] = {}
        self.streams: dict[int, StreamState] = {}
        self.server_error: MillraceError | None = None  # why the server will close the connection
        self.going_away: float | None = None  # seconds that the server announced
        # Messages by type, of types unknown to this client.
        self.unknown: collections.Counter[str] = collections.Counter()
        # Reopens a stream later, or returns False.
        self.retry: Callable[[StreamState, MillraceError], bool] = lambda stream, error: False
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
        """Handles the reply to attach. Returns whether the session was resumed (otherwise the streams are opened
        again), and the messages to send. Raises the error that ends the session.
        """
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
        """Handles a message of the server, and returns the messages to send."""
        if binary:
            self._result(*binary_result(data))
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
        fill(reply, m, t)
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
        elif "seq" in m and m["seq"] != CONFIG_SEQ:
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
        """The meaning of a close frame: whether the session may be resumed, and the error."""
        if self.server_error is not None:
            return False, self.server_error
        if code in (1005, 1006, 1012):
            return True, lost(f"close code {code}")
        words = "the server ended the session" + (
            "" if code == 1000 else f": close code {code}{': ' + reason if reason else ''}"
        )
        return False, MillraceError(_CLOSE_CODES.get(code, "internal"), words)


def lost(why: object) -> MillraceError:
    """The error of a broken connection."""
    return MillraceError("unavailable", f"the connection to the server was lost: {why}")


def is_temporary(error: MillraceError) -> bool:
    """Whether another attempt may succeed: the server cannot be reached or is overloaded, but has not refused this
    client.
    """
    return error.code in ("unavailable", "overloaded", "timeout", "draining")
