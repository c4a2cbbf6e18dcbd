"""Services written for OctoAI, in a child, and the command line octoai.server."""

from __future__ import annotations

import base64
import contextlib
import functools
import http.server
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest
from typing import Any

from .peer import ROOT, SHORT, Failed, Peer, TestCase

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
    for case in (TestService, TestServiceWithoutPydantic, TestErrorsOfFastAPI, TestCommands, TestTypes):
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


class TestCommands(TestCase):
    """python -m octoai.server."""

    def command(self, *arguments: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess:
        """Runs it in the folder of the test."""
        path = os.pathsep.join([os.path.join(ROOT, "compat"), ROOT])
        return subprocess.run(
            [sys.executable, "-m", "octoai.server", *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "PYTHONPATH": path, **(environment or {})},
        )

    def good(self, *arguments: str, **options: Any) -> str:
        """Returns what a command prints behind its first line."""
        done = self.command(*arguments, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        first, _, rest = done.stdout.partition("\n")
        self.assertEqual(first, "octoai server")
        return rest

    def setUp(self) -> None:
        """Writes two services."""
        super().setUp()
        self.write(HELLO)
        self.write(
            """
            from octoai.service import Service, volume_path
            import os

            class Assets(Service):
                def store_assets(self):
                    with open(os.path.join(volume_path(), "asset"), "w") as f:
                        f.write(os.environ["TORCH_HOME"])
                def setup(self):
                    print("setting up")
                def infer(self, x: int, it: "list[str]" = ["it's"]) -> int:
                    return x

            class Zero(Service):
                def infer(self, x: int) -> int:
                    return x
        """,
            "package/assets.py",
        )
        self.write("", "package/__init__.py")

    assets = ("--service-module", "package.assets", "--service-class", "Assets")

    def test_api_schema(self) -> None:
        """It prints the document, or writes it into a file."""
        document = json.loads(self.good("api-schema"))
        self.assertEqual(list(document["paths"]), ["/healthcheck", "/", "/infer"])
        self.assertEqual(self.good("api-schema", "--output-file", "schema.json"), "")
        with open(os.path.join(self.folder, "schema.json"), encoding="utf-8") as f:
            self.assertEqual(json.load(f), document)

    def test_store_assets(self) -> None:
        """It tells by its exit code whether it is needed, and is run in the environment of the volume."""
        self.assertEqual(self.command("store-assets", "--check-is-needed").returncode, 11)
        self.assertEqual(self.command(*self.assets, "store-assets", "--check-is-needed").returncode, 10)
        volume = {"OCTOAI_VOLUME_PATH": self.folder}
        self.good(*self.assets, "store-assets", environment=volume)
        with open(os.path.join(self.folder, "asset"), encoding="utf-8") as f:
            self.assertEqual(f.read(), self.folder + "/torch_home")

    def test_setup_service(self) -> None:
        """It calls setup."""
        self.assertEqual(self.good(*self.assets, "setup-service"), "setting up\n")

    def test_usage_examples(self) -> None:
        """Examples have the required parameters; templates have their values apart."""
        curl = self.good("generate-usage-examples", "--format", "curl")
        self.assertIn('curl -X POST "http://localhost:8080/infer"', curl)
        self.assertIn('"prompt": "A text"', curl)
        self.assertIn("urllib.request", self.good("generate-usage-examples", "--format", "PYTHON"))
        made = json.loads(self.good("generate-usage-examples", "--format", "curl", "--no-render"))
        self.assertIn("{{{inputs.prompt}}}", made["generated_template"])
        self.assertEqual(made["template_hash"]["inputs"], {"prompt": '"A text"'})

    def test_log_level(self) -> None:
        """The level is that of the option, or of the variable."""
        self.assertIn("INFO", self.command("setup-service").stderr)
        self.assertNotIn("INFO", self.command("setup-service", environment={"OCTOAI_LOG_LEVEL": "warning"}).stderr)
        self.assertIn(
            "INFO",
            self.command("--log-level", "info", "setup-service", environment={"OCTOAI_LOG_LEVEL": "ERROR"}).stderr,
        )
        self.assertEqual(self.command("setup-service", environment={"OCTOAI_LOG_LEVEL": "loud"}).returncode, 2)

    def test_wrong_usage(self) -> None:
        """What is wrong is told without a traceback."""
        for arguments, code, reason in (
            (("--service-module", "nothing", "api-schema"), 1, "there is no module nothing"),
            (("--service-class", "Bye", "api-schema"), 1, "has no class Bye"),
            (("generate-usage-examples",), 2, "--format"),
            ((), 2, "COMMAND"),
        ):
            done = self.command(*arguments)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertIn(reason, done.stderr)
            self.assertNotIn("Traceback", done.stderr)
        self.assertEqual(self.command("run", "--async-enable", "maybe").returncode, 2)
        done = self.command("run", environment={"PATH": self.folder})
        self.assertEqual(done.returncode, 1)
        self.assertIn("MILLRACE_COMMAND", done.stderr)

    def test_run(self) -> None:
        """Options become those of the server."""
        program = self.write("#!/bin/sh\nprintf '%s\\n' \"$OCTOAI_LOG_LEVEL\" \"$@\"\n", "millrace")
        os.chmod(program, 0o755)
        model = (
            f',style="octoai",python="{sys.executable}",args="--async-enable=true",limits.run="15m",limits.start="1h"'
        )
        fixed = [
            "--root",
            "service",
            "--http",
            "127.0.0.1:8080",
            "--grpc",
            "off",
            "--limits-keep-alive",
            "900s",
            "--log-level",
            "info",
        ]
        done = self.command("run", environment={"MILLRACE_COMMAND": program})
        self.assertEqual(
            done.stdout.splitlines(),
            ["INFO", "serve", "--model", 'service="./service.py"' + model, *fixed],
            done.stderr,
        )
        done = self.command(
            "--log-level",
            "warning",
            *self.assets,
            "run",
            "--port",
            "1",
            "--host",
            "0.0.0.0",
            "--async-enable",
            "False",
            "--timeout-keep-alive",
            "5",
            "--",
            "--hosts",
            "x",
            environment={"PATH": self.folder + ":/bin"},
        )
        model = model.replace("true", "false").replace(",args", ',class="Assets",args')
        self.assertEqual(
            done.stdout.splitlines(),
            [
                "WARNING",
                "serve",
                "--model",
                'assets="package.assets:Assets"' + model,
                "--root",
                "assets",
                "--http",
                "0.0.0.0:1",
                "--grpc",
                "off",
                "--limits-keep-alive",
                "5s",
                "--log-level",
                "warn",
                "--hosts",
                "x",
            ],
            done.stderr,
        )


class TestTypes(unittest.TestCase):
    """octoai.types by itself."""

    def run_python(self, text: str, *hide: str) -> str:
        """Runs a program that has imported the types, with these modules hidden."""
        hidden = "".join(f"sys.modules[{name!r}] = None\n" for name in hide)
        program = f"import sys\n{hidden}from octoai.types import *\n" + text
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "PYTHONPATH": os.path.join(ROOT, "compat")},
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def test_sound(self) -> None:
        """Samples survive a WAV file, with one channel and with two, without soundfile."""
        if importlib.util.find_spec("numpy") is None:
            self.skipTest("numpy is not installed")
        self.assertEqual(
            self.run_python(
                """
import io, wave, numpy as np
mono = np.array([-1, -0.5, 0, 0.5, 1])
a = Audio.from_numpy(mono, 8000)
got, rate = a.to_numpy()
assert rate == 8000 and np.abs(got - mono).max() < 1e-4, got
two = np.stack([mono, -mono], axis=1)
got, rate = Audio.from_numpy(two, 44100).to_numpy()
assert got.shape == (5, 2) and np.abs(got - two).max() < 1e-4, got
for width in (1, 2, 3, 4):
    file = io.BytesIO()
    with wave.open(file, "wb") as f:
        f.setparams((1, width, 8000, 0, "NONE", ""))
        half = 1 << (8 * width - 2)
        samples = b"".join(v.to_bytes(width, "little", signed=True) for v in (0, half, -half))
        f.writeframes(bytes([128, 192, 64]) if width == 1 else samples)
    got = Audio(data=__import__("base64").b64encode(file.getvalue())).to_numpy()[0]
    assert np.allclose(got, [0, 0.5, -0.5]), (width, got)
assert a.is_valid() and not Audio(data="YQ==").is_valid()
print("ok")
""",
                "soundfile",
            ),
            "ok",
        )

    def test_pictures(self) -> None:
        """Pillow's images survive a PNG file."""
        if importlib.util.find_spec("PIL") is None:
            self.skipTest("Pillow is not installed")
        self.assertEqual(
            self.run_python(
                """
from PIL import Image as Pillow
i = Image.from_pil(Pillow.new("RGB", (3, 2), (1, 2, 3)), format="PNG")
assert i.to_pil().size == (3, 2) and i.to_pil().getpixel((0, 0)) == (1, 2, 3)
assert Image(image_b64=i.image_b64).is_valid() and not Image(data="YQ==").is_valid()
assert Image.from_endpoint_response({"output": {"p": i.model_dump()}}, "p") == i
print("ok")
"""
            ),
            "ok",
        )

    def test_files(self) -> None:
        """Files are read and written; what is missing is told."""
        with tempfile.TemporaryDirectory() as folder:
            name = os.path.join(folder, "f")
            self.assertEqual(
                self.run_python(
                    f"""
Video(data="YWJj").to_file({name!r})
print(Video.from_file({name!r}).to_bytes())
try: Video.from_file("none")
except ValueError as e: print(e)
try: Image.from_endpoint_response({{}}, "p")
except ValueError as e: print(e)
"""
                ),
                "b'abc'\nthere is no file none\nthe response has no 'p'",
            )
            with files(folder) as url:
                self.assertEqual(
                    self.run_python(f"print(Video.from_url({url!r} + '/f', b64=True).to_bytes())"), "b'abc'"
                )
