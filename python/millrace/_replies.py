"""Replies and events of a server, without input and output."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from . import _oip
from ._client_errors import bad_reply, of_message
from ._http import Event, Reply
from ._tensors import Tensor

HEADER_LENGTH = "Inference-Header-Content-Length"


class EndOfEvents(Exception):
    """The last event has come."""


class Timing(NamedTuple):
    """The time of a request or frame by steps at the server, in seconds; 0 = step not reached."""

    queue: float = 0.0  # until it was put into a batch
    prepare: float = 0.0  # until the batch's run began
    run: float = 0.0
    total: float = 0.0
    received: float = 0.0  # seconds since 1970 by the server's clock; 0 = not told


class Answer:
    """The result of an inference: `answer["name"]` is an output as a numpy array, or as nested lists without numpy.

    outputs     Tensor by name
    parameters  of the model, a dict
    width, height  of the picture as sent, upright, in pixels; 0 = no picture
    timing      Timing
    """

    def __init__(self, model: str, version: str, id: str, outputs: dict[str, Tensor], parameters: dict) -> None:
        self.model, self.version, self.id = model, version, id
        self.outputs, self.parameters = outputs, parameters
        self.width, self.height = _take(parameters, "width"), _take(parameters, "height")
        self.timing = Timing()

    def __getitem__(self, name: str) -> Any:
        try:
            return _oip.value(self.outputs[name])
        except KeyError:
            raise KeyError(f"{name}: the outputs are {', '.join(self.outputs) or 'none'}") from None

    def classes(self, name: str) -> list[tuple[float, int, str]]:
        """The classes of an output requested with `classes`: tuples (value, index, label), label "" without labels."""
        return _oip.classes(self.outputs[name], name)

    def __repr__(self) -> str:
        return f"Answer({self.model!r}, {list(self.outputs.values())})"


def _take(parameters: dict, name: str) -> int:
    return parameters.pop(name) if isinstance(parameters.get(name), int) else 0


def answer_of(reply: Reply) -> Answer:
    """Reads the reply to an inference."""
    length = reply.headers.get(HEADER_LENGTH.lower())
    body = memoryview(reply.body)
    n = len(body)
    if length is not None:
        n = int(length) if length.isdigit() else -1
        if not 0 <= n <= len(body):
            raise bad_reply(f"{HEADER_LENGTH} is {length!r}")
    answer = answer_of_json(_loads(bytes(body[:n])), body[n:])
    answer.timing = _server_timing(reply.headers.get("server-timing", ""))
    return answer


def _loads(text: Any) -> dict:
    try:
        members = json.loads(text)
    except ValueError as error:
        raise bad_reply(error) from None
    if not isinstance(members, dict):
        raise bad_reply(f"it is {str(members)[:80]!r}, and no object")
    return members


def answer_of_json(m: dict, raw: Any = b"") -> Answer:
    """The answer of an Open Inference Protocol reply. raw has the bytes of the raw tensors, after the JSON."""
    return Answer(
        m.get("model_name", ""),
        m.get("model_version", ""),
        m.get("id", ""),
        _oip.outputs_of(m.get("outputs"), raw),
        dict(m.get("parameters") or {}),
    )


def _server_timing(text: str) -> Timing:
    steps = {"queue": 0.0, "prepare": 0.0, "run": 0.0}
    for part in text.split(","):
        name, _, duration = part.strip().partition(";dur=")
        try:
            if name in steps:
                steps[name] = float(duration) / 1000
        except ValueError:
            continue
    return Timing(**steps, total=sum(steps.values()))


def answer_event(event: Event) -> Answer:
    if event.name == "end":
        raise EndOfEvents
    members = event.json()
    if event.name == "error" or not isinstance(members, dict):
        failed = members.get("error") if isinstance(members, dict) else None
        raise of_message(
            failed
            if isinstance(failed, dict)
            else {
                "message": failed or event.data,
                "code": members.get("code", "internal") if isinstance(members, dict) else "internal",
            }
        )
    return answer_of_json(members)


def members_event(event: Event) -> dict:
    members = event.json()
    if isinstance(members, dict) and isinstance(members.get("error"), str):
        raise of_message({"message": members["error"], "code": members.get("code", "internal")})
    return members


def plain_event(event: Event) -> Event:
    if event.name == "end" and event.data in ("", "{}"):
        raise EndOfEvents
    if event.name == "error":
        try:
            members = json.loads(event.data)
        except ValueError:
            members = event.data
        failed = members.get("error", members) if isinstance(members, dict) else members
        raise of_message(
            failed
            if isinstance(failed, dict)
            else {
                "message": str(failed),
                "code": members.get("code", "internal") if isinstance(members, dict) else "internal",
            }
        )
    return event
