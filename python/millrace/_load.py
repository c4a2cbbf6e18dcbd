"""Imports or runs a program and finds the system of the program.

Each style has a module with a function `find(source) -> Application | None`; None means a program of another style. The
package millrace_compat has the modules of other systems; _services takes the remaining programs.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import runpy
import sys
from types import ModuleType
from typing import Any

from ._errors import LoadError, describe

_PACKAGES = {
    "yaml": "PyYAML",
    "cv2": "opencv-python",
    "PIL": "Pillow",
    "sklearn": "scikit-learn",
    "skimage": "scikit-image",
    "bs4": "beautifulsoup4",
    "dotenv": "python-dotenv",
    "google.protobuf": "protobuf",
}


class Source:
    """A program: a .py file, a folder, another file, or a module; with a class after a colon."""

    def __init__(self, text: str, argv: list[str] | None = None, options: dict[str, Any] | None = None):
        self.text = text
        self.argv = argv or []
        self.options = options or {}
        self.path: str | None = None  # absolute, of a file or folder
        self.module_name = ""  # of a source that is a module, such as package.module
        self.attribute = str(self.options.get("class") or "")
        name = text
        if not os.path.exists(name) and ":" in name:
            name, _, attribute = name.rpartition(":")
            self.attribute = self.attribute or attribute
        if os.path.exists(name):
            self.path = os.path.abspath(name)
        elif name.endswith((".py", ".yaml", ".yml")) or os.sep in name:
            raise LoadError(f"{name} does not exist", "not_found")
        else:
            self.module_name = name
        self._module: ModuleType | None = None
        self._imports: frozenset[str] | None = None

    @property
    def is_python(self) -> bool:
        """The source is a .py file or a module."""
        return self.path is None or self.path.endswith(".py")

    @property
    def imports(self) -> frozenset[str]:
        """The first parts of the names of all imported modules, anywhere in the file."""
        if self._imports is None:
            found = set()
            for node in ast.walk(self._tree()):
                if isinstance(node, ast.Import):
                    found.update(a.name.partition(".")[0] for a in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                    found.add(node.module.partition(".")[0])
            self._imports = frozenset(found)
        return self._imports

    def _tree(self) -> ast.Module:
        path = self.path
        if path is None:
            self._search()
            try:
                spec = importlib.util.find_spec(self.module_name)
            except ModuleNotFoundError as e:
                raise missing(self.text, e) from e
            if spec is None:
                raise LoadError(
                    f"there is no module {self.module_name}: it is looked for in {os.getcwd()} and in the "
                    f"packages of {sys.executable}",
                    "not_found",
                )
            path = spec.origin
        if path is None or not path.endswith(".py") or not os.path.isfile(path):
            return ast.Module([], [])
        with open(path, "rb") as f:
            return ast.parse(f.read(), path)

    def _search(self) -> None:
        """Puts the folder of the program at the place where Python has the folder: first, except for the stand-ins."""
        folder = (
            os.getcwd() if self.path is None else self.path if os.path.isdir(self.path) else os.path.dirname(self.path)
        )
        if folder not in sys.path:
            sys.path.insert(_own_places(), folder)
        sys.argv[:] = [self.path or self.text, *self.argv]

    def module(self) -> ModuleType:
        """Imports the program, once."""
        if self._module is None:
            self._search()
            if self.path is None:
                self._module = importlib.import_module(self.module_name)
            else:
                name = os.path.splitext(os.path.basename(self.path))[0]
                name = name if name.isidentifier() and name not in sys.modules else "millrace_program"
                spec = importlib.util.spec_from_file_location(name, self.path)
                if spec is None or spec.loader is None:
                    raise LoadError(f"{self.path} is not a Python file")
                self._module = importlib.util.module_from_spec(spec)
                sys.modules[name] = self._module
                spec.loader.exec_module(self._module)
        return self._module

    def run(self) -> dict[str, Any]:
        """Runs the program as __main__ and returns the names of the program."""
        self._search()
        if self.path is None:
            return runpy.run_module(self.module_name, run_name="__main__", alter_sys=True)
        return runpy.run_path(self.path, run_name="__main__")


def _own_places() -> int:
    """Returns the number of our own folders at the beginning of sys.path."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    n = 0
    while n < len(sys.path) and sys.path[n] in (root, os.path.join(root, "compat")):
        n += 1
    return n


def missing(source: str, error: ModuleNotFoundError) -> LoadError:
    """Returns the error about a missing package."""
    name = (error.name or "").partition(".")[0]
    package = _PACKAGES.get(name, name)
    return LoadError(
        f"{source} needs the module {error.name}, which is not installed for {sys.executable}: install it with "
        f"`{sys.executable} -m pip install {package}`, or set the model's `python` or `venv` to where it is",
        "not_found",
    )


def _finders() -> dict[str, str]:
    """Returns the modules with a function find by style, in the order of the calls."""
    try:
        from millrace_compat import STYLES
    except ModuleNotFoundError as e:
        if e.name != "millrace_compat":
            raise
        STYLES = ()  # in an installed package
    return {**{style: "millrace_compat." + style for style in STYLES}, "services": "millrace._services"}


def load(source: str, argv: list[str] | None = None, options: dict[str, Any] | None = None) -> Any:
    """Returns the application of a program. options: class (or function), style, stage, and the options of a style.

    Raises LoadError with the reason. The cause is the exception of the program.
    """
    program = Source(source, argv, options)
    wanted = str(program.options.get("style") or "")
    finders = _finders()
    if wanted == "millrace":
        wanted = "services"
    if wanted and wanted not in finders:
        names = ["millrace", *(name for name in reversed(finders) if name != "services")]
        want = " or ".join(filter(None, (", ".join(names[:-1]), names[-1])))
        raise LoadError(f"style: {wanted!r} is not a style: want {want}")
    try:
        for style in (wanted,) if wanted else finders:
            found = importlib.import_module(finders[style]).find(program)
            if found is not None:
                return found
    except LoadError:
        raise
    except SyntaxError as e:
        raise LoadError(f"{e.filename}, line {e.lineno}: {type(e).__name__}: {e.msg}") from e
    except ModuleNotFoundError as e:
        raise missing(source, e) from e
    except SystemExit as e:
        raise LoadError(
            f"{source} ended the process (exit code {e.code}) while it was imported"
            + (": the program's arguments follow on --, or are `args` of the model" if e.code == 2 else "")
        ) from e
    except Exception as e:
        raise LoadError(f"{source} cannot be imported: {describe(e)}") from e
    others = (
        []
        if wanted not in ("", "services") or not program.is_python
        else [
            n
            for n, v in vars(program.module()).items()
            if isinstance(v, type) and v.__module__ == program.module().__name__
        ]
    )
    raise LoadError(
        f"{source} has nothing to serve{' as ' + wanted if wanted else ''}: want a class with a method infer or "
        "predict, or such a function" + (f". {', '.join(others)} has none" if others else "")
    )
