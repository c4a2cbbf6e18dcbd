"""Applications of Simple Server Framework, without a server."""

import json
import os
import sys
import tempfile
import textwrap
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [p for p in (os.path.join(ROOT, "compat"), ROOT) if p not in sys.path]

from millrace_compat import ssf as _ssf, ssf_config as _ssf_config  # noqa: E402
from millrace._errors import LoadError  # noqa: E402

ARGS = {"api": "fastapi", "key": None, "replicate_application": 1, "fastapi_replicate_server": 1, "modify_config": None}


class Call:
    def __init__(self, endpoint, query="", content_type="application/json", method="POST"):
        self.endpoint, self.query, self.content_type, self.method, self.header = (
            endpoint,
            query,
            content_type,
            method,
            {},
        )


class Request:
    """What the runtime gives the application."""

    def __init__(self, endpoint, body=b"", query="", content_type="application/json", method="POST", user=""):
        self.call, self.user_id, self.cancelled, self.ended, self.answers = (
            Call(endpoint, query, content_type, method),
            user,
            False,
            False,
            [],
        )
        self.body = memoryview(body if isinstance(body, bytes) else json.dumps(body).encode())

    def reply(self, outputs=None, status=200, content_type=None, headers=None):
        assert not self.ended
        self.ended, self.status, self.type, self.headers = True, status, content_type, headers or {}
        self.text = (
            outputs
            if isinstance(outputs, str)
            else bytes(outputs)
            if isinstance(outputs, (bytes, memoryview))
            else json.dumps(outputs)
        )

    def json(self):
        return json.loads(self.text)


def config(module="app.py", inputs=(), outputs=(), **application):
    def params(values):
        return [{"id": n, "type": t} for n, t in values]

    return {
        "ssf_version": "1.0.0",
        "application": {"id": "test", "name": "Test", "version": 1.0, "module": module, **application},
        "endpoints": [{"id": "E", "version": 1, "inputs": params(inputs), "outputs": params(outputs)}],
    }


