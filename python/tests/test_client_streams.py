"""Streams of the client without asyncio from a real server."""
from __future__ import annotations

import threading
import time
import unittest

from millrace import _tensors
from millrace.client import MillraceError, Tensor
from tests.clients import PICTURE, WithServer


class TestStreams(WithServer):
    """Streams over millrace.v1."""

    def balanced(self, stream) -> dict:
        n = stream.counts
        self.assertEqual(n["sent"], n["results"] + n["drops"] + n["errors"] + n["waiting"], n)
        return n

    def test_every_frame_is_answered_in_order(self):
        with self.client.open("batched", policy="every", window=8) as stream:
            got = list(stream.map((b"%d" % i for i in range(60)), capture=2.5))
            self.assertEqual([(r.type, r.seq, r.capture) for r in got], [("result", i, 2.5) for i in range(60)])
            self.assertTrue(any(r.batch > 1 for r in got))
            self.assertTrue(all(r.timing.total > 0 and r.timing.received > 1e9 for r in got))
            self.assertEqual(stream.policy.window, 8)
            totals = stream.close()
        self.assertEqual((totals["results"], self.balanced(stream)["results"], stream.closed), (60, 60, True))

    def test_map_after_receive(self):
        with self.client.open("id", policy="every") as stream:
            for i in range(10):
                stream.send(b"%d" % i)
            stream.drain()
            self.assertEqual(stream.receive().seq, 0)
            self.assertEqual([r.seq for r in stream.map([b"y"])], list(range(1, 11)))

    def test_two_threads_receive(self):
        with self.client.open("id", policy="every") as stream:
            fetched, go, other = threading.Event(), threading.Event(), []
            wait = stream._loop.wait

            def slow(work):
                done = wait(work)
                if threading.current_thread() is thread:
                    fetched.set()
                    go.wait()
                return done

            def send(n: int) -> None:
                for _ in range(n):
                    stream.send(b"x")
                stream.drain()

            stream._loop.wait = slow
            thread = threading.Thread(target=lambda: other.extend(stream.receive().seq for _ in range(3)))
            send(3)
            thread.start()
            fetched.wait()  # the thread has fetched results, and has not yet seen them
            send(3)
            mine = [stream.receive().seq for _ in range(2)]
            go.set()
            thread.join()
            stream._loop.wait = wait
            stream.close()
            mine += [result.seq for result in stream]
        self.assertEqual(sorted(mine + other), list(range(6)))  # none twice, none lost
        self.assertEqual((mine, other), (sorted(mine), sorted(other)))

    def test_results_that_come_together_reach_each_thread_that_receives(self):
        with self.client.open("id", policy="every") as stream:
            state, got = stream._state, []
            changed = state.changed
            state.changed = lambda: len(state.replies) == 2 and changed()  # both threads are woken at once
            threads = [threading.Thread(target=lambda: got.append(stream.receive().seq)) for _ in range(2)]
            for thread in threads:
                thread.start()
            while len(stream._async._waiting) < 2:
                time.sleep(0.001)
            stream.send(b"x")
            stream.send(b"x")
            for thread in threads:
                thread.join(20)
            self.assertEqual(sorted(got), [0, 1])
            state.changed = changed

    def test_tensors_in_each_form(self):
        inputs = {"a": [[1, 2], [3, 4]], "b": Tensor.of([0.5], "FP32"), "c": ["é", b"two"]}
        with self.client.session() as session:
            for outputs in ("binary", "json"):
                with session.open("id", outputs=outputs, trace=True) as stream:
                    self.assertEqual(stream.send(inputs=inputs, parameters={"n": 7}), 0)
                    result = stream.receive()
                    self.assertEqual(
                        {n: t.tolist() for n, t in result.outputs.items()},
                        {"a": [[1, 2], [3, 4]], "b": [0.5], "c": ["é".encode(), b"two"]},
                    )
                    self.assertRegex(result.trace, "^00-[0-9a-f]{32}-")
            with session.open("id", outputs="none") as stream:
                stream.send(inputs)
                self.assertEqual(stream.receive().outputs, {})

    def test_each_frame_gets_its_own_answer(self):
        with self.client.open("id", policy="every", window=8) as stream:
            for result in stream.map(b"%d" % i * 100 for i in range(300)):
                self.assertEqual([t.tolist() for t in result.outputs.values()], [[b"%d" % result.seq * 100]])

    def test_several_streams_of_one_connection(self):
        with self.client.session() as session:
            streams = [session.open("id", policy="every") for _ in range(5)]
            for i in range(20):
                for stream in streams:
                    stream.send(b"x%d" % i)
            for stream in streams:
                self.assertTrue(stream.drain())
                self.assertEqual([stream.receive().seq for _ in range(20)], list(range(20)))
            round_trip, clock = session.ping()
            self.assertTrue(0 <= round_trip < 10 and clock > 1e9)
            self.assertGreater(session.limits["max_message"], 0)
        self.assertTrue(all(s.closed for s in streams) and session.closed)
        self.fails("canceled", None, streams[0].send, b"x")
        self.fails("canceled", None, session.open, "id")

    def test_drops_and_policies(self):
        with self.client.open("slow", policy="latest") as stream:
            for _ in range(20):
                stream.send(b"x")
            stream.drain()
            counts = self.balanced(stream)
            results = [stream.receive() for _ in range(20)]
            self.assertEqual({r.type for r in results}, {"result", "drop"})
            self.assertTrue({r.reason for r in results if r.type == "drop"} <= {"superseded", "overtaken"})
            self.assertEqual(counts["drops"], sum(r.type == "drop" for r in results))
            with self.assertRaises(KeyError):
                next(r for r in results if r.type == "drop")["x"]
        with self.client.open("long", policy="every", window=2) as stream:
            sent = [stream.send(b"x", wait=False) for _ in range(10)]
            self.assertEqual(sent[:2], [0, 1])
            self.assertIn(None, sent)
            self.assertIsNone(stream.send(b"x", timeout=0.001))
            self.assertEqual(stream.send(b"x"), sum(s is not None for s in sent))  # waits for credit
            self.assertEqual(stream.receive().seq, 0)

    def test_results_that_nobody_reads(self):
        with self.client.open("id", policy="every", buffer=10) as stream:
            with self.assertRaises(MillraceError) as caught:
                for _ in range(200):
                    stream.send(b"x")
                    stream.drain()
            self.check(caught.exception, "flow_control", "buffer")
            self.assertEqual(len(stream._state.replies), 10)
            reader = threading.Thread(target=lambda: [stream.receive() for _ in range(100)])
            stream.receive()
            reader.start()
            while stream._async._reader != reader.ident:
                time.sleep(0.001)
            for _ in range(101 - stream.counts["sent"]):
                stream.send(b"x")  # another thread reads: it waits for that one
            reader.join()
        with self.client.open("id", policy="latest", buffer=5) as stream:
            for _ in range(50):
                stream.send(b"x")
                stream.drain()  # so that no frame is dropped: a drop can come after the results of later frames
            n = self.balanced(stream)
            self.assertEqual((n["sent"], n["results"], n["unread"]), (50, 50, 45))
            self.assertEqual([stream.receive().seq for _ in range(5)], list(range(45, 50)))

    def test_errors_of_frames_and_refused_opens(self):
        with self.client.session() as session:
            self.fails("not_found", "open.model", session.open, "nope")
            self.fails("unsupported", None, session.open, "id", stateful=True)
            with session.open("find", policy="every") as stream:
                stream.send(b"no picture", codec="jpeg")
                stream.send(PICTURE, region=(0, 0, 99, 99))
                stream.send(PICTURE, region=(1, 1, 4, 4))
                first, second, third = (stream.receive() for _ in range(3))
                self.assertEqual((first.type, first.error.code), ("error", "unsupported"))
                self.assertEqual((second.type, second.error.field), ("error", "ext.roi"))
                self.assertEqual((third.type, third.width), ("result", 8))
                with self.assertRaises(MillraceError):
                    first["x"]
            with session.open("id") as stream:
                self.fails("too_large", "limits.max_message", stream.send, b"x" * (session.limits["max_message"] + 1))
                stream.send(b"x", last=True)
                self.assertEqual([r.seq for r in stream], [0])  # the loop ends with the stream
            self.assertEqual(stream.totals["results"], 1)

    @unittest.skipUnless(_tensors.numpy(), "needs numpy")
    def test_pictures_as_arrays(self):
        np = _tensors.numpy()
        with self.client.open("find", policy="every") as stream:
            stream.send(np.zeros((24, 32, 3), dtype=np.uint8))
            result = stream.receive()
            self.assertEqual((result.type, result.width, result.height), ("result", 32, 24), result)
            self.assertEqual(result["boxes"].shape[-1], 4)
            self.fails("invalid_argument", "data", stream.send, np.zeros((24, 32), dtype=np.uint8))

    def test_pause_flush_update(self):
        refused = []
        with self.client.open("id", policy="every", window=8, on_refused=refused.append) as stream:
            stream.pause()
            for _ in range(4):
                stream.send(b"x")
            stream.flush()
            self.assertEqual(
                [(r.type, r.reason) for r in (stream.receive() for _ in range(4))], [("drop", "flushed")] * 4
            )
            stream.resume()
            stream.update(window=2, outputs="none", parameters={"a": 1})
            stream.send(b"x")
            self.assertEqual(stream.receive().outputs, {})
            self.assertEqual(stream.policy.window, 2)
            stream.update(window=10**9)
            stream.send(b"x")
            stream.receive()
            self.assertEqual([e.code for e in refused], ["invalid_argument"])
            self.fails("invalid_argument", "outputs", stream.update, outputs="text")
            self.fails("invalid_argument", "codec", stream.configure, "jpeg", b"")

    def test_partial_results(self):
        inputs = {
            "IN": Tensor.of([7, 8, 9], "INT32"),
            "DELAY": Tensor.of([0, 0, 0], "UINT32"),
            "WAIT": Tensor.of([0], "UINT32"),
        }
        with self.client.open("count", policy="every") as stream:
            got = list(stream.map([inputs, inputs]))
            self.assertEqual(
                [(r.seq, r.outputs["OUT"].tolist()) for r in got if "OUT" in r.outputs],
                [(s, [n]) for s in (0, 1) for n in (7, 8, 9)],
            )
            self.assertEqual([r.seq for r in got if not r.partial], [0, 1])
            self.assertEqual(self.balanced(stream)["results"], 2)

    def test_unload_ends_the_stream(self):
        with self.client.session() as session:
            stream = session.open("gone", policy="every")
            self.client.unload("gone")
            with self.assertRaises(MillraceError) as caught:
                list(stream)
            self.check(caught.exception, "unloaded")
            self.client.load("gone")
            with session.open("gone") as again:
                again.send(b"x")
                self.assertEqual(again.receive().type, "result")

    def test_functions_that_wait_for_the_client_are_refused(self):
        caught = []

        def advise(error):
            try:
                stream.drain()
            except MillraceError as error:
                caught.append(error.code)

        with self.client.open("id", on_refused=advise) as stream:
            stream.update(window=10**9)
            stream.send(b"x")
            stream.receive()
        self.assertEqual(caught, ["conflict"])

    def test_tickets(self):
        self.assertTrue(self.client.ticket())
        with self.client.session(ticket=True) as session, session.open("id") as stream:
            stream.send(b"x")
            self.assertEqual(stream.receive().type, "result")
        self.fails("unauthenticated", None, self.client.session, ticket=lambda: "wrong", status=401)
