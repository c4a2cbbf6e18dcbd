"""The child's side of the protocol between Millrace and child processes (docs/process.md).

A message is 8 bytes (length of the JSON text and of the bytes after the text, u32, little endian), the JSON object and
the bytes. Descriptors of shared memory arrive with the message `segment`.
"""

from __future__ import annotations

import array
import bisect
import collections
import json
import mmap
import os
import socket
import struct
import threading
from typing import Any, Callable, Iterable

from . import _tensors
from ._errors import Error

_HEADER = struct.Struct("<II")
_CHUNK = 1 << 16
RESERVED = 64
"""Bytes at the start of a batch's region for results, the first eight of which are the id of the batch that has begun.
"""

BEGUN = struct.Struct("<Q")

SMALL = 4096
"""Bytes of an output that follow the message although there is shared memory."""

_ANCILLARY = socket.CMSG_SPACE(4 * 4)


def encoder(default: Callable[[Any], Any]) -> Callable[[Any], str]:
    """Returns a function that writes JSON. default is called for types without a form in JSON.

    The C encoder is made once, and not for each text. Recursive objects raise RecursionError. Numbers that are not
    finite raise ValueError.
    """
    plain = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=default)
    try:
        fast = json.encoder.c_make_encoder(
            None, default, json.encoder.encode_basestring, None, ":", ",", False, False, False
        )
        if "".join(fast({"a": [1.5, "b"]}, 0)) != '{"a":[1.5,"b"]}':
            return plain.encode
    except (TypeError, AttributeError):  # another implementation of Python
        return plain.encode

    def encode(value: Any) -> str:
        return "".join(fast(value, 0))

    return encode


def _unknown(value: Any) -> Any:
    raise TypeError(f"{type(value).__name__} is no type of JSON")


encode_json = encoder(_unknown)


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


_strict = json.JSONDecoder(parse_constant=_constant)


def decode_json(text: str) -> Any:
    """Returns the value of a JSON text; raises ValueError, or RecursionError."""
    try:
        value, end = _strict.scan_once(text, 0)
    except StopIteration:
        return _strict.decode(text)
    return value if end == len(text) else _strict.decode(text)  # which takes space around it


_scan = json.JSONDecoder().scan_once


class Closed(Exception):
    """The server has closed the socket."""


class Connection:
    """The socket to the server. One thread receives; several threads may send."""

    def __init__(self, sock: socket.socket):
        self.sock = sock
        self._data = b""
        self._at = 0
        self._fds: collections.deque[int] = collections.deque()
        self._waiting: collections.deque[tuple[dict[str, Any], memoryview]] = collections.deque()
        self._lock = threading.Lock()

    def send(self, message: dict[str, Any], parts: list[Any] = []) -> None:
        """Sends a message and the bytes of parts."""
        self.send_text(encode_json(message), parts)

    def send_text(self, text: str, parts: list[Any] = []) -> None:
        """Sends a message of JSON text."""
        data = text.encode("utf-8", "replace")
        size = 0
        for part in parts:
            size += len(part)
        data = _HEADER.pack(len(data), size) + data
        with self._lock:
            if size <= _CHUNK:
                self.sock.sendall(b"".join((data, *parts)) if parts else data)
                return
            self.sock.sendall(data)
            for part in parts:
                self.sock.sendall(part)

    def receive(self) -> tuple[dict[str, Any], memoryview]:
        """Returns the next message and the bytes; waits for a message. Raises Closed at the end."""
        return self._waiting.popleft() if self._waiting else self.next()

    def next(self) -> tuple[dict[str, Any], memoryview]:
        """Returns the next message of the socket, before messages kept for receive."""
        while True:
            message = self._parse()
            if message is not None:
                return message
            self._fill(0)

    def poll(self) -> list[tuple[dict[str, Any], memoryview]]:
        """Returns the arrived messages, without waiting. keep gives back messages for other callers."""
        found = []
        try:
            while True:
                message = self._parse()
                if message is not None:
                    found.append(message)
                else:
                    self._fill(socket.MSG_DONTWAIT)
        except (BlockingIOError, Closed):
            return found

    def keep(self, message: tuple[dict[str, Any], memoryview]) -> None:
        """Leaves a message for receive."""
        self._waiting.append(message)

    def descriptor(self) -> int:
        """Returns the descriptor sent with a message."""
        return self._fds.popleft()

    def _fill(self, flags: int) -> None:
        data, ancillary, _, _ = self.sock.recvmsg(_CHUNK, _ANCILLARY, flags)
        for level, kind, fds in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                numbers = array.array("i")
                numbers.frombytes(fds[: len(fds) - len(fds) % numbers.itemsize])
                self._fds.extend(numbers)
        if not data:
            raise Closed
        self._data = self._data[self._at :] + data if self._at < len(self._data) else data
        self._at = 0

    def _parse(self) -> tuple[dict[str, Any], memoryview] | None:
        have = len(self._data) - self._at
        if have < 8:
            return None
        text_size, size = _HEADER.unpack_from(self._data, self._at)
        if have < 8 + text_size + size:
            if have + _CHUNK >= 8 + text_size + size:
                return None
            self._read_long(8 + text_size + size)
        start = self._at + 8
        end = start + text_size
        message, _ = _scan(str(self._data[start:end], "utf-8"), 0)
        self._at = end + size
        return message, memoryview(self._data)[end : self._at]

    def _read_long(self, size: int) -> None:
        """Reads the rest of a message of this size, and nothing of the next message: a descriptor would be lost."""
        data = bytearray(size)
        view = memoryview(data)
        have = len(self._data) - self._at
        view[:have] = memoryview(self._data)[self._at :]
        while have < size:
            n = self.sock.recv_into(view[have:])
            if n == 0:
                raise Closed
            have += n
        self._data, self._at = bytes(data) if size < _CHUNK else data, 0


