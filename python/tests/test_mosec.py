"""Programs that were written for mosec, in child processes."""

from __future__ import annotations

import json
import os
import textwrap
import time
import unittest
from typing import Any

from .peer import Failed, Peer, TestCase

SQUARE = """
import os, time
from mosec import Server, ServerError, ValidationError, Worker

class First(Worker):
    def forward(self, data):
        if "x" not in data:
            raise ValidationError("x is missing")
        return data["x"]

class Square(Worker):
    example = [1, 2]
    calls = 0
    def forward(self, data):
        Square.calls += 1
        if any(x == "slow" for x in data):
            time.sleep(3600)
        if any(x == "ours" for x in data):
            raise ServerError("we\\nknow")
        if any(x == "short" for x in data):
            return data[:-1]
        return [x * x for x in data]

class Last(Worker):
    resp_mime_type = "text/last"
    def forward(self, data):
        who, main = os.environ.get("WHO"), os.environ.get("FROM_MAIN")
        return {"y": data, "worker": self.worker_id, "stage": self.stage, "who": who, "main": main}

if __name__ == "__main__":
    os.environ["FROM_MAIN"] = "yes"
    server = Server()
    server.append_worker(First)
    server.append_worker(Square, max_batch_size=4, max_wait_time=5, timeout=60)
    server.append_worker(Last, num=2, env=[{"WHO": "a"}, {"WHO": "b"}])
    server.run()
    print("the end of the program")
"""


class Folder(TestCase):
    """A test with a folder for programs."""

    def write(self, text: str, name: str = "app.py") -> str:
        return super().write(text, name)

    def describe(self, text: str, *argv: str, environment: dict[str, str] | None = None) -> dict[str, Any]:
        """Returns the description of a program."""
        with Peer(self.write(text), list(argv), environment=environment, cwd=self.folder) as p:
            code, out = p.close()
            self.assertEqual(code, 0, out)
            return p.model

    def stage(self, model: dict[str, Any], name: str, instance: int = 0, argv: list[str] | None = None) -> Peer:
        """Starts a process of a stage."""
        stage = next(s for s in model["stages"] if s["name"] == name)
        return Peer(
            os.path.join(self.folder, "app.py"),
            argv,
            cwd=self.folder,
            hello={"instance": instance},
            **{"stage": stage["stage"]},
        )


def call(endpoint: str, body: bytes) -> dict[str, Any]:
    return {"rows": 1, "body": body, "call": {"endpoint": endpoint, "method": "POST", "path": "/inference"}}


def text_of(answer: dict[str, Any]) -> str:
    return answer["body"].decode()


