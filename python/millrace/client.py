"""The client of a Millrace server, for programs without asyncio. millrace.aio is the client for programs with asyncio.

    from millrace.client import Client

    with Client("127.0.0.1:8000") as client:
        answer = client.infer("find", picture=open("street.jpg", "rb").read())
        print(answer["boxes"])
        with client.open("find", policy="every") as stream:
            for result in stream.map(frames):
                print(result.seq, result["boxes"])

Several threads may use a Client at the same time. docs/python-client.md is the guide.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import functools
import select
import socket
import threading
import time
from typing import Any, Callable, Iterable, Iterator, Mapping

from . import _http, aio
from ._client_errors import MillraceError, is_of_input
from ._frames import Frame
from ._http import Event, Reply
from ._oip import size
from ._policy import Policy
from ._replies import Answer, EndOfEvents, Timing
from ._requests import After, Call, failed, seconds
from ._rest import Calls
from ._results import Result
from ._stream import StreamView
from ._streamstate import CLOSED
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

_MAX_IDLE = 64  # connections that wait for the next call
_PIECE = 64 << 10  # bytes that are received at once


def _left(deadline: float | None) -> float | None:
    """Seconds until deadline."""
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise socket.timeout
    return left


def _local(path: str, deadline: float | None) -> socket.socket:
    """Connects to a unix socket, within the time left."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(_left(deadline))
        connection.connect(path)
    except BaseException:
        connection.close()
        raise
    return connection


def _connected(host: str, port: int, deadline: float | None) -> socket.socket:
    """Connects to the first address of a host where a server accepts, within the time left."""
    error: OSError | None = None
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM):
        try:
            connection = socket.socket(family, kind, protocol)
        except OSError as failure:  # a family that this machine does not have
            error = failure
            continue
        try:
            connection.settimeout(_left(deadline))
            connection.connect(address)
            return connection
        except OSError as failure:
            connection.close()
            error = failure
    raise error or OSError(f"{host} has no address")


class _Connection:
    """A connection for calls."""

    def __init__(self, client: Client, deadline: float | None) -> None:
        to = client._to
        self.socket = _local(to.socket, deadline) if to.socket else _connected(to.host, to.port, deadline)
        try:
            if not to.socket:
                self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            context = client._trust.context
            if context is not None:
                self.limit(deadline)
                self.socket = context.wrap_socket(self.socket, server_hostname=to.host)
                client._trust.check(self.socket)
            self._ahead, self._at = b"", 0  # what was received, and how much of it was read
        except BaseException:
            self.socket.close()
            raise

    def is_open(self) -> bool:
        """Whether the server has neither closed the connection nor sent unexpected bytes."""
        if self._at < len(self._ahead):
            return False
        try:
            if hasattr(select, "poll"):
                poll = select.poll()
                poll.register(self.socket, select.POLLIN)
                return not poll.poll(0)
            return not select.select([self.socket], [], [], 0)[0]
        except (OSError, ValueError):
            return False

    def write(self, parts: list, deadline: float | None) -> None:
        if sum(map(size, parts)) <= 64 << 10:
            parts = [b"".join(parts)]
        for part in filter(size, parts):
            left = memoryview(part).cast("B")
            while left:
                self.limit(deadline)
                left = left[self.socket.send(left) :]

    def read(self, reading: _http.Reading, deadline: float | None) -> Any:
        value: Any = None
        try:
            while True:
                need = reading.send(value)
                if need == _http.LINE:
                    value = self._line(deadline)
                else:
                    value = self._bytes(_http.MAX_REPLY if need == _http.REST else need, need == _http.REST, deadline)
        except StopIteration as end:
            return end.value

    def _line(self, deadline: float | None) -> bytes:
        while True:
            at = self._at
            end = self._ahead.find(b"\n", at, at + _http.MAX_LINE) + 1
            if not end and len(self._ahead) - at < _http.MAX_LINE:
                self.limit(deadline)
                more = self.socket.recv(_PIECE)
                if more:
                    self._ahead, self._at = self._ahead[at:] + more, 0
                    continue
            self._at = end or min(at + _http.MAX_LINE, len(self._ahead))
            return self._ahead[at : self._at]

    def _bytes(self, n: int, until_end: bool, deadline: float | None) -> Any:
        data: Any = self._ahead[self._at : self._at + n]
        self._at += len(data)
        if len(data) == n:
            return data
        if until_end:
            data = bytearray(data)
            while len(data) < n:
                self.limit(deadline)
                piece = self.socket.recv(min(n - len(data), _PIECE))
                if not piece:
                    break
                data += piece
            return data
        whole = bytearray(n)
        whole[: len(data)] = data
        left = memoryview(whole)[len(data) :]
        while left:
            self.limit(deadline)
            got = self.socket.recv_into(left)
            if not got:
                raise EOFError("the connection was closed before the reply's end")
            left = left[got:]
        return whole

    def limit(self, deadline: float | None) -> None:
        """Limits the next operation of the socket to the time left."""
        self.socket.settimeout(_left(deadline))

    def close(self) -> None:
        self.socket.close()


