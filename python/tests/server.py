"""A real server for tests, and a way to it that can be cut. The variable MILLRACE names the program."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import threading
import unittest

PROGRAM = os.environ.get("MILLRACE", "")

needs_server = unittest.skipUnless(PROGRAM, "MILLRACE does not name a server's program: go test starts it")


_held: list[socket.socket] = []


def closed_port() -> int:
    """A port at which nothing listens, which nobody else gets while the tests run."""
    held = socket.socket()
    held.bind(("127.0.0.1", 0))
    _held.append(held)
    return held.getsockname()[1]


class Server:
    """A running server at addr, and at the same address again when it is started again."""

    def __init__(self, *args: str, folder: str | None = None, python: str = ""):
        self.port = 0  # that the system chooses
        self.args = args
        self.folder = folder  # in which it is started
        self.path = python  # the interpreter that is `python3` for it; "" = that of PATH
        self.start()

    def start(self) -> None:
        """Starts it, and waits until it is ready."""
        self.process = subprocess.Popen(
            [PROGRAM, "serve", "--http", f"127.0.0.1:{self.port}", "--grpc", "off", "--log-level", "error", *self.args],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=self._environment(),
        )
        self.said: list[str] = []
        threading.Thread(target=self._read, args=(self.process.stderr,), daemon=True).start()
        for line in self.process.stdout:
            self.said.append(line)
            if "is ready" in line:
                self.addr = next(word for word in line.split() if word.startswith("http"))
                self.port = int(self.addr.rpartition(":")[2])
                threading.Thread(target=self._read, args=(self.process.stdout,), daemon=True).start()
                return
        self.process.wait()
        raise AssertionError("the server did not start: " + "".join(self.said))

    def _environment(self) -> dict[str, str]:
        out = {k: v for k, v in os.environ.items() if k != "PYTHONPYCACHEPREFIX"}  # of peer.py
        if self.path:
            out["PATH"] = os.path.dirname(self.path) + os.pathsep + out["PATH"]
        return out

    def _read(self, pipe) -> None:
        with pipe:
            self.said.extend(pipe)

    def stop(self, how: int = signal.SIGTERM) -> None:
        """Ends it."""
        self.process.send_signal(how)
        self.process.wait()


class Way:
    """A way to a server, which can be cut."""

    def __init__(self, port: int):
        self.to = port
        self.ends: set[socket.socket] = set()
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.addr = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                near.close()
                continue
            with self.lock:
                self.ends |= {near, far}
            for a, b in ((near, far), (far, near)):
                threading.Thread(target=self._pipe, args=(a, b), daemon=True).start()

    def _pipe(self, a: socket.socket, b: socket.socket) -> None:
        try:
            while True:
                data = a.recv(64 << 10)
                if not data:
                    break
                b.sendall(data)
        except OSError:
            pass
        for end in (a, b):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self) -> None:
        """Resets all connections."""
        with self.lock:
            ends, self.ends = self.ends, set()
        for end in ends:
            try:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()

    def close(self) -> None:
        """Closes it."""
        self.listener.close()
        self.cut()
