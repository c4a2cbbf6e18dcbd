"""RFC 6455 without input and output: handshake and frames of a client, and frames of the server."""

from __future__ import annotations

import base64
import hashlib
import os
from typing import Any

from . import _oip, _tensors
from ._client_errors import MillraceError
from ._http import Reading, Reply

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def violation(text: str) -> MillraceError:
    """The error of a server that breaks the protocol."""
    return MillraceError("internal", f"the server broke the WebSocket protocol: {text}")


def upgrade(subprotocols: list[str]) -> tuple[dict[str, str], str]:
    """The headers of a handshake, and the key for `accepted`."""
    key = base64.b64encode(os.urandom(16)).decode()
    return {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": key,
        "Sec-WebSocket-Protocol": ", ".join(subprotocols),
    }, key


def accepted(reply: Reply, key: str) -> str:
    """Checks a reply with status 101 to a handshake. Returns the subprotocol."""
    want = base64.b64encode(hashlib.sha1((key + _GUID).encode()).digest()).decode()
    if reply.headers.get("sec-websocket-accept") != want or reply.headers.get("upgrade", "").lower() != "websocket":
        raise violation("its handshake does not accept the upgrade")
    if "sec-websocket-extensions" in reply.headers:
        raise violation("it chose an extension that was not offered")
    return reply.headers.get("sec-websocket-protocol", "")


def frame(opcode: int, *parts: Any) -> bytes:
    """A frame of a client: the parts in order, masked."""
    n = sum(_oip.size(p) for p in parts)
    key = os.urandom(4)
    if n < 126:
        head = bytes((0x80 | opcode, 0x80 | n))
    elif n < 1 << 16:
        head = bytes((0x80 | opcode, 0x80 | 126)) + n.to_bytes(2, "big")
    else:
        head = bytes((0x80 | opcode, 0x80 | 127)) + n.to_bytes(8, "big")
    return b"".join((head, key, _mask(key, b"".join(parts))))


def _mask(key: bytes, data: bytes) -> bytes:
    n = len(data)
    np = _tensors.numpy() if n > 1024 else None
    if not np:
        keys = (key * (n // 4 + 1))[:n]
        return (int.from_bytes(data, "little") ^ int.from_bytes(keys, "little")).to_bytes(n, "little")
    whole = n & ~3
    words = np.frombuffer(data, "<u4", whole // 4) ^ np.frombuffer(key, "<u4")[0]
    return words.tobytes() + bytes(a ^ b for a, b in zip(data[whole:], key))


def close_frame(code: int) -> bytes:
    """A close frame."""
    return frame(CLOSE, code.to_bytes(2, "big"))


class Closed(Exception):
    """The server sent a close frame."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"close code {code}" + (f": {reason}" if reason else ""))
        self.code = code
        self.reason = reason


class Reader:
    """Reads the messages of a server."""

    def __init__(self, most: int) -> None:
        self._most = most  # bytes of a message
        self._parts: list = []
        self._opcode = 0

    def message(self) -> Reading:
        """Reads until a message is complete or a ping or pong has come, and returns the opcode and the bytes. Raises
        Closed when the server closes, and EOFError when the connection ends.
        """
        while True:
            opcode, final, payload = yield from self._frame()
            if opcode == CLOSE:
                if len(payload) == 1:
                    raise violation("a close frame has one byte")
                raise Closed(
                    int.from_bytes(payload[:2], "big") if payload else 1005,
                    bytes(payload[2:]).decode("utf-8", "replace"),
                )
            if opcode >= CLOSE:
                return opcode, payload
            if (opcode == CONTINUATION) != bool(self._parts):
                raise violation("a message begins in the middle of another, or has no beginning")
            if not self._parts:
                if final:
                    return opcode, payload
                self._opcode = opcode
            self._parts.append(payload)
            if final:
                payload = b"".join(self._parts)
                self._parts = []
                return self._opcode, payload

    def _frame(self) -> Reading:
        head = yield 2
        opcode, final, n = head[0] & 15, bool(head[0] & 0x80), head[1]
        if head[0] & 0x70:
            raise violation("reserved bits are set")
        if n & 0x80:
            raise violation("a frame is masked")
        if opcode not in (CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG):
            raise violation(f"the opcode {opcode} is unknown")
        if opcode >= CLOSE and (n > 125 or not final):
            raise violation("a control frame is longer than 125 bytes or in parts")
        if n == 126:
            n = int.from_bytes((yield 2), "big")
        elif n == 127:
            n = int.from_bytes((yield 8), "big")
        if n + sum(map(len, self._parts)) > self._most:
            raise violation(f"a message has more than {self._most} bytes")
        return opcode, final, ((yield n) if n else b"")
