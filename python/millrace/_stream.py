"""A stream of millrace.v1, for programs with asyncio."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, AsyncIterator, Callable, Iterable, Mapping, Protocol

from ._client_errors import MillraceError, invalid
from ._frames import CODECS, Frame, Message, text
from ._policy import Policy
from ._requests import parameters_of, seconds
from ._results import Result
from ._streamstate import CLOSED, OPENING, StreamState

_log = logging.getLogger("millrace.client")


class Session(Protocol):
    """The part of millrace.aio.Session that a stream uses."""

    _connection: Any
    _client: Any

    def _write_to(self, connection: Any, messages: Iterable[Message]) -> None:
        ...

    def _was_read(self) -> None:
        ...

    async def close(self) -> None:
        ...


class StreamView:
    """The visible state of a stream."""

    def __init__(self, state: StreamState) -> None:
        self._state = state

    @property
    def counts(self) -> dict[str, int]:
        """Counts of frames: sent = results + drops + errors + waiting. unread counts results discarded without a
        reader.
        """
        return dict(self._state.counts, waiting=len(self._state.unended))

    @property
    def policy(self) -> Policy:
        """The policy in force, with the model's defaults."""
        return self._state.policy

    @property
    def advice(self) -> dict[str, Any]:
        """The latest advice of the server, a dict: fps, width, height (pixels), keyframe."""
        return dict(self._state.advice)

    @property
    def stats(self) -> dict[str, Any]:
        """The server's newest statistics: counts, waiting, fps, age_us."""
        return dict(self._state.stats)

    @property
    def totals(self) -> dict[str, int]:
        """The server's counts at the end: received, accepted, results, drops, errors."""
        return dict(self._state.totals)

    @property
    def closed(self) -> bool:
        """Whether the stream has ended."""
        return self._state.state == CLOSED

    @property
    def error(self) -> MillraceError | None:
        """The MillraceError that ended the stream; None after close, and while the stream is open."""
        return self._state.error


