"""Services that take and answer arrays."""

from __future__ import annotations

import json
import unittest
from typing import Any

from .peer import TestCase, body

try:
    import numpy as np
except ImportError:
    np = None  # type: ignore[assignment]


@unittest.skipIf(np is None, "needs numpy")
class TestArrays(TestCase):
    """Frames with arrays."""

    def test_dense(self) -> None:
        """Batch[Tensor] gets the rows of all requests, and answers them at once."""
        child = self.start(
            """
            import numpy as np
            import millrace
            from millrace import Batch, Tensor
            @millrace.batch(4)
            def infer(x: Tensor["FP32", 2]) -> Tensor["FP32", 1]:
                assert x.shape[1:] == (2,), x.shape
                return x.sum(axis=1, keepdims=True)
        """
        )
        self.assertEqual(child.model["max_batch"], 4)
        x = np.arange(6, dtype="f4").reshape(3, 2)
        child.send_batch([{"rows": 1}, {"rows": 2}], {"x": x})
        answers = child.answers()
        values = np.concatenate([np.frombuffer(a["outputs"]["output"].data, "f4") for a in answers])
        np.testing.assert_array_equal(values, x.sum(axis=1))

    def test_dense_without_a_type_of_the_result(self) -> None:
        """The outputs of a batch are sent as one tensor."""
        child = self.start(
            """
            from millrace import Batch, Tensor
            def infer(x: Batch[Tensor["FP32", 2]]):
                return {"double": 2 * x, "first": x[:, 0]} if x[0, 0] >= 0 else {"double": x[:1]}
        """
        )
        x = np.arange(6, dtype="f4").reshape(3, 2)
        (one,) = child.batch([{"rows": 1}, {"rows": 2}], {"x": x})
        self.assertEqual(one["outputs"]["double"].shape, [3, 2])
        self.assertEqual(one["outputs"]["first"].list(), [0, 2, 4])
        self.assertIn(
            "returned an array double of shape [1, 2]: want one for each of 3 requests",
            child.batch([{"rows": 3}], {"x": x - 1})[0]["error"]["message"],
        )

    def test_one_row_at_a_time(self) -> None:
        """A function for one request gets it without the axis of rows, dense or not."""
        child = self.start(
            """
            from millrace import Tensor
            def infer(x: Tensor["FP32", -1]):
                return {"n": x.shape[0], "y": x * 2}
        """
        )
        x = np.arange(3, dtype="f4")
        for answer in child.batch([{}], {"x": x[None]}) + child.batch([{"inputs": {"x": x}}]):
            self.assertEqual((answer["outputs"]["y"].shape, answer["outputs"]["y"].list()), ([3], [0, 2, 4]))

    def test_any_arrays(self) -> None:
        """Arguments without a type, or of np.ndarray, take any tensors."""
        child = self.start(
            """
            import numpy as np
            def infer(a, b: np.ndarray = None):
                return {"sum": a.sum(), "b": b if b is not None else a}
        """
        )
        self.assertTrue(child.model["any"])
        (answer,) = child.batch([{"inputs": {"a": np.ones((2, 3), "f8")}}])
        self.assertEqual((answer["outputs"]["sum"].list(), answer["outputs"]["b"].shape), ([6], [2, 3]))
        (answer,) = child.batch([{"inputs": {"c": np.ones(1)}}])
        self.assertIn("inputs.c: is not an input of infer: it takes a, b", answer["error"]["message"])

    def test_pictures(self) -> None:
        """Pictures are arrays, and boxes in them are in pixels of the frame as it was sent."""
        text = """
            import numpy as np
            import millrace
            def infer(image: {hint}) -> millrace.Boxes:
                y, x = np.argwhere(image[..., 0] > 128).min(axis=0)
                return millrace.Boxes([[x, y, x + 2, y + 2]], [0.5], [3], ["dot"])
        """
        pixels = np.zeros((4, 8, 3), "u1")
        pixels[1, 2] = 255
        for hint, size in (("millrace.Image", 0), ("millrace.Image[8, 4]", 8)):
            child = self.start(text.replace("{hint}", hint))
            self.assertEqual(child.model["image"]["width"], size)
            answers = child.batch([{"width": 80, "height": 40, "inputs": {"image": pixels}, "map": [10, 0, 10, 0]}])
            if size:
                answers += child.batch([{"width": 80, "height": 40}], {"image": pixels[None]})
            for answer in answers:
                self.assertEqual(answer["outputs"]["boxes"].list(), [20, 10, 40, 30])
                self.assertEqual(
                    (answer["outputs"]["classes"].list(), answer["outputs"]["labels"].list()), ([3], [b"dot"])
                )

    def test_boxes_in_other_values(self) -> None:
        """Boxes anywhere in a JSON result are in pixels of the frame as it was sent; among several outputs they are the
        outputs of boxes.
        """
        text = """
            import dataclasses, typing, uuid
            import numpy as np
            import millrace
            @dataclasses.dataclass
            class Side:
                found: typing.Any
            def infer(image: millrace.Image[8, 4]) -> typing.Any:
                found = millrace.Boxes([[2, 1, 4, 3]])
                return {result}
        """
        frame = {"width": 80, "height": 40, "map": [10, 0, 10, 0]}
        pixels = np.zeros((1, 4, 8, 3), "u1")
        for result, before in (
            ('{"left": found}', '{"left":'),
            ("[1, [found]]", "[1,["),
            ("Side(found)", '{"found":'),
            ("{uuid.UUID(int=1): found}", '{"00000000-0000-0000-0000-000000000001":'),
        ):
            child = self.start(text.replace("{result}", result))
            (answer,) = child.batch([frame], {"image": pixels})
            data = answer["outputs"]["output"].elements()[0].decode()
            self.assertTrue(data.startswith(before + '{"boxes":[[20.0,10.0,40.0,30.0]],'), data)
        child = self.start(text.replace("{result}", '{"left": found, "mask": np.zeros(2)}'))
        (answer,) = child.batch([frame], {"image": pixels})
        self.assertEqual(list(answer["outputs"]), ["mask", "boxes", "scores", "classes", "labels"])
        self.assertEqual(answer["outputs"]["boxes"].list(), [20, 10, 40, 30])
        for result, want in (
            ('{"left": found, "right": found, "mask": np.zeros(2)}', "returned a Boxes as left and as right"),
            (
                '{"left": found, "scores": np.zeros(2)}',
                "returned the output scores and a Boxes, which has an output of that name",
            ),
        ):
            child = self.start(text.replace("{result}", result))
            (answer,) = child.batch([frame], {"image": pixels})
            self.assertIn(want, answer["error"]["message"])
        child = self.start(text.replace("{result}", 'millrace.Response({"left": found})'))
        child.picture = 80, 40
        self.assertEqual(body(child.call("infer", b"a picture", "image/png"))["left"]["boxes"], [[20, 10, 40, 30]])

    def test_boxes_without_their_other_parts(self) -> None:
        """An argument of the type Boxes has scores, classes and labels for each box where a request leaves them out."""
        child = self.start(
            """
            import millrace
            def infer(found: millrace.Boxes) -> list:
                scores, classes = [float(s) for s in found.scores], [int(c) for c in found.classes]
                return [scores, classes, list(found.labels), found.ids, found.keypoints]
        """
        )
        boxes, classes = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], "f4"), np.array([2, 0], "i8")
        for inputs, want in (
            ({"boxes": boxes}, [[1, 1], [0, 0], ["", ""], None, None]),
            ({"boxes": boxes, "classes": classes}, [[1, 1], [2, 0], ["2", "0"], None, None]),
            ({"boxes": np.zeros((0, 4), "f4")}, [[], [], [], None, None]),
        ):
            (answer,) = child.batch([{"inputs": inputs}])
            self.assertNotIn("error", answer)
            self.assertEqual(json.loads(answer["outputs"]["output"].elements()[0]), want)
            members = {k: v.tolist() for k, v in inputs.items()}
            self.assertEqual(body(child.call("infer", json.dumps({"found": members}).encode())), want)

    def test_wrong_boxes(self) -> None:
        """Boxes of another shape are refused where they are made, with what to write."""
        from millrace import Boxes

        box, two = [[1, 2, 3, 4]], [[1, 2, 3, 4], [5, 6, 7, 8]]
        for make, text in (
            (
                lambda: Boxes([1, 2, 3, 4]),
                "boxes must be [n, 4], x1, y1, x2, y2 of each box, got [4]; for one box write Boxes([[1, 2, 3, 4]])",
            ),
            (lambda: Boxes(np.array([1, 2, 3, 4])), "got [4]; for one box write Boxes([[1, 2, 3, 4]])"),
            (lambda: Boxes([box]), "got [1, 1, 4]; the boxes of one picture have no batch axis: write Boxes(boxes[0])"),
            (lambda: Boxes([[1, 2, 3]]), "got [1, 3]"),
            (lambda: Boxes(7), "got 7"),
            (lambda: Boxes(Boxes(box)), "got Boxes"),
            (lambda: Boxes("a"), "got 'a'"),
            (
                lambda: Boxes([[1, 2, 3, 4], [1, 2, 3]]),
                "boxes has items of the shapes [4] and [3]: want items of one shape",
            ),
            (lambda: Boxes([[1, 2, 3, 4], 5]), "boxes has items of the shapes [4] and []"),
            (
                lambda: Boxes(box, scores=0.5),
                "scores must be [1], a number for each of 1 box, got 0.5; write scores=[0.5]",
            ),
            (
                lambda: Boxes(two, np.float32(0.5)),
                "scores must be [2], a number for each of 2 boxes, got 0.5; write scores=[0.5, 0.5]",
            ),
            (lambda: Boxes(two, [0.5]), "scores must be [2], a number for each of 2 boxes, got [1]"),
            (lambda: Boxes(box, np.zeros((1, 1))), "scores must be [1], a number for each of 1 box, got [1, 1]"),
            (
                lambda: Boxes(box, ["cat"]),
                "scores must be [1], a number for each of 1 box, got 'cat'; texts are labels: write labels=['cat']",
            ),
            (lambda: Boxes(box, "cat"), "got 'cat'; write labels=['cat']"),
            (
                lambda: Boxes(box, classes=["cat"]),
                "classes must be [1], a number for each of 1 box, got 'cat'; texts are",
            ),
            (
                lambda: Boxes(box, classes=3),
                "classes must be [1], a number for each of 1 box, got 3; write classes=[3]",
            ),
            (
                lambda: Boxes(box, labels="cat"),
                "labels must be [1], a text for each of 1 box, got 'cat'; write labels=['cat']",
            ),
            (lambda: Boxes(box, labels=["cat", "dog"]), "labels must be [1], a text for each of 1 box, got [2]"),
            (lambda: Boxes(box, ids=[]), "ids must be [1]"),
            (
                lambda: Boxes(box, keypoints=[[1, 2, 3]]),
                "keypoints must be [1, k, 3], x, y, score of each point of each of 1 box",
            ),
            (lambda: Boxes(box, keypoints=[[[1, 2]]]), "got [1, 1, 2]"),
            (lambda: Boxes(box, keypoints=5), "got 5"),
            (lambda: Boxes(two, keypoints=[[[1, 2, 3]]]), "got [1, 1, 3]"),
        ):
            with self.assertRaises(ValueError, msg=text) as caught:
                make()
            self.assertIn(text, str(caught.exception))
        for right in (
            Boxes([]),
            Boxes(np.zeros((0, 4))),
            Boxes(np.zeros(0), [], [], [], [], []),
            Boxes(zip([1], [2], [3], [4]), map(float, [1]), labels=(t for t in ["cat"])),
            Boxes(np.array(two), np.zeros(2), np.zeros(2, int), np.array(["a", "b"]), (1, 2), np.zeros((2, 5, 3))),
            Boxes(box, keypoints=[[]]),
            Boxes([np.array([1, 2, 3, 4])], [np.float32(1)], keypoints=[[(1, 2, 3)]]),
            Boxes([], keypoints=np.zeros((0, 17, 3))),
        ):
            right.scaled((1, 0, 1, 0))

    def test_shared_memory(self) -> None:
        """Inputs are read in shared memory and results written there; what does not fit follows the message."""
        child = self.start(
            """
            from millrace import Batch, Tensor
            def infer(x: Batch[Tensor["FP32", 2]]):
                return {"y": x + 1}
        """,
            hello={"shared_memory": True},
        )
        inputs, results = child.segment(1, 65536, False), child.segment(2, 65536)
        x = np.arange(8000, dtype="f4").reshape(4000, 2)
        inputs[64 : 64 + 32000] = x.tobytes()
        for size in (32064, 100):
            child.send(
                {
                    "type": "batch",
                    "id": 1,
                    "results": {"segment": 2, "offset": 128, "size": size},
                    "requests": [{"rows": 4000}],
                    "inputs": [
                        {"name": "x", "datatype": "FP32", "shape": [4000, 2], "segment": 1, "offset": 64, "size": 32000}
                    ],
                }
            )
            (one,) = child.answers()
            self.assertEqual(one["outputs"]["y"].list(), (x + 1).reshape(-1).tolist())
            self.assertEqual("segment" in child.last["outputs"][0], size == 32064)
        del results

    def test_inputs_as_results(self) -> None:
        """An output that is a part of an input is answered from there, without a copy; others are copied."""
        child = self.start(
            """
            from millrace import Batch, Tensor
            last = None
            def infer(x: Batch[Tensor["FP32", 2, 800]], y: Batch[Tensor["UINT8", 8000]]):
                global last
                before, last = last if last is not None else y, y
                flat, part = x.reshape(-1, 1600), x[:, :, :700]
                return {"x": x, "flat": flat, "y": y, "new": y + 1, "part": part, "before": before}
        """,
            hello={"shared_memory": True},
        )
        inputs, results = child.segment(1, 1 << 16, False), child.segment(2, 1 << 17)
        x, y = np.arange(3200, dtype="f4").reshape(2, 2, 800), np.arange(16000).astype("u1").reshape(2, 8000)
        inputs[64 : 64 + 12800], inputs[12864 : 12864 + 16000] = x.tobytes(), y.tobytes()
        inputs[32768 : 32768 + 16000] = (y + 2).tobytes()
        for at in (32768, 12864):
            child.send(
                {
                    "type": "batch",
                    "id": 1,
                    "results": {"segment": 2, "offset": 0, "size": 1 << 17},
                    "requests": [{"rows": 2}],
                    "inputs": [
                        {
                            "name": "y",
                            "datatype": "UINT8",
                            "shape": [2, 8000],
                            "segment": 1,
                            "offset": at,
                            "size": 16000,
                        },
                        {
                            "name": "x",
                            "datatype": "FP32",
                            "shape": [2, 2, 800],
                            "segment": 1,
                            "offset": 64,
                            "size": 12800,
                        },
                    ],
                }
            )
            (one,) = child.answers()
            got = {t["name"]: (t["segment"], t["offset"]) for t in child.last["outputs"]}
            self.assertEqual((got["x"], got["flat"], got["y"]), ((1, 64), (1, 64), (1, at)))
            self.assertEqual({got[name][0] for name in ("new", "part")}, {2})
            self.assertEqual(got["before"][0], 1 if at == 32768 else 2, "an input of another batch is copied")
            now = y + 2 if at == 32768 else y
            want = {"x": x, "flat": x, "y": now, "new": now + 1, "part": x[:, :, :700], "before": y + 2}
            self.assertEqual(
                {n: t.list() for n, t in one["outputs"].items()}, {n: a.reshape(-1).tolist() for n, a in want.items()}
            )
        del results

    def test_declared_results(self) -> None:
        """A result that is not of its declared type is refused, or converted where nothing is lost."""
        child = self.start(
            """
            import numpy as np
            from typing import TypedDict
            from millrace import Tensor
            class Out(TypedDict):
                a: Tensor["FP32", 2]
            def infer(k: int) -> Tensor["FP32", 2]:
                return [[1, 2], np.array([1.0, 2.0]), np.zeros(3), ["a", "b"], np.array([1j, 2])][k]
        """
        )

        def run(k: int) -> dict[str, Any]:
            (answer,) = child.batch([{"inputs": {"k": np.array([k])}}])
            self.assertEqual("error" in answer, k > 1, answer)
            return answer

        for k in (0, 1):
            self.assertEqual(
                (run(k)["outputs"]["output"].datatype, run(k)["outputs"]["output"].list()), ("FP32", [1, 2])
            )
        for k, text in (
            (2, "shape [3], and declares [2]"),
            (3, "is text, and is declared as FP32"),
            (4, "array of complex128"),
        ):
            self.assertIn(text, run(k)["error"]["message"])