class TestProgram(Folder):
    """The main process."""

    def test_description(self) -> None:
        m = self.describe(SQUARE, "--port", "5000", "--capacity", "7", environment={"MOSEC_TIMEOUT": "1234"})
        self.assertEqual(
            [(s["name"], s["instances"], s["max_batch"], s["wait_ms"]) for s in m["stages"]],
            [("First_1", 1, 1, 10), ("Square_2", 1, 4, 5), ("Last_3", 2, 1, 10)],
        )
        (route,) = m["app"]["routes"]
        self.assertEqual(
            (route["path"], route["model"], route["endpoint"], route["content_type"]),
            ("/inference", "inference", "first", "text/last"),
        )
        (graph,) = m["graphs"]
        self.assertEqual(
            [(s["stage"], s["endpoint"], s["input"], s["output"]) for s in graph["steps"]],
            [
                ("First_1", "first", {"body": "body0"}, {"body": "body1"}),
                ("Square_2", "middle", {"body": "body1"}, {"body": "body2"}),
                ("Last_3", "last", {"body": "body2"}, {"body": "body3"}),
            ],
        )
        self.assertEqual(
            m["app"]["extra"],
            {
                "port": 5000,
                "capacity": 7,
                "timeout_ms": 1234,
                "namespace": "mosec_service",
                "max_request_size": 10485760,
                "compression": False,
            },
        )

    def test_end(self) -> None:
        """Server.run() returns when the server closes the program, which goes on."""
        with Peer(self.write(SQUARE), cwd=self.folder) as p:
            code, out = p.close()
            self.assertEqual(code, 0)
            self.assertIn("the end of the program", out + "".join(p.lines()))

    def test_one_stage(self) -> None:
        """A route of one stage needs no graph, and a stage may have several routes."""
        m = self.describe(
            """
            from mosec import Server, SSEWorker
            class W(SSEWorker):
                def forward(self, data): return data
            server = Server()
            server.append_worker(W, route=["/a", "/b/c"])
            server.run()
        """
        )
        self.assertEqual(
            [(r["path"], r["model"], r["endpoint"], r["events"]) for r in m["app"]["routes"]],
            [("/a", "W_1", "only", True), ("/b/c", "W_1", "only", True)],
        )
        self.assertEqual(m["graphs"], [])

    def test_shared_stages(self) -> None:
        m = self.describe(
            """
            from mosec import Runtime, Server, Worker
            class A(Worker):
                def forward(self, data): return data
            class B(A): pass
            if __name__ == "__main__":
                a, b = Runtime(A), Runtime(B, max_batch_size=2)
                server = Server()
                server.register_runtime({"/x": [a, b], "/y": [b], "/z": [a, b, a]})
                server.run()
        """
        )
        self.assertEqual([s["name"] for s in m["stages"]], ["A_1", "B_2"])
        self.assertEqual(
            [[(s["stage"], s["endpoint"]) for s in g["steps"]] for g in m["graphs"]],
            [[("A_1", "first"), ("B_2", "last")], [("A_1", "first"), ("B_2", "middle"), ("A_1", "last")]],
        )
        self.assertEqual(
            [(r["path"], r["endpoint"]) for r in m["app"]["routes"]], [("/x", "first"), ("/y", "only"), ("/z", "first")]
        )
        self.assertEqual([s["name"] for s in m["graphs"][1]["steps"]], ["A_1.0", "B_2", "A_1.2"])

    def test_daemon(self) -> None:
        """The process ends with the name of a daemon that has exited."""
        with Peer(
            self.write(
                """
            import subprocess, sys
            from mosec import Server, Worker
            class W(Worker):
                def forward(self, data): return data
            if __name__ == "__main__":
                server = Server()
                server.append_worker(W)
                keeper = [sys.executable, "-c", "input(); raise SystemExit(3)"]
                server.register_daemon("keeper", subprocess.Popen(keeper, stdin=subprocess.PIPE))
                wait = "while not os.path.exists('ready'): time.sleep(0.01)"
                until = chr(10).join(["import os, time", wait, "raise SystemExit(4)"])
                server.register_daemon("reader", subprocess.Popen([sys.executable, "-c", until]))
                server.run()
        """
            ),
            cwd=self.folder,
        ) as p:
            open(os.path.join(self.folder, "ready"), "x").close()
            while p.receive_or_end():
                pass
            self.assertEqual(p.process.wait(60), 1)
            self.assertIn(
                b"mosec daemon [reader] exited on error code: 4\n", p.process.stderr.read()
            )  # which is part of the reason
            self.assertEqual(p.model["app"]["extra"]["daemons"], ["keeper", "reader"])

    def test_run_that_fails(self) -> None:
        """What the program has started, which has its standard error, is not waited for."""
        with self.assertRaises(Failed) as failed:
            Peer(
                self.write(
                    """
                import subprocess
                from mosec import Server
                subprocess.Popen(["sleep", "1000"])
                Server().run()
            """
                ),
                cwd=self.folder,
            )
        self.assertIn("no worker registered", failed.exception.message["message"])

    def test_refused(self) -> None:
        """What is wrong is said before anything is served."""
        head = """
            from mosec import Runtime, Server, Worker
            class W(Worker):
                def forward(self, data): return data
        """
        ends = {
            "Server().run()": "no worker registered",
            "Server().append_worker(W)": "app.py ended (exit code 0) without Server.run()",
            "raise SystemExit(3)": "ended (exit code 3) without Server.run()",
        }
        for body, says in ends.items():
            with self.subTest(body), self.assertRaises(Failed) as failed:
                Peer(self.write(textwrap.dedent(head) + body + "\n"), cwd=self.folder)
            self.assertIn(says, failed.exception.message["message"])
        wrong = {
            "Server().append_worker(W, route='/metrics')": "'/metrics' is reserved",
            "Server().register_runtime({'/': [Runtime(W)]})": "'/' is reserved",
            "Server().append_worker(W, route=['/a', '/openapi'])": "'/openapi' is reserved",
            "Server().append_worker(W, num=0)": "worker number is 0, but must be at least 1",
            "Server().append_worker(W, max_batch_size='2')": "maximum batch size must be an integer",
            "Server().append_worker(W, env=[{}, {}])": "env has 2 entries for 1 processes",
            "Server().append_worker(W, start_method='thread')": "start_method is 'thread'",
            "Server().append_worker(int)": "worker must be inherited from mosec.Worker",
            "s = Server(); s.append_worker(W); s.register_runtime({})": "needs a server without stages",
        }
        got = self.refusals([(textwrap.dedent(head) + body + "\n", [], {}) for body in wrong])
        self.assertEqual(len(got), len(wrong), got)
        for line, (body, says) in zip(got, wrong.items()):
            with self.subTest(body):
                self.assertIn(says, line)

    def test_dry_run(self) -> None:
        """The example goes through all stages once."""
        program = """
            from mosec import Server, Worker
            class A(Worker):
                example = {"x": EXAMPLE}
                def forward(self, data): return 6 / data["x"]
            class B(Worker):
                def forward(self, data): return [x + 1 for x in data]
            if __name__ == "__main__":
                server = Server()
                server.append_worker(A)
                server.append_worker(B, max_batch_size=2)
                server.run()
        """
        for example, code in {"2": 0, "0": 1}.items():
            with self.assertRaises(Failed) as failed:
                Peer(self.write(program.replace("EXAMPLE", example)), ["--dry-run"], cwd=self.folder)
            self.assertEqual(failed.exception.message.get("kind"), "ended")
            self.assertIn(f"(exit code {code})", failed.exception.message["message"])


