"""Builds the wheel of the package: what pip asks for (PEP 517 and 660), with nothing but the standard library.

    python3 build_backend.py FOLDER     # writes the wheel into the folder, and prints its path

Equal sources give equal bytes. The stand-ins for modules of other systems are not in the wheel: installed as top-level
modules they would hide the real ones. The server has them, and puts them on the path of the programs that it runs.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import os
import sys
import tarfile
import zipfile
from typing import Any

NAME, VERSION = "millrace", "0.1.0"
HERE = os.path.dirname(os.path.abspath(__file__))
INFO = f"{NAME}-{VERSION}.dist-info"
WHEEL = f"{NAME}-{VERSION}-py3-none-any.whl"

METADATA = f"""Metadata-Version: 2.1
Name: {NAME}
Version: {VERSION}
Summary: The client of Millrace, a streaming inference server, and the interface of services in Python
License: Apache-2.0
Requires-Python: >=3.9
Provides-Extra: numpy
Requires-Dist: numpy; extra == "numpy"
Description-Content-Type: text/markdown

`millrace.client` and `millrace.aio` call a running Millrace server, and stream frames to the server. `millrace` has
what services in Python import. numpy is used where numpy is installed; nothing else is needed.
"""
WHEEL_TEXT = "Wheel-Version: 1.0\nGenerator: millrace\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def _package() -> dict[str, bytes]:
    """The files of the package by their paths in the wheel."""
    files = {}
    for folder, folders, names in os.walk(os.path.join(HERE, NAME)):
        folders[:] = [f for f in folders if f != "__pycache__"]
        for name in names:
            if name.endswith((".py", ".typed")):
                path = os.path.join(folder, name)
                with open(path, "rb") as f:
                    files[os.path.relpath(path, HERE).replace(os.sep, "/")] = f.read()
    return files


def _info() -> dict[str, bytes]:
    files = {"METADATA": METADATA.encode(), "WHEEL": WHEEL_TEXT.encode()}
    licence = os.path.join(HERE, os.pardir, "LICENSE")
    if os.path.exists(licence):
        with open(licence, "rb") as f:
            files["LICENSE"] = f.read()
    return {f"{INFO}/{name}": data for name, data in files.items()}


def _write(folder: str, files: dict[str, bytes]) -> str:
    record = []
    for path, data in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        record.append(f"{path},sha256={digest},{len(data)}\n")
    files = {**files, f"{INFO}/RECORD": "".join([*record, f"{INFO}/RECORD,,\n"]).encode()}
    os.makedirs(folder, exist_ok=True)
    with zipfile.ZipFile(os.path.join(folder, WHEEL), "w") as z:
        for path, data in sorted(files.items(), key=lambda item: (item[0].startswith(INFO), item[0])):
            entry = zipfile.ZipInfo(path)  # of 1980, and not compressed: the same bytes wherever it is built
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            z.writestr(entry, data)
    return WHEEL


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Builds the wheel, and returns its name."""
    return _write(wheel_directory, {**_package(), **_info()})


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Builds a wheel that leads to this folder, for `pip install -e`."""
    return _write(wheel_directory, {f"{NAME}.pth": (HERE + "\n").encode(), **_info()})


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """Builds an archive of the sources, and returns its name."""
    top = f"{NAME}-{VERSION}"
    files = {**_package(), "PKG-INFO": METADATA.encode()}
    for name in ("pyproject.toml", "build_backend.py"):
        with open(os.path.join(HERE, name), "rb") as f:
            files[name] = f.read()
    with open(os.path.join(sdist_directory, top + ".tar.gz"), "wb") as out, gzip.GzipFile(
        "", "wb", fileobj=out, mtime=0
    ) as z, tarfile.open(fileobj=z, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, data in sorted(files.items()):
            entry = tarfile.TarInfo(f"{top}/{path}")
            entry.size, entry.mode = len(data), 0o644
            tar.addfile(entry, io.BytesIO(data))
    return top + ".tar.gz"


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(os.path.join(sys.argv[1], build_wheel(sys.argv[1])))
