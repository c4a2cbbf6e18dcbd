"""Services: frames, batches, spans, logs and limits."""

from __future__ import annotations

import os
from typing import Any

from .peer import TestCase, body, request

try:
    import numpy as np
except ImportError:
    np = None  # type: ignore[assignment]


class TestFrames(TestCase):
    """Frames: tensors and payloads."""

    def test_scalars(self) -> None:
        """Arguments with types of Python are tensors of one element."""
        child = self.start(
            """
            from dataclasses import dataclass
            @dataclass
            class P:
                a: int
            def infer(text: str, n: int, f: float, p: P) -> str:
                return f"{text} {n} {f} {p.a}"
        """
        )
        self.assertEqual(
            [(i["name"], i["datatype"], i["shape"]) for i in child.model["inputs"]],
            [("text", "BYTES", [1]), ("n", "INT64", [1]), ("f", "FP64", [1]), ("p", "BYTES", [1])],
        )
        self.assertFalse(child.model["any"])
        self.assertEqual(child.model["outputs"], [{"name": "output", "datatype": "BYTES", "shape": [1]}])
        import struct

        inputs = {
            "text": ("BYTES", (1,), [b"hi"]),
            "n": ("INT64", (1,), struct.pack("<q", 3)),
            "f": ("FP64", (1,), struct.pack("<d", 1.5)),
            "p": ("BYTES", (1,), [b'{"a": 4}']),
        }
        self.assertEqual(child.batch([{"inputs": inputs}])[0]["outputs"]["output"].list(), [b"hi 3 1.5 4"])
        answer = child.batch([{"inputs": {**inputs, "p": ("BYTES", (1,), [b'{"a": "x"}'])}}])[0]
        self.assertEqual(
            (answer["error"]["code"], answer["error"]["message"]),
            ("invalid_argument", "inputs.p.a: is a string, want an integer"),
        )

    def test_lists(self) -> None:
        """A list is a tensor of any length, an element for each item, or one JSON text; without the type of its items,
        texts need a hint.
        """
        child = self.start(
            """
            from typing import List
            def infer(a: List[str], b: list) -> str:
                return f"{a} {b}"
        """
        )
        self.assertEqual(
            [(i["datatype"], i["shape"]) for i in child.model["inputs"]], [("BYTES", [-1]), ("BYTES", [-1])]
        )
        inputs = {"a": ("BYTES", (2,), [b"x", b"y"]), "b": ("BYTES", (1,), [b'["z"]'])}
        self.assertEqual(child.batch([{"inputs": inputs}])[0]["outputs"]["output"].list(), [b"['x', 'y'] ['z']"])
        answer = child.batch([{"inputs": {**inputs, "b": ("BYTES", (2,), [b"x", b"y"])}}])[0]
        self.assertIn("inputs.b.0: is not JSON: ", answer["error"]["message"])
        self.assertIn("List[str]", answer["error"]["message"])

    def test_payload_and_parameters(self) -> None:
        """A payload is the first argument, and parameters are arguments by name."""
        child = self.start(
            """
            def infer(data: bytes, *, times: int = 1) -> bytes:
                return data * times
        """
        )
        self.assertEqual(
            child.batch([{"body": b"ab", "codec": "opaque", "parameters": {"times": 2}}])[0]["outputs"][
                "output"
            ].list(),
            [b"abab"],
        )
        answer = child.batch([{"body": b"ab", "codec": "opaque", "parameters": {"time": 2}}])[0]
        self.assertIn("parameters.time: is not a parameter of infer: it takes data, times", answer["error"]["message"])

    def test_state(self) -> None:
        """state is kept for a stream until it is released; requests without a stream have none."""
        child = self.start(
            """
            def infer(data: bytes, state: dict, stream, user_id) -> int:
                state["n"] = state.get("n", 0) + 1
                return state["n"]
        """
        )
        self.assertTrue(child.model["stateful"])

        def run(stream: Any, **more: Any) -> int:
            return child.batch([{"body": b"", "codec": "opaque", "stream": stream, **more}])[0]["outputs"][
                "output"
            ].list()[0]

        self.assertEqual([run(1), run(2), run(1), run(None), run(None)], [1, 1, 2, 1, 1])
        child.send({"type": "release", "streams": [1]})
        self.assertEqual([run(1), run(2), run(2, new=True)], [1, 2, 1])

    def test_spans_and_logs(self) -> None:
        """Spans and lines of the log belong to their requests."""
        child = self.start(
            """
            import logging, sys
            import millrace
            def infer(data: bytes) -> int:
                with millrace.span("tokenize"):
                    logging.warning("slow %d", 1)
                    print("out", end=" ")
                    print("put")
                    print("err", file=sys.stderr)
                return 1
        """
        )
        child.batch([{"body": b"", "codec": "opaque", "trace": "00-aa-bb-01"}])
        self.assertEqual(
            [(m["level"], m["message"], m["trace"]) for m in child.logs],
            [("warning", "slow 1", "00-aa-bb-01"), ("info", "out put", "00-aa-bb-01"), ("info", "err", "00-aa-bb-01")],
        )
        (span,) = child.last["spans"]
        self.assertEqual((span["name"], span["request"]), ("tokenize", 0))
        self.assertGreaterEqual(span["end_us"], span["start_us"])

    def test_boxes_of_calls(self) -> None:
        """Boxes are in pixels of the picture that a call has sent, also in a batch and in JSON."""
        import base64

        file = b"\xff\xd8 a picture"
        for hint in "image: Image[320, 120]", "image: Batch[Image[320, 120]]":
            child = self.start(
                f"""
                from millrace import Batch, Boxes, Image
                def infer({hint}):
                    found = Boxes([[1, 1, 2, 2]])
                    return [found] * len(image) if image.ndim == 4 else found
            """
            )
            for r in request("infer", file, "image/png"), request("infer", {"image": base64.b64encode(file).decode()}):
                self.assertEqual(body(child.batch([r])[0])["boxes"], [[2, 4, 4, 8]], hint)
        answer = child.call("infer", file, "application/x-www-form-urlencoded")
        self.assertRegex(
            answer["error"]["message"],
            r"not a form.*not text\. A body that is no form is sent with its own Content-Type, such as image/jpeg",
        )

    def test_traces_of_batches_and_threads(self) -> None:
        """What a batch of one request logs belongs to the request, and so do the threads of the event loop."""
        child = self.start(
            """
            import millrace
            @millrace.batch(4)
            def infer(text: str) -> int:
                print(len(text))
                return [len(t) for t in text]
        """
        )
        one = {"trace": "00-aa-bb-01", **request("infer", {"text": "a"})}
        child.batch([one])
        child.batch([one, {**one, "trace": "00-cc-dd-01"}])
        self.assertEqual([(m["message"], m.get("trace")) for m in child.logs], [("1", "00-aa-bb-01"), ("2", None)])
        child = self.start(
            """
            import asyncio
            async def infer(n: int) -> None:
                await asyncio.get_running_loop().run_in_executor(None, print, "executor", n)
                await asyncio.to_thread(print, "thread", n)
        """
        )
        child.batch([{"trace": f"00-aa-b{n}-01", **request("infer", {"n": n})} for n in range(3)])
        self.assertEqual(
            sorted((m["message"], m.get("trace")) for m in child.logs),
            sorted((f"{what} {n}", f"00-aa-b{n}-01") for what in ("executor", "thread") for n in range(3)),
        )

    def test_lines_of_threads(self) -> None:
        """A line has what one thread has written, though another writes between its parts."""
        child = self.start(
            """
            import sys, threading
            def infer() -> int:
                sys.stdout.write("one ")
                other = threading.Thread(target=print, args=("two",))
                other.start()
                other.join()
                print("line")
                return 1
        """
        )
        child.call("infer", {})
        self.assertEqual([m["message"] for m in child.logs], ["two", "one line"])

    def test_basic_config(self) -> None:
        """logging.basicConfig sets level and format, and lines are logged once, with their level."""
        program = """
            import logging, os, sys
            logging.basicConfig({options})
            def infer() -> None:
                logging.debug("fine")
                logging.getLogger("a").error("bad")
        """
        both = [("debug", "fine"), ("error", "bad")]
        for options, want in (
            ("", both[1:]),
            ("level=logging.DEBUG", both),
            ("level='DEBUG', force=True", both),
            ("level=logging.CRITICAL", []),
            (
                "level=logging.DEBUG, stream=sys.stdout, format='%(levelname)s %(message)s'",
                [("debug", "DEBUG fine"), ("error", "ERROR bad")],
            ),
            ("level=logging.DEBUG, handlers=[logging.StreamHandler()]", both),
            ("level=logging.DEBUG, filename=os.path.join(os.path.dirname(__file__), 'log')", both),
        ):
            with self.subTest(options):
                child = self.start(program.format(options=options))
                child.call("infer")
                self.assertEqual([(m["level"], m["message"]) for m in child.logs], want)
                child.kill()
        with open(os.path.join(self.folder, "log"), encoding="utf-8") as f:
            self.assertEqual(f.read(), "DEBUG:root:fine\nERROR:a:bad\n")

    def test_batch_of_arrays(self) -> None:
        """A function that takes several arrays gets one array, whichever way they come, and beside requests that are
        wrong.
        """
        child = self.start(
            """
            from millrace import Batch, Tensor
            def infer(x: Batch[Tensor["FP32", 3]], user_id, *, scale: float = 1.0) -> Tensor["FP32"]:
                assert x.shape == (len(scale), 3) == (len(user_id), 3), (x.shape, scale)
                return (x.sum(axis=1) * scale).astype("f4")
        """,
            hello={"max_batch": 4},
        )
        self.assertEqual(
            [
                body(a)
                for a in child.batch(
                    [request("infer", {"x": [1, 2, 3]}), request("infer", {"x": [1, 1, 1], "scale": 2})]
                )
            ],
            [6, 6],
        )
        x = np.arange(9, dtype="f4").reshape(3, 3)
        first, wrong, last = child.batch([{}, {"parameters": {"nonsense": 1}}, {"parameters": {"scale": 3}}], {"x": x})
        self.assertEqual((first["outputs"]["output"].list(), last["outputs"]["output"].list()), ([3], [63]))
        self.assertIn("nonsense", wrong["error"]["message"])

    def test_batch_without_arguments_by_name(self) -> None:
        """An argument after * that no request gives has its default, also where the arrays go through as they are."""
        child = self.start(
            """
            from millrace import batch, Tensor
            @batch(8)
            def infer(x: Tensor["FP32", 3], *, threshold: float = 0.5):
                return [(r > t).sum(keepdims=True) for r, t in zip(x, threshold)]
        """
        )
        x = np.array([[0, 1, 2], [0, 0, 1]], dtype="f4")
        for parameters, want in (({}, [[2], [1]]), ({"threshold": 1.5}, [[1], [1]])):
            answers = child.batch([{"parameters": parameters}, {}], {"x": x})
            self.assertEqual([a["outputs"]["output"].list() for a in answers], want, answers)

    def test_other_threads_take_no_messages(self) -> None:
        """A thread that asks whether its request is cancelled, even late, leaves the server's messages alone."""
        child = self.start(
            """
            import threading, time
            def infer(n: int, cancelled) -> int:
                def watch():
                    for _ in range(2000):
                        if cancelled():
                            break
                        time.sleep(0.0005)
                threading.Thread(target=watch, daemon=True).start()
                return n
        """
        )
        for i in range(200):
            self.assertEqual(body(child.call("infer", {"n": i}, number=i + 1)), i)

    def test_memory_of_numbers(self) -> None:
        """Of a memoryview of numbers, all bytes are sent."""
        child = self.start(
            """
            import array
            def infer() -> bytes:
                return memoryview(array.array("d", [1, 2, 3]))
        """
        )
        for _ in range(2):
            self.assertEqual(child.call("infer", {})["body"], np.array([1, 2, 3], "f8").tobytes())

    def test_error_after_a_part(self) -> None:
        """An error with details that is raised after a part of the answer is an error, and not a further part."""
        child = self.start(
            """
            import millrace
            def infer():
                yield 1
                raise millrace.Error("no more", "not_found", detail={"a": 1})
        """
        )
        self.assertEqual(child.call("infer", {})["error"]["message"], "no more")

    def test_batch_of_texts(self) -> None:
        """Batch[str] gets a list; one request whose input is wrong is left out; the count of results is checked."""
        child = self.start(
            """
            import millrace
            def infer(text: millrace.Batch[str]) -> millrace.Batch[int]:
                if "few" in text:
                    return [1]
                if "none" in text:
                    return 5
                return [len(t) if t != "bad" else ValueError("bad text") for t in text]
        """
        )
        self.assertEqual((child.model["max_batch"], child.model["batch"]), (8, True))

        def texts(*all: str) -> list[dict[str, Any]]:
            return child.batch([{"inputs": {"text": ("BYTES", (1, 1), [t.encode()])}} for t in all])

        self.assertEqual([a["outputs"]["output"].list() for a in texts("a", "bcd")], [[1], [3]])
        self.assertEqual([a["outputs"]["output"].shape for a in texts("a", "bcd")], [[1, 1], [1, 1]])
        a, b, c = texts("a", "bad", "ccc")
        self.assertEqual((b["error"]["message"], c["outputs"]["output"].list()), ("ValueError: bad text", [3]))
        self.assertIn(
            "infer returned 1 results: want one for each of 2 requests", texts("a", "few")[0]["error"]["message"]
        )
        self.assertIn("infer returned int for a batch", texts("a", "none")[1]["error"]["message"])
        a, b, c = child.batch(
            [request("infer", {"text": "a"}), request("infer", {"text": 1}), request("infer", {"text": "ccc"})]
        )
        self.assertEqual((body(a), b["reply"]["status"], body(c)), (1, 422, 3))

    def test_limits_of_results(self) -> None:
        """A result that is too large, or has an impossible status, fails its request, and the child goes on."""
        child = self.start(
            """
            import millrace
            def infer(x: int):
                if x < 2:
                    return millrace.Response(b"a" * 5000 * x, headers={"x-n": 1})
                if x == 2:
                    return millrace.Response("", status=99)
                raise ValueError("m" * 100000)
        """,
            hello={"max_result": 4500},
        )
        a, b, c, d = child.batch([request("infer", {"x": i}) for i in range(4)])
        self.assertEqual((a["body"], a["reply"]["header"]), (b"", {"x-n": "1"}))
        self.assertEqual(
            (b["error"]["code"], "larger than max_result, 4500 bytes" in b["error"]["message"]), ("too_large", True)
        )
        self.assertIn("status 99", c["error"]["message"])
        self.assertLess(len(d["error"]["message"]), 5000)
        self.assertEqual(child.call("infer", {"x": 0})["body"], b"")

    def test_without_numpy(self) -> None:
        """numpy is not imported for JSON, and not needed for tensors."""
        child = self.start(
            """
            import sys
            def infer(x: int) -> bool:
                return "numpy" in sys.modules
        """
        )
        self.assertEqual(body(child.call("infer", {"x": 1})), False)
        child = self.start(
            """
            import sys
            sys.modules["numpy"] = None
            from millrace import Boxes, Tensor
            def infer(x: Tensor["FP32", 2]) -> Tensor["FP32", 2]:
                return Tensor("FP32", (2,), x.data) if x.tolist() == [1.0, 2.0] else [v * 2 for v in x.tolist()]
        """
        )
        import struct

        for values, want in (((1, 2), [1, 2]), ((3, 4), [6, 8])):
            data = struct.pack("<2f", *values)
            for answer in child.batch([{"inputs": {"x": ("FP32", (2,), data)}}]) + child.batch(
                [{}], {"x": ("FP32", (1, 2), data)}
            ):
                self.assertEqual(answer["outputs"]["output"].list(), want)

    def test_exit(self) -> None:
        """sys.exit fails its request, and not the others."""
        child = self.start(
            """
            import sys
            def infer(x: int) -> int:
                if x == 1:
                    sys.exit(4)
                return x
        """
        )
        answers = child.batch([request("infer", {"x": i}) for i in range(3)])
        self.assertEqual(
            [a.get("error", {}).get("message") for a in answers], [None, "the program called sys.exit(4)", None]
        )

    def test_begun(self) -> None:
        """The child says that it has begun a batch before the program gets it."""
        child = self.start(
            """
            import os
            def infer(x: int) -> int:
                os._exit(3)
        """,
            hello={"begun": True},
        )
        self.assertIs(child.model.get("begins"), True)
        child.send_batch([request("infer", {"x": 1})], number=77)
        self.assertEqual(child.expect("begun")["id"], 77)
        child = self.start(
            """
            import os
            def infer(x: int) -> int:
                os._exit(3)
        """
        )
        self.assertNotIn("begins", child.model)  # to a server that does not know it
        memory = child.segment(1, 8192)
        child.send(
            {
                "type": "batch",
                "id": 78,
                "results": {"segment": 1, "offset": 0, "size": 8192},
                "requests": [
                    {"rows": 1, "inputs": [{"name": "x", "datatype": "INT64", "shape": [1], "at": 0, "size": 8}]}
                ],
            },
            bytes(8),
        )
        self.assertIsNone(child.receive_or_end())
        self.assertEqual(int.from_bytes(memory[:8], "little"), 78)

    def test_raises(self) -> None:
        """An error fails its request alone, with the traceback of the program's own frames."""
        child = self.start(
            """
            def deep(x):
                return 1 // x
            def infer(x: int) -> int:
                return deep(x)
        """
        )
        a, b = child.batch([request("infer", {"x": 0}), request("infer", {"x": 1})])
        self.assertEqual(a["error"]["message"], "ZeroDivisionError: integer division or modulo by zero")
        self.assertIn("return 1 // x", a["error"]["traceback"])
        self.assertNotIn("_services.py", a["error"]["traceback"])
        self.assertEqual(body(b), 1)