class Segments:
    """The shared memory of the server."""

    def __init__(self) -> None:
        self._views: dict[int, memoryview] = {}
        self._addresses: dict[int, int] = {}

    def add(self, number: int, fd: int, size: int, writable: bool) -> None:
        """Maps a segment."""
        try:
            memory = mmap.mmap(fd, size, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
        finally:
            os.close(fd)
        self._views[number] = memoryview(memory)

    def drop(self, number: int) -> None:
        """Forgets a segment. The segment stays mapped while the program keeps a part of the segment."""
        self._views.pop(number, None)
        self._addresses.pop(number, None)

    def address(self, number: int) -> int:
        """Returns where a segment begins in this process; 0 where numpy is missing."""
        found = self._addresses.get(number)
        if found is None:
            found = self._addresses[number] = _tensors.address(self._views[number])
        return found

    def place(self, place: dict[str, Any], data: memoryview) -> memoryview:
        """Returns the bytes of a place: of a segment, or of the bytes after a message."""
        size = place["size"]
        number = place.get("segment")
        if number is None:
            at = place["at"]
            return data[at : at + size]
        at = place["offset"]
        return self._views[number][at : at + size]


class Inputs:
    """The inputs of a batch in shared memory: an output that is a part of an input is answered without a copy."""

    def __init__(self, segments: Segments, places: Callable[[], Iterable[dict[str, Any]]]):
        self._segments, self._places = segments, places
        self._found: list[dict[str, Any]] | None = None
        self._starts: list[int] = []  # their addresses

    def find(self, piece: Any, tensor: dict[str, Any]) -> bool:
        """Adds the place of the data to the description of a tensor, if the data are a part of an input."""
        at = _tensors.address(piece)
        if at == 0:
            return False
        if self._found is None:
            address = self._segments.address
            known = sorted(
                ((address(p["segment"]) + p["offset"], p) for p in self._places() if "segment" in p), key=lambda k: k[0]
            )
            self._starts, self._found = [k[0] for k in known], [k[1] for k in known]
        i = bisect.bisect_right(self._starts, at) - 1
        if i < 0:
            return False
        place, offset = self._found[i], at - self._starts[i]
        if offset + len(piece) > place["size"]:
            return False
        tensor["segment"], tensor["offset"] = place["segment"], place["offset"] + offset
        return True


class Output:
    """The place of the outputs of a message: a region of shared memory, or after the JSON text."""

    def __init__(
        self,
        region: dict[str, Any] | None = None,
        view: memoryview | None = None,
        limit: int = 0,
        inputs: Inputs | None = None,
    ):
        self._left = limit or 1 << 31
        self._limit = limit
        self.parts: list[Any] = []
        self._size = 0
        self._region, self._inputs = view, inputs
        if region is not None:
            self._segment, self._base = region["segment"], region["offset"]
        self._used = RESERVED

    def put(self, tensor: dict[str, Any], pieces: list[Any]) -> dict[str, Any]:
        """Adds the place of the data to the description of a tensor. pieces are the data, in order."""
        size = 0
        for piece in pieces:
            size += len(piece)
        tensor["size"] = size
        self._left -= size
        if self._left < 0:
            raise Error(
                f"the results of the batch are larger than max_result, {self._limit or 1 << 31} bytes, with "
                f"{tensor['name']} of {size}: "
                "raise the setting, or answer less",
                "too_large",
            )
        if size > SMALL and self._inputs is not None and len(pieces) == 1 and self._inputs.find(pieces[0], tensor):
            return tensor
        if self._region is not None and SMALL < size <= len(self._region) - self._used:
            tensor["segment"], tensor["offset"] = self._segment, self._base + self._used
            at = self._used
            for piece in pieces:
                self._region[at : at + len(piece)] = piece
                at += len(piece)
            self._used = (at + 63) & ~63
            if self._used > len(self._region):
                self._used = len(self._region)
            return tensor
        tensor["at"] = self._size
        self.parts += pieces
        self._size += size
        return tensor

    def put_small(self, head: bytes, data: bytes) -> int:
        """Adds two pieces after the JSON text; returns the offset of the pieces."""
        at = self._size
        self.parts += (head, data)
        self._size = at + len(head) + len(data)
        return at
