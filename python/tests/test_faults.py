"""Services: what cannot be served, and what fails."""

from __future__ import annotations

import sys

from .peer import TestCase


class TestFaults(TestCase):
    """Programs that cannot be served."""

    def test_import(self) -> None:
        """Errors of the import say what is wrong, with the traceback of the program."""
        f = self.failure("import no_such_package_1\n")
        self.assertIn("needs the module no_such_package_1, which is not installed", f["message"])
        self.assertIn("-m pip install no_such_package_1", f["message"])
        f = self.failure("def infer(:\n")
        self.assertEqual(f["kind"], "invalid_argument")
        self.assertNotIn("ast.py", f["traceback"])
        self.assertIn("service.py, line 1", f["message"])
        f = self.failure("x = 1\ny = x // 0\n")
        self.assertIn("ZeroDivisionError", f["message"])
        self.assertIn("y = x // 0", f["traceback"])
        self.assertNotIn("importlib", f["traceback"])
        self.assertIn("ended the process (exit code 3)", self.failure("import sys; sys.exit(3)\n")["message"])

    def test_nothing_to_serve(self) -> None:
        """No service, several, and classes that cannot be made."""
        self.assertTrue(
            self.failure("x = 1\n")["message"].endswith(
                "want a class with a method infer or predict, or such a function"
            )
        )
        self.assertTrue(
            self.failure("import json\nclass Net:\n    def forward(self, x): ...\n")["message"].endswith(
                "such a function. Net has none"
            )
        )
        two = "class A:\n    def infer(self): ...\nclass B:\n    def predict(self): ...\n"
        self.assertRegex(
            self.failure(two)["message"],
            r"several services \(A, B\): choose one, such as /.*/service.py:A, or by the setting class$",
        )
        self.start(two, **{"class": "B"})
        self.assertIn("has no C: it has A, B", self.failure(two, **{"class": "C"})["message"])
        self.assertIn(
            "__init__ takes path",
            self.failure("class A:\n    def __init__(self, path): ...\n    def infer(self): ...\n")["message"],
        )
        self.assertIn(
            "has infer and predict",
            self.failure("class A:\n    def infer(self): ...\n    def predict(self): ...\n")["message"],
        )

    def test_what_is_forgotten(self) -> None:
        """self, the size of a batch, the class of an endpoint, and arguments of the program."""
        for code, want in (
            ("class A:\n    def infer(x: int): ...\n", "A.infer has no argument self"),
            ("class A:\n    def infer(): ...\n", "A.infer has no argument self"),
            (
                "import millrace\nclass A:\n    def infer(self): ...\n    @millrace.endpoint\n    def more(x: int): "
                "...\n",
                "A.more has no argument self",
            ),
            ("import millrace\n@millrace.batch\ndef infer(x: int): ...\n", "@millrace.batch(16)"),
            (
                "import millrace\ndef infer(x: int): ...\n@millrace.endpoint\ndef more(x: int): ...\n",
                "more is an endpoint, and no method: put it into the class",
            ),
            (
                "import argparse\np = argparse.ArgumentParser()\np.add_argument('--w', "
                "required=True)\np.parse_args()\n",
                "the program's arguments follow on --",
            ),
        ):
            self.assertIn(want, self.failure(code)["message"])
        self.start("class A:\n    @staticmethod\n    def infer(x: int): ...\n")
        self.start("class A:\n    def infer(this, x: int): ...\n")

    def test_answer_that_is_no_boxes(self) -> None:
        """A function that declares boxes and answers something else is told what to return."""
        for result, what in (("{'label': 'x'}", "dict"), ("None", "None"), ("[1, 2, 3, 4]", "list")):
            child = self.start(f"import millrace\ndef infer(data: bytes) -> millrace.Boxes:\n    return {result}\n")
            (answer,) = child.batch([{"body": b"", "codec": "opaque"}])
            self.assertEqual(
                answer["error"]["message"],
                f"infer returned {what}, and declares boxes, scores, classes, labels: return millrace.Boxes([[x1, y1, "
                "x2, y2], ...])",
            )

    def test_without_numpy(self) -> None:
        """A service that takes an input for an array is told that numpy is missing."""
        child = self.start(
            """
            import sys
            sys.modules["numpy"] = None
            from millrace import Tensor
            def infer(x: Tensor["FP32", 2]) -> float:
                return x.mean()
        """
        )
        (answer,) = child.batch([{"inputs": {"x": ("FP32", [2], bytes(8))}}])
        self.assertIn(
            f"a Tensor has no mean: arrays need numpy, which is not installed for {sys.executable}. Install it by",
            answer["error"]["message"],
        )

    def test_hints(self) -> None:
        """Hints that cannot be read are refused at the start."""
        self.assertIn("infer: x has the type complex", self.failure("def infer(x: complex): ...\n")["message"])
        self.assertIn("cannot be evaluated", self.failure("def infer(x: 'Nope'): ...\n")["message"])
        self.assertIn(
            "cannot be called: write Image[width, height]",
            self.failure("import millrace\ndef infer(x: millrace.Image(64, 48)): ...\n")["message"],
        )
        self.assertIn(
            "no attribute 'image': it has Batch, Boxes, ",
            self.failure("import millrace\ndef infer(x: millrace.image[64, 48]): ...\n")["message"],
        )
        self.assertIn(
            "want a datatype",
            self.failure("import millrace\ndef infer(x: millrace.Tensor['F32', 3]): ...\n")["message"],
        )
        self.assertIn(
            "example of infer does not fit",
            self.failure("class A:\n    example = {'x': 'a'}\n    def infer(self, x: int): ...\n")["message"],
        )

    def test_setup(self) -> None:
        """setup that raises or exits says so."""
        f = self.failure(
            "class A:\n    def setup(self):\n        raise OSError('no weights')\n    def infer(self): ...\n"
        )
        self.assertEqual(f["message"], "setup: OSError: no weights")
        for code in (
            "class A:\n    def setup(self): open('weights.pt')\n    def infer(self): ...\n",
            "open('weights.pt')\n",
        ):
            self.assertRegex(
                self.failure(code)["message"],
                r"FileNotFoundError.*'weights.pt'\. The working directory is .*: set the model's `dir`",
            )
        self.assertIn("raise OSError", f["traceback"])
        self.assertIn(
            "exit code 2",
            self.failure("import sys\nclass A:\n    def setup(self):\n        sys.exit(2)\n    def infer(self): ...\n")[
                "message"
            ],
        )

    def test_health(self) -> None:
        """watchdog and health are asked; what close prints is told, also without an end of line."""
        child = self.start(
            """
            import sys
            class A:
                sick = False
                def infer(self) -> int:
                    self.sick = True
                    return 1
                def health(self):
                    return not self.sick
                def close(self):
                    sys.stdout.reconfigure(line_buffering=True)
                    print("closed", end="")
        """
        )
        child.send({"type": "check"})
        self.assertTrue(child.expect("checked")["ok"])
        child.call("infer")
        child.send({"type": "check"})
        answer = child.expect("checked")
        self.assertEqual((answer["ok"], "health returned False" in answer["message"]), (False, True))
        self.assertEqual(child.close()[0], 0)
        self.assertIn("closed", child.lines())
