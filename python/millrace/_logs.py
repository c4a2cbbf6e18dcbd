"""print and logging of a program, as messages `log` to the server."""

from __future__ import annotations

import functools
import io
import logging
import os
import sys
import threading
from typing import Any, Callable

from ._application import current

MAX_LINE = 8192
"""Characters of a message; what is longer is cut."""

_connection: Any = None
_pid = 0


def send(level: str, message: str, logger: str = "") -> None:
    """Sends a line to the server's log, with the trace of the request at hand."""
    line: dict[str, Any] = {"type": "log", "level": level, "message": message[:MAX_LINE]}
    if logger:
        line["logger"] = logger
    request = current.get()
    if request is not None and request.trace:
        line["trace"] = request.trace
    _connection.send(line)


class Handler(logging.Handler):
    """Sends records of logging."""

    def emit(self, record: logging.LogRecord) -> None:
        """Implements logging.Handler."""
        if os.getpid() != _pid:
            return
        try:
            level = (
                "error"
                if record.levelno >= 40
                else "warning"
                if record.levelno >= 30
                else "info"
                if record.levelno >= 20
                else "debug"
            )
            send(level, self.format(record), "" if record.name == "root" else record.name)
        except Exception:
            self.handleError(record)


class Lines(io.TextIOBase):
    """Standard output or error, by line and thread, since print writes the arguments separately. Forked processes write
    to the file beneath.
    """

    def __init__(self, beneath: Any, level: str):
        self._beneath, self._level, self._lock = beneath, level, threading.RLock()
        self._rests: dict[int, str] = {}  # by thread, what has no end of line yet

    def write(self, text: str) -> int:
        """Sends the complete lines of text."""
        if os.getpid() != _pid:
            return self._beneath.write(text)
        with self._lock:
            lines = (self._rests.pop(threading.get_ident(), "") + text).split("\n")
            rest = lines.pop()
            if len(rest) > MAX_LINE:
                lines.append(rest)
            elif rest:
                self._rests[threading.get_ident()] = rest
            for line in lines:
                if line.strip():
                    try:
                        send(self._level, line.rstrip("\r"))
                    except OSError:
                        pass
        return len(text)

    def flush(self) -> None:
        """Sends nothing: complete lines are sent at once."""
        self._beneath.flush()

    def end(self) -> None:
        """Sends the text after the last end of line."""
        with self._lock:
            rests, self._rests = self._rests, {}
            for rest in rests.values():
                self.write(rest + "\n")

    def reconfigure(self, **_: Any) -> None:
        """Does nothing: lines are text in UTF-8, sent when complete."""

    def fileno(self) -> int:
        """Returns the descriptor of the file beneath."""
        return self._beneath.fileno()

    def isatty(self) -> bool:
        """Returns False."""
        return False

    def writable(self) -> bool:
        """Returns True."""
        return True

    @property
    def buffer(self) -> Any:
        """The file beneath, for bytes."""
        return self._beneath.buffer

    @property
    def encoding(self) -> str:
        """The coding of the file beneath."""
        return "utf-8"


def install(connection: Any) -> None:
    """Sends prints and log records of the program to the server from now on."""
    global _connection, _pid
    _connection, _pid = connection, os.getpid()
    sys.stdout, sys.stderr = Lines(sys.stdout, "info"), Lines(sys.stderr, "info")
    root, handler = logging.getLogger(), Handler()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    logging.basicConfig = _basic_config(logging.basicConfig, handler)


def _basic_config(original: Callable[..., None], handler: Handler) -> Callable[..., None]:
    """Returns a basicConfig for a root logger that keeps the handler of the runtime. In place of a handler for standard
    output or error, the handler of the runtime gets the format and level.
    """

    @functools.wraps(original)
    def basic_config(**options: Any) -> None:
        root = logging.getLogger()
        if root.handlers != [handler] and not options.get("force"):
            original(**options)
            return
        root.removeHandler(handler)
        try:
            original(**options)
        finally:
            for h in root.handlers[:]:
                if type(h) is logging.StreamHandler and isinstance(h.stream, Lines):
                    root.removeHandler(h)
                    handler.setLevel(h.level)
                    if h.formatter is not None and h.formatter._fmt != logging.BASIC_FORMAT:
                        handler.setFormatter(h.formatter)
            root.addHandler(handler)

    return basic_config
