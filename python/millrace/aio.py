"""The client of a Millrace server for programs with asyncio: the methods of millrace.client, as coroutines.

    from millrace.aio import Client

    async with Client("127.0.0.1:8000") as client:
        answer = await client.infer("find", picture=picture)
        async with await client.open("find", policy="latest") as stream:
            await stream.send(picture)
            async for result in stream:
                print(result.seq, result["boxes"])

A Client belongs to one event loop. docs/python-client.md is the guide.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import socket
import time
from typing import Any, AsyncIterator, Awaitable, Callable, Iterable, Mapping

from . import _http, _websocket
from ._client_errors import MillraceError, bad_reply, invalid, is_of_input, of_status
from ._frames import Frame, Message, text
from ._http import Event, Reply
from ._policy import Policy
from ._replies import Answer, EndOfEvents, Timing
from ._requests import After, Call, failed, parameters_of
from ._rest import Calls
from ._results import Result
from ._session import PROTOCOL, TICKET, SessionState, is_temporary, lost
from ._stream import Stream
from ._streamstate import CLOSED, MAX_UNENDED, OPENING, StreamState
from ._oip import size
from ._tensors import Tensor

__all__ = [
    "Answer",
    "Client",
    "Event",
    "Frame",
    "MillraceError",
    "Policy",
    "Reply",
    "Result",
    "Session",
    "Stream",
    "Tensor",
    "Timing",
]

_log = logging.getLogger("millrace.client")

_MAX_IDLE = 64  # connections that wait for the next call
_BUFFER = 1 << 20  # bytes that are read ahead
_PIECE = 256 << 10  # bytes of a long message that are read at once

# A half-open connection must be noticed while the server still keeps the session, which by default it does for 30 s.
_PING = 5.0  # seconds between pings
_IDLE = 12.0  # seconds without a byte of the server
_HANDSHAKE = 10.0
_CLOSE = 2.0
_MAX_BACKOFF = 5.0


class _Connection:
    """A connection: reader and writer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.read_at = time.monotonic()
        self._draining = asyncio.Lock()

    @classmethod
    async def open(cls, client: Client) -> _Connection:
        to, context = client._to, client._trust.context
        if to.socket:
            reader, writer = await asyncio.open_unix_connection(to.socket, limit=_BUFFER)
        else:
            reader, writer = await asyncio.open_connection(
                to.host, to.port, ssl=context, server_hostname=to.host if context else None, limit=_BUFFER
            )
        try:
            raw = writer.get_extra_info("socket")
            if raw is not None and not to.socket:
                raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if context is not None:
                client._trust.check(writer.get_extra_info("ssl_object"))
        except BaseException:
            writer.close()
            raise
        return cls(reader, writer)

    def is_open(self) -> bool:
        return not (self.reader.at_eof() or self.writer.is_closing())

    async def read(self, reading: _http.Reading) -> Any:
        value: Any = None
        try:
            while True:
                need = reading.send(value)
                if need == _http.LINE:
                    value = await self.reader.readline()
                elif need == _http.REST:
                    value = await self._pieces(_http.MAX_REPLY, True)
                elif need <= _PIECE:
                    value = await self.reader.readexactly(need)
                else:
                    value = await self._pieces(need, False)
                self.read_at = time.monotonic()
        except StopIteration as end:
            return end.value
        except asyncio.IncompleteReadError:
            raise EOFError("the connection was closed before the reply's end") from None
        except ValueError as error:  # readline beyond the buffer
            raise bad_reply(error) from None

    async def _pieces(self, n: int, until_end: bool) -> bytearray:
        data = bytearray()
        while len(data) < n:
            piece = await self.reader.read(min(n - len(data), _PIECE))
            if not piece:
                if until_end:
                    break
                raise EOFError("the connection was closed before the reply's end")
            data += piece
            self.read_at = time.monotonic()
        return data

    def write(self, parts: Iterable[Any]) -> None:
        for part in parts:
            self.writer.write(part)

    async def drain(self) -> None:
        async with self._draining:  # Python 3.9 does not let two wait
            await self.writer.drain()

    def close(self) -> None:
        self.writer.close()

    def abort(self) -> None:
        self.writer.transport.abort()


