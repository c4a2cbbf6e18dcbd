"""Services written for OctoAI, in a child."""

from __future__ import annotations

import base64
import contextlib
import functools
import http.server
import importlib.util
import json
import os
import tempfile
import textwrap
import threading
import unittest
from typing import Any

from .peer import SHORT, Failed, Peer, TestCase

HELLO = """
    from octoai.service import Service

    class Hello(Service):
        '''Says what it is told.'''

        def setup(self):
            self.times = 2

        def infer(self, prompt: str, times: int = 0) -> str:
            '''Repeats a text.'''
            if times < 0:
                raise RuntimeError("times is negative")
            return prompt * (times or self.times)
"""

FORM_KIND = "multipart/form-data; boundary=b"


def part(name: str, data: bytes, filename: str = "") -> bytes:
    """Returns a part of a form."""
    file = f'; filename="{filename}"\r\nContent-Type: text/plain' if filename else ""
    return f'--b\r\nContent-Disposition: form-data; name="{name}"{file}\r\n\r\n'.encode() + data + b"\r\n"


class TestService(TestCase):
    """A service in a child."""

    pydantic = True

    def setUp(self) -> None:
        """Skips the tests with pydantic where there is none, and hides it from the others."""
        super().setUp()
        if self.pydantic and importlib.util.find_spec("pydantic") is None:
            self.skipTest("pydantic is not installed")
        self.environment = {}
        if not self.pydantic:
            hidden = tempfile.mkdtemp(dir=self.folder)
            with open(os.path.join(hidden, "pydantic.py"), "w", encoding="utf-8") as f:
                f.write("raise ModuleNotFoundError('hidden from the test', name='pydantic')")
            self.environment["PYTHONPATH"] = hidden

    def serve(self, text: str, environment: dict[str, str] | None = None, **options: Any) -> Peer:
        """Starts a service."""
        return self.start(text, environment={**self.environment, **(environment or {})}, **options)

    def output(self, child: Peer, endpoint: str, body: Any, content_type: str = "application/json") -> Any:
        """Returns the output of a call, which must succeed."""
        answer = child.call(endpoint, body, content_type)
        self.assertEqual(answer.get("reply", {}).get("status"), 200, answer)
        self.assertGreaterEqual(float(answer["reply"]["header"]["octoai-inference-time-ms"]), 0)
        return json.loads(answer["body"])

    def detail(
        self, child: Peer, endpoint: str, body: Any, content_type: str = "application/json"
    ) -> list[dict[str, Any]]:
        """Returns the errors of a call, which must be refused as invalid."""
        answer = child.call(endpoint, body, content_type)
        self.assertEqual(answer.get("reply", {}).get("status"), 422, answer)
        detail = json.loads(answer["body"])["detail"]
        for error in detail:
            self.assertEqual({"loc", "msg", "type"} - set(error), set())
        return detail

    def test_infer(self) -> None:
        """The arguments are those of the JSON object, with the defaults of the method."""
        child = self.serve(HELLO)
        self.assertEqual(self.output(child, "infer", {"prompt": "ab"}), "abab")
        self.assertEqual(self.output(child, "infer", {"prompt": "ab", "times": 3, "unknown": 1}), "ababab")

    def test_model(self) -> None:
        """The description has the style, the routes, their document, and what the server needs."""
        app = self.serve(HELLO, environment={"OCTOAI_REPLICA_NAME": "r1"}, argv=["--async-enable", "False"]).model[
            "app"
        ]
        self.assertEqual((app["style"], app["extra"]), ("octoai", {"async_enable": False, "replica_name": "r1"}))
        self.assertEqual(app["routes"], [{"method": "POST", "path": "/infer", "endpoint": "infer"}])
        document = app["openapi"]
        self.assertEqual(document["info"]["title"], "Hello")
        self.assertEqual(document["components"]["schemas"]["Input"]["required"], ["prompt"])
        self.assertEqual(document["components"]["schemas"]["Output"]["properties"]["output"]["type"], "string")

    def test_invalid_requests(self) -> None:
        """Each error names where it is."""
        child = self.serve(HELLO)
        self.assertEqual(
            [e["loc"] for e in self.detail(child, "infer", {"times": "many"})], [["body", "prompt"], ["body", "times"]]
        )
        for body, location in ((b"", ["body"]), (b"[1]", ["body"]), (b"null", ["body"]), (b'{"prompt"', ["body", 9])):
            with self.subTest(body[:20]):
                detail = self.detail(child, "infer", body)
                self.assertEqual([e["loc"] for e in detail], [location])
        for body, reason in ((b'{"prompt": "\xff"}', "not UTF-8"), (b"[" * 100000, "nested too deeply")):
            answer = child.call("infer", body)
            self.assertEqual(answer["reply"]["status"], 400)
            self.assertIn("There was an error parsing the body: it is " + reason, json.loads(answer["body"])["detail"])
        self.assertEqual(self.detail(child, "infer", {"prompt": "x"}, "text/plain")[0]["loc"], ["body"])
        self.assertEqual(self.output(child, "infer", {"prompt": "x"}, ""), "xx")
        self.assertEqual(self.output(child, "infer", {"prompt": "x"}, "application/vnd.x+json; charset=utf-8"), "xx")

    def test_exception(self) -> None:
        """An exception fails its request with the traceback of the service, and the next one is answered."""
        child = self.serve(HELLO)
        answer = child.call("infer", {"prompt": "x", "times": -1})
        self.assertEqual(answer["error"]["message"], "infer: RuntimeError: times is negative")
        self.assertIn("service.py", answer["error"]["traceback"])
        self.assertNotIn("millrace_compat", answer["error"]["traceback"])
        self.assertEqual(self.output(child, "infer", {"prompt": "x"}), "xx")

    def test_endpoints(self) -> None:
        """Public methods are endpoints: at their name with - for _, or at the path of the decorator."""
        child = self.serve(
            """
            from octoai.service import Service, path

            class S(Service):
                def infer(self, x: int) -> int:
                    return self._next(x)

                def count_words(self, text: str) -> int:
                    return len(text.split())

                @path("/v1/words")
                def words(self, text: str) -> list:
                    "Splits."
                    return text.split()

                async def later(self, x: int) -> int:
                    return x + 2

                def _next(self, x):
                    return x + 1
        """
        )
        routes = {r["endpoint"]: r["path"] for r in child.model["app"]["routes"]}
        self.assertEqual(
            routes, {"infer": "/infer", "count_words": "/count-words", "words": "/v1/words", "later": "/later"}
        )
        self.assertEqual(self.output(child, "infer", {"x": 1}), 2)
        self.assertEqual(self.output(child, "count_words", {"text": "a b"}), 2)
        self.assertEqual(self.output(child, "words", {"text": "a b"}), ["a", "b"])
        self.assertEqual(self.output(child, "later", {"x": 1}), 3)
        operation = child.model["app"]["openapi"]["paths"]["/v1/words"]["post"]
        self.assertEqual(operation["description"], "Splits.")
        self.assertEqual(
            operation["requestBody"]["content"]["application/json"]["schema"]["$ref"], "#/components/schemas/WordsInput"
        )

    def test_forms(self) -> None:
        """infer_form_data gets texts and uploads."""
        child = self.serve(
            """
            from octoai.service import Service, path
            from octoai.types import File

            class S(Service):
                def infer(self, x: int) -> int:
                    return x

                @path("/infer-form-data")
                def infer_form_data(self, file: File, title: str) -> str:
                    return f"{title} {file.filename} {file.content_type} {file.size} {file.file.read().decode()}"
        """
        )
        form = part("file", b"contents", "a.txt") + part("title", "é".encode()) + b"--b--\r\n"
        self.assertEqual(self.output(child, "infer_form_data", form, FORM_KIND), "é a.txt text/plain 8 contents")
        for form, kind, where in (
            (b"--b--", FORM_KIND, ["file", "title"]),
            (b"{}", "application/json", ["file", "title"]),
            (part("title", b"x") + part("file", b"x") + b"--b--", FORM_KIND, ["file"]),
            (part("title", b"x", "a") + part("file", b"x", "b") + b"--b--", FORM_KIND, ["title"]),
        ):
            self.assertEqual(
                [e["loc"] for e in self.detail(child, "infer_form_data", form, kind)], [["body", w] for w in where]
            )
        answer = child.call("infer_form_data", b"--b", FORM_KIND)
        self.assertEqual(answer["reply"]["status"], 400)
        self.assertIn("boundary", json.loads(answer["body"])["detail"])
        schema = child.model["app"]["openapi"]["components"]["schemas"]["InferFormDataInput"]
        self.assertEqual(
            schema["properties"], {"file": {"type": "string", "format": "binary"}, "title": {"type": "string"}}
        )

    def test_types(self) -> None:
        """Pictures, sound and texts in requests and answers, in the newer form and the older one."""
        child = self.serve(
            """
            from octoai.service import Service
            from octoai.types import Audio, Image, Text

            class S(Service):
                def infer(self, image: Image) -> Image:
                    return Image.from_base64(image.to_base64())

                def listen(self, audio: Audio) -> Text:
                    return Text(text=str(len(audio.to_bytes())))
        """
        )
        data = base64.b64encode(b"a picture").decode()
        self.assertEqual(self.output(child, "infer", {"image": {"data": data}}), {"data": data})
        self.assertEqual(self.output(child, "infer", {"image": {"image_b64": data}}), {"data": data})
        self.assertEqual(self.output(child, "listen", {"audio": {"audio_b64": data}}), {"text": "9"})
        self.assertEqual(self.detail(child, "infer", {"image": {}})[0]["loc"][:2], ["body", "image"])
        self.assertEqual(
            self.detail(child, "infer", {"image": {"data": {"url": "ftp://x/"}}})[0]["loc"][:2], ["body", "image"]
        )
        answer = child.call("infer", {"image": {"data": "%"}})
        self.assertEqual(answer.get("reply", {}).get("status"), 200)  # the service does not look into it
        self.assertIn("not base64", child.call("listen", {"audio": {"data": "abcde"}})["error"]["message"])

    def test_addresses(self) -> None:
        """What requests name by URL is downloaded; from private addresses only when that is allowed."""
        text = """
            from octoai.service import Service
            from octoai.types import Image

            class S(Service):
                def infer(self, image: Image) -> int:
                    return len(image.to_bytes())
        """
        with files(self.folder) as url:
            self.write("x" * 1000, "a.txt")
            body = {"image": {"data": {"url": url + "/a.txt"}}}
            self.assertIn("127.0.0.1 is a private address", self.serve(text).call("infer", body)["error"]["message"])
            child = self.serve(text, environment={"MILLRACE_SOURCES_ALLOW_PRIVATE": "true"})
            self.assertEqual(self.output(child, "infer", body), 1000)
            self.assertIn(
                "status 404", child.call("infer", {"image": {"data": {"url": url + "/none"}}})["error"]["message"]
            )
            self.assertIn(
                "status 301", child.call("infer", {"image": {"data": {"url": url + "/folder"}}})["error"]["message"]
            )

    def test_wrong_answer(self) -> None:
        """A result that does not fit its hint fails the request."""
        child = self.serve(
            """
            from octoai.service import Service

            class S(Service):
                def infer(self, x: int) -> int:
                    return "no number"

                def floats(self, x: int) -> list:
                    return [float("nan"), float("inf"), 1.5]
        """
        )
        self.assertIn("infer: ", child.call("infer", {"x": 1})["error"]["message"])
        self.assertEqual(self.output(child, "floats", {"x": 1}), [None, None, 1.5])

    def test_hooks(self) -> None:
        """The hooks are called in their order, setup between them, and asynchronous prints of infer in the log."""
        child = self.serve(
            """
            from octoai.service import Service

            class S(Service):
                def __init__(self):
                    print("init")
                def on_server_startup(self):
                    print("startup")
                def setup(self):
                    print("setup")
                def infer(self, x: int) -> int:
                    print("infer")
                    return x
                def on_server_shutdown(self):
                    print("shutdown")
        """
        )
        child.call("infer", {"x": 1})
        code, written = child.close()
        self.assertEqual(code, 0)
        order = [
            line
            for line in child.lines() + written.split()
            if line in ("init", "startup", "setup", "infer", "shutdown")
        ]
        self.assertEqual(order, ["init", "startup", "setup", "infer", "shutdown"])

    def test_setup_failure(self) -> None:
        """What setup raises is told with its traceback."""
        message = self.failed(
            """
            from octoai.service import Service

            class S(Service):
                def setup(self):
                    raise OSError("no weights")
                def infer(self, x: int) -> int:
                    return x
        """
        )
        self.assertIn("setup: OSError: no weights", message["message"])
        self.assertIn("service.py", message["traceback"])

    def failed(self, text: str, **options: Any) -> dict[str, Any]:
        """Returns the message `failed` of a service that cannot be served."""
        with self.assertRaises(Failed) as caught:
            self.serve(text, **options)
        return caught.exception.message

    def test_unusable_services(self) -> None:
        """A service that cannot be served is refused with what to do."""
        start = "from octoai.service import Service, path\nfrom octoai.types import File\nclass S(Service):\n"
        infer = start + "    def infer(self, x: int) -> int: return x\n"
        cases: list[tuple[str, list[str], dict[str, str], str]] = [
            (start + "    def infer(self, x) -> int: return x", [], {}, "infer: parameter x has no type hint"),
            (start + "    def infer(self, x: int): return x", [], {}, "infer: its result has no type hint"),
            (start + "    def infer(self) -> int: return 1", [], {}, "infer: it has no parameters"),
            (
                start + "    def infer(self, **x: int) -> int: return 1",
                [],
                {},
                "infer: parameter x cannot be given by name",
            ),
            (start + "    pass", [], {}, "infer"),
            (
                infer + "    def helper(self, x): return x",
                [],
                {},
                "helper: parameter x has no type hint; public methods are endpoints: begin the name of one that is "
                "not with _",
            ),
            (
                infer + "    @path('x')\n    def other(self, x: int) -> int: return x",
                [],
                {},
                "other: the path 'x' does not begin with /",
            ),
            (
                infer + "    @path('/infer')\n    def other(self, x: int) -> int: return x",
                [],
                {},
                "other: its path /infer is that of infer",
            ),
            (
                infer + "    @path('/docs')\n    def other(self, x: int) -> int: return x",
                [],
                {},
                "other: its path /docs is that of the server",
            ),
            (
                infer + "    def infer_form_data(self, x: str) -> int: return x",
                [],
                {},
                "infer_form_data: it has no path",
            ),
            (
                infer + "    @path('/f')\n    def infer_form_data(self, x: int) -> int: return x",
                [],
                {},
                "infer_form_data: parameter x: only File and str",
            ),
            (infer, ["--port", "1"], {}, "--port: is not an argument"),
            (infer, ["--async-enable=maybe"], {}, "'maybe' is not true or false"),
            (infer, ["--async-enable"], {}, "'' is not true or false"),
            (infer, [], {"class": "T"}, "has no class T"),
            (
                "import octoai.service",
                [],
                {"style": "octoai"},
                "contains no classes extending base octoai.service.Service",
            ),
            (infer, [], {}, "it is served"),
        ]
        got = self.refusals([case[:3] for case in cases], *self.environment.values())
        self.assertEqual(len(got), len(cases))
        for line, (text, _, _, reason) in zip(got, cases):
            with self.subTest(text):
                self.assertIn(reason, line)

    def test_choice_of_class(self) -> None:
        """Of several services the last by name is served, or the one that is named."""
        text = """
            from octoai.service import Service

            class B(Service):
                def infer(self, x: int) -> str:
                    return "B"

            class A(Service):
                def infer(self, x: int) -> str:
                    return "A"
        """
        self.assertEqual(self.output(self.serve(text), "infer", {"x": 1}), "B")
        self.assertEqual(self.output(self.serve(text, **{"class": "A"}), "infer", {"x": 1}), "A")
        self.assertEqual(self.output(self.serve(text, **{"class": "Service"}), "infer", {"x": 1}), "B")

    def test_volume(self) -> None:
        """The variables of the volume are set before the import of a service with a store_assets of its own, and only
        then.
        """
        text = """
            import os
            from octoai.service import Service
            cache = os.environ.get("TORCH_HOME", "none")

            class S(Service):
                def infer(self, x: int) -> str:
                    return cache + " " + os.environ.get("HUGGINGFACE_HUB_CACHE", "none")
        """
        volume = {"OCTOAI_VOLUME_PATH": "/volume"}
        self.assertEqual(self.output(self.serve(text, environment=volume), "infer", {"x": 1}), "none none")
        text += "\n                def store_assets(self):\n                    pass\n"
        self.assertEqual(
            self.output(self.serve(text, environment=volume), "infer", {"x": 1}),
            "/volume/torch_home /volume/huggingface_hub_cache",
        )


