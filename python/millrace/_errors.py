"""Errors that services raise, and tracebacks without the frames of the runtime."""

from __future__ import annotations

import os
import traceback

CODES = frozenset(
    (
        "invalid_argument",
        "unsupported",
        "not_found",
        "too_large",
        "unauthenticated",
        "permission_denied",
        "flow_control",
        "overloaded",
        "unavailable",
        "unloaded",
        "timeout",
        "canceled",
        "draining",
        "conflict",
        "internal",
    )
)
"""The codes of errors that clients see."""

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_COMPAT = os.path.join(os.path.dirname(os.path.dirname(_PACKAGE)), "compat") + os.sep


class Error(Exception):
    """An error for the client. code is a name in CODES, status the HTTP status of a call (None: the status of the
    code).

    detail, if given, is put into the JSON body of a call's answer.
    """

    def __init__(self, message: str, code: str = "internal", status: int | None = None, detail: object = None):
        if code not in CODES:
            raise ValueError(f"{code!r} is not a code: want one of {', '.join(sorted(CODES))}")
        super().__init__(message)
        self.message, self.code, self.status, self.detail = message, code, status, detail


class LoadError(Exception):
    """A program that cannot be served. kind is a name in CODES, or a name that the server knows for a style."""

    def __init__(self, message: str, kind: str = "invalid_argument"):
        super().__init__(message)
        self.kind = kind


def describe(error: BaseException) -> str:
    """Returns the type and text of an error in one line."""
    if isinstance(error, SystemExit):
        return f"the program called sys.exit({error.code!r})"
    text = str(error).strip()
    name = type(error).__name__
    return f"{name}: {text}" if text else name


def user_traceback(error: BaseException, limit: int = 16384) -> str:
    """Returns the traceback of an error without the frames of the runtime and of Python's own library, at most limit
    characters.
    """
    report = traceback.TracebackException.from_exception(error)
    seen: set[int] = set()
    todo: list[traceback.TracebackException | None] = [report]
    while todo:
        part = todo.pop()
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        kept = [f for f in part.stack if not _ours(f.filename)]
        part.stack = traceback.StackSummary.from_list(kept)
        todo += [part.__cause__, part.__context__, *(getattr(part, "exceptions", None) or ())]
    text = "".join(report.format()).rstrip()
    return text if len(text) <= limit else text[: limit // 2] + "\n...\n" + text[-limit // 2 :]


def _ours(filename: str) -> bool:
    """Reports whether a file is of the runtime or of the interpreter's own library."""
    if filename.startswith((_PACKAGE, _COMPAT, "<frozen ")):
        return True
    return filename.startswith(_LIBRARY) and "-packages" + os.sep not in filename