class Client(Calls):
    __doc__ = Calls.__init__.__doc__ or ""

    def __init__(self, addr: str = "127.0.0.1:8000", **options: Any) -> None:
        super().__init__(addr, **options)
        self._lock = threading.Lock()
        self._idle: list[_Connection] = []
        self._loop: _Loop | None = None
        self._async: aio.Client | None = None
        self._options = options

    def close(self) -> None:
        """Closes idle connections, and ends open sessions and streams."""
        with self._lock:
            idle, self._idle = self._idle, []
            loop, self._loop, own, self._async = self._loop, None, self._async, None
        for connection in idle:
            connection.close()
        if loop is not None and own is not None:
            loop.wait(own.close())
            loop.end()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *args: Any) -> None:
        self.close()

    def _connection(self, deadline: float | None) -> _Connection:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return _Connection(self, deadline)
            if connection.is_open():
                return connection
            connection.close()

    def _send(self, call: Call, deadline: float | None) -> tuple[_Connection, Reply]:
        """Sends a request, and reads the head of the reply."""
        connection = self._connection(deadline)
        try:
            broken: OSError | None = None
            try:
                connection.write(self._request(call), deadline)
            except (BrokenPipeError, ConnectionResetError) as error:
                broken = error  # the server may have refused the body before it had all of it
            try:
                return connection, connection.read(_http.read_head(), deadline)
            except EOFError:
                if broken is not None:
                    raise broken from None
                raise
        except BaseException:
            connection.close()
            raise

    def _keep(self, connection: _Connection, reply: Reply) -> None:
        with self._lock:
            if reply.keep and len(self._idle) < _MAX_IDLE:
                self._idle.append(connection)
                return
        connection.close()

    def _do(self, call: Call | After) -> Any:
        timeout = self._timeout if call.timeout is None else call.timeout
        deadline = None if timeout is None else time.monotonic() + timeout
        if isinstance(call, After):
            call = call.then(self._exchange(call.first, timeout, deadline))
        try:
            return self._exchange(call, timeout, deadline)
        except MillraceError as error:
            if call.again is None or not is_of_input(error.field):
                raise
            fresh = call.again.then(self._exchange(call.again.first, timeout, deadline))
            if fresh is None:
                raise
        return self._exchange(fresh, timeout, deadline)

    def _exchange(self, call: Call, timeout: float | None, deadline: float | None) -> Any:
        """Sends a request, and returns the value of the reply. timeout is the limit of the user, for the error."""
        try:
            connection, reply = self._send(call, deadline)
            try:
                connection.read(_http.read_body(call.method, reply), deadline)
            except BaseException:
                connection.close()
                raise
        except socket.timeout:
            raise self._late(timeout) from None
        except (OSError, EOFError) as error:
            raise self._unreachable(error) from error
        self._keep(connection, reply)
        error = failed(call, reply)
        if error is not None:
            raise error
        return call.read(reply)

    def _events(self, call: Call | After) -> Iterator[Any]:
        timeout = self._timeout if call.timeout is None else call.timeout
        if isinstance(call, After):
            call = call.then(self._do(call.first))

        def deadline() -> float | None:
            return None if timeout is None else time.monotonic() + timeout

        connection = None
        try:
            connection, reply = self._send(call, deadline())
            if not call.accept(reply.status) or not reply.content_type.startswith("text/event-stream"):
                connection.read(_http.read_body(call.method, reply), deadline())
                raise failed(call, reply) or MillraceError(
                    "unsupported",
                    f"the reply is {reply.content_type or 'empty'}, and no events: call it without events",
                )
            events = _http.Events(call.method, reply)
            while True:
                event = connection.read(events.next(), deadline())
                if event is None:
                    return
                yield call.event(event)  # type: ignore[misc]
        except EndOfEvents:
            return
        except socket.timeout:
            raise self._late(timeout) from None
        except (OSError, EOFError) as error:
            raise self._unreachable(error) from error
        finally:
            if connection is not None:
                connection.close()

    def session(self, **options: Any) -> Session:
        """Starts a session, a connection for any number of streams. The options are the options of aio.Client.session.
        A thread of the client calls functions among the options; the functions must not wait for the session or a
        stream of the session.
        """
        with self._lock:
            if self._loop is None:
                self._loop, self._async = _Loop(), aio.Client(self._to_text(), **self._options)
            loop, own = self._loop, self._async
        return Session(loop.wait(own.session(**options)), loop)  # type: ignore[union-attr]

    def _to_text(self) -> str:
        return str(self._to)

    def open(self, model: str, **options: Any) -> Stream:
        """Opens a stream to a model in a session of its own. The session ends with the stream. The options are the
        options of aio.Session.open, and `session`, a dict with options of Client.session.
        """
        session = self.session(**options.pop("session", {}))
        try:
            stream = session.open(model, **options)
        except BaseException:
            session.close()
            raise
        stream._alone = session
        return stream


