"""The client for asyncio against a real server."""

from __future__ import annotations

import asyncio
import unittest

from millrace.aio import Client, MillraceError, Tensor
from tests.server import Server, Way, closed_port, needs_server
from tests.clients import MODELS, PICTURE


@needs_server
class TestAsync(unittest.IsolatedAsyncioTestCase):
    """What test_client.py does not reach: that all of it can be awaited, cancelled, and done at once."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.server = Server(*(a for m in MODELS for a in ("--model", m)))
        cls.addClassCleanup(cls.server.stop)

    async def test_calls(self):
        async with Client(self.server.addr) as c:
            self.assertTrue(await c.live() and await c.ready("id"))
            answers = await asyncio.gather(*(c.infer("id", {"x": [i]}) for i in range(50)))
            self.assertEqual([a.outputs["x"].tolist() for a in answers], [[i] for i in range(50)])
            self.assertLessEqual(len(c._idle), 50)
            c._idle[-1].writer.transport.abort()
            self.assertEqual((await c.infer("find", picture=PICTURE)).width, 8)
            inputs = {
                "IN": Tensor.of([7, 8], "INT32"),
                "DELAY": Tensor.of([0, 10], "UINT32"),
                "WAIT": Tensor.of([0], "UINT32"),
            }
            self.assertEqual([a.outputs["OUT"].tolist() async for a in c.infer_stream("count", inputs)], [[7], [8]])
            with self.assertRaises(MillraceError) as caught:
                await c.infer("nope", {"x": [1]})
            self.assertEqual((caught.exception.code, caught.exception.field), ("not_found", "model"))
            with self.assertRaises(MillraceError) as caught:
                await c.infer("long", {"x": [1]}, timeout=0.005)
            self.assertEqual(caught.exception.field, "timeout")
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(c.infer("long", {"x": [1]}), 0.005)
            self.assertEqual((await c.infer("id", {"x": [2]})).outputs["x"].tolist(), [2])
            large = bytes(range(256)) * 4096
            self.assertEqual((await c.infer("id", {"x": large})).outputs["x"].tolist(), [large])
        with self.assertRaises(MillraceError) as caught:
            await Client(f"127.0.0.1:{closed_port()}").live()
        self.assertEqual(caught.exception.code, "unavailable")

    async def test_streams(self):
        async with Client(self.server.addr) as c, await c.session() as session:

            async def run(n: int) -> list:
                async with await session.open("id", policy="every", window=4) as stream:
                    return [r.seq async for r in stream.map(b"%d" % i for i in range(n))]

            self.assertEqual(
                await asyncio.gather(*(run(n) for n in (10, 30, 50))), [list(range(n)) for n in (10, 30, 50)]
            )

            async def frames():
                for _ in range(3):
                    await asyncio.sleep(0)
                    yield PICTURE

            async with await session.open("find", policy="every") as stream:
                self.assertEqual([r.width async for r in stream.map(frames())], [8, 8, 8])
            async with await session.open("long", policy="every", window=1) as stream:
                await stream.send(b"a")
                with self.assertRaises(asyncio.TimeoutError):
                    await asyncio.wait_for(stream.send(b"b"), 0.005)  # a send that was cancelled has sent nothing
                self.assertEqual((await stream.receive()).seq, 0)
                self.assertEqual(await stream.send(b"c"), 1)
            self.assertEqual([r.seq async for r in stream], [1])  # what came before the end can still be read
            self.assertEqual(stream.counts["sent"], 2)

    async def test_lists_become_the_declared_datatypes(self):
        """The inputs of `count` are INT32 and UINT32, and Python's numbers would be INT64."""
        members = {"IN": [7, 8], "DELAY": [0, 10], "WAIT": [0]}
        async with Client(self.server.addr) as c:
            self.assertEqual([a.outputs["OUT"].tolist() async for a in c.infer_stream("count", members)], [[7], [8]])
        async with Client(self.server.addr) as c:
            with self.assertRaises(MillraceError) as caught:
                await c.infer("count", {**members, "WAIT": [-1]})
            self.assertEqual((caught.exception.field, caught.exception.status), ("inputs.WAIT", 0))
        async with Client(self.server.addr) as c, await c.open("count", policy="every") as stream:
            results = [r async for r in stream.map([members])]
            self.assertEqual([r.outputs["OUT"].tolist() for r in results if r.outputs], [[7], [8]])

    async def test_a_lost_connection(self):
        way = Way(self.server.port)
        changes = []
        async with Client(way.addr) as c:
            stream = await c.open(
                "slow", policy="every", window=4, session={"on_connection": lambda what, error: changes.append(what)}
            )
            seqs = []
            async for result in stream.map(b"x" for _ in range(20)):
                if result.seq == 5:
                    way.cut()
                seqs.append(result.seq)
            self.assertEqual((seqs, changes), (list(range(20)), ["lost", "resumed"]))
            sending = asyncio.ensure_future(stream.send(b"x"))
            await sending
            way.close()
            await c.close()  # also while it reconnects
            self.assertTrue(stream.closed)
            self.assertEqual(stream.counts["waiting"], 0)


if __name__ == "__main__":
    unittest.main()