class TestServiceWithoutPydantic(TestService):
    """The same without pydantic."""

    pydantic = False


class TestPydantic(TestService):
    """Models of pydantic in services."""

    def test_models(self) -> None:
        """Fields are read by their alias, and answered by their name; media may be fields."""
        child = self.serve(
            """
            from typing import List
            from pydantic import BaseModel, Field
            from octoai.service import Service
            from octoai.types import Image

            class Detection(BaseModel):
                class_: int = Field(..., alias="class")
                confidence: float

            class Found(BaseModel):
                detections: List[Detection]
                image: Image

            class Options(BaseModel):
                image: Image
                mode: str = "default"

            class S(Service):
                def infer(self, input: Options) -> Found:
                    return Found(detections=[Detection(**{"class": 3, "confidence": 0.5})], image=input.image)
        """
        )
        self.assertEqual(
            self.output(child, "infer", {"input": {"image": {"data": "YQ=="}}}),
            {"detections": [{"class_": 3, "confidence": 0.5}], "image": {"data": "YQ=="}},
        )
        self.assertEqual(
            self.detail(child, "infer", {"input": {"image": {}}})[0]["loc"][:3], ["body", "input", "image"]
        )
        self.assertIn("class_", child.model["app"]["openapi"]["components"]["schemas"]["Detection"]["properties"])