class _Loop:
    """An event loop in a thread: carries out the work of the streams."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="millrace client", daemon=True)
        self._lock = threading.Lock()
        self._ended = False
        self._thread.start()

    def wait(self, work: Any) -> Any:
        """Awaits work in the loop, and returns the result."""
        if threading.current_thread() is self._thread:
            work.close()
            raise MillraceError(
                "conflict", "a function that the client called waits for the client: do it in another thread"
            )
        with self._lock:
            if self._ended:
                work.close()
                raise MillraceError("canceled", "the client is closed")
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise MillraceError("canceled", "the client is closed") from None
        except BaseException:
            future.cancel()
            raise

    def end(self) -> None:
        """Ends the loop. Work in progress ends with `canceled`."""
        with self._lock:
            self._ended = True
        asyncio.run_coroutine_threadsafe(self._cancel(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _cancel(self) -> None:
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)


def _waits(method: Callable) -> Callable:
    """The method of the asynchronous class, awaited."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        return self._loop.wait(method(self._async, *args, **options))

    return call


class Session:
    """Any number of streams over one connection. A lost connection is restored. See aio.Session."""

    def __init__(self, session: aio.Session, loop: _Loop) -> None:
        self._async, self._loop = session, loop

    close = _waits(aio.Session.close)
    ping = _waits(aio.Session.ping)

    def open(self, model: str, **options: Any) -> Stream:
        return Stream(self._loop.wait(self._async.open(model, **options)), self._loop)

    open.__doc__ = aio.Session.open.__doc__

    @property
    def closed(self) -> bool:
        """Whether the session has ended."""
        return self._async.closed

    @property
    def error(self) -> MillraceError | None:
        """The MillraceError that ended the session; None after close, and while the session is open."""
        return self._async.error

    @property
    def limits(self) -> Mapping[str, int]:
        """The server's limits: max_message (bytes), max_streams, max_window (frames)."""
        return self._async.limits

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *args: Any) -> None:
        self.close()


class Stream(StreamView):
    """Sends frames to one model, and reads exactly one ending for each frame. See aio.Stream."""

    def __init__(self, stream: aio.Stream, loop: _Loop) -> None:
        super().__init__(stream._state)
        self._async, self._loop = stream, loop
        self._alone: Session | None = None
        self._read: collections.deque[Result] = collections.deque()  # what was fetched; only the loop adds to it

    def send(
        self, data: Any = None, inputs: Any = None, *, wait: bool = True, timeout: float | None = None, **options: Any
    ) -> int | None:
        frame = data if isinstance(data, Frame) else Frame(data, inputs, **options)
        return self._loop.wait(self._async.send(frame, wait=wait, timeout=timeout, _caller=threading.get_ident()))

    send.__doc__ = aio.Stream.send.__doc__

    def receive(self, timeout: float | None = None) -> Result | None:
        deadline = None if timeout is None else time.monotonic() + (seconds(timeout, "timeout") or 0)
        while True:
            try:
                return self._read.popleft()
            except IndexError:
                pass
            left = None if deadline is None else max(deadline - time.monotonic(), 1e-6)
            if not self._loop.wait(self._fetch(left, threading.get_ident())):
                return None

    async def _fetch(self, timeout: float | None, caller: int) -> bool:
        """Waits for results, and stores the results for all threads in receive. Returns False at the end of the stream,
        and after timeout seconds.
        """
        stream, st = self._async, self._async._state
        stream._reader = caller
        if not await stream._wait(lambda: self._read or st.replies or st.state == CLOSED, timeout):
            return False
        if not self._read:  # otherwise another thread has fetched them
            if not st.replies and st.state == CLOSED:
                if st.error is not None:
                    raise st.error
                return False
            self._read.extend(stream._take(caller))
        return True

    receive.__doc__ = aio.Stream.receive.__doc__

    drain = _waits(aio.Stream.drain)
    update = _waits(aio.Stream.update)
    pause = _waits(aio.Stream.pause)
    resume = _waits(aio.Stream.resume)
    flush = _waits(aio.Stream.flush)
    configure = _waits(aio.Stream.configure)

    def close(self, timeout: float | None = None) -> dict[str, int]:
        try:
            return self._loop.wait(self._async.close(timeout))
        finally:
            if self._alone is not None:
                self._alone.close()

    close.__doc__ = aio.Stream.close.__doc__

    def map(self, frames: Iterable[Any], **options: Any) -> Iterator[Result]:
        """Sends frames as fast as the server takes frames, and iterates over the results of this stream until all
        frames have ended. A frame is a valid argument of send.
        """
        while self._read:  # of those that receive has fetched
            try:
                result = self._read.popleft()
            except IndexError:  # another thread took it
                break
            yield result
        for item in frames:
            frame = item if isinstance(item, Frame) else Frame(item, **options)
            taken = False
            while not taken:
                taken, results = self._loop.wait(self._async._send_or_receive(frame, threading.get_ident()))
                yield from results
        while True:
            results = self._loop.wait(self._async._receive_rest(threading.get_ident()))
            if not results:
                return
            yield from results

    def __iter__(self) -> Iterator[Result]:
        return self

    def __next__(self) -> Result:
        result = self.receive()
        if result is None:
            raise StopIteration
        return result

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: Any, *args: Any) -> None:
        try:
            self.close(None if kind is None else 2.0)
        except MillraceError:
            if kind is None:
                raise
