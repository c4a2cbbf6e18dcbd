"""Calls of the client without asyncio to a real server."""
from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import shutil
import sys
import tempfile
import threading
import unittest

from millrace import _tensors, aio
from millrace.client import Client, Frame, MillraceError, Policy, Tensor
from tests.clients import PICTURE, Fails, Trickle, WithServer
from tests.server import Server, closed_port, needs_server


class TestCalls(WithServer):
    """Calls over HTTP."""

    def test_server_and_models(self):
        c = self.client
        self.assertTrue(c.live() and c.ready() and c.ready("id"))
        self.assertFalse(c.ready("nope"))
        self.assertEqual(c.server()["name"], "millrace")
        self.assertEqual(c.metadata("count")["inputs"][0]["name"], "IN")
        self.assertEqual({m["name"]: m["state"] for m in c.models(ready=True)}["id"], "READY")
        self.assertIn("instance_group", c.config("id"))
        self.assertEqual(c.statistics("id")["model_stats"][0]["name"], "id")
        self.assertIn("paths", c.openapi())
        self.assertEqual(c.status()["state"], "ready")
        self.fails("not_found", "model", c.metadata, "nope", status=404)
        self.fails("invalid_argument", "model", c.metadata, "")

    def test_the_example_of_the_guide(self):
        with open(os.path.join(os.path.dirname(__file__), "../../docs/python-client.md"), encoding="utf-8") as f:
            code = f.read().split("```python\n")[1].split("```")[0]
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code.replace("127.0.0.1:8000", self.server.addr), {})
        self.assertEqual(len(out.getvalue().splitlines()[-100:]), 100)
        self.assertIn("99 {", out.getvalue())

    def test_load_and_unload(self):
        c = self.client
        c.unload("gone")
        self.fails("not_found", None, c.infer, "gone", {"x": [1]})
        self.assertEqual(c.load("gone"), "gone")
        self.assertEqual(c.infer("gone", {"x": [1]}).model, "gone")
        self.fails("invalid_argument", "parameters.a", c.load, "gone", {"a": []})
        c.scale("gone", 2)
        self.assertEqual(next(m for m in c.status()["models"] if m["name"] == "gone")["workers"], 2)
        self.fails("invalid_argument", "instances", c.scale, "gone", 0)

    def test_tensors_of_every_datatype(self):
        values = {d: Tensor.of([1, 2, 3], d) for d in _tensors.DATATYPES if d not in ("BOOL", "FP16", "BF16")}
        values.update(
            {
                "BOOL": Tensor.of([True, False], "BOOL"),
                "BYTES": Tensor.of([["é"], [b"\xff"]], "BYTES"),
                "FP16": Tensor.of([0.5, -2], "FP16"),
                "BF16": Tensor.of([1.0, -0.15625, float("nan")], "BF16"),
                "large": Tensor.of([-(2**62)], "INT64"),
                "scalar": 7,
                "text": "é",
                "bytes": b"\0\1",
                "nested": [[1.5, 2], [3, 4]],
            }
        )
        answer = self.client.infer("id", values, id="7", parameters={"mark": "é", "n": 7, "on": True, "part": 0.5})
        self.assertEqual((answer.id, answer.model), ("7", "id"))
        self.assertEqual(list(answer.outputs), list(values))
        for name, value in values.items():
            want = value.elements() if isinstance(value, Tensor) else None
            if want is not None:
                self.assertEqual(str(answer.outputs[name].elements()), str(want), name)
                self.assertEqual(answer.outputs[name].datatype, value.datatype)
        self.assertEqual(answer.outputs["nested"].tolist(), [[1.5, 2], [3, 4]])
        self.assertEqual(answer.outputs["BYTES"].tolist(), [["é".encode()], [b"\xff"]])
        self.assertEqual(answer.outputs["text"].tolist(), ["é".encode()])
        self.assertGreater(answer.timing.total, 0)
        as_json = {k: v for k, v in values.items() if k not in ("FP16", "BF16", "BYTES", "bytes")}
        answer = self.client.infer("id", as_json, json=True, outputs=["nested", "UINT64"])
        self.assertEqual(
            {k: t.tolist() for k, t in answer.outputs.items()}, {"nested": [[1.5, 2], [3, 4]], "UINT64": [1, 2, 3]}
        )
        for name in ("FP16", "BF16", "BYTES"):
            self.fails("invalid_argument", f"inputs.{name}", self.client.infer, "id", {name: values[name]}, json=True)

    @unittest.skipUnless(_tensors.numpy(), "needs numpy")
    def test_arrays(self):
        np = _tensors.numpy()
        arrays = {
            d: np.arange(6).reshape(2, 3).astype(d)
            for d in ("uint8", "int16", "int64", "float16", "float32", "float64", "bool", ">i4")
        }
        arrays["view"] = np.arange(12, dtype="float32").reshape(3, 4)[:, ::2]
        arrays["text"] = np.array([["a", "é"]], dtype=object)
        arrays["empty"] = np.zeros((0, 4), dtype="float32")
        answer = self.client.infer("id", arrays)
        for name, array in arrays.items():
            got = answer[name]
            if name == "text":
                self.assertEqual(got.tolist(), [[b"a", "é".encode()]])
                continue
            np.testing.assert_array_equal(got, array, err_msg=name)
            self.assertEqual(got.dtype.newbyteorder("="), array.dtype.newbyteorder("="))
        self.fails("invalid_argument", "inputs.x", self.client.infer, "id", {"x": np.zeros(2, dtype="complex64")})

    def declaring(self) -> None:
        """Starts a server with models that declare datatypes: `typed`, whose inputs are optional, and `plain`."""
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        models = {
            "typed": "f: Tensor['FP32', -1] = None, h: Tensor['FP16', -1] = None, b: Tensor['BF16', -1] = None, u: "
            "Tensor['UINT8', -1] = None,"
            "w: Tensor['UINT64', -1] = None, i: Tensor['INT32', -1] = None, o: Tensor['BOOL', -1] = None, t: "
            "Tensor['BYTES', -1] = None",
            "plain": "f: Tensor['FP32', -1]",
        }
        arguments = []
        for name, inputs in models.items():
            path = os.path.join(folder, name + ".py")
            with open(path, "w", encoding="utf-8") as f:
                f.write(
                    f"from millrace import Tensor\ndef infer({inputs}):\n    return {{k: v for k, v in "
                    f"locals().items() if v is not None}}\n"
                )
            arguments += ["--model", f"{name}={path},python={sys.executable}"]
        server = Server(*arguments)
        self.addCleanup(server.stop)
        self.typed = Client(server.addr, timeout=30)
        self.addCleanup(self.typed.close)

    def test_lists_become_the_declared_datatypes(self):
        self.declaring()
        given = {
            "f": [0.5, 2],
            "h": (0.5, -2.0),
            "u": [0, 255],
            "w": [2**64 - 1],
            "i": [-(2**31), 2**31 - 1],
            "o": [True, False],
            "t": ["a", b"b"],
        }
        datatypes = {"f": "FP32", "h": "FP16", "u": "UINT8", "w": "UINT64", "i": "INT32", "o": "BOOL", "t": "BYTES"}
        as_json = {k: v for k, v in given.items() if k != "h"}
        with self.typed.open("typed", policy="every") as stream:
            stream.send(inputs=given)
            streamed = stream.receive()
            (mapped,) = stream.map([given])
        for answer in (
            self.typed.infer("typed", given),
            streamed,
            mapped,
            self.typed.infer("typed", as_json, json=True),
        ):
            for name, tensor in answer.outputs.items():
                self.assertEqual((name, tensor.datatype), (name, datatypes[name]))
                self.assertEqual(tensor.elements(), [b"a", b"b"] if name == "t" else list(given[name]), name)
        self.assertIn(
            self.typed.infer("typed", {"b": [1.5]}).outputs["b"].elements(), ([1.5], [0x3FC0])
        )  # numpy has no BF16
        self.assertEqual(self.typed.infer("typed", {"f": []}).outputs["f"].shape, (0,))

    def test_numbers_that_the_declared_datatype_does_not_hold(self):
        self.declaring()
        for name, value, words in (
            ("u", [3, 256], "has 256, which UINT8 does not hold: want 0 to 255"),
            ("u", [-1], "has -1, which"),
            ("i", [2**31], "INT32 does not hold"),
            ("w", [2**64], "UINT64 does not hold"),
            ("i", [1.5], "has floats, and the model takes INT32"),
            ("h", [1e6], "does not fit into FP16"),
            ("f", [True], "has bools, and the model takes FP32"),
            ("o", [1], "has integers, and the model takes BOOL"),
            ("t", [1], "has integers, and the model takes BYTES"),
            ("f", [[1], [2, 3]], "lists of different lengths"),
        ):
            error = self.fails("invalid_argument", f"inputs.{name}", self.typed.infer, "typed", {name: value})
            self.assertIn(words, error.message)
            with self.typed.open("typed") as stream:
                self.fails("invalid_argument", f"inputs.{name}", stream.send, inputs={name: value})
        for model, field in (("typed", "inputs.f"), ("plain", "inputs[0].datatype")):
            error = self.fails("invalid_argument", field, self.typed.infer, model, {"f": ["text"]}, status=400)
            self.assertIn("BYTES", error.message)
            if _tensors.numpy():
                doubles = {"f": _tensors.numpy().zeros(2)}
                error = self.fails("invalid_argument", field, self.typed.infer, model, doubles, status=400)
                self.assertRegex(
                    error.message, r"is (of )?FP64, .*wants? FP32: convert an array by \.astype\(numpy\.float32\)"
                )
                with self.typed.open(model, policy="every") as stream:
                    stream.send(inputs=doubles)
                    self.assertIn(".astype(numpy.float32)", stream.receive().error.message)

    def test_datatypes_are_asked_for_once_and_again_after_a_refusal(self):
        sent = []

        class Recording(Client):
            def _request(self, call):
                sent.append(call.method)
                return super()._request(call)

        self.declaring()
        client = Recording(self.typed.addr, timeout=30)
        self.addCleanup(client.close)
        for _ in range(3):
            client.infer("plain", {"f": [1.0]})
        self.assertEqual(sent, ["GET", "POST", "POST", "POST"])
        # As when another model was loaded by this name: the server refuses the first datatype, the client itself the
        # other one.
        for datatype, requests in (("FP64", ["POST", "GET", "POST"]), ("INT32", ["GET", "POST"])):
            client._declared["plain", ""]["f"] = datatype
            sent.clear()
            self.assertEqual(client.infer("plain", {"f": [1.5]}).outputs["f"].datatype, "FP32")
            self.assertEqual((sent, client._declared["plain", ""]), (requests, {"f": "FP32"}))
            self.assertEqual(asyncio.run(self.inferred(client.addr, datatype)), "FP32")
        sent.clear()
        self.fails("invalid_argument", "inputs[0].datatype", client.infer, "plain", {"f": ["text"]})
        self.assertEqual(sent, ["POST", "GET"])  # the datatypes are as they were
        client.infer("plain", {"f": [1.0]})
        with client.open("plain", policy="every") as stream:
            own = client._async
            stream.send(inputs={"f": [1.0]})
            self.assertEqual(stream.receive().outputs["f"].datatype, "FP32")
            own._declared["plain", ""]["f"] = "FP64"
            stream.send(inputs={"f": [1.0]})
            self.check(stream.receive().error, "invalid_argument", "inputs.f.datatype")
            stream.send(inputs={"f": [1.0]})
            self.assertEqual(stream.receive().outputs["f"].datatype, "FP32")

    async def inferred(self, addr: str, datatype: str) -> str:
        """The datatype of the answer of `plain` to an async client that takes the input for another datatype."""
        async with aio.Client(addr, timeout=30) as client:
            client._declared["plain", ""] = {"f": datatype}
            return (await client.infer("plain", {"f": [1.5]})).outputs["f"].datatype

    def test_pictures_classes_and_deadlines(self):
        answer = self.client.infer("find", picture=PICTURE)
        self.assertEqual((answer.width, answer.height), (8, 8))
        self.assertTrue(answer.outputs)
        answer = self.client.infer("id", {"x": [0.2, 0.7, 0.1]}, classes={"x": 2})
        self.assertEqual(answer.classes("x"), [(0.7, 1, ""), (0.2, 0, "")])
        self.assertEqual(self.client.infer("slow", {"x": [1]}, deadline=20.0).model, "slow")
        late = self.fails("timeout", None, self.client.infer, "slow", {"x": [1]}, deadline=1e-6, status=504)
        self.assertTrue(late.retryable)
        self.fails("timeout", "timeout", self.client.infer, "long", {"x": [1]}, timeout=0.005)
        self.assertTrue(self.client.live())  # the connection with the late reply is not used again

    def test_several_answers(self):
        inputs = {
            "IN": Tensor.of([7, 8], "INT32"),
            "DELAY": Tensor.of([0, 10], "UINT32"),
            "WAIT": Tensor.of([0], "UINT32"),
        }
        self.assertEqual([a.outputs["OUT"].tolist() for a in self.client.infer_stream("count", inputs)], [[7], [8]])
        members = {"IN": [5, 6, 7], "DELAY": [0, 0, 0], "WAIT": 0}
        self.assertEqual([m["OUT"] for m in self.client.generate_stream("count", members)], [5, 6, 7])
        self.assertEqual(self.client.generate("count", {"IN": 5, "DELAY": 0, "WAIT": 0})["OUT"], 5)
        with self.assertRaises(MillraceError) as caught:
            list(self.client.infer_stream("nope", inputs))
        self.check(caught.exception, "not_found", "model", 404)
        for answer in self.client.infer_stream("count", inputs):
            break  # a loop that is left ends its request
        self.assertTrue(self.client.live())

    def test_bad_arguments_are_named(self):
        c = self.client
        for field, call in (
            ("addr", lambda: Client("ftp://x")),
            ("addr", lambda: Client("")),
            ("addr", lambda: Client("127.0.0.1:99999")),
            ("timeout", lambda: Client(timeout=-1)),
            ("headers.a", lambda: Client(headers={"a": "b\r\nc: d"})),
            ("token", lambda: Client(token="a b")),
            ("token", lambda: Client(token="")),
            ("token", lambda: Client(token="a\r\nb: c")),
            ("token", lambda: Client(token=7)),
            ("fingerprint", lambda: Client("https://127.0.0.1", fingerprint="12")),
            ("ca", lambda: Client("https://127.0.0.1", ca="/nonexistent")),
            ("ca", lambda: Client("http://127.0.0.1", ca="x")),
            ("fingerprint", lambda: Client("https://a", ca="x", fingerprint="y")),
            ("model", lambda: c.infer("", {"x": [1]})),
            ("inputs", lambda: c.infer("id", {})),
            ("inputs", lambda: c.infer("id", [1])),
            ("inputs.x", lambda: c.infer("id", {"x": [[1], [2, 3]]})),
            ("inputs.x", lambda: c.infer("id", {"x": object()})),
            ("deadline", lambda: c.infer("id", {"x": [1]}, deadline=-1)),
            ("deadline", lambda: c.infer("id", {"x": [1]}, deadline="1")),
            ("timeout", lambda: c.infer("id", {"x": [1]}, timeout=0)),
            ("parameters.a", lambda: c.infer("id", {"x": [1]}, parameters={"a": float("nan")})),
            ("outputs", lambda: c.infer("id", {"x": [1]}, outputs="x")),
            ("classes.x", lambda: c.infer("id", {"x": [1]}, classes={"x": 0})),
            ("inputs", lambda: c.infer("id", {"x": [1]}, picture=b"")),
            ("picture", lambda: c.infer("id", picture="a.jpg")),
            ("path", lambda: c.call("app", "infer")),
            ("data", lambda: c.call("app", "/x", json=1, data=b"")),
            ("data", lambda: c.call("app", "/x", data=7)),
            ("files.a", lambda: c.call("app", "/x", files={"a": "text"})),
            ("name", lambda: c.stream("")),
            ("policy", lambda: c.open("id", policy="newest")),
            ("codec", lambda: c.open("id", codec="gif")),
            ("window", lambda: c.open("id", window=-1)),
            ("outputs", lambda: c.open("id", outputs="text")),
            ("buffer", lambda: c.open("id", buffer=0)),
            ("max_age", lambda: c.open("id", max_age=-1)),
            ("give_up", lambda: c.session(give_up=-1)),
            ("ticket", lambda: c.session(ticket="x")),
            ("model", lambda: c.open("")),
            ("codec", lambda: Frame(b"", codec="gif")),
            ("region", lambda: Frame(b"", region=(1, 2))),
            ("data", lambda: Frame()),
            ("data", lambda: Frame(7)),
            ("width", lambda: Frame(b"", width=70000)),
            ("deadline", lambda: Frame(b"", deadline=70)),
            ("parameters", lambda: Frame(b"", parameters={"a": "x" * 70000})),
            ("policy", lambda: c.open("id", policy=Policy("latest"), window=3)),
        ):
            with self.subTest(field=field), self.assertRaises(MillraceError) as caught:
                call()
            self.assertIn(caught.exception.code, ("invalid_argument", "too_large"), repr(caught.exception))
            self.assertEqual(caught.exception.field, field, repr(caught.exception))
            self.assertTrue(str(caught.exception).startswith(field), caught.exception)

    def test_a_server_that_cannot_be_reached(self):
        c = Client(f"127.0.0.1:{closed_port()}")
        self.fails("unavailable", None, c.live)
        self.fails("unavailable", None, c.open, "id")

    def test_the_timeout_is_that_of_the_whole_call(self):
        events = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        for name, at_once, slowly in (
            ("head", b"", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: " + 400 * b"a" + b"\r\n\r\n"),
            ("body", b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\n", 400 * b"a"),
            ("large body", b"HTTP/1.1 200 OK\r\nContent-Length: 100400\r\n\r\n" + 100000 * b"a", 400 * b"a"),
            ("chunks", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 66 * b"1\r\na\r\n" + b"0\r\n\r\n"),
            ("until the end", b"HTTP/1.0 200 OK\r\n\r\n", 400 * b"a"),
        ):
            with self.subTest(name), Trickle(at_once, slowly) as server, Client(server.addr, timeout=0.3) as client:
                self.fails("timeout", "timeout", client.call, "a", "/b", data=b"x")
        for name, slowly in ("event", b"190\r\ndata: " + 394 * b"a"), ("heartbeats", 66 * b"3\r\n: \n\r\n"):
            with self.subTest(name), Trickle(events, slowly + b"\r\n0\r\n\r\n") as server, Client(
                server.addr
            ) as client:
                self.fails("timeout", "timeout", lambda: list(client.events("a", "/b", timeout=0.3)))

    def test_the_timeout_includes_sending(self):
        with Trickle(b"", b"") as server, Client(server.addr, timeout=0.3) as client:
            self.fails("timeout", "timeout", client.call, "a", "/b", data=bytes(32 << 20))

    def test_server_streams(self):
        c = self.client
        self.assertEqual(c.streams(), [])
        self.fails("permission_denied", None, c.add_stream, "door", "file:/etc/passwd", model="id")
        added = c.add_stream("door", "http://1.1.1.1:9/a.mjpeg", model="find", fps=2, paused=True)
        self.assertEqual((added["name"], added["paused"]), ("door", True))
        self.assertEqual(c.change_stream("door", max_fps=5)["name"], "door")
        self.assertEqual([s["name"] for s in c.streams()], ["door"])
        self.assertEqual(c.stream("door")["source"][:4], "http")
        self.fails("not_found", None, c.stream_counts, "window", status=404)
        self.fails("unsupported", None, c.stream_events, camera="door", from_="1h")  # without the setting data
        c.remove_stream("door")
        self.fails("not_found", None, c.stream, "door", status=404)

    def test_connections_are_reused_and_renewed(self):
        c = self.client
        for _ in range(3):
            c.live()
        self.assertEqual(len(c._idle), 1)
        c._idle[0].socket.shutdown(2)  # as a server that closes an idle connection
        self.assertTrue(c.live())
        threads = [threading.Thread(target=lambda: [c.infer("id", {"x": [i]}) for i in range(20)]) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertLessEqual(len(c._idle), 4)


SERVICE = """
import os
from typing import Iterator
import millrace

class Service:
    def infer(self, text: str, times: int = 1) -> dict:
        if text == "bad":
            raise millrace.Error("text: is bad", "conflict")
        return {"text": text * times, "pid": os.getpid()}

    @millrace.endpoint
    def upload(self, image: millrace.Upload, note: str = "") -> dict:
        return {"name": image.filename, "type": image.content_type, "data": image.data.decode(), "note": note}

    @millrace.endpoint("/count/up")
    def count(self, n: int) -> Iterator[int]:
        for i in range(n):
            yield i
        if n == 3:
            raise millrace.Error("three is too many", "unavailable")

    @millrace.endpoint("/about", method="GET")
    def about(self, q: str = "") -> str:
        return "about " + q
"""


@needs_server
class TestServices(Fails):
    """Calls of a service's routes."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.dir = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.dir.cleanup)
        path = os.path.join(cls.dir.name, "service.py")
        with open(path, "w", encoding="utf-8") as f:
            f.write(SERVICE)
        cls.server = Server("--model", f"words={path},python={sys.executable}")
        cls.addClassCleanup(cls.server.stop)

    def setUp(self) -> None:
        self.client = Client(self.server.addr, timeout=30)
        self.addCleanup(self.client.close)

    def test_calls(self):
        c = self.client
        reply = c.call("words", json={"text": "ab", "times": 2})
        self.assertEqual(
            (reply.status, reply.content_type.partition(";")[0], reply.json()["text"]),
            (200, "application/json", "abab"),
        )
        self.assertNotEqual(reply.json()["pid"], os.getpid())
        self.assertEqual(c.call("words", "/about", query={"q": "ä b"}).json(), "about ä b")
        self.assertEqual(c.call("words", "/about", method="GET", headers={"X-A": "b"}).status, 200)
        form = c.call(
            "words", "/upload", form={"note": "n"}, files={"image": ("a b.txt", b"data", "text/plain")}
        ).json()
        self.assertEqual(form, {"name": "a b.txt", "type": "text/plain", "data": "data", "note": "n"})
        self.assertEqual(c.call("words", "/upload", files={"image": io.BytesIO(b"x")}).json()["data"], "x")

    def test_errors(self):
        c = self.client
        self.fails("not_found", None, c.call, "words", "/nope", json={}, status=404)
        self.fails("not_found", None, c.call, "other", json={}, status=404)
        wrong = self.fails("invalid_argument", None, c.call, "words", json={"times": 1}, status=422)
        self.assertIn("text", str(wrong))
        self.assertEqual(c.call("words", json={"times": 1}, check=False).status, 422)
        self.fails("conflict", "text", c.call, "words", json={"text": "bad"}, status=409)

    def test_events(self):
        c = self.client
        self.assertEqual([e.json() for e in c.events("words", "/count/up", json={"n": 5})], [0, 1, 2, 3, 4])
        got = []
        with self.assertRaises(MillraceError) as caught:
            for event in c.events("words", "/count/up", json={"n": 3}):
                got.append(event.json())
        self.check(caught.exception, "unavailable")
        self.assertEqual((got, str(caught.exception)), ([0, 1, 2], "three is too many"))
        self.assertEqual(len(list(c.events("words", "/about"))), 1)  # JSON, as the only event
        with self.assertRaises(MillraceError) as caught:
            list(c.events("words", "/count/up", json={}))
        self.check(caught.exception, "invalid_argument", status=422)

    def test_frames(self):
        answer = self.client.infer("words", {"text": "ab", "times": 3})
        self.assertEqual(json.loads(answer.outputs["output"].tolist()[0])["text"], "ababab")
        with self.client.open("words", policy="every") as stream:
            got = list(stream.map({"text": "a", "times": i} for i in range(1, 6)))
            self.assertEqual(
                [json.loads(r.outputs["output"].elements()[0])["text"] for r in got],
                ["a" * i for i in range(1, 6)],
                got,
            )
