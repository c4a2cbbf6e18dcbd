"""Both clients against a real server whose clients need keys."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
import unittest

from millrace import MillraceError, aio
from millrace.client import Client
from tests.server import PROGRAM, Server, needs_server


@needs_server
class Tokens(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        keys = os.path.join(folder.name, "keys.yaml")
        cls.key = subprocess.check_output(
            [PROGRAM, "keys", "add", keys, "camera", "--role", "infer"], text=True
        ).strip()
        cls.server = Server("--model", "echo=identity", "--auth-keys", keys)
        cls.addClassCleanup(cls.server.stop)

    def check(self, code: str, status: int, call) -> None:
        with self.assertRaises(MillraceError) as caught:
            call()
        self.assertEqual((caught.exception.code, caught.exception.status), (code, status), repr(caught.exception))
        self.assertNotIn(self.key, str(caught.exception))

    def test_calls_and_streams(self) -> None:
        with Client(self.server.addr, token=self.key) as c:
            self.assertEqual(list(c.infer("echo", {"x": [1.0, 2.0]})["x"]), [1.0, 2.0])
            with c.open("echo") as stream:
                stream.send(b"frame")
                self.assertEqual(stream.receive().type, "result")
            with c.session(ticket=True) as session, session.open("echo") as stream:
                stream.send(b"frame")
                self.assertEqual(stream.receive().type, "result")
            self.check("permission_denied", 403, lambda: c.unload("echo"))

    def test_without_and_with_a_wrong_key(self) -> None:
        other = self.key[:-1] + ("B" if self.key.endswith("A") else "A")
        for options in {}, {"token": other}, {"token": "wrong"}:
            with Client(self.server.addr, **options) as c:
                self.assertTrue(c.live())
                self.check("unauthenticated", 401, lambda: c.infer("echo", {"x": [1.0]}))
                self.check("unauthenticated", 401, lambda: c.open("echo"))

    def test_a_header_comes_before_the_key(self) -> None:
        with Client(self.server.addr, token="wrong", headers={"Authorization": f"Bearer {self.key}"}) as c:
            self.assertEqual(c.metadata("echo")["name"], "echo")

    def test_asyncio(self) -> None:
        async def run() -> None:
            async with aio.Client(self.server.addr, token=self.key) as c:
                self.assertEqual((await c.metadata("echo"))["name"], "echo")
                async with await c.open("echo") as stream:
                    await stream.send(b"frame")
                    self.assertEqual((await stream.receive()).type, "result")
            async with aio.Client(self.server.addr) as c:
                with self.assertRaises(MillraceError) as caught:
                    await c.open("echo")
                self.assertEqual(caught.exception.code, "unauthenticated")

        asyncio.run(run())


if __name__ == "__main__":
    unittest.main()
