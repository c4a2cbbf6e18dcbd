"""Both clients against a real server that is managed over a unix socket."""

from __future__ import annotations

import asyncio
import os
import tempfile
import unittest

from millrace import MillraceError, aio
from millrace.client import Client
from tests.server import Server, needs_server


@needs_server
class Sockets(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.addr = "unix:" + os.path.join(folder.name, "manage.sock")
        cls.server = Server("--model", "echo=identity", "--management-address", cls.addr)
        cls.addClassCleanup(cls.server.stop)

    def test_calls_and_streams(self) -> None:
        with Client(self.addr) as c:
            self.assertEqual(c.addr, self.addr)
            self.assertEqual(c.load("echo"), "echo")
            self.assertEqual(list(c.infer("echo", {"x": [1.0, 2.0]})["x"]), [1.0, 2.0])
            with c.open("echo") as stream:
                stream.send(b"frame")
                self.assertEqual(stream.receive().type, "result")

    def test_elsewhere_it_is_not_managed(self) -> None:
        with Client(self.server.addr) as c, self.assertRaises(MillraceError) as caught:
            c.load("echo")
        self.assertEqual((caught.exception.code, caught.exception.status), ("not_found", 404))

    def test_asyncio(self) -> None:
        async def run() -> None:
            async with aio.Client(self.addr) as c:
                self.assertEqual(await c.load("echo"), "echo")
                async with await c.open("echo") as stream:
                    await stream.send(b"frame")
                    self.assertEqual((await stream.receive()).type, "result")

        asyncio.run(run())

    def test_nobody_answers(self) -> None:
        addr = self.addr + ".none"
        with Client(addr) as c, self.assertRaisesRegex(MillraceError, f"the server at {addr} cannot be reached"):
            c.infer("echo", {"x": [1.0]})


class Addresses(unittest.TestCase):
    def test_a_path_is_absolute(self) -> None:
        for addr in "unix:", "unix:manage.sock", "unix:@manage":
            with self.assertRaisesRegex(MillraceError, "want unix:/PATH"):
                Client(addr)
