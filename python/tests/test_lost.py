"""Connections of the client without asyncio that are lost, closed or encrypted, to a real server."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest

from millrace.client import Client, MillraceError
from tests.server import Server, Way, needs_server
from tests.clients import Fails, WithServer


class TestLostConnections(WithServer):
    """Connections that break, and servers that end."""

    def setUp(self) -> None:
        super().setUp()
        self.way = Way(self.server.port)
        self.addCleanup(self.way.close)
        self.client = Client(self.way.addr, timeout=30)
        self.addCleanup(self.client.close)
        self.changes: list[str] = []
        self.again = threading.Event()

    def note(self, what, error) -> None:
        self.changes.append(what)
        if what != "lost":
            self.again.set()

    def test_a_session_is_resumed(self):
        with self.client.open("slow", policy="every", window=4, session={"on_connection": self.note}) as stream:
            seqs, lost = [], 0
            for result in stream.map(b"%d" % i for i in range(40)):
                if result.seq in (5, 20) and result.type == "result":
                    self.way.cut()
                seqs.append(result.seq)
                lost += result.lost
            self.assertEqual(seqs, list(range(40)))
            self.assertEqual(self.changes, ["lost", "resumed"] * 2)
            self.assertLessEqual(lost, 8)
            counts = stream.counts
            self.assertEqual(counts["sent"], counts["results"] + counts["errors"])
            totals = stream.close()
            self.assertEqual(totals["results"], 40 - lost)

    def test_changes_hold_after_a_lost_connection(self):
        with self.client.open("id", policy="every", window=8, session={"on_connection": self.note}) as stream:
            stream.update(outputs="none")
            stream.send(b"x")
            stream.receive()
            stream.pause()
            self.way.cut()
            self.again.wait()
            for _ in range(3):
                stream.send(b"x")
            self.assertIsNone(stream.receive(timeout=0.05))
            stream.resume()
            self.assertEqual(
                [(r.seq, r.outputs) for r in (stream.receive() for _ in range(3))], [(1, {}), (2, {}), (3, {})]
            )

    def test_without_time_to_give_up_it_ends(self):
        with self.client.session(give_up=0) as session:
            stream = session.open("long", policy="every")
            stream.send(b"x")
            self.way.cut()
            result = stream.receive()
            self.assertTrue(result.lost, result)
            with self.assertRaises(MillraceError) as caught:
                stream.receive()
            self.check(caught.exception, "unavailable")
            self.assertEqual(session.error.code, "unavailable")

    def test_a_server_that_is_killed_and_started_again(self):
        server = Server("--model", "id=identity", "--model", "long=delay,fixed=1m")
        self.addCleanup(lambda: server.process.poll() is None and server.stop())
        with Client(server.addr) as client, client.session(on_connection=self.note) as session:
            stream, other = session.open("id", policy="every"), session.open("long", policy="every")
            stream.send(b"a")
            self.assertEqual(stream.receive().type, "result")
            other.send(b"in flight")
            server.stop(signal.SIGKILL)
            server.start()
            self.assertTrue(other.receive().lost)
            self.assertEqual(stream.send(b"b"), 1)  # waits until the stream is open again
            self.assertEqual((stream.receive().seq, self.changes), (1, ["lost", "reopened"]))
            self.assertEqual(self.client.live(), True)

    def test_a_model_that_is_still_loaded_after_the_restart(self):
        """The stream is refused, since the server listens before its models are loaded, and opened again."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "service.py")
            with open(path, "w", encoding="utf-8") as f:
                f.write(
                    "import time\nclass Slow:\n    def setup(self):\n        time.sleep(1)\n    def infer(self, text: "
                    "str) -> str:\n        return text\n"
                )
            server = Server("--model", f"words={path},python={sys.executable}")
            self.addCleanup(lambda: server.process.poll() is None and server.stop())
            with Client(server.addr) as client, client.open(
                "words", policy="every", session={"on_connection": self.note}
            ) as stream:
                server.stop(signal.SIGKILL)
                server.start()
                stream.send({"text": "a"})
                self.assertEqual((stream.receive().type, self.changes), ("result", ["lost", "reopened"]))

    def test_a_server_that_shuts_down(self):
        server = Server("--model", "slow=delay,fixed=40ms")
        with Client(server.addr) as client:
            stream = client.open("slow", policy="every")
            stream.send(b"x")
            server.stop()
            with self.assertRaises(MillraceError) as caught:
                list(stream)
            self.check(caught.exception, "draining")
            self.assertEqual(stream.counts["waiting"], 0)
            self.assertGreater(stream._async._session.state.going_away, 0)


@needs_server
class TestClose(Fails):
    """A client that is closed while others use it."""

    def test_session_that_is_being_opened(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            client = Client("127.0.0.1:%d" % silent.getsockname()[1])
            errors: list = []

            def open_session() -> None:
                try:
                    client.session()
                except MillraceError as e:
                    errors.append(e.code)

            thread = threading.Thread(target=open_session, daemon=True)
            thread.start()
            connection, _ = silent.accept()
            with connection:
                client.close()
                thread.join(30)
            self.assertEqual((thread.is_alive(), errors), (False, ["canceled"]))


class TestTLS(Fails):
    """Encrypted connections."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.dir = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.dir.cleanup)
        cls.cert, key = (os.path.join(cls.dir.name, name) for name in ("cert.pem", "key.pem"))
        subprocess.run(
            [
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-keyout",
                key,
                "-out",
                cls.cert,
                "-days",
                "2",
                "-subj",
                "/CN=localhost",
                "-addext",
                "subjectAltName=IP:127.0.0.1",
            ],
            check=True,
            capture_output=True,
        )
        cls.server = Server("--model", "id=identity", "--tls-cert", cls.cert, "--tls-key", key)
        cls.addClassCleanup(cls.server.stop)

    def test_certificates(self):
        with open(self.cert) as f:
            digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(f.read())).hexdigest()
        colons = ":".join(digest[i : i + 2] for i in range(0, 64, 2)).upper()
        for options in (
            {"ca": self.cert},
            {"fingerprint": digest},
            {"fingerprint": colons},
            {"ssl_context": ssl.create_default_context(cafile=self.cert)},
        ):
            with self.subTest(options), Client(self.server.addr, **options) as client:
                self.assertTrue(client.live())
                with client.open("id", policy="every") as stream:
                    self.assertEqual([r.type for r in stream.map([os.urandom(300_000)] * 3)], ["result"] * 3)
        for options in ({}, {"fingerprint": "00" * 32}):
            with self.subTest(options), Client(self.server.addr, **options) as client:
                error = self.fails("unavailable", None, client.live)
                if options:
                    self.assertIn(colons, str(error))
                self.fails("unavailable", None, client.open, "id")


if __name__ == "__main__":
    unittest.main()
