"""The child's main loop: reads messages of the server, and calls the application."""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from typing import Any

from . import _logs
from ._application import Batch, Runtime
from ._errors import LoadError, describe, user_traceback
from ._load import load
from ._wire import Closed, Connection, Segments

PROTOCOL = 1

active: Loop | None = None
"""The loop of this process, or None outside of a child of Millrace."""


class Loop:
    """Serves an application over a connection."""

    def __init__(self, connection: Connection):
        self.connection = connection
        self.segments = Segments()
        self.runtime = Runtime(connection, self.segments, self.poll, self.ask)
        self.application: Any = None
        self.hello: dict[str, Any] = {}
        self.ended = False

    def serve(self, application: Any) -> None:
        """Serves an application from inside of the program. The program goes on after the server has closed the
        connection.
        """
        self.application = application
        self.describe(application.describe())
        self.run()

    def run(self) -> None:
        """Serves until the server closes the program or the socket."""
        while not self.ended:
            try:
                message, data = self.connection.receive()
            except Closed:
                break
            kind = message.get("type")
            if kind == "batch":
                self.batch(message, data)
            elif kind == "close":
                break
            else:
                self.other(kind, message)
        self.ended = True

    def other(self, kind: Any, message: dict[str, Any]) -> None:
        """Answers a message other than a batch. Ignores messages of unknown types."""
        if kind == "segment":
            self.segments.add(
                message["id"], self.connection.descriptor(), message["size"], bool(message.get("writable"))
            )
        elif kind == "drop_segment":
            self.segments.drop(message["id"])
        elif kind == "cancel":
            self.cancel(message)
        elif kind == "release":
            for stream in message["streams"]:
                self.runtime.states.pop(stream, None)
        elif kind == "check":
            self.check()
        elif kind == "hello":
            self.load(message)
        elif kind == "setup":
            self.setup()

    def poll(self) -> None:
        """Takes note of requests cancelled since the batch began."""
        for message, data in self.connection.poll():
            self.meanwhile(message, data)

    def meanwhile(self, message: dict[str, Any], data: memoryview) -> None:
        """Takes note of a message during a batch, or leaves the message for run."""
        kind = message.get("type")
        if kind == "cancel":
            self.cancel(message)
        elif kind == "segment":  # its descriptor is the next one of the connection
            self.other(kind, message)
        else:
            self.connection.keep((message, data))

    def ask(self, message: dict[str, Any], data: Any) -> tuple[dict[str, Any], memoryview]:
        """Sends a message `decode` with the bytes of a picture. Returns the message `decoded` and the bytes."""
        self.connection.send(message, [data])
        while True:
            answer, pixels = self.connection.next()
            if answer.get("type") == "decoded" and answer["id"] == message["id"]:
                return answer, pixels
            self.meanwhile(answer, pixels)

    def cancel(self, message: dict[str, Any]) -> None:
        """Marks a request of the running batch, or of a waiting batch, as cancelled."""
        batch = self.runtime.batch
        if batch is not None and batch.id == message["id"]:
            if message["request"] < len(batch):
                batch[message["request"]]._cancelled = True
        else:
            self.runtime.cancelled.add((message["id"], message["request"]))

    def batch(self, message: dict[str, Any], data: memoryview) -> None:
        """Runs a batch and sends the endings."""
        runtime = self.runtime
        runtime.batch = batch = Batch(message, data, runtime)
        if runtime.cancelled:
            for r in batch:
                r._cancelled = (batch.id, r.index) in runtime.cancelled
            runtime.cancelled = {c for c in runtime.cancelled if c[0] > batch.id}
        batch.begin()
        try:
            self.application.run(batch)
        except BaseException as e:  # sys.exit, too: it fails its requests, and not those that wait
            for r in batch:
                if not r.ended:
                    r.fail_with(e)
        ends = getattr(self.application, "ends", None)
        if ends is not None:
            batch.ends = ends[0]
        batch.finish()
        runtime.batch = None
        if ends is not None:
            raise SystemExit(ends[1])

    def load(self, hello: dict[str, Any]) -> None:
        """Imports the program and describes the program."""
        self.hello = hello
        self.runtime.max_result = int(hello.get("max_result") or 0)
        self.runtime.says_begun = bool(hello.get("begun"))
        try:
            if hello.get("protocol") != PROTOCOL:
                raise LoadError(
                    f"the server speaks version {hello.get('protocol')} of the protocol, and this package version "
                    f"{PROTOCOL}"
                )
            options = dict(hello.get("options") or {})
            options["hello"] = hello
            application = load(str(options.get("source") or ""), options.get("argv") or [], options)
            if self.ended:  # it was served by serve
                return
            self.application = application
            model = self.application.describe()
        except BaseException as e:
            if self.ended:
                logging.getLogger("millrace").exception("the program failed after its end")
            else:
                self.failed(e)
            return
        self.describe(model)

    def describe(self, model: dict[str, Any]) -> None:
        """Sends the description of the program to the server."""
        said = {"begins": True} if self.hello.get("begun") else {}  # the server wants to know when a batch begins
        self.connection.send({"type": "model", **model, **said})

    def setup(self) -> None:
        """Prepares the application."""
        try:
            self.application.setup()
        except BaseException as e:
            self.failed(e, "setup: ")
            return
        self.connection.send({"type": "ready"})

    def check(self) -> None:
        """Calls the application's watchdog."""
        answer: dict[str, Any] = {"type": "checked", "ok": True}
        try:
            if self.application.watchdog() is False:
                answer = {"type": "checked", "ok": False, "message": "the program's watchdog returned False"}
        except Exception as e:
            answer = {"type": "checked", "ok": False, "message": describe(e)}
        self.connection.send(answer)

    def failed(self, error: BaseException, where: str = "") -> None:
        """Says why the program cannot be served."""
        message: dict[str, Any] = {"type": "failed"}
        cause = error
        if isinstance(error, LoadError):
            message["message"], message["kind"] = str(error), error.kind
            cause = error.__cause__ or error
        elif isinstance(error, SystemExit):
            message["message"] = f"{where}the program ended its process (exit code {error.code})"
        else:
            message["message"] = where + describe(error)
            failure_kind = getattr(self.application, "failure_kind", None)
            if failure_kind is not None and (kind := failure_kind(error)):
                message["kind"] = kind
        if (
            isinstance(cause, FileNotFoundError)
            and isinstance(cause.filename, str)
            and not os.path.isabs(cause.filename)
        ):
            message["message"] += (
                f". The working directory is {os.getcwd()}: set the model's `dir`, or begin the path with "
                "os.path.dirname(__file__)"
            )
        if cause is not error or not isinstance(error, LoadError):
            message["traceback"] = user_traceback(cause)
        self.connection.send(message)


def main() -> None:
    """Serves the connection of the environment."""
    global active
    # The server ends its children, and SIGINT does not; what the program starts gets the default again, unlike of
    # SIG_IGN.
    signal.signal(signal.SIGINT, lambda *_: None)
    number = int(os.environ.pop("MILLRACE_SOCKET"))
    sock = socket.socket(fileno=number)
    sock.set_inheritable(False)
    os.register_at_fork(
        after_in_child=sock.close
    )  # so that the server sees the end of this process, whatever it forked
    connection = Connection(sock)
    _logs.install(connection)
    active = loop = Loop(connection)
    try:
        loop.run()
    except OSError as e:
        if not isinstance(e, (BrokenPipeError, ConnectionResetError)):
            raise
    finally:
        if loop.application is not None:
            try:
                loop.application.close()
            except Exception:
                logging.getLogger("millrace").exception("close")
        for out in (sys.stdout, sys.stderr):
            if isinstance(out, _logs.Lines):
                out.end()
            out.flush()