class TestStage(Folder):
    """Processes of stages."""

    def test_stages(self) -> None:
        """Bodies go from stage to stage."""
        m = self.describe(SQUARE)
        with self.stage(m, "First_1") as first, self.stage(m, "Square_2") as square, self.stage(
            m, "Last_3", instance=1
        ) as last:
            a, bad, short = (
                first.batch([call("first", b'{"x": 3}')])[0],
                first.batch([call("first", b"{")])[0],
                first.batch([call("first", b"{}")])[0],
            )
            self.assertEqual((bad["reply"]["status"], text_of(bad)), (400, "decoding error: decoding error"))
            self.assertEqual(
                (short["reply"]["status"], text_of(short)), (422, "request validation error: x is missing")
            )
            body = a["body"]
            b = square.batch([call("middle", body), call("middle", body)])[1]
            c = last.batch([call("last", b["body"])])[0]
            self.assertEqual(
                json.loads(text_of(c)), {"y": 9, "worker": 2, "stage": "Last_3", "who": "b", "main": "yes"}
            )
            self.assertEqual((c["reply"]["status"], c["reply"]["content_type"]), (200, "text/last"))

    def test_stages_of_other_routes(self) -> None:
        """A stage that has become the last, or another one, still serves the graphs from before."""
        import pickle

        m = self.describe(SQUARE)
        with self.stage(m, "Last_3") as p:
            answers = (
                p.batch([call("middle", pickle.dumps(3))])
                + p.batch([call("last", pickle.dumps(3))])
                + p.batch([call("only", b"3")])
            )
            self.assertEqual(
                [pickle.loads(answers[0]["body"])["y"], *(json.loads(text_of(a))["y"] for a in answers[1:])], [3, 3, 3]
            )

    def test_one_fails_alone(self) -> None:
        """A request for which forward raises does not fail those of its batch."""
        import pickle

        def ask(p: Peer, *values: Any) -> list[tuple[int, Any]]:
            answers = p.batch([call("middle", pickle.dumps(v)) for v in values])
            return [
                (a["reply"]["status"], pickle.loads(a["body"]) if a["reply"]["status"] == 200 else text_of(a))
                for a in answers
            ]

        m = self.describe(SQUARE)
        with self.stage(m, "Square_2") as p:
            self.assertEqual(ask(p, 2, "text", 3), [(200, 4), (500, "inference internal error"), (200, 9)])
            self.assertEqual(ask(p, 2, "ours"), [(200, 4), (500, "internal error: we - know")])
            self.assertEqual(ask(p, "short", 5), [(500, "inference internal error"), (200, 25)])
        (square,) = (s for s in m["stages"] if s["name"] == "Square_2")
        square["stage"] = json.dumps({**json.loads(square["stage"]), "timeout": 0.3})
        with self.stage(m, "Square_2") as p:
            (slow, slower) = ask(p, "slow", 5)
            self.assertEqual((slow[0], slower[0]), (408, 408))
            self.assertTrue(slow[1].startswith("mosec timeout error: [14]`forward` timeout after 0.3s: "), slow[1])
            answers = (ask(p, 4) for _ in range(100))  # on a busy machine this may also take longer than 0.3 s
            self.assertEqual(next(a for a in answers if a[0][0] != 408), [(200, 16)])

    def test_only_routes_reach_a_stage(self) -> None:
        """Frames without a route's call are not unpickled."""
        m = self.describe(SQUARE)
        with self.stage(m, "Square_2") as p:
            for request in (
                {"rows": 1, "body": b"cposix\nsystem\n(S'false'\ntR."},
                call("/inference 0", b"1"),
                call("", b"1"),
            ):
                (a,) = p.batch([request])
                self.assertEqual(a["error"]["code"], "unsupported")
                self.assertIn("send requests to the application's routes", a["error"]["message"])

    def test_events(self) -> None:
        m = self.describe(
            """
            from mosec import Server, SSEWorker, ValidationError
            class W(SSEWorker):
                example = ["warm"]
                def forward(self, data):
                    for i in range(3):
                        for k, text in enumerate(data):
                            self.send_stream_event(f"{text} {i}", index=k)
                    if "bad" in data:
                        raise ValidationError("bad text")
                    return data
            if __name__ == "__main__":
                server = Server()
                server.append_worker(W, max_batch_size=2)
                server.run()
        """
        )
        with self.stage(m, "W_1") as p:
            answers = p.batch([call("only", b'"a"'), call("only", b'"bad"')])
            self.assertEqual(
                [a["reply"]["status"] for a in answers], [422, 422]
            )  # after events, nothing is tried again
            self.assertEqual(len(p.parts), 6)

    def test_classes_that_cannot_be_imported(self) -> None:
        """The program is run up to Server.run() for them."""
        m = self.describe(
            """
            from mosec import Server, Worker
            if __name__ == "__main__":
                class W(Worker):
                    def forward(self, data): return data + 1
                server = Server()
                server.append_worker(W, start_method="fork")
                server.run()
        """
        )
        with self.stage(m, "W_1") as p:
            self.assertEqual(text_of(p.batch([call("only", b"1")])[0]), "2")
        spawned = {
            **m,
            "stages": [{**m["stages"][0], "stage": json.dumps({**json.loads(m["stages"][0]["stage"]), "main": False})}],
        }
        with self.assertRaises(Failed) as failed:
            self.stage(spawned, "W_1")
        self.assertIn("has no class W when it is imported", failed.exception.message["message"])

    def test_run_without_guard(self) -> None:
        """A program that calls Server.run() while it is imported is refused."""
        m = self.describe(
            """
            from mosec import Server, Worker
            class W(Worker):
                def forward(self, data): return data
            server = Server()
            server.append_worker(W)
            server.run()
        """
        )
        with self.assertRaises(Failed) as failed:
            self.stage(m, "W_1")
        self.assertIn('put it behind `if __name__ == "__main__":`', failed.exception.message["message"])

    def test_warm_up_that_fails(self) -> None:
        """It is logged, and the stage is served."""
        m = self.describe(
            """
            from mosec import Server, Worker
            class W(Worker):
                multi_examples = [1, "x"]
                def forward(self, data): return data + 1
            if __name__ == "__main__":
                server = Server()
                server.append_worker(W)
                server.run()
        """
        )
        with self.stage(m, "W_1") as p:
            self.assertTrue(any("warmup failed" in line for line in p.lines()), p.logs)
            self.assertEqual(text_of(p.batch([call("only", b"1")])[0]), "2")


