"""The server's side of the protocol (docs/process.md), for tests of the child: starts one and speaks to it."""

from __future__ import annotations

import array
import itertools
import json
import mmap
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import textwrap
import unittest
from typing import Any

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CHILD = os.path.join(ROOT, "millrace", "_child.py")

SHORT = bool(os.environ.get("TEST_SHORT"))
"""Tests that repeat others in a variant are left out, as by go test -short."""

# The programs that the tests start share their compiled modules, outside of the checkout: also those of the standard
# library, which each would compile again if it might not write them.
COMPILED = os.environ.setdefault(
    "PYTHONPYCACHEPREFIX", os.path.join(tempfile.gettempdir(), f"millrace-tests-{os.getuid()}")
)
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

_TIMES = itertools.count(1_000_000_000)
"""Seconds at which files were changed: no two are equal, since Python tells by them and by the size whether a compiled
module is old.
"""


class Failed(Exception):
    """The child's message `failed`, which is `message`."""

    def __init__(self, message: dict[str, Any]):
        super().__init__(f"{message['message']}\n{message.get('traceback', '')}")
        self.message = message


class Peer:
    """A child with a program. Use as a context manager.

    logs has its messages `log`, parts its messages `part` since the last batch.
    """

    def __init__(
        self,
        source: str,
        argv: list[str] | None = None,
        interpreter: str = sys.executable,
        environment: dict[str, str] | None = None,
        cwd: str | None = None,
        hello: dict[str, Any] | None = None,
        setup: bool = True,
        **options: Any,
    ):
        ours, theirs = socket.socketpair()
        os.set_inheritable(theirs.fileno(), True)
        self.sock = ours
        self.sock.settimeout(60)
        env = {**os.environ, "MILLRACE_SOCKET": str(theirs.fileno()), **(environment or {})}
        self.process = subprocess.Popen(
            [interpreter, "-u", CHILD],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
        theirs.close()
        self.logs: list[dict[str, Any]] = []
        self.parts: list[dict[str, Any]] = []
        self.model: dict[str, Any] = {}
        self.messages = 0
        try:
            self.send(
                {
                    "type": "hello",
                    "protocol": 1,
                    "name": "test",
                    "version": "1",
                    "instance": 0,
                    "parameters": {},
                    "max_batch": 0,
                    "declared": {"inputs": [], "outputs": []},
                    "shared_memory": False,
                    "options": {"source": source, "argv": argv or [], **options},
                    **(hello or {}),
                }
            )
            self.model = self.expect("model")
            if setup:
                self.send({"type": "setup"})
                self.expect("ready")
        except BaseException:
            self.kill()
            raise

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *args: object) -> None:
        self.kill()

    def kill(self) -> None:
        """Ends the child and what it has started, whatever they do."""
        self.sock.close()
        if self.process.returncode is None:  # its number is still its own
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=60)

    def close(self) -> tuple[int, str]:
        """Closes the program; returns the exit code and what it wrote to standard output and error."""
        self.send({"type": "close"})
        while self.receive_or_end():
            pass
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, (out + err).decode()

    def send(self, message: dict[str, Any], data: bytes = b"", fd: int | None = None) -> None:
        """Sends a message."""
        text = json.dumps(message).encode()
        header = struct.pack("<II", len(text), len(data))
        if fd is not None:
            self.sock.sendmsg([header], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))])
        else:
            self.sock.sendall(header)
        self.sock.sendall(text + data)

    def _read(self, n: int) -> bytes:
        out = b""
        while len(out) < n:
            data = self.sock.recv(n - len(out))
            if not data:
                raise EOFError("the child has closed the socket")
            out += data
        return out

    def receive(self) -> dict[str, Any]:
        """Returns the next message that is no `log`. Its member `bytes` has the bytes after it."""
        while True:
            text, size = struct.unpack("<II", self._read(8))
            message = json.loads(self._read(text))
            message["bytes"] = self._read(size)
            self.messages += 1
            if message["type"] == "decode":
                self._decode(message)
            elif message["type"] != "log":
                return message
            else:
                self.logs.append(message)

    picture = 640, 480
    """The size of each picture that the child lets the server decode; its pixels are black."""

    def _decode(self, m: dict[str, Any]) -> None:
        width, height = self.picture
        shape = [m["height"] or height, m["width"] or width, 1 if m["color"] == "GRAY" else 3]
        place = [width / shape[1], 0, height / shape[0], 0]
        self.send(
            {"type": "decoded", "id": m["id"], "shape": shape, "width": width, "height": height, "map": place},
            bytes(shape[0] * shape[1] * shape[2]),
        )

    def receive_or_end(self) -> dict[str, Any] | None:
        """The same; None at the end."""
        try:
            return self.receive()
        except (EOFError, OSError):
            return None

    def expect(self, kind: str) -> dict[str, Any]:
        """Returns the next message, which must be of this type. Raises Failed for `failed`."""
        message = self.receive()
        if message["type"] == "failed":
            raise Failed(message)
        if message["type"] != kind:
            raise AssertionError(f"got {message}, want {kind}")
        return message

    def lines(self) -> list[str]:
        """Returns the texts of the log."""
        return [m["message"] for m in self.logs]

    # Batches.

    def batch(
        self, requests: list[dict[str, Any]], inputs: dict[str, Any] | None = None, number: int = 1
    ) -> list[dict[str, Any]]:
        """Runs a batch and returns an answer for each request: see answers.

        A request is a message's one (docs/process.md), but `body` is the bytes of its payload, and `inputs` a dict of
        numpy arrays or of (datatype, shape, bytes).
        """
        self.send_batch(requests, inputs, number)
        return self.answers(number)

    def send_batch(self, requests: list[dict[str, Any]], inputs: dict[str, Any] | None = None, number: int = 1) -> None:
        """Sends a batch."""
        data = bytearray()

        def put(content: bytes) -> dict[str, int]:
            place = {"at": len(data), "size": len(content)}
            data.extend(content)
            return place

        message: dict[str, Any] = {"type": "batch", "id": number, "requests": []}
        if inputs is not None:
            message["inputs"] = [dict(name=n, **_tensor(v, put)) for n, v in inputs.items()]
        for request in requests:
            r = {"rows": 1, **request}
            if "body" in r:
                r["payload"] = put(r.pop("body"))
            if "inputs" in r:
                r["inputs"] = [dict(name=n, **_tensor(v, put)) for n, v in r["inputs"].items()]
            message["requests"].append(r)
        self.send(message, bytes(data))

    def answers(self, number: int = 1) -> list[dict[str, Any]]:
        """Returns the endings of a batch; parts has its parts.

        Each is a dict with `outputs` (name -> Value), `body` (of a call), `reply`, `error`, `drop`.
        """
        self.parts = []
        while True:
            m = self.receive()
            if m["id"] != number:
                raise AssertionError(f"got {m} of another batch")
            if m["type"] == "part":
                self.parts.append({"request": m["request"], **self._answer(m, m["bytes"])})
                continue
            if m["type"] != "result":
                raise AssertionError(f"got {m}, want result")
            self.last = m
            if "outputs" in m:
                return [self._answer(m, m["bytes"])]
            return [self._answer(a, m["bytes"]) for a in m["requests"]]

    def _answer(self, answer: dict[str, Any], data: bytes) -> dict[str, Any]:
        out = {k: v for k, v in answer.items() if k in ("reply", "error", "drop", "parameters")}
        if "outputs" in answer:
            out["outputs"] = {t["name"]: Value(t, self._place(t, data)) for t in answer["outputs"]}
            if "body" in out["outputs"] and "reply" in answer:
                out["body"] = out["outputs"]["body"].elements()[0]
        return out

    def _place(self, t: dict[str, Any], data: bytes) -> bytes:
        if "segment" in t:
            return bytes(self.memory[t["segment"]][t["offset"] : t["offset"] + t["size"]])
        return data[t["at"] : t["at"] + t["size"]]

    memory: dict[int, Any] = {}

    def segment(self, number: int, size: int, writable: bool = True) -> Any:
        """Makes a segment of shared memory and gives it to the child."""
        fd = os.memfd_create("test")
        os.ftruncate(fd, size)
        memory = mmap.mmap(fd, size)
        self.send({"type": "segment", "id": number, "size": size, "writable": writable}, fd=fd)
        os.close(fd)
        self.memory = {**self.memory, number: memory}
        return memory

    def call(
        self, endpoint: str, body: Any = b"", content_type: str = "application/json", number: int = 1, **call: Any
    ) -> dict[str, Any]:
        """Calls a route. A body that is not bytes is sent as JSON."""
        return self.batch([request(endpoint, body, content_type, **call)], number=number)[0]


