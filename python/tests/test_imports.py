"""The modules of the package import each other in one direction, and hints are read without circles."""

from __future__ import annotations

import ast
import graphlib
import pathlib
import unittest

ROOT = pathlib.Path(__file__).parent.parent
PACKAGES = (ROOT / "millrace", ROOT / "compat" / "millrace_compat")


def imports(path: pathlib.Path, modules: set[str]) -> set[str]:
    """Returns the modules of the package that a module imports, in functions, too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level == 1:
            found.update([node.module] if node.module else [a.name for a in node.names])
    return found & modules


class TestImports(unittest.TestCase):
    def test_no_circles(self) -> None:
        for package in PACKAGES:
            files = {p.stem: p for p in package.glob("*.py") if p.stem != "__init__"}
            self.assertGreater(len(files), 5)
            graph = {name: imports(path, set(files)) for name, path in files.items()}
            try:
                list(graphlib.TopologicalSorter(graph).static_order())
            except graphlib.CycleError as e:
                self.fail(f"modules import each other in a circle: {' -> '.join(e.args[1])}")

    def test_systems_apart(self) -> None:
        """The modules of one other system import none of another."""
        for path in PACKAGES[1].glob("*.py"):
            found = imports(path, {p.stem for p in PACKAGES[1].glob("*.py")})
            self.assertEqual({n for n in found if n.partition("_")[0] != path.stem.partition("_")[0]}, set(), path.name)


class TestHints(unittest.TestCase):
    def test_subclasses_are_no_hints(self) -> None:
        """A subclass of Image or Boxes would get values of the base class: it is refused."""
        from millrace import Boxes, Image
        from millrace._errors import LoadError
        from millrace._hints import of

        self.assertEqual(type(of(Image, "x")).__name__, "ImageType")
        self.assertEqual(type(of(Boxes, "x")).__name__, "BoxesType")
        self.assertEqual(type(of(Boxes["ids"], "x")).__name__, "BoxesType")
        for base in (Image, Boxes):
            with self.assertRaises(LoadError):
                of(type("Own", (base,), {}), "x")


if __name__ == "__main__":
    unittest.main()