class Stream(StreamView):
    """Sends frames to one model, and reads exactly one ending for each frame: `async for result in stream`. The loop
    ends with the stream, and raises the error that closed the stream.
    """

    def __init__(self, session: Session, state: StreamState, on_advice: Any, on_stats: Any, on_refused: Any) -> None:
        super().__init__(state)
        self._session = session
        self._on = {"advice": on_advice, "stats": on_stats, "refused": on_refused}
        self._alone = False  # the session has only this stream, and ends with it
        self._waiting: list[asyncio.Future] = []
        self._reader: Any = None  # the task or thread that has read last
        state.changed, state.told = self._changed, self._told
        state.refused = lambda error: session._client._forget(state.model, state.version, error)

    def _changed(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _told(self, what: str, value: Any) -> None:
        if what == "advice":
            self._state.advice.update(value)
        elif what == "stats":
            self._state.stats = value
        elif self._on["refused"] is None:
            _log.warning("stream of %s: the server refused a change: %s", self._state.model, value)
        if self._on[what] is not None:
            self._on[what](value)

    async def _wait(self, ready: Callable[[], Any], timeout: float | None = None) -> bool:
        """Waits until ready is true. Returns False when the time ends first."""
        if ready():
            return True
        until = None if timeout is None else time.monotonic() + timeout
        while not ready():
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(future)
            if until is None:
                await future
                continue
            try:
                await asyncio.wait_for(future, until - time.monotonic())
            except asyncio.TimeoutError:
                return bool(ready())
        return True

    async def send(
        self,
        data: Any = None,
        inputs: Any = None,
        *,
        wait: bool = True,
        timeout: float | None = None,
        _caller: Any = None,
        **options: Any,
    ) -> int | None:
        """Sends a frame. Returns the number of the frame, or None when the frame was not sent. In `every`, send waits
        for credit; in `latest`, send needs no credit, since the server drops older frames. With wait=False, a frame
        without a connection or credit is not sent. With a timeout (seconds), a frame is not sent after a longer wait.
        The remaining arguments are the arguments of Frame. Raises MillraceError, such as the error that ended the
        stream.
        """
        frame = await self._converted(data if isinstance(data, Frame) else Frame(data, inputs, **options))
        st = self._state
        if _caller is None:
            _caller = asyncio.current_task()

        def ready() -> bool:
            st.check_send(frame.size)
            if st.full and wait and self._reader in (None, _caller):
                raise MillraceError(
                    "flow_control",
                    f"buffer: {len(st.replies)} results wait to be read: read them, use map, or raise buffer",
                    field="buffer",
                )
            return st.may_send(self._session._connection is not None, wait)

        if not ready() and (not wait or not await self._wait(ready, seconds(timeout, "timeout"))):
            return None
        return await self._send(frame)

    async def _converted(self, frame: Frame) -> Frame:
        """The frame with the datatypes of the model."""
        if frame.inputs is None:
            return frame
        return frame.converted(await self._session._client._declared_by(self._state.model, self._state.version))

    async def _send(self, frame: Frame) -> int:
        seq, message = self._state.send(frame)
        connection = self._session._connection
        self._session._write_to(connection, [message])
        try:
            await connection.drain()  # type: ignore[union-attr]
        except OSError:
            pass  # the reader notices it too, and the frame ends as lost
        return seq

    def _take(self, caller: Any) -> list[Result]:
        st = self._state
        self._reader = caller
        results = list(st.replies)
        st.replies.clear()
        if results:
            self._changed()
            self._session._was_read()
        return results

    async def receive_all(self, timeout: float | None = None) -> list[Result]:
        """Waits for the next result, and returns all results so far, a list. Returns [] at the end of the stream, and
        after timeout seconds. Raises the error that ended the stream.
        """
        st = self._state
        self._reader = asyncio.current_task()
        await self._wait(lambda: st.replies or st.state == CLOSED, seconds(timeout, "timeout"))
        results = self._take(self._reader)
        if not results and st.state == CLOSED and st.error is not None:
            raise st.error
        return results

    async def receive(self, timeout: float | None = None) -> Result | None:
        """Returns the next Result; None at the end of the stream, and after timeout seconds. Raises the error that
        ended the stream.
        """
        st = self._state
        self._reader = asyncio.current_task()
        await self._wait(lambda: st.replies or st.state == CLOSED, seconds(timeout, "timeout"))
        if st.replies:
            result = st.replies.popleft()
            self._changed()
            self._session._was_read()
            return result
        if st.state == CLOSED and st.error is not None:
            raise st.error
        return None

    def __aiter__(self) -> Stream:
        return self

    async def __anext__(self) -> Result:
        result = await self.receive()
        if result is None:
            raise StopAsyncIteration
        return result

    async def map(self, frames: Any, **options: Any) -> AsyncIterator[Result]:
        """Sends frames as fast as the server takes frames, and iterates over the results of this stream until all
        frames have ended. frames is an iterable or an asynchronous iterable of arguments of send.
        """
        caller = object()
        async for item in _each(frames):
            frame = item if isinstance(item, Frame) else Frame(item, **options)
            taken = False
            while not taken:
                taken, results = await self._send_or_receive(frame, caller)
                for result in results:
                    yield result
        while True:
            results = await self._receive_rest(caller)
            if not results:
                return
            for result in results:
                yield result

    async def _send_or_receive(self, frame: Frame, caller: Any) -> tuple[bool, list[Result]]:
        """Sends the frame, or takes results, or both. Waits until either can be done."""
        st = self._state

        def may_send() -> bool:
            return st.may_send(self._session._connection is not None, True)

        await self._wait(lambda: st.replies or st.state == CLOSED or st.closing or may_send())
        results = self._take(caller)
        if results and not may_send():
            return False, results
        frame = await self._converted(frame)
        st.check_send(frame.size)
        if not may_send():
            return False, results
        await self._send(frame)
        return True, results

    async def _receive_rest(self, caller: Any) -> list[Result]:
        st = self._state
        await self._wait(lambda: st.replies or not st.unended)
        results = self._take(caller)
        if not results and st.error is not None:
            raise st.error
        return results

    async def drain(self, timeout: float | None = None) -> bool:
        """Waits until every sent frame has ended. Returns False after timeout seconds."""
        return await self._wait(lambda: not self._state.unended, seconds(timeout, "timeout"))

    def _control(self, message: Message) -> None:
        st = self._state
        if st.state == CLOSED:
            raise st.error or MillraceError("canceled", "the stream is closed")
        if st.state != OPENING:  # otherwise it is sent when the stream is open
            self._session._write_to(self._session._connection, [message])
        self._changed()

    async def update(
        self,
        *,
        max_age: float | None = None,
        deadline: float | None = None,
        max_fps: float | None = None,
        window: int | None = None,
        outputs: str | None = None,
        parameters: Mapping | None = None,
    ) -> None:
        """Changes the stream for frames sent from now on. None changes nothing, 0 restores the default of the model,
        and parameters replace all parameters.
        """
        if outputs not in (None, "binary", "json", "none"):
            raise invalid("outputs", f'is {outputs!r}: want "binary", "json" or "none"')
        changes = {
            k: v
            for k, v in (
                ("max_age", max_age),
                ("deadline", deadline),
                ("max_fps", max_fps),
                ("window", window),
                ("outputs", outputs),
                ("parameters", None if parameters is None else parameters_of(parameters)),
            )
            if v is not None
        }
        st = self._state
        policy = st.policy.changed({k: v for k, v in changes.items() if k not in ("outputs", "parameters")})
        st.update.update(changes)
        st.updated, st.policy = True, policy
        self._control(st.update_message(changes))

    async def pause(self) -> None:
        """Makes frames wait at the server. Frames in a batch are still answered."""
        self._state.paused = True
        self._control(text("pause", sid=self._state.sid))

    async def resume(self) -> None:
        """Ends a pause."""
        self._state.paused = False
        self._control(text("resume", sid=self._state.sid))

    async def flush(self) -> None:
        """Drops the frames at the server, except frames in a batch."""
        self._state.flushing = self._session._connection is None
        self._control(text("flush", sid=self._state.sid))

    async def configure(self, codec: str, data: Any) -> None:
        """Sends the parameters of a video codec (h264, vp8, vp9 or av1), at most 64 KiB, for an encoder that returns
        parameters separately from chunks. After a reconnect, the client sends the parameters again.
        """
        if codec not in ("h264", "vp8", "vp9", "av1"):
            raise invalid("codec", f"{codec!r} has no parameters: want h264, vp8, vp9 or av1")
        if len(data) > 64 << 10:
            raise MillraceError("too_large", f"data: has {len(data)} bytes: want at most {64 << 10}", field="data")
        st = self._state
        st.check_send(0)
        st.config = (CODECS.index(codec), bytes(data))
        if st.state != OPENING:
            self._session._write_to(self._session._connection, st.config_messages())

    async def close(self, timeout: float | None = None) -> dict[str, int]:
        """Ends the stream: the server drops waiting frames, and answers frames in a batch. Waits until all frames have
        ended, and returns the server's totals, a dict. Unread results can still be read. With a timeout (seconds),
        raises MillraceError when frames have not ended in time.
        """
        st = self._state
        if st.state != CLOSED and not st.closing:
            st.closing = True
            self._control(text("close", sid=st.sid))
        ended = await self._wait(lambda: st.state == CLOSED, seconds(timeout, "timeout"))
        if not ended:
            st.abandoned = True
        if self._alone:
            await self._session.close()
        if not ended:
            raise MillraceError(
                "timeout", f"timeout: {len(st.unended)} frames have not ended within {timeout} s", field="timeout"
            )
        if st.error is not None:
            raise st.error
        return self.totals

    def _abandon(self) -> None:
        """Closes the stream without waiting for the end."""
        st = self._state
        st.abandoned = True
        if st.state != CLOSED and not st.closing:
            st.closing = True
            self._control(text("close", sid=st.sid))

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(self, kind: Any, *args: Any) -> None:
        try:
            await self.close(None if kind is None else 2.0)
        except MillraceError:
            if kind is None:
                raise


async def _each(items: Any) -> AsyncIterator[Any]:
    if hasattr(items, "__aiter__"):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item
