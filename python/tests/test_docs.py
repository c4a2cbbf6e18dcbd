"""The programs of docs/python.md and the README run, and their commands print what the pages say."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import unittest
import urllib.request
from typing import Iterator

from millrace.client import Client

from .peer import ROOT, TestCase
from .server import Server, needs_server

REPOSITORY = os.path.dirname(ROOT)
PAGE = os.path.join(REPOSITORY, "docs", "python.md")
PAGES = (
    "README.md",
    os.path.join("docs", "python.md"),
    os.path.join("docs", "python-client.md"),
    os.path.join("docs", "migrating.md"),
)


def services(text: str) -> list[tuple[str, str, list[tuple[str, list[str]]]]]:
    """Returns the name, code, and calls with their lines of output, of each service of the page."""
    out = []
    parts = re.split(r"^```python\n", text, flags=re.M)[1:]
    for part in parts:
        code, _, rest = part.partition("```\n")
        name = re.match(r"# (\w+)\.py\n", code)
        if name is None:
            raise AssertionError(f"an example does not begin with its file's name:\n{code}")
        calls: list[tuple[str, list[str]]] = []
        shown: list[str] | None = None
        for line in rest.splitlines():
            if line.startswith("    $ "):
                shown = []
                calls.append((line[6:], shown))
            elif line and not line.startswith("    "):
                shown = None
            elif shown is not None:
                shown.append(line[4:])
        for _, lines in calls:
            while lines and not lines[-1]:
                del lines[-1]
        out.append((name[1], code, calls))
    return out


def blocks(path: str) -> list[str]:
    """Returns the programs in Python of a page."""
    with open(os.path.join(REPOSITORY, path), encoding="utf-8") as f:
        return re.findall(r"^```python\n(.*?)^```$", f.read(), flags=re.M | re.S)


@needs_server
class TestPage(TestCase):
    """The page's examples."""

    def test_examples(self) -> None:
        """Each service starts, and each command that follows it prints what is shown."""
        with open(PAGE, encoding="utf-8") as f:
            found = services(f.read())
        self.assertGreater(len(found), 7)
        for name in "a.txt", "b.txt":
            self.write("12345", name)
        for name, code, calls in found:
            with self.subTest(name):
                self.write(code, name + ".py")
                server = self.serve(f"./{name}.py")
                for command, want in calls:
                    self.assertEqual(self.type(command, server), want, command)
                self.assertTrue(calls or name in ("bright", "counter"), "nothing is called")

    def serve(self, *arguments: str) -> Server:
        """Starts `millrace serve` in the test's folder."""
        server = Server(*arguments, folder=self.folder, python=sys.executable)
        self.addCleanup(server.stop)
        return server

    def type(self, command: str, server: Server) -> list[str]:
        """Runs a command of the page in a shell, with the server's address; returns the lines that it prints."""
        self.assertIn("127.0.0.1:8000", command)
        done = subprocess.run(
            ["sh", "-c", command.replace("127.0.0.1:8000", f"127.0.0.1:{server.port}")],
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""), command)
        return done.stdout.rstrip("\n").split("\n")

    def test_bright(self) -> None:
        """The example with a camera finds what is bright."""
        try:
            import numpy as np
        except ImportError:
            self.skipTest("needs numpy")
        with open(PAGE, encoding="utf-8") as f:
            code = next(c for n, c, _ in services(f.read()) if n == "bright")
        child = self.start(code, hello={"parameters": {"threshold": 100}})
        picture = np.zeros((1, 240, 320, 3), "u1")
        picture[0, 10:20, 30:50] = 150
        (answer,) = child.batch([{"width": 640, "height": 480}], {"image": picture})
        self.assertEqual(answer["outputs"]["boxes"].list(), [60, 20, 100, 40])
        self.assertEqual(answer["outputs"]["labels"].list(), [b"bright"])
        self.assertEqual(child.model["outputs"][0]["name"], "boxes")

    def test_streams(self) -> None:
        """The server stream of the page has results, and a video."""
        with open(PAGE, encoding="utf-8") as f:
            text = f.read()
        self.write(next(c for n, c, _ in services(text) if n == "bright"), "bright.py")
        self.write(text.partition("```yaml\n# millrace.yaml\n")[2].partition("```\n")[0], "millrace.yaml")
        shutil.copy(os.path.join(REPOSITORY, "examples", "spotter", "clip.mp4"), self.folder)
        server = self.serve("--config", "millrace.yaml")
        path = re.search(r"http://127\.0\.0\.1:8000(/v2/streams/\w+)/video is", text)[1]
        with urllib.request.urlopen(server.addr + path + "/results", timeout=60) as results:
            line = next(line for line in results if line.startswith(b"data: "))
        self.assertEqual(json.loads(line[6:])["outputs"][0]["name"], "boxes")
        with urllib.request.urlopen(server.addr + path + "/video", timeout=60) as video:
            self.assertIn("multipart/x-mixed-replace", video.headers["Content-Type"])

    def test_readme(self) -> None:
        """The README's class finds what is bright, by the command that is shown and in a stream."""
        import io

        from PIL import Image

        with open(os.path.join(REPOSITORY, "README.md"), encoding="utf-8") as f:
            text = f.read().partition("## A camera in a Python class\n")[2].partition("\n## ")[0]
        self.write(text.partition("```python\n")[2].partition("```\n")[0], "bright.py")
        picture = Image.new("RGB", (640, 480))
        picture.paste((255, 255, 255), (60, 20, 100, 40))
        picture.save(os.path.join(self.folder, "1.jpg"), quality=95)
        build, serve, *commands = re.findall(r"^    (.+)$", text.rpartition("```\n")[2], flags=re.M)
        self.assertEqual((build, serve), ("make build", "bin/millrace serve ./bright.py"))
        server = self.serve("./bright.py")
        self.assertEqual(len(commands), 1, commands)
        self.assertEqual(
            json.loads(self.type(commands[0], server)[0]),
            {"boxes": [[60, 20, 100, 40]], "scores": [1], "classes": [0], "labels": ["bright"]},
        )
        dark, data = Image.new("RGB", (640, 480)), io.BytesIO()
        dark.save(data, "JPEG")
        with open(os.path.join(self.folder, "1.jpg"), "rb") as f, Client(server.addr) as client, client.open(
            "bright", policy="every"
        ) as stream:
            self.assertEqual(
                [r["boxes"].tolist() for r in stream.map([f.read(), data.getvalue()])], [[[60, 20, 100, 40]], []]
            )