class SSF(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        self.addCleanup(setattr, sys, "path", list(sys.path))
        self.addCleanup(sys.modules.pop, "test", None)

    def load(self, values, source, **args):
        with open(os.path.join(self.folder.name, "app.py"), "w") as f:
            f.write(
                "from ssf.application_interface.application import SSFApplicationInterface\n"
                "from ssf.application_interface.results import *\n" + textwrap.dedent(source)
            )
        program = type("Program", (), {})()
        program.path = os.path.join(self.folder.name, "ssf_config.yaml")
        program.options = {
            "ssf": {"config": values, "file": program.path, "args": {**ARGS, **args}},
            "hello": {"instance": 3},
        }
        app = _ssf.find(program)
        app.describe()
        app.setup()
        return app

    ECHO = """
    class App(SSFApplicationInterface):
        def build(self): return RESULT_OK
        def startup(self): return RESULT_OK
        def shutdown(self): return RESULT_OK
        def request(self, params, meta):
            if isinstance(params, list): return [dict(p, meta=m) for p, m in zip(params, meta)]
            return dict(params, meta=meta)
    """

    TYPES = [
        ("s", "String"),
        ("i", "Integer"),
        ("f", "Float"),
        ("b", "Boolean"),
        ("ls", "ListString"),
        ("li", "ListInteger"),
        ("lf", "ListFloat"),
        ("lb", "ListBoolean"),
        ("la", "ListAny"),
    ]
    VALUES = {
        "s": "é",
        "i": 7,
        "f": 1.5,
        "b": True,
        "ls": ["a", "b"],
        "li": [1, 2],
        "lf": [0.5],
        "lb": [False, True],
        "la": ["x", 1, None],
    }

    def test_types_of_json(self):
        app = self.load(config(inputs=self.TYPES, outputs=self.TYPES), self.ECHO)
        r = Request("/v1/E", self.VALUES)
        app.run([r])
        self.assertEqual((r.status, r.json()), (200, self.VALUES))
        self.assertEqual(r.type, "application/json")
        self.assertGreaterEqual(float(r.headers["metrics-dispatch-latency"]), 0)
        self.assertIn('"s":"é"', r.text)

    def test_types_of_queries(self):
        values = config(inputs=self.TYPES[:8], outputs=self.TYPES[:8])
        values["endpoints"][0]["http_param_format"] = "query"
        app = self.load(values, self.ECHO)
        r = Request("/v1/E", b"", "s=%C3%A9&i=7&f=1.5&b=on&ls=a&ls=b&li=1&li=2&lf=0.5&lb=no&lb=1")
        app.run([r])
        self.assertEqual((r.status, r.json()), (200, {k: v for k, v in self.VALUES.items() if k != "la"}))

    def test_inputs_that_are_not_as_declared(self):
        app = self.load(config(inputs=self.TYPES, outputs=[]), self.ECHO)
        for change, loc, kind in [
            ({"i": "x"}, ["body", "i"], "type_error.integer"),
            ({"f": []}, ["body", "f"], "type_error.float"),
            ({"b": 7}, ["body", "b"], "type_error.bool"),
            ({"s": {}}, ["body", "s"], "type_error.str"),
            ({"li": 3}, ["body", "li"], "type_error.list"),
            ({"li": [1, "x"]}, ["body", "li", 1], "type_error.integer"),
            ({"s": None}, ["body", "s"], "type_error.none.not_allowed"),
        ]:
            with self.subTest(change):
                r = Request("/v1/E", {**self.VALUES, **change})
                app.run([r])
                self.assertEqual(r.status, 422)
                self.assertEqual([(d["loc"], d["type"]) for d in r.json()["detail"]], [(loc, kind)])
        for body in (b"", b"{", b"[]", b"\xff", b"[" * 100000, b'{"i":' + b"9" * 5000 + b"}"):
            with self.subTest(body[:8]):
                r = Request("/v1/E", body)
                app.run([r])
                self.assertIn(r.status, (400, 422))
        r = Request("/v1/E", {})
        app.run([r])
        self.assertEqual([d["msg"] for d in r.json()["detail"]], ["field required"] * len(self.TYPES))

    def test_files(self):
        app = self.load(
            config(
                inputs=[("file", "TempFile"), ("i", "Integer")], outputs=[("png", "PngImageBytes"), ("i", "Integer")]
            ),
            """
        import os
        class App(SSFApplicationInterface):
            def build(self): return RESULT_OK
            def startup(self): return RESULT_OK
            def shutdown(self): return RESULT_OK
            def request(self, params, meta):
                global seen
                seen = params["file"]
                assert os.path.basename(seen).startswith("test_") and seen.endswith(".png")
                with open(seen, "rb") as f:
                    return {"png": f.read(), "i": params["i"] + 1}
        """,
        )
        body = (
            b'--XX\r\nContent-Disposition: form-data; name="file"; filename="a.png"\r\n'
            b'Content-Type: image/png\r\n\r\nPNG\r\n--data\r\n--XX--\r\n'
        )
        r = Request("/v1/E", body, "i=4", 'multipart/form-data; boundary="XX"')
        app.run([r])
        self.assertEqual((r.status, r.text, r.type, r.headers["i"]), (200, b"PNG\r\n--data", "image/png", "5"))
        self.assertFalse(os.path.exists(sys.modules["test"].seen))
        r = Request("/v1/E", b"", "i=4", "text/plain")
        app.run([r])
        self.assertEqual(
            [(d["loc"], d["type"]) for d in r.json()["detail"]], [(["body", "file"], "value_error.missing")]
        )

    def test_batches_are_lists_in_order(self):
        app = self.load(
            config(inputs=[("i", "Integer")], outputs=[("i", "Integer"), ("meta", "Any")], max_batch_size=4), self.ECHO
        )
        requests = [Request("/v1/E", {"i": i}, user="u%d" % i) for i in range(3)] + [Request("/v1/E", {"i": "x"})]
        app.run(requests)
        self.assertEqual([r.status for r in requests], [200, 200, 200, 422])
        self.assertEqual([r.json()["i"] for r in requests[:3]], [0, 1, 2])
        self.assertEqual(
            requests[1].json()["meta"],
            {"endpoint_id": "E", "endpoint_version": "1", "endpoint_index": 0, "replica": 3, "user_id": "u1"},
        )

    def test_failures_end_the_process_behind_the_answers(self):
        for name, batch, source, code in [
            ("raises", 1, "raise ValueError('x')", 32),
            ("raises in a batch", 4, "raise ValueError('x')", 32),
            ("list", 1, "return [1]", 32),
            ("dict for a batch", 4, "return {}", 32),
            ("unmet", 1, "raise SSFExceptionUnmetRequirement('x')", 255),
        ]:
            with self.subTest(name):
                sys.modules.pop("test", None)
                app = self.load(
                    config(inputs=[("i", "Integer")], outputs=[], max_batch_size=batch),
                    self.ECHO.replace("if isinstance", source + "\n            if isinstance"),
                )
                requests = [Request("/v1/E", {"i": i}) for i in range(2)]
                self.assertIsNone(app.ends)
                with self.assertLogs("ssf", "ERROR"):
                    app.run(requests)
                self.assertEqual(app.ends[1], code)
                self.assertEqual(
                    [(r.status, r.json()) for r in requests],
                    [(400, {"detail": "There was an error processing inputs"})] * 2,
                )

    def test_outputs_that_are_not_as_declared(self):
        app = self.load(
            config(inputs=[("i", "Integer")], outputs=[("o", "Float")], max_batch_size=8),
            """
        class App(SSFApplicationInterface):
            def build(self): return RESULT_OK
            def startup(self): return RESULT_OK
            def shutdown(self): return RESULT_OK
            def request(self, params, meta):
                return [{"o": 1}, {}, {"o": "x"}, {"o": float("nan")}, {"o": [1]}]
        """,
        )
        requests = [Request("/v1/E", {"i": i}) for i in range(6)]
        with self.assertLogs("ssf", "ERROR"):
            app.run(requests)
        self.assertEqual([r.status for r in requests], [200, 400, 400, 400, 400, 400])

    def test_interfaces(self):
        one = self.ECHO
        for name, source, want in [
            ("none", "x = 1", "no classes"),
            ("two", one + one.replace("App(", "Other("), "2 classes"),
            ("lacks a method", one.replace("def build(self): return RESULT_OK", ""), "abstract"),
            ("raises", "1/0", "division"),
            ("module", "import nowhere_to_be_found", "nowhere_to_be_found"),
        ]:
            with self.subTest(name):
                sys.modules.pop("test", None)
                with self.assertRaisesRegex(LoadError, want):
                    self.load(config(inputs=[("i", "Integer")]), source)
        sys.modules.pop("test", None)
        app = self.load(
            config(inputs=[("i", "Integer")]),
            one
            + """
    class Old(App):
        healthy = True
        def __init__(self, config): self.config = config
        def is_healthy(self): return self.healthy
    def create_ssf_application_instance(ssf_config): return Old(ssf_config)
    """,
        )
        self.assertEqual(app.interface.config.application.id, "test")
        app.watchdog()
        app.interface.healthy = False
        with self.assertRaisesRegex(Exception, "RESULT_APPLICATION_ERROR"):
            app.watchdog()

    def test_startup_returns_a_code(self):
        with self.assertRaisesRegex(Exception, r"startup returned RESULT_FAIL \(2\)"):
            self.load(
                config(inputs=[("i", "Integer")]),
                self.ECHO.replace("startup(self): return RESULT_OK", "startup(self): return RESULT_FAIL"),
            )

    def test_grpc(self):
        import base64

        app = self.load(
            config(inputs=self.TYPES[:8] + [("file", "TempFile")], outputs=self.TYPES[:8]), self.ECHO, api="grpc"
        )

        def b(*words):
            return {"contents": "bytes", "values": [base64.b64encode(w.encode()).decode() for w in words]}

        inputs = {
            "s": b("é"),
            "i": {"contents": "int", "values": [7]},
            "f": {"contents": "fp64", "values": [1.5]},
            "b": {"contents": "bool", "values": [True]},
            "ls": b("a", "b"),
            "li": {"contents": "int", "values": [1, 2]},
            "lf": {"contents": "fp64", "values": [0.5]},
            "lb": {"contents": "bool", "values": [False, True]},
            "file": {**b("x"), "file_name": "a.txt"},
        }
        r = Request("", {"inputs": inputs}, method="GRPC")
        app.run([r])
        self.assertEqual(r.status, 200)
        self.assertEqual(
            [(o["name"], o["datatype"], o["contents"]) for o in r.json()["outputs"]][:4],
            [("s", "BYTE_STRING", "bytes"), ("i", "INT32", "int"), ("f", "FP64", "fp64"), ("b", "BOOL", "bool")],
        )
        self.assertEqual([o["values"] for o in r.json()["outputs"]][1:4], [[7], [1.5], [True]])
        for change, want in [
            ({"endpoint": "X"}, "not found"),
            ({"version": "2"}, "version '2'"),
            ({"inputs": {}}, "not found"),
            ({"inputs": {**inputs, "i": inputs["f"]}}, "int_contents not set"),
            ({"inputs": {**inputs, "file": b("x")}}, "file_name"),
        ]:
            r = Request("", {"inputs": inputs, **change}, method="GRPC")
            app.run([r])
            self.assertEqual(r.status, 400)
            self.assertIn(want, r.json()["detail"])

    def test_openapi(self):
        values = config(inputs=self.TYPES, outputs=self.TYPES)
        for p, example in zip(
            values["endpoints"][0]["inputs"],
            ("a", 1, "1.5", False, "a,b,c", "1,2,3", "1.2,2.2", "False,True", "hello,1"),
        ):
            p["example"] = example
        values["endpoints"].append(
            {
                "id": "Q",
                "version": 2,
                "http_param_format": "query",
                "inputs": [{"id": "x", "type": "Integer", "example": 102}],
                "outputs": [],
            }
        )
        api = self.load(values, self.ECHO).describe()["app"]["openapi"]
        ref = api["paths"]["/v1/E"]["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"].split("/")[
            -1
        ]
        self.assertEqual(
            api["components"]["schemas"][ref]["examples"],
            [
                {
                    "s": "a",
                    "i": 1,
                    "f": 1.5,
                    "b": False,
                    "ls": ["a", "b", "c"],
                    "li": [1, 2, 3],
                    "lf": [1.2, 2.2],
                    "lb": [False, True],
                    "la": ["hello", "1"],
                }
            ],
        )
        self.assertEqual(api["paths"]["/v2/Q"]["post"]["parameters"][0]["example"], 102)
        self.assertEqual(api["info"]["title"], "Test (unsecure)")


class Config(unittest.TestCase):
    def read(self, values, **args):
        return _ssf_config.read(values, "/nowhere/ssf_config.yaml", {**ARGS, **args})

    def test_faults_name_the_field(self):
        from ssf.results import SSFExceptionApplicationConfigError

        def endpoint(**changes):
            c = config(inputs=[("x", "Integer")])
            c["endpoints"][0].update(changes)
            return c

        for values, want in [
            ([], "no fields"),
            ({}, "application"),
            ({"application": {"module": "x"}}, "endpoints"),
            ({"application": {}, "endpoints": [{}]}, "application.module"),
            (config(max_batch_size="x"), "max_batch_size"),
            (endpoint(id="a b"), r"endpoints\[0\].id"),
            (endpoint(custom="x.py"), "custom"),
            (endpoint(http_param_format="xml"), "http_param_format"),
            (endpoint(inputs=[{"id": "x"}]), r"inputs\[0\].type"),
            (endpoint(inputs=[{"type": "Complex"}]), "Complex"),
            (endpoint(outputs=[{"type": "TempFile"}]), "TempFile"),
            (endpoint(inputs=[{"type": "PngImageBytes"}]), "PngImageBytes"),
            (endpoint(inputs=[{"type": "Integer", "example": "x"}]), "example"),
            (endpoint(outputs=[{"id": i, "type": "PngImageBytes"} for i in "ab"]), "several"),
            ({**config(), "ssf_version": "9.0.0"}, "ssf_version"),
            (config(id="{{nowhere}}"), "nowhere"),
            ({**config(), "endpoints": config()["endpoints"] * 2}, "there already"),
        ]:
            with self.subTest(want), self.assertRaisesRegex(SSFExceptionApplicationConfigError, want):
                self.read(values)

    def test_modify_and_expand(self):
        from ssf.results import SSFExceptionApplicationConfigError

        values = {
            **config(trace=True, tag="{{application.id}}:{{application.version}}{{nothing:-x}}"),
            "list": ["a", "b"],
            "n": 1,
        }
        c = self.read(
            values,
            modify_config="application.trace=False;n=5;list[3]=d;new.field=1;application.id=other;"
            "endpoints[0].version=7",
        )
        self.assertEqual(
            (c.config_dict["n"], c.config_dict["list"], c.config_dict["new"], c.application.trace),
            (5, ["a", "b", None, "d"], {"field": "1"}, False),
        )
        self.assertEqual((values["application"]["tag"], c.endpoints[0].version), ("other:1.0-x", 7))
        for change in (
            "n",
            "n=x",
            "application=x",
            "n.x=1",
            "list=x",
            "n[0]=1",
            "list[9999]=x",
            "application.trace=no",
            "[0]=1",
        ):
            with self.subTest(change), self.assertRaisesRegex(SSFExceptionApplicationConfigError, "--modify-config"):
                self.read({**config(trace=True), "list": [], "n": 1}, modify_config=change)


if __name__ == "__main__":
    unittest.main()
