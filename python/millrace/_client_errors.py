"""MillraceError, the only exception of the client, made from errors of the server."""

from __future__ import annotations

import json
import re

# Codes of errors whose request may succeed later.
_RETRYABLE = {"flow_control", "overloaded", "unavailable", "timeout", "draining"}

_CODES_OF_STATUS = {
    401: "unauthenticated",
    403: "permission_denied",
    404: "not_found",
    409: "conflict",
    413: "too_large",
    429: "overloaded",
    408: "timeout",
    499: "canceled",
    502: "unavailable",
    503: "unavailable",
    504: "timeout",
}


class MillraceError(Exception):
    """A refusal of the server or the client, or a failure.

    code         a code of docs/protocol.md, such as "invalid_argument", "not_found", "overloaded"
    message      the text; begins with the field, if the error has a field
    field        the argument, field or setting at fault, such as "inputs[0].shape"; "" = none
    status       of the HTTP reply; 0 = the error has none
    retryable    whether the same request may succeed later
    retry_after  seconds to wait before the next attempt, as the server asked; 0 = the server asked for no wait
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        field: str = "",
        status: int = 0,
        retryable: bool | None = None,
        retry_after: float = 0.0,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.field = field or _field_of(message)
        self.status = status
        self.retryable = code in _RETRYABLE if retryable is None else retryable
        self.retry_after = retry_after

    def __repr__(self) -> str:
        return f"MillraceError({self.code!r}, {self.message!r}, field={self.field!r}, status={self.status})"


def _field_of(message: str) -> str:
    found = re.match(r"([A-Za-z][\w-]*(?:[.[][\w\]-]+)*): ", message)
    return found.group(1) if found else ""


def invalid(field: str, text: str) -> MillraceError:
    """The error of an argument: field is the name of the argument."""
    return MillraceError("invalid_argument", f"{field}: {text}", field=field)


def bad_reply(what: object) -> MillraceError:
    """The error of an unreadable reply."""
    return MillraceError("internal", f"the server's reply cannot be read: {what}")


def is_of_input(field: str) -> bool:
    """Whether the field of an error is an input, or a part of an input."""
    return field.startswith(("inputs.", "inputs["))


def _own_text(text: str) -> str:
    """The text of a server's error for users of this client. Errors about unknown models have the server's own words in
    brackets, behind words for clients of the Open Inference Protocol; errors about a datatype get the conversion in
    Python.
    """
    found = re.fullmatch(r"Request for unknown model: .*? is not found \((.*)\)", text, re.S)
    if found:
        return found.group(1)
    wanted = re.search(r" is (?:of )?[A-Z]+\d*, (?:model .* )?wants? (\w+)$", text)
    if wanted and is_of_input(_field_of(text)):
        return text + _cure(wanted.group(1))
    return text


def _cure(datatype: str) -> str:
    """The conversion to a datatype; "" where numpy has no such type."""
    names = {"BOOL": "bool_", "FP16": "float16", "FP32": "float32", "FP64": "float64"}
    name = names.get(datatype, datatype.lower() if "INT" in datatype else "")
    return f": convert an array by .astype(numpy.{name}), or use Tensor.of(value, \"{datatype}\")" if name else ""


def of_status(status: int, reason: str, headers: dict, body: bytes) -> MillraceError:
    """The error of an HTTP reply with a status outside 2xx, from a Millrace server, an application or a proxy."""
    code, text = "", ""
    try:
        members = json.loads(body)
    except ValueError:
        members = None
        plain = bytes(body[:200]).decode("utf-8", "replace").strip()
        text = "" if plain.startswith("<") else plain
    if isinstance(members, dict):
        code = members.get("code") if isinstance(members.get("code"), str) else ""
        for name in ("error", "message", "detail"):
            found = members.get(name)
            if found:
                text = found if isinstance(found, str) else json.dumps(found)
                break
    if not code:
        code = _CODES_OF_STATUS.get(status, "invalid_argument" if status // 100 == 4 else "internal")
    try:
        after = float(headers.get("retry-after", 0))
    except ValueError:
        after = 0.0  # a date, which no Millrace server sends
    return MillraceError(
        code, _own_text(text) or f"the server answered {status} {reason}".rstrip(), status=status, retry_after=after
    )


def of_message(message: dict) -> MillraceError:
    """The error of a message `error` of millrace.v1, or of the member `error` of an event."""
    return MillraceError(
        str(message.get("code", "internal")),
        _own_text(str(message.get("message", ""))),
        retryable=message.get("retryable"),
        retry_after=message.get("retry_after_ms", 0) / 1000,
    )