class TestMixins(Folder):
    """Other forms of bodies and of data between stages."""

    def test_msgpack(self) -> None:
        try:
            import msgpack
        except ImportError:
            self.skipTest("needs Debian's python3-msgpack")
        m = self.describe(
            """
            from mosec import Server, Worker
            from mosec.mixin import MsgpackMixin
            class W(MsgpackMixin, Worker):
                def forward(self, data): return {"n": len(data["a"]), "b": data["b"]}
            class Bad(MsgpackMixin, Worker):
                def forward(self, data): return {"x": object()}
            if __name__ == "__main__":
                server = Server()
                server.append_worker(W, route="/w")
                server.append_worker(Bad, route="/bad")
                server.run()
        """
        )
        with self.stage(m, "W_1") as p, self.stage(m, "Bad_2") as bad:
            (a,) = p.batch([call("only", msgpack.packb({"a": [1, 2], "b": b"x"}))])
            self.assertEqual(
                (msgpack.unpackb(a["body"]), a["reply"]["content_type"]), ({"n": 2, "b": b"x"}, "application/msgpack")
            )
            (a,) = p.batch([call("only", b"\xc1")])
            self.assertEqual((a["reply"]["status"], text_of(a)), (400, "decoding error: decoding error"))
            (a,) = bad.batch([call("only", msgpack.packb(1))])
            self.assertEqual((a["reply"]["status"], text_of(a)), (500, "encoding error: encoding error"))

    def test_redis(self) -> None:
        """Data wait in a Redis server, which the program has started and registered."""
        import shutil

        if not shutil.which("redis-server"):
            self.skipTest("needs Debian's redis-server and python3-redis")
        m = None
        program = """
            import os, subprocess
            from mosec import Server, Worker
            from mosec.mixin import RedisShmIPCMixin
            class A(RedisShmIPCMixin, Worker):
                def forward(self, data): return {"x": data["x"] + 1}
            class B(RedisShmIPCMixin, Worker):
                def forward(self, data): return data["x"] * 10
            if __name__ == "__main__":
                socket = os.path.join(os.getcwd(), "redis.sock")
                command = ["redis-server", "--port", "0", "--unixsocket", socket, "--save", ""]
                with subprocess.Popen(command, stdout=subprocess.DEVNULL) as redis:
                    try:
                        RedisShmIPCMixin.set_redis_url("unix://" + socket)
                        server = Server()
                        server.register_daemon("redis", redis)
                        server.append_worker(A)
                        server.append_worker(B)
                        server.run()
                    finally:
                        redis.terminate()
        """
        with Peer(self.write(program), cwd=self.folder) as main:
            m = main.model
            until(os.path.join(self.folder, "redis.sock"))
            with self.stage(m, "A_1") as a, self.stage(m, "B_2") as b:
                for _ in range(2):
                    number = a.batch([call("first", b'{"x": 4}')])[0]["body"]
                    self.assertTrue(number.isdigit(), number)
                    self.assertEqual(text_of(b.batch([call("last", number)])[0]), "50")
                (gone,) = b.batch([call("last", number)])
                self.assertEqual(gone["reply"]["status"], 500)
            main.send({"type": "check"})
            self.assertTrue(main.expect("checked")["ok"])
            self.assertEqual(main.close()[0], 0)


def until(path: str) -> None:
    """Waits until a file is there."""
    end = time.monotonic() + 60
    while not os.path.exists(path):
        if time.monotonic() > end:
            raise AssertionError(f"{path} is not there after a minute")
        time.sleep(0.01)


if __name__ == "__main__":
    unittest.main()
