"""Services: classes and functions, what they take and what they answer."""

from __future__ import annotations


from .peer import TestCase, body, request

try:
    import numpy as np
except ImportError:
    np = None  # type: ignore[assignment]


class TestCalls(TestCase):
    """Calls of routes."""

    def test_types_of_json(self) -> None:
        """Keys of numpy and others, decimal numbers, paths and times become JSON."""
        child = self.start(
            """
            import dataclasses, datetime, decimal, pathlib, uuid
            import numpy as np

            @dataclasses.dataclass
            class Counts:
                by: dict

            def infer() -> dict:
                counts = Counts({np.int64(3): np.float32(0.5), np.str_("a"): 1, np.bool_(True): [np.int8(2)],
                                 datetime.date(2026, 1, 2): None, pathlib.Path("/x"): 1, uuid.UUID(int=1): 2})
                return {"counts": counts, "price": decimal.Decimal("12.50"), "whole": decimal.Decimal(7),
                        "path": pathlib.Path("a") / "b", "took": datetime.timedelta(minutes=1.5)}
        """
        )
        self.assertEqual(
            body(child.call("infer", {})),
            {
                "counts": {
                    "by": {
                        "3": 0.5,
                        "a": 1,
                        "true": [2],
                        "2026-01-02": None,
                        "/x": 1,
                        "00000000-0000-0000-0000-000000000001": 2,
                    }
                },
                "price": 12.5,
                "whole": 7,
                "path": "a/b",
                "took": 90.0,
            },
        )
        for result, words in [
            ('{(1, 2): "x"}', "a key is of type tuple"),
            ('{"a": [decimal.Decimal("NaN")]}', "a[0] is nan"),
        ]:
            child = self.start(
                f"""
                import decimal

                def infer() -> dict:
                    return {result}
            """
            )
            self.assertIn(words, child.call("infer", {})["error"]["message"])

    def test_json_by_name(self) -> None:
        """Members of the body are the arguments; what is missing or unknown is named."""
        child = self.start(
            """
            def infer(text: str, times: int = 2, *, upper: bool = False) -> str:
                out = text * times
                return out.upper() if upper else out
        """
        )
        self.assertEqual(body(child.call("infer", {"text": "ab"})), "abab")
        self.assertEqual(body(child.call("infer", {"text": "ab", "times": 1, "upper": True})), "AB")
        self.assertEqual(body(child.call("infer", {"text": "ab"}, query="upper=true&times=3")), "ABABAB")
        for sent, loc, kind in [
            ({}, ["body", "text"], "missing"),
            ({"text": 1}, ["body", "text"], "string_type"),
            ({"text": "a", "times": "2"}, ["body", "times"], "int_type"),
            ({"text": "a", "more": 1}, ["body", "more"], "extra_forbidden"),
            ([], ["body"], "object_type"),
        ]:
            answer = child.call("infer", sent)
            self.assertEqual(answer["reply"]["status"], 422, answer)
            self.assertEqual((body(answer)["detail"][0]["loc"], body(answer)["detail"][0]["type"]), (loc, kind))
        self.assertEqual(child.call("infer", b"{")["error"]["status"], 400)
        self.assertEqual(body(child.call("infer", b'{"text": "ab"}', "application/x-www-form-urlencoded")), "abab")
        self.assertIn(
            "looks like JSON",
            child.call("infer", b'{"text": "ab"', "application/x-www-form-urlencoded")["error"]["message"],
        )
        self.assertEqual(child.call("infer", b"x", "image/tiff")["body"], b'"xx"')

    def test_types(self) -> None:
        """Dataclasses, TypedDict, Enum, Literal, Optional, Union, dict, list, tuple."""
        child = self.start(
            """
            import enum
            from dataclasses import dataclass, field
            from typing import Dict, List, Literal, Optional, Tuple, TypedDict, Union

            class Colour(enum.Enum):
                RED = "red"
                BLUE = "blue"

            class Place(TypedDict, total=False):
                x: float
                y: float

            @dataclass
            class Item:
                name: str
                colour: Colour
                place: Optional[Place] = None
                tags: List[str] = field(default_factory=list)
                size: Union[int, str] = 1
                kind: Literal["a", "b"] = "a"
                more: Dict[str, int] = field(default_factory=dict)
                pair: Tuple[int, float] = (1, 2.0)

                def __post_init__(self):
                    if self.name == "bad":
                        raise ValueError("the name is bad")

            def infer(item: Item) -> dict:
                assert isinstance(item, Item) and isinstance(item.colour, Colour)
                return {"item": item, "colour": item.colour.name}
        """
        )
        good = {
            "name": "n",
            "colour": "red",
            "place": {"x": 1},
            "tags": ["t"],
            "size": "big",
            "kind": "b",
            "more": {"k": 1},
            "pair": [1, 2],
        }
        answer = body(child.call("infer", good))
        self.assertEqual(answer["colour"], "RED")
        self.assertEqual(answer["item"], good)
        for change, loc in [
            ({"colour": "green"}, ["body", "colour"]),
            ({"place": {"z": 1}}, ["body", "place", "z"]),
            ({"tags": [1]}, ["body", "tags", 0]),
            ({"size": 1.5}, ["body", "size"]),
            ({"kind": "c"}, ["body", "kind"]),
            ({"more": {"k": "v"}}, ["body", "more", "k"]),
            ({"pair": [1]}, ["body", "pair"]),
            ({"name": "bad"}, ["body"]),
        ]:
            answer = child.call("infer", {**good, **change})
            self.assertEqual(answer["reply"]["status"], 422, (change, answer))
            self.assertEqual(body(answer)["detail"][0]["loc"], loc)
        document = child.model["app"]["openapi"]
        self.assertEqual(document["components"]["schemas"]["Item"]["required"], ["name", "colour"])
        self.assertEqual(
            document["paths"]["/infer"]["post"]["requestBody"]["content"]["application/json"]["schema"],
            {"$ref": "#/components/schemas/Item"},
        )

    def test_pydantic(self) -> None:
        """Models of pydantic validate, and their schemas are in the document."""
        try:
            import pydantic  # noqa: F401
        except ImportError:
            self.skipTest("needs pydantic")
        child = self.start(
            """
            from typing import List
            from pydantic import BaseModel, Field

            class Part(BaseModel):
                n: int = Field(ge=1)

            class Item(BaseModel):
                parts: List[Part]

            def infer(item: Item) -> Item:
                return Item(parts=item.parts[::-1])
        """
        )
        self.assertEqual(body(child.call("infer", {"parts": [{"n": 1}, {"n": 2}]})), {"parts": [{"n": 2}, {"n": 1}]})
        self.assertEqual(
            body(child.call("infer", {"parts": [{"n": 0}]}))["detail"][0]["loc"], ["body", "parts", 0, "n"]
        )
        self.assertIn("Part", child.model["app"]["openapi"]["components"]["schemas"])

    def test_endpoints(self) -> None:
        """Decorated methods are routes, others are not; responses of other types and statuses."""
        child = self.start(
            """
            import millrace

            class Service:
                '''Counts.'''
                example = {"x": 1}

                def setup(self, parameters):
                    self.start = parameters.get("start", 0)

                def infer(self, x: int) -> int:
                    '''Adds.'''
                    return self.start + x

                @millrace.endpoint
                def twice(self, x: int) -> int:
                    return 2 * x

                @millrace.endpoint("/status", method="GET")
                def status(self, verbose: bool = False):
                    return {"verbose": verbose}

                @millrace.endpoint
                def csv(self, context: millrace.Context):
                    if context.user_id != "ann":
                        raise millrace.Error("not for you", "permission_denied", 403)
                    return millrace.Response("a,b\\n", content_type="text/csv", status=201, headers={"x-rows": "1"})

                @millrace.endpoint
                def teapot(self):
                    raise millrace.Error("no coffee", status=418, detail={"why": "pot"})

                def hidden(self):
                    return 1
        """,
            hello={"parameters": {"start": 10}},
        )
        routes = {(r["method"], r["path"]) for r in child.model["app"]["routes"]}
        self.assertEqual(
            routes, {("POST", "/infer"), ("POST", "/twice"), ("GET", "/status"), ("POST", "/csv"), ("POST", "/teapot")}
        )
        self.assertEqual(body(child.call("infer", {"x": 5})), 15)
        self.assertEqual(body(child.call("twice", {"x": 5})), 10)
        self.assertEqual(body(child.call("status", b"", "", method="GET", query="verbose=1")), {"verbose": True})
        self.assertEqual(child.call("csv")["error"]["status"], 403)
        answer = child.call("csv", user="ann")
        self.assertEqual(
            (answer["body"], answer["reply"]),
            (b"a,b\n", {"status": 201, "content_type": "text/csv", "header": {"x-rows": "1"}}),
        )
        answer = child.call("teapot")
        self.assertEqual((answer["reply"]["status"], body(answer)["detail"]), (418, {"why": "pot"}))
        document = child.model["app"]["openapi"]
        self.assertEqual(document["info"]["description"], "Counts.")
        operation = document["paths"]["/infer"]["post"]
        self.assertEqual(
            (operation["summary"], operation["requestBody"]["content"]["application/json"]["example"]),
            ("Adds.", {"x": 1}),
        )

    def test_forms(self) -> None:
        """Fields and files of forms, and a body of bytes."""
        child = self.start(
            """
            from typing import List
            import millrace

            class Service:
                def infer(self, note: str, count: int, files: List[millrace.Upload]) -> dict:
                    read = [(f.filename, f.content_type, len(f.data)) for f in files]
                    return {"note": note, "count": count, "files": read}

                @millrace.endpoint
                def size(self, data: bytes) -> int:
                    return len(data)
        """
        )

        def part(name: str, content: str, more: str = "") -> str:
            return f'--b\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n{content}\r\n'

        form = (
            part("note", "hi")
            + part("count", "3")
            + part("files", "xyz", '; filename="a.txt"\r\nContent-Type: text/plain')
            + part("files", "", '; filename="b"')
        )
        answer = child.call("infer", (form + "--b--\r\n").encode(), "multipart/form-data; boundary=b")
        self.assertEqual(body(answer), {"note": "hi", "count": 3, "files": [["a.txt", "text/plain", 3], ["b", "", 0]]})
        answer = child.call("infer", b"note=1&count=x", "application/x-www-form-urlencoded")
        self.assertEqual([d["loc"] for d in body(answer)["detail"]], [["body", "count"], ["body", "files"]])
        self.assertEqual(child.call("infer", b"--b\r\n", "multipart/form-data; boundary=b")["error"]["status"], 400)
        self.assertEqual(body(child.call("size", b"12345", "application/octet-stream")), 5)
        self.assertEqual(body(child.call("size", {"data": "aGk="})), 2)
        self.assertEqual(child.call("infer", b"x", "image/png")["error"]["status"], 415)

    def test_streams(self) -> None:
        """Generators, async ones too, answer in parts; their close runs when nobody waits."""
        child = self.start(
            """
            import asyncio
            import millrace

            class Service:
                def infer(self, n: int):
                    try:
                        for i in range(n):
                            yield i
                    finally:
                        print("closed after", i)

                @millrace.endpoint
                async def later(self, n: int):
                    for i in range(n):
                        await asyncio.sleep(0)
                        yield {"i": i}

                @millrace.endpoint
                def breaks(self):
                    yield 1
                    raise ValueError("broke")
        """
        )
        self.assertTrue(child.model["decoupled"])
        self.assertTrue(all(r["events"] for r in child.model["app"]["routes"]))
        answer = child.call("infer", {"n": 3})
        self.assertEqual([body(p) for p in child.parts], [0, 1, 2])
        self.assertEqual(answer["body"] if "body" in answer else b"", b"")
        child.call("later", {"n": 2})
        self.assertEqual([body(p) for p in child.parts], [{"i": 0}, {"i": 1}])
        answer = child.call("breaks")
        self.assertEqual((len(child.parts), answer["error"]["message"]), (1, "ValueError: broke"))
        child.send_batch([request("infer", {"n": 10**9})], number=7)
        child.send({"type": "cancel", "id": 7, "request": 0})
        child.answers(7)
        self.assertTrue(any(line.startswith("closed after") for line in child.lines()[-1:]), child.lines())

    def test_async(self) -> None:
        """Async functions of one batch run at the same time, and are cancelled when nobody waits."""
        child = self.start(
            """
            import asyncio
            waiting = []
            async def infer(n: int, trace) -> int:
                waiting.append(n)
                while len(waiting) < 3:
                    await asyncio.sleep(0.001)
                print("in", trace)
                if n == 9:
                    await asyncio.sleep(3600)
                return n
        """
        )
        self.assertEqual(
            [body(a) for a in child.batch([dict(request("infer", {"n": i}), trace=f"t{i}") for i in range(3)])],
            [0, 1, 2],
        )
        self.assertEqual({(m["message"], m["trace"]) for m in child.logs}, {(f"in t{i}", f"t{i}") for i in range(3)})
        child.send_batch([request("infer", {"n": 9})], number=2)
        child.send({"type": "cancel", "id": 2, "request": 0})
        self.assertEqual(child.answers(2)[0]["error"]["code"], "canceled")

    def test_not_finite(self) -> None:
        """NaN in JSON is refused, and the message says where it is."""
        child = self.start(
            """
            def infer(x: int):
                return {"scores": [1.0, float("nan")]} if x else {"s": {1, 2}, "b": b"x", "o": object()}
        """
        )
        self.assertIn("scores[1] is nan", child.call("infer", {"x": 1})["error"]["message"])
        self.assertIn("o is of type object", child.call("infer", {"x": 0})["error"]["message"])
