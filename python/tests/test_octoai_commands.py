"""The command line octoai.server, and octoai.types by itself."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest
from typing import Any

from .peer import ROOT, TestCase

from .test_octoai import HELLO, files


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
