"""Frames and control messages of millrace.v1, as bytes (docs/protocol.md, "Media")."""

from __future__ import annotations

import copy
import json
import math
import struct
from typing import Any, Iterable, Mapping

from . import _oip
from ._client_errors import MillraceError, invalid
from ._policy import ms, number
from ._requests import parameters_of

CODECS = ("opaque", "jpeg", "png", "webp", "h264", "vp8", "vp9", "av1", "rgb24", "nv12", "pcm16", "pcmf32", "tensor")


INTER_CODED = ("h264", "vp8", "vp9", "av1")


_FRAME, CONFIG, RESULT, _TENSORS, _AUDIO = 1, 2, 3, 4, 5


_KEY, DISCONTINUITY, _MUST, _END = 1, 2, 4, 8


HEADER = struct.Struct("<BBBBIQqHHHH")


CONFIG_SEQ = (1 << 64) - 1  # in messages with a codec's parameters; no frame has it


# A message to send: (text or binary, parts).
Message = tuple


def text(type: str, **members: Any) -> Message:
    """A control message."""
    return False, (json.dumps({"type": type, **members}, separators=(",", ":")).encode(),)


class Frame:
    """A frame to send: data or tensors, with options.

    data        the bytes of a picture, samples, a chunk of video or opaque bytes, depending on the codec; or a picture
                as a numpy array of uint8 with the shape (height, width, 3), in RGB
    inputs      instead of data: values by name, as for Client.infer
    codec       a name in CODECS; None = the codec of the stream
    width, height  pixels, of rgb24 and nv12
    key         of video in codecs with dependent frames: the frame can be decoded alone
    discontinuity  of video in codecs with dependent frames: frames before this frame are missing
    must        the frame is never superseded, overtaken or stale
    last        close the stream after the ending of this frame
    capture     time by the caller's clock, in seconds; the result repeats the time
    deadline    seconds from receipt; None = the deadline of the policy
    region      (x, y, width, height): only this part of the picture, in pixels as sent
    parameters  for the model, instead of the parameters of the stream
    trace       a W3C traceparent
    """

    __slots__ = (
        "parts",
        "size",
        "kind",
        "codec",
        "flags",
        "width",
        "height",
        "capture",
        "deadline",
        "ext",
        "last",
        "inputs",
    )

    def __init__(
        self,
        data: Any = None,
        inputs: Any = None,
        *,
        codec: str | None = None,
        width: int = 0,
        height: int = 0,
        key: bool = False,
        discontinuity: bool = False,
        must: bool = False,
        last: bool = False,
        capture: float = 0.0,
        deadline: float | None = None,
        region: Iterable[int] | None = None,
        parameters: Mapping | None = None,
        trace: str = "",
    ) -> None:
        if (data is None) == (inputs is None):
            raise invalid("data", "and inputs: give one of them")
        if isinstance(data, Mapping):
            data, inputs = None, data
        if codec is not None and codec != "auto" and codec not in CODECS[:-1]:
            raise invalid("codec", f"{codec!r} is unknown: want auto, {', '.join(CODECS[:-1])}")
        self.codec, self.kind = codec, _FRAME
        self.inputs: Any = None
        if _oip.has_numbers(inputs):
            self.inputs, self.parts = dict(inputs), ()  # until a stream knows the datatypes of its model
        elif inputs is not None:
            self._put_inputs(_oip.inputs_of(inputs))
        elif _oip.is_array(data):
            if data.dtype != "uint8" or data.ndim != 3 or data.shape[2] != 3:
                raise invalid(
                    "data",
                    f"is an array of {data.dtype} with the shape {data.shape}: a picture is uint8 with (height, "
                    f"width, 3); other arrays go by inputs={{name: array}}",
                )
            height, width = data.shape[:2]
            self.codec, self.parts = "rgb24", (data.tobytes(),)
        else:
            try:
                self.parts = (memoryview(data).cast("B"),) if not isinstance(data, bytes) else (data,)
            except TypeError:
                raise invalid("data", f"is {type(data).__name__}: want bytes, an array, or inputs by name") from None
        self.width, self.height = _u16(width, "width", "pixels"), _u16(height, "height", "pixels")
        self.capture = round(_finite(capture, "capture") * 1e6)
        self.deadline = _u16(ms(number(deadline or 0, "deadline", "seconds")), "deadline", "milliseconds")
        self.last = bool(last)
        self.flags = (
            (_KEY if key else 0)
            | (DISCONTINUITY if discontinuity else 0)
            | (_MUST if must else 0)
            | (_END if last else 0)
        )
        self.ext = _ext(trace, region, parameters_of(parameters) if parameters else None)
        self._measure()

    def _measure(self) -> None:
        self.size = HEADER.size + len(self.ext) + sum(map(_oip.size, self.parts))

    def converted(self, declared: Mapping[str, str]) -> Frame:
        """The frame with numbers in the datatypes that the model declares."""
        frame = copy.copy(self)
        frame._put_inputs(_oip.inputs_of(self.inputs, declared))
        frame.inputs = None
        frame._measure()
        return frame

    def _put_inputs(self, given: list[_oip.Input]) -> None:
        head = json.dumps({"inputs": [t.binary() for t in given]}, separators=(",", ":")).encode()
        self.kind, self.codec = _TENSORS, "tensor"
        self.parts = (len(head).to_bytes(4, "little") + head, *(piece for t in given for piece in t.pieces))

    def message(self, sid: int, seq: int, flags: int, default: str) -> Message:
        """The frame as a message; default is the stream's codec."""
        codec = self.codec or default
        code = CODECS.index(codec) if codec in CODECS else 0  # auto: the server recognises it by its content
        kind = _AUDIO if codec in ("pcm16", "pcmf32") else self.kind
        return True, (
            HEADER.pack(
                1,
                kind,
                code,
                self.flags | flags,
                sid,
                seq,
                self.capture,
                self.width,
                self.height,
                len(self.ext),
                self.deadline,
            )
            + self.ext,
            *self.parts,
        )


def _u16(value: Any, field: str, unit: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 16:
        raise invalid(field, f"is {value!r}: want 0 to 65535 {unit}")
    return value


def _finite(value: Any, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise invalid(field, f"is {value!r}: want seconds")
    return value


def _ext(trace: str, region: Iterable[int] | None, parameters: dict | None) -> bytes:
    entries = []
    if trace:
        entries.append((1, trace.encode()))
    if region is not None:
        sides = list(region)
        if len(sides) != 4:
            raise invalid("region", f"is {sides!r}: want (x, y, width, height)")
        entries.append((2, struct.pack("<4H", *(_u16(n, "region", "pixels") for n in sides))))
    if parameters:
        entries.append((4, json.dumps(parameters).encode()))
    out = b""
    for kind, value in entries:
        if len(value) > 0xFFFF or len(out) + len(value) + 3 > 0xFFFF:
            raise MillraceError(
                "too_large", "parameters: a frame carries at most 65535 bytes of them", field="parameters"
            )
        out += bytes((kind,)) + len(value).to_bytes(2, "little") + value
    return out