def load_tests(loader: unittest.TestLoader, *_: Any) -> unittest.TestSuite:
    """Runs the tests of the common class once for each. Short, without pydantic only those that read, check or describe
    types.
    """
    suite = unittest.TestSuite()
    for case in (TestService, TestServiceWithoutPydantic, TestErrorsOfFastAPI):
        for test in loader.loadTestsFromTestCase(case):
            if not (SHORT and case is TestServiceWithoutPydantic and test._testMethodName in WITHOUT_TYPES):
                suite.addTest(test)
    suite.addTest(TestPydantic("test_models"))
    return suite


WITHOUT_TYPES = {
    "test_addresses",
    "test_choice_of_class",
    "test_exception",
    "test_hooks",
    "test_setup_failure",
    "test_volume",
}


@contextlib.contextmanager
def files(folder: str) -> Any:
    """Serves the files of a folder at a URL."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    os.makedirs(os.path.join(folder, "folder"), exist_ok=True)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


class TestErrorsOfFastAPI(TestCase):
    """Invalid requests to the same function, here and in FastAPI."""

    def test_errors(self) -> None:
        """The same errors are told of each."""
        for module in ("fastapi", "httpx", "pydantic", "multipart"):
            if importlib.util.find_spec(module) is None:
                self.skipTest(f"{module} is not installed")
        from fastapi.testclient import TestClient

        names: dict[str, Any] = {}
        models = textwrap.dedent(
            """
            from typing import List, Optional
            from pydantic import BaseModel, Field

            class Box(BaseModel):
                x: float
                kind: int = Field(..., alias="class")
        """
        )
        exec(
            compile(
                models
                + textwrap.dedent(
                    """
            from fastapi import FastAPI, Form, UploadFile

            class Body(BaseModel):
                prompt: str
                times: int = 1
                box: Optional[Box] = None
                tags: List[int] = []

            app = FastAPI()

            @app.post("/infer")
            def infer(request: Body) -> int:
                return 1

            @app.post("/infer_form_data")
            def form(file: UploadFile, title: str = Form()) -> int:
                return 1
        """
                ),
                "peer",
                "exec",
                dont_inherit=True,
            ),
            names,
        )
        child = self.start(
            models
            + textwrap.dedent(
                """
            from octoai.service import Service, path
            from octoai.types import File

            class S(Service):
                def infer(self, prompt: str, times: int = 1, box: Optional[Box] = None, tags: List[int] = []) -> str:
                    return prompt

                @path("/form")
                def infer_form_data(self, file: File, title: str) -> str:
                    return title
        """
            )
        )
        client = TestClient(names["app"])
        cases = [
            ("infer", body, "application/json")
            for body in (
                b"{}",
                b"",
                b"null",
                b"[1]",
                b'"x"',
                b"{",
                b'{"prompt":"x",}',
                b"\xff",
                b'{"prompt":null}',
                b'{"prompt":["x"]}',
                b'{"prompt":1,"times":"x","box":{"x":"a"},"tags":[1,"b"]}',
                b'{"prompt":"x","box":{"class":1.5,"x":null},"times":true}',
            )
        ]
        cases += [("infer", b'{"prompt":"x"}', kind) for kind in ("text/plain", "application/x-www-form-urlencoded")]
        cases += [
            ("infer_form_data", body, FORM_KIND)
            for body in (
                part("other", b"x") + b"--b--",
                part("file", b"x", "a") + b"--b--",
                part("file", b"x") + part("title", b"x") + b"--b--",
                part("file", b"x", "a") + part("title", b"") + b"--b--",
                part("file", b"x", "a") + part("title", b"x", "b") + b"--b--",
            )
        ]
        cases += [
            ("infer_form_data", b"{}", "application/json"),
            ("infer_form_data", b"title=x", "application/x-www-form-urlencoded"),
        ]
        for endpoint, sent, kind in cases:
            with self.subTest(endpoint=endpoint, sent=sent, kind=kind):
                theirs = client.post("/" + endpoint, content=sent, headers={"Content-Type": kind})
                ours = child.call(endpoint, sent, kind)
                self.assertEqual(ours["reply"]["status"], theirs.status_code)
                want, got = theirs.json()["detail"], json.loads(ours["body"])["detail"]
                if theirs.status_code == 400:
                    self.assertTrue(got.startswith(want), got)
                    continue
                self.assertEqual(
                    [(e["loc"], e["msg"], e["type"]) for e in got], [(e["loc"], e["msg"], e["type"]) for e in want]
                )