def request(endpoint: str, body: Any = b"", content_type: str = "application/json", **call: Any) -> dict[str, Any]:
    """Returns a request of a batch that is a call of a route."""
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    return {
        "body": body,
        "call": {
            "endpoint": endpoint,
            "method": "POST",
            "path": "/" + endpoint,
            "query": "",
            "content_type": content_type,
            "header": {},
            "user": "",
            **call,
        },
    }


def body(answer: dict[str, Any]) -> Any:
    """Returns the JSON of a call's answer."""
    return json.loads(answer["body"])


class Value:
    """An output: datatype, shape, data."""

    def __init__(self, t: dict[str, Any], data: bytes):
        self.datatype, self.shape, self.data = t["datatype"], t["shape"], data

    def elements(self) -> list[bytes]:
        """Returns the elements of BYTES."""
        out, at = [], 0
        while at < len(self.data):
            (size,) = struct.unpack_from("<I", self.data, at)
            out.append(self.data[at + 4 : at + 4 + size])
            at += 4 + size
        return out

    def list(self) -> list[Any]:
        """Returns the elements."""
        if self.datatype == "BYTES":
            return self.elements()
        code, size = {
            "BOOL": ("?", 1),
            "UINT8": ("B", 1),
            "INT32": ("i", 4),
            "INT64": ("q", 8),
            "FP32": ("f", 4),
            "FP64": ("d", 8),
        }[self.datatype]
        return list(struct.unpack(f"<{len(self.data) // size}{code}", self.data))


