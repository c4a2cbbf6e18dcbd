"""What the tests of clients share: models, a picture, a server for each class, checks of errors."""
from __future__ import annotations

import socket
import threading
import unittest
import zlib

from millrace.client import Client, MillraceError
from tests.server import Server, needs_server

MODELS = (
    "id=identity",
    "gone=identity",
    "slow=delay,fixed=40ms",
    "long=delay,fixed=500ms",
    "batched=delay,fixed=5ms,batching.max_size=8",
    "find=motion",
    "count=repeat",
    "echo=identity",
)


def png(width: int, height: int) -> bytes:
    """A gray picture."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    head = width.to_bytes(4, "big") + height.to_bytes(4, "big") + bytes((8, 0, 0, 0, 0))
    rows = zlib.compress((b"\0" + bytes(range(width))) * height)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


PICTURE = png(8, 8)


class Fails(unittest.TestCase):
    """What the tests of both clients share."""

    def check(self, error: MillraceError, code: str, field: str = None, status: int = None) -> None:
        self.assertEqual(error.code, code, repr(error))
        if field is not None:
            self.assertEqual(error.field, field, repr(error))
        if status is not None:
            self.assertEqual(error.status, status, repr(error))

    def fails(self, code: str, field: str, call, *args, status: int = None, **options) -> MillraceError:
        with self.assertRaises(MillraceError) as caught:
            call(*args, **options)
        self.check(caught.exception, code, field, status)
        return caught.exception


class Trickle:
    """A server that sends a reply byte by byte, and ends it: a client that waits for each byte gets all of it."""

    def __init__(self, at_once: bytes, slowly: bytes):
        self.at_once, self.slowly = at_once, slowly
        self.ended = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(30)
        self.addr = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Trickle":
        self.thread.start()
        return self

    def __exit__(self, *_) -> None:
        self.ended.set()
        self.thread.join()

    def _run(self) -> None:
        with self.listener, self.listener.accept()[0] as connection:
            try:
                connection.recv(64 << 10)
                connection.sendall(self.at_once)
                for byte in self.slowly:
                    if self.ended.wait(0.01):
                        return
                    connection.sendall(bytes((byte,)))
                self.ended.wait()
            except OSError:
                pass  # the client has given up


@needs_server
class WithServer(Fails):
    """A server for all tests of a class."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = Server(*(a for m in MODELS for a in ("--model", m)))
        cls.addClassCleanup(cls.server.stop)

    def setUp(self) -> None:
        self.client = Client(self.server.addr, timeout=30)
        self.addCleanup(self.client.close)