class Client(Calls):
    __doc__ = Calls.__init__.__doc__ or ""

    def __init__(self, addr: str = "127.0.0.1:8000", **options: Any) -> None:
        super().__init__(addr, **options)
        self._idle: list[_Connection] = []
        self._sessions: set[Session] = set()

    async def close(self) -> None:
        """Closes idle connections, and ends open sessions and streams."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        for session in list(self._sessions):
            await session.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *args: Any) -> None:
        await self.close()

    async def _send(self, call: Call) -> tuple[_Connection, Reply]:
        connection = None
        while self._idle and connection is None:
            connection = self._idle.pop()
            if not connection.is_open():
                connection.close()
                connection = None
        if connection is None:
            connection = await _Connection.open(self)
        try:
            connection.write(self._request(call))
            broken: OSError | None = None
            try:
                await connection.drain()
            except (BrokenPipeError, ConnectionResetError) as error:
                broken = error  # the server may have refused the body before it had all of it
            try:
                return connection, await connection.read(_http.read_head())
            except EOFError:
                if broken is not None:
                    raise broken from None
                raise
        except BaseException:
            connection.close()
            raise

    async def _do(self, call: Call | After) -> Any:
        timeout = self._timeout if call.timeout is None else call.timeout
        try:
            call, reply = await asyncio.wait_for(self._both(call), timeout)
        except asyncio.TimeoutError:
            raise self._late(timeout) from None
        except (OSError, EOFError) as error:
            raise self._unreachable(error) from error
        error = failed(call, reply)
        if error is not None:
            raise error
        return call.read(reply)

    async def _both(self, call: Call | After) -> tuple[Call, Reply]:
        """Carries out a call, after the call on which the call depends. Returns the last call and the reply."""
        if isinstance(call, After):
            call = call.then(call.first.read(await self._exchange(call.first)))
        reply = await self._exchange(call)
        error = failed(call, reply) if call.again is not None else None
        if error is not None and is_of_input(error.field):
            again: Any = call.again
            fresh = again.then(again.first.read(await self._exchange(again.first)))
            if fresh is not None:
                return fresh, await self._exchange(fresh)
        return call, reply

    async def _declared_by(self, model: str, version: Any) -> dict[str, str]:
        """The datatypes that the model declares for inputs, by name."""
        known = self._known(model, version)
        return known if known is not None else await self._do(self._declaring(model, version, None))

    async def _exchange(self, call: Call) -> Reply:
        connection, reply = await self._send(call)
        try:
            await connection.read(_http.read_body(call.method, reply))
        except BaseException:
            connection.close()
            raise
        if reply.keep and len(self._idle) < _MAX_IDLE:
            self._idle.append(connection)
        else:
            connection.close()
        return reply

    async def _events(self, call: Call | After) -> AsyncIterator[Any]:
        timeout = self._timeout if call.timeout is None else call.timeout
        if isinstance(call, After):
            call = call.then(await self._do(call.first))
        connection = None
        try:
            connection, reply = await asyncio.wait_for(self._send(call), timeout)
            if not call.accept(reply.status) or not reply.content_type.startswith("text/event-stream"):
                await asyncio.wait_for(connection.read(_http.read_body(call.method, reply)), timeout)
                raise failed(call, reply) or MillraceError(
                    "unsupported",
                    f"the reply is {reply.content_type or 'empty'}, and no events: call it without events",
                )
            events = _http.Events(call.method, reply)
            while True:
                event = await asyncio.wait_for(connection.read(events.next()), timeout)
                if event is None:
                    return
                yield call.event(event)  # type: ignore[misc]
        except EndOfEvents:
            return
        except asyncio.TimeoutError:
            raise self._late(timeout) from None
        except (OSError, EOFError) as error:
            raise self._unreachable(error) from error
        finally:
            if connection is not None:
                connection.close()

    async def session(
        self,
        *,
        headers: Mapping[str, str] | None = None,
        ticket: Any = None,
        give_up: float = 120.0,
        on_connection: Callable[[str, MillraceError | None], None] | None = None,
    ) -> Session:
        """Starts a session, a connection for any number of streams.

        headers        names and values, sent with each handshake
        ticket         True: each handshake has a ticket of `Client.ticket`. Or a function or coroutine function that
                       returns a ticket
        give_up        seconds of attempts to restore a lost connection; 0 = no attempt
        on_connection  function. The first argument is "lost" (with the error), "resumed" (frames that did not arrive
                       are lost), or "reopened" (the server no longer had the session: all frames in flight, and states
                       of models, are lost)
        """
        if isinstance(give_up, bool) or not isinstance(give_up, (int, float)) or not give_up >= 0:
            raise invalid("give_up", f"is {give_up!r}: want seconds, 0 or more")
        if ticket is not None and ticket is not True and not callable(ticket):
            raise invalid("ticket", f"is {type(ticket).__name__}: want True, or a function that returns a ticket")
        session = Session(self, dict(headers or {}), self.ticket if ticket is True else ticket, give_up, on_connection)
        await session._start()
        return session

    async def open(self, model: str, **options: Any) -> Stream:
        """Opens a stream to a model in a session of its own. The session ends with the stream. The options are the
        options of Session.open, and `session`, a dict with options of Client.session.
        """
        session = await self.session(**options.pop("session", {}))
        try:
            stream = await session.open(model, **options)
        except BaseException:
            await session.close()
            raise
        stream._alone = True
        return stream


class Session:
    """Any number of streams over one connection. The client restores a lost connection and resumes the streams. Each
    sent frame still ends exactly once; frames that cannot be recovered end as `lost`.

    state    SessionState: limits, going_away, unknown
    error    the MillraceError that ended the session; None after close, and while the session is open
    closed   whether the session has ended
    """

    def __init__(
        self,
        client: Client,
        headers: dict[str, str],
        ticket: Callable[[], Any] | None,
        give_up: float,
        on_connection: Callable[[str, MillraceError | None], None] | None,
    ) -> None:
        self._client, self._headers, self._ticket, self._give_up = client, headers, ticket, give_up
        self._on_connection = on_connection
        self.state = SessionState()
        self.state.pong, self.state.retry = self._ponged, self._retry
        self._reopen_until = 0.0
        self.error: MillraceError | None = None
        self.closed = False
        self._stopping = False
        self._connection: _Connection | None = None
        self._reader = _websocket.Reader(_http.MAX_REPLY)
        self._task: asyncio.Task | None = None
        self._pings: dict[int, asyncio.Future] = {}
        self._room: asyncio.Future | None = None  # is done when results were read while the connection was not

    @property
    def limits(self) -> Mapping[str, int]:
        """The server's limits: max_message (bytes), max_streams, max_window (frames)."""
        return self.state.limits

    async def _start(self) -> None:
        connection, ready = await self._connect()
        self.state.ready(ready)
        self._connection = connection
        self._client._sessions.add(self)
        self._task = asyncio.ensure_future(self._run(connection))

    # Connections.

    async def _connect(self) -> tuple[_Connection, dict]:
        try:
            return await asyncio.wait_for(self._handshake(), _HANDSHAKE)
        except asyncio.TimeoutError:
            raise self._client._late(_HANDSHAKE) from None
        except _websocket.Closed as closed:
            raise self.state.closed_error(closed.code, closed.reason)[1] from None
        except (OSError, EOFError) as error:
            raise self._client._unreachable(error) from error

    async def _handshake(self) -> tuple[_Connection, dict]:
        protocols = [PROTOCOL]
        if self._ticket is not None:
            ticket = self._ticket()
            protocols.append(TICKET + (await ticket if isinstance(ticket, Awaitable) else ticket))
        headers, key = _websocket.upgrade(protocols)
        to = self._client._to
        connection = await _Connection.open(self._client)
        try:
            connection.write(
                [
                    _http.head(
                        to,
                        "GET",
                        _http.target(to, "/v2/stream"),
                        {**self._client._headers, **self._headers, **headers},
                        None,
                    )
                ]
            )
            reply = await connection.read(_http.read_head())
            if reply.status != 101:
                await connection.read(_http.read_body("GET", reply))
                raise of_status(reply.status, reply.reason, reply.headers, bytes(reply.body))
            if _websocket.accepted(reply, key) != PROTOCOL:
                raise MillraceError("unsupported", f"the server at {to.named} does not speak {PROTOCOL}")
            self._reader = _websocket.Reader(_http.MAX_REPLY)
            return connection, await self._first(connection)
        except BaseException:
            connection.abort()
            raise

    async def _first(self, connection: _Connection) -> dict:
        """Reads a control message of a handshake."""
        while True:
            opcode, data = await connection.read(self._reader.message())
            if opcode == _websocket.TEXT:
                try:
                    m = json.loads(data)
                except ValueError as error:
                    raise bad_reply(error) from None
                if isinstance(m, dict):
                    return m
                raise bad_reply(f"its first message is {bytes(data[:80])!r}")
            if opcode == _websocket.PING:
                connection.write([_websocket.frame(_websocket.PONG, data)])

    async def _resume(self) -> tuple[_Connection, bool]:
        """Opens another connection, and resumes the session. Returns whether the server still had the session."""
        connection, ready = await self._connect()
        try:
            self._write_to(connection, [self.state.attach_message()])
            reply = await asyncio.wait_for(self._first(connection), _HANDSHAKE)
            resumed, messages = self.state.attached(reply, ready)
            self._connection = connection
            self._write_to(connection, messages)
            return connection, resumed
        except asyncio.TimeoutError:
            connection.abort()
            raise self._client._late(_HANDSHAKE) from None
        except _websocket.Closed as closed:
            connection.abort()
            raise self.state.closed_error(closed.code, closed.reason)[1] from None
        except (OSError, EOFError) as error:
            connection.abort()
            raise lost(error) from error
        except BaseException:
            connection.abort()
            raise

    async def _reconnect(self, error: MillraceError) -> tuple[_Connection, bool]:
        until = self._reopen_until = time.monotonic() + self._give_up
        pause = 0.05
        while True:
            wait = max(pause * (0.5 + random.random()), error.retry_after)
            if time.monotonic() + wait > until:
                raise MillraceError(
                    "unavailable",
                    f"the connection was lost, and could not be restored within {self._give_up:g} s: {error}",
                ) from error
            await asyncio.sleep(wait)
            pause = min(2 * pause, _MAX_BACKOFF)
            try:
                return await self._resume()
            except MillraceError as failure:
                if not is_temporary(failure):
                    raise
                error = failure

    def _retry(self, st: StreamState, error: MillraceError) -> bool:
        """Opens a stream again a little later, after a lost connection and a temporary refusal."""
        if self._stopping or time.monotonic() > self._reopen_until:
            return False

        def again() -> None:
            if st.state == OPENING and self._connection is connection:
                self._write_to(connection, st.reopen())

        connection = self._connection
        asyncio.get_running_loop().call_later(max(0.1, error.retry_after), again)
        return True

    async def _run(self, connection: _Connection) -> None:
        """Reads, and reconnects, until the session ends."""
        error: MillraceError | None = None
        try:
            while True:
                may_resume, error = await self._read(connection)
                self._connection = None
                connection.abort()
                if self._stopping or not may_resume:
                    break
                self._notify("lost", error)
                connection, resumed = await self._reconnect(error)
                self._notify("resumed" if resumed else "reopened", None)
        except asyncio.CancelledError:
            pass
        except MillraceError as failure:
            error = failure
        except Exception as failure:  # a fault of the client
            _log.exception("the session ends")
            error = MillraceError("internal", f"the client failed: {failure!r}")
        finally:
            self._connection = None
            connection.abort()
            self.error = None if self._stopping else error
            self.closed = True
            self._client._sessions.discard(self)
            for st in self.state.in_order():
                st.end(self.error)
            for waiting in self._pings.values():
                if not waiting.done():
                    waiting.cancel()

    async def _read(self, connection: _Connection) -> tuple[bool, MillraceError]:
        """Reads until the connection ends. Returns whether the session may be resumed, and the reason of the end."""
        pings = asyncio.ensure_future(self._keep_alive(connection))
        try:
            while True:
                opcode, data = await connection.read(self._reader.message())
                if opcode in (_websocket.TEXT, _websocket.BINARY):
                    unknown = sum(self.state.unknown.values())
                    self._write_to(connection, self.state.message(opcode == _websocket.BINARY, data))
                    if sum(self.state.unknown.values()) != unknown:
                        _log.warning("the server sent a message that this client does not know: %.200s", bytes(data))
                    await self._wait_for_room()
                elif opcode == _websocket.PING:
                    connection.write([_websocket.frame(_websocket.PONG, data)])
        except _websocket.Closed as closed:
            return self.state.closed_error(closed.code, closed.reason)
        except (OSError, EOFError) as error:
            if self.state.server_error is not None:
                return False, self.state.server_error
            return True, lost(error or type(error).__name__)
        except MillraceError as error:
            return False, error
        finally:
            pings.cancel()

    async def _keep_alive(self, connection: _Connection) -> None:
        """Sends pings, and ends a silent connection."""
        while True:
            await asyncio.sleep(_PING)
            if self._room is not None:
                connection.read_at = time.monotonic()
            if time.monotonic() - connection.read_at > _IDLE:
                connection.abort()
                return
            connection.write([_websocket.frame(_websocket.PING)])

    async def _wait_for_room(self) -> None:
        """Waits while a stream has more unread results than sendable frames can cause: partial results without a
        reader.
        """
        while any(
            st.policy.mode != "latest" and len(st.replies) > st.buffer + MAX_UNENDED
            for st in self.state.streams.values()
        ):
            self._room = asyncio.get_running_loop().create_future()
            try:
                await self._room
            finally:
                self._room = None

    def _was_read(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def _write_to(self, connection: _Connection | None, messages: Iterable[Message]) -> None:
        if connection is None:
            return
        for binary, parts in messages:
            if sum(map(size, parts)) > 0:
                connection.write([_websocket.frame(_websocket.BINARY if binary else _websocket.TEXT, *parts)])

    def _notify(self, what: str, error: MillraceError | None) -> None:
        if what != "resumed":
            _log.info("the connection is %s%s", what, f": {error}" if error else "")
        if self._on_connection is not None:
            self._on_connection(what, error)

    # What programs call.

    async def open(
        self,
        model: str,
        *,
        version: Any = None,
        codec: str = "auto",
        width: int = 0,
        height: int = 0,
        policy: Any = "",
        max_age: float = 0,
        deadline: float = 0,
        max_fps: float = 0,
        window: int = 0,
        outputs: str = "binary",
        stateful: bool = False,
        parameters: Mapping | None = None,
        trace: bool = False,
        buffer: int = 1024,
        on_advice: Callable[[dict], None] | None = None,
        on_stats: Callable[[dict], None] | None = None,
        on_refused: Callable[[MillraceError], None] | None = None,
    ) -> Stream:
        """Opens a stream to a model, and waits until the server has opened the stream. Raises MillraceError.

        codec       of frames without a codec: auto (the server recognises pictures by content), opaque, jpeg, png,
                    webp, h264, vp8, vp9, av1, rgb24, nv12, pcm16, pcmf32
        width, height  pixels, of rgb24 and nv12
        policy      "latest": the newest frame is answered, older frames are dropped; "every": each frame is answered;
                    "": the policy of the model. Or a Policy, instead of max_age, deadline (seconds), max_fps and window
                    (frames in flight)
        outputs     "binary", "json" or "none"
        stateful    True: refuse a model that keeps no state of streams
        parameters  for frames without parameters
        trace       True: each result has the trace of the frame
        buffer      the most unread results. At the limit, a stream in "every" sends nothing, and a stream in "latest"
                    discards the oldest results; counts["unread"] counts discarded results
        on_advice, on_stats, on_refused  functions. The argument is the server's advice (fps, width, height, keyframe),
                                         the statistics, or the error of a refused update, pause, resume or flush
        """
        if not isinstance(policy, Policy):
            policy = Policy(policy, max_age, deadline, max_fps, window)
        elif max_age or deadline or max_fps or window:
            raise invalid("policy", "is a Policy: give max_age, deadline, max_fps and window in it")
        st = StreamState(
            self.state,
            model,
            version,
            codec,
            width,
            height,
            policy,
            outputs,
            bool(stateful),
            parameters_of(parameters),
            bool(trace),
            buffer,
        )
        self._check()
        stream = Stream(self, st, on_advice, on_stats, on_refused)
        st.sid = self.state.new_sid()
        self.state.streams[st.sid] = st
        self._write_to(self._connection, [st.open_message()])
        try:
            await stream._wait(lambda: st.state != OPENING)
        except BaseException:
            stream._abandon()
            raise
        if st.state == CLOSED and st.error is not None:
            raise st.error
        return stream

    def _check(self) -> None:
        if self.closed or self._stopping:
            raise self.error or MillraceError("canceled", "the session is closed")

    async def ping(self) -> tuple[float, float]:
        """Asks for the server's clock. Returns the round trip in seconds, and the server's time, seconds since 1970."""
        self._check()
        t = time.monotonic_ns() // 1000
        self._pings[t] = waiting = asyncio.get_running_loop().create_future()
        try:
            self._write_to(self._connection, [text("ping", t=t)])
            server = await asyncio.wait_for(waiting, _IDLE)
        except asyncio.TimeoutError:
            raise MillraceError("timeout", f"the server has not answered within {_IDLE:g} s") from None
        finally:
            del self._pings[t]
        return (time.monotonic_ns() // 1000 - t) / 1e6, server / 1e6

    def _ponged(self, message: dict) -> None:
        waiting = self._pings.get(message["t"])
        if waiting is not None and not waiting.done():
            waiting.set_result(message["server_t"])

    async def close(self) -> None:
        """Ends the session and the streams. Frames in flight end as lost."""
        self._stopping = True
        if self._task is None or self.closed:
            return
        if self._connection is None:
            self._task.cancel()
        else:
            self._connection.write([_websocket.close_frame(1000)])
        self._was_read()
        _, late = await asyncio.wait([self._task], timeout=_CLOSE)
        if late:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(self, *args: Any) -> None:
        await self.close()