def _tensor(value: Any, put: Any) -> dict[str, Any]:
    if isinstance(value, tuple):
        datatype, shape, data = value
        if datatype == "BYTES":
            data = b"".join(struct.pack("<I", len(e)) + e for e in data)
        return {"datatype": datatype, "shape": list(shape), **put(data)}
    names = {
        "bool": "BOOL",
        "uint8": "UINT8",
        "int32": "INT32",
        "int64": "INT64",
        "float16": "FP16",
        "float32": "FP32",
        "float64": "FP64",
    }
    return {"datatype": names[str(value.dtype)], "shape": list(value.shape), **put(value.tobytes())}


class TestCase(unittest.TestCase):
    """A test with programs in a folder of its own."""

    def setUp(self) -> None:
        """Makes the folder."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.addCleanup(shutil.rmtree, COMPILED + self.folder, ignore_errors=True)

    def write(self, text: str, name: str = "service.py") -> str:
        """Writes a file; returns its path."""
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as f:
            f.write(textwrap.dedent(text))
        when = next(_TIMES)
        os.utime(path, (when, when))
        return path

    def start(self, text: str, **options: Any) -> Peer:
        """Starts a child with a program's text."""
        peer = Peer(self.write(text), **options)
        self.addCleanup(peer.kill)
        return peer

    def failure(self, text: str, **options: Any) -> dict[str, Any]:
        """Returns the message `failed` of a program that cannot be served."""
        with self.assertRaises(Failed) as caught:
            self.start(text, **options)
        return caught.exception.message

    def refusals(self, cases: list[tuple[str, list[str], dict[str, str]]], *path: str) -> list[str]:
        """Returns why programs (text, arguments, options) cannot be loaded, all in one process, with more folders on
        its path.
        """
        named = [(self.write(text, f"program{n}.py"), argv, options) for n, (text, argv, options) in enumerate(cases)]
        program = textwrap.dedent(
            """
            import json, sys
            from millrace._errors import LoadError
            from millrace._load import load
            for source, argv, options in json.load(sys.stdin):
                try:
                    load(source, argv, options)
                    print("it is served")
                except (Exception, SystemExit) as e:
                    print(repr(e) if type(e) is not LoadError else str(e).replace("\\n", " "))
        """
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            input=json.dumps(named),
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([os.path.join(ROOT, "compat"), ROOT, *path])},
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.splitlines()