class TestGrammar(unittest.TestCase):
    """What must run on Python 3.9."""

    def test_python_3_9(self) -> None:
        """The package, the stand-ins, the examples and the pages' programs have the grammar of Python 3.9, and no hints
        that it cannot evaluate."""
        found = {f"{page}: {n}": code for page in PAGES for n, code in enumerate(blocks(page))}
        self.assertGreater(len(found), 9)
        for folder in "python", "examples":
            for at, _, names in os.walk(os.path.join(REPOSITORY, folder)):
                for name in names:
                    if name.endswith(".py"):
                        path = os.path.join(at, name)
                        with open(path, encoding="utf-8") as f:
                            found[os.path.relpath(path, REPOSITORY)] = f.read()
        self.assertGreater(len(found), 70)
        for name, code in found.items():
            with self.subTest(name):
                tree = ast.parse(code, feature_version=(3, 9))
                ours = name.startswith("python" + os.sep)
                self.assertEqual([ast.unparse(node) for node in unions(tree, ours)], [])

    def test_that_it_notices(self) -> None:
        """What Python 3.9 does not have is found."""
        with self.assertRaises(SyntaxError):
            ast.parse("match x:\n    case 1: pass", feature_version=(3, 9))
        for code in "def f(x: int | None): pass", "X = str | None", "class A:\n    x: list[int] | None = None":
            self.assertEqual(len(list(unions(ast.parse(code), True))), 1, code)
        postponed = "from __future__ import annotations\ndef f(x: int | None) -> A | None: pass"
        self.assertEqual(len(list(unions(ast.parse(postponed), True))), 0)
        self.assertEqual(len(list(unions(ast.parse(postponed), False))), 2)
        self.assertEqual(list(unions(ast.parse("x = a | b | 1"), True)), [])


def unions(tree: ast.Module, postponed: bool) -> Iterator[ast.AST]:
    """Yields what looks like a union of types by `|` that is evaluated. With postponed, hints are not evaluated in a
    file that imports annotations from __future__; those of services are, wherever they are."""
    hints: set[ast.AST] = set()
    for node in ast.walk(tree):
        for name in "annotation", "returns":
            hint = getattr(node, name, None)
            if hint is not None:
                hints.update(ast.walk(hint))
    postponed = postponed and any(isinstance(n, ast.ImportFrom) and n.module == "__future__" for n in tree.body)
    types = {"int", "str", "bytes", "float", "bool", "dict", "list", "tuple", "set", "Any"}
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            sides = [s.value if isinstance(s, ast.Subscript) else s for s in (node.left, node.right)]
            if (
                node in hints
                and not postponed
                or node not in hints
                and any(
                    isinstance(s, ast.Constant) and s.value is None or isinstance(s, ast.Name) and s.id in types
                    for s in sides
                )
            ):
                yield node
