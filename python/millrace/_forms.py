"""Forms in the bodies of requests: fields and uploaded files (multipart/form-data), fields (x-www-form-urlencoded)."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl

MAX_PARTS = 1000

_BOUNDARY = re.compile(r""";\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))""", re.IGNORECASE)
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|(?<!\r)\n")
_PARAMETER = re.compile(r""";\s*([\w*]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))""")


class FormError(ValueError):
    """A body that is not a form. The text gives the reason."""


class Upload(NamedTuple):
    """An uploaded file. header has names in lower case."""

    data: bytes
    filename: str
    header: dict[str, str]

    @property
    def content_type(self) -> str:
        """The part's content type, or ""."""
        return self.header.get("content-type", "")

    def read(self) -> bytes:
        """Returns the data."""
        return self.data


def read(body: bytes | bytearray | memoryview, content_type: str) -> list[tuple[str, str | Upload]]:
    """Returns the fields of a form by name, in order; {} for another content type. Raises FormError."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "application/x-www-form-urlencoded":
        try:
            return list(parse_qsl(str(body, "utf-8"), keep_blank_values=True, max_num_fields=MAX_PARTS))
        except UnicodeDecodeError:
            raise FormError(
                "the body is not a form, which its Content-Type (application/x-www-form-urlencoded) says: it is not "
                "text"
            ) from None
        except ValueError as e:
            raise FormError(f"the form cannot be read: {e}") from None
    if kind != "multipart/form-data":
        return []
    found = _BOUNDARY.search(content_type)
    if not found:
        raise FormError("the form cannot be read: Content-Type has no boundary")
    return _multipart(bytes(body), b"--" + (found[1] or found[2]).encode("latin-1", "replace"))


def _multipart(body: bytes, delimiter: bytes) -> list[tuple[str, str | Upload]]:
    """Returns the parts of a body."""
    fields: list[tuple[str, str | Upload]] = []
    at = 0 if body.startswith(delimiter) else body.find(b"\r\n" + delimiter) + 2
    if at == 1:
        raise FormError("the form cannot be read: its boundary is not in the body")
    while True:
        at += len(delimiter)
        if body.startswith(b"--", at):
            return fields
        start = body.find(b"\r\n", at)
        if start < 0 or body[at:start].strip(b" \t"):
            raise FormError("the form cannot be read: a boundary is malformed")
        head = start if body.startswith(b"\r\n\r\n", start) else body.find(b"\r\n\r\n", start)
        end = body.find(b"\r\n" + delimiter, start)
        if end < 0:
            raise FormError("the form cannot be read: the last boundary is missing")
        if head < 0 or head + 2 > end:
            raise FormError("the form cannot be read: a part has no empty line behind its header")
        if len(fields) == MAX_PARTS:
            raise FormError(f"the form cannot be read: it has more than {MAX_PARTS} parts")
        fields.append(_part(body[start + 2 : head], body[head + 4 : end]))
        at = end + 2


def _part(head: bytes, data: bytes) -> tuple[str, str | Upload]:
    """Returns the name and value of a part."""
    header = {}
    if _CONTROL.search(head):
        raise FormError(
            "the form cannot be read: a header of a part has a control character, or a line that does not end with CR "
            "LF"
        )
    for line in head.decode("utf-8", "replace").split("\r\n"):
        name, colon, value = line.partition(":")
        if line and not colon:
            raise FormError("the form cannot be read: a header of a part has no colon")
        header[name.strip().lower()] = value.strip()
    disposition = header.get("content-disposition", "")
    parameters = {
        m[1].lower(): re.sub(r'\\(["\\])', r"\1", m[2]) if m[2] is not None else m[3]
        for m in _PARAMETER.finditer(disposition)
    }
    if not disposition.lower().startswith("form-data") or "name" not in parameters:
        raise FormError("the form cannot be read: a part has no name in its Content-Disposition")
    if "filename" in parameters or "filename*" in parameters:
        return parameters["name"], Upload(data, parameters.get("filename", ""), header)
    return parameters["name"], data.decode("utf-8", "replace")
