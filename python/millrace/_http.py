"""HTTP/1.1 without input and output: addresses, TLS, heads of requests, and replies.

A reader is a generator: the generator yields a need and is sent the bytes, so that sockets and asyncio share the
generator. LINE stands for a line, n >= 0 for n bytes, and REST for all bytes until the connection ends.
"""

from __future__ import annotations

import hashlib
import ssl
from typing import Any, Generator, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from ._client_errors import MillraceError, bad_reply, invalid

LINE = -1
REST = -2
MAX_LINE = 64 << 10  # bytes of a line of a head
MAX_HEADERS = 256
MAX_REPLY = 1 << 30  # bytes of a body

Reading = Generator[int, Any, Any]


class Address(NamedTuple):
    """The address of a server."""

    tls: bool
    host: str
    port: int
    prefix: str  # of all paths, without the slash at its end
    socket: str = ""  # the path of its unix socket, in place of host and port; "" = it has none

    def __str__(self) -> str:
        return (
            f"unix:{self.socket}"
            if self.socket
            else f"{'https' if self.tls else 'http'}://{self.authority}{self.prefix}"
        )

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    @property
    def named(self) -> str:
        """The address in the form of error texts."""
        return f"unix:{self.socket}" if self.socket else self.authority


def address(text: str) -> Address:
    """Reads "127.0.0.1:8000", "https://host/prefix" or "unix:/path"."""
    if isinstance(text, str) and text.startswith("unix:"):
        if not text.startswith("unix:/"):
            raise invalid("addr", f"{text!r} is not the address of a unix socket: want unix:/PATH")
        return Address(False, "localhost", 80, "", text[len("unix:") :])
    try:
        url = urlsplit(text if "://" in text else "http://" + text)
        port = url.port
    except (ValueError, TypeError):
        url, port = None, None
    if (
        url is None
        or url.scheme not in ("http", "https")
        or not url.hostname
        or url.query
        or url.fragment
        or url.username
        or port == 0
    ):
        raise invalid("addr", f"{text!r} is not the address of a server: want HOST:PORT or http://HOST:PORT")
    host = "127.0.0.1" if url.hostname in ("0.0.0.0", "::") else url.hostname  # a server that listens at all addresses
    return Address(url.scheme == "https", host, port or (443 if url.scheme == "https" else 80), url.path.rstrip("/"))


class Trust:
    """The trusted certificates: certificates of the system's authorities or of the PEM file ca, or only the certificate
    with the SHA-256 fingerprint, as the server prints the fingerprint at the start.
    """

    def __init__(self, tls: bool, ca: str | None, fingerprint: str | None, context: ssl.SSLContext | None) -> None:
        given = [name for name, value in (("ca", ca), ("fingerprint", fingerprint), ("ssl_context", context)) if value]
        if len(given) > 1:
            raise invalid(given[1], f"and {given[0]} both say which certificates to trust: give one of them")
        if given and not tls:
            raise invalid(given[0], "is for encrypted connections: give an address that begins with https://")
        self.context: ssl.SSLContext | None = context
        self._digest = b""
        if not tls or context:
            return
        if fingerprint:
            try:
                self._digest = bytes.fromhex(fingerprint.replace(":", ""))
            except ValueError:
                pass
            if len(self._digest) != 32:
                raise invalid(
                    "fingerprint",
                    f"{fingerprint!r} is not a SHA-256: want 32 bytes in hexadecimal, with or without colons",
                )
        try:
            self.context = ssl.create_default_context(cafile=ca)
        except OSError as error:
            raise invalid("ca", f"{ca!r} cannot be read: {error}") from None
        if self._digest:
            self.context.check_hostname = False
            self.context.verify_mode = ssl.CERT_NONE  # check does it

    def check(self, connection: Any) -> None:
        """Compares the certificate of an SSLSocket or SSLObject with the fingerprint."""
        if self._digest:
            got = hashlib.sha256(connection.getpeercert(binary_form=True) or b"").digest()
            if got != self._digest:
                raise MillraceError(
                    "unavailable", f"fingerprint: the server's certificate has another one: {got.hex(':').upper()}"
                )


class Reply:
    """The reply to an HTTP request: status, reason, headers (a dict with names in lower case), body (bytes-like)."""

    __slots__ = ("status", "reason", "headers", "body", "keep")

    def __init__(self, status: int, reason: str, headers: dict[str, str]) -> None:
        self.status, self.reason, self.headers = status, reason, headers
        self.body: Any = b""
        self.keep = headers.get("connection", "").lower() != "close"

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "")

    @property
    def text(self) -> str:
        """The body as text."""
        return bytes(self.body).decode("utf-8", "replace")

    def json(self) -> Any:
        """The body as JSON."""
        import json

        try:
            return json.loads(self.body)
        except ValueError as error:
            raise bad_reply(error) from None

    def __repr__(self) -> str:
        return f"Reply({self.status}, {self.content_type!r}, {len(self.body)} bytes)"


def target(to: Address, path: str, query: dict | None = None) -> str:
    """The target of a request: path is escaped already."""
    given = {k: v for k, v in (query or {}).items() if v is not None}
    return to.prefix + path + ("?" + urlencode(given, doseq=True) if given else "")


def escape(*parts: str) -> str:
    """A path of parts, with slashes and other special characters escaped."""
    return "".join("/" + quote(part, safe="") for part in parts)


def head(to: Address, method: str, path: str, headers: dict[str, str], length: int | None) -> bytes:
    """The head of a request with a body of length bytes; None = no body."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {to.authority}"]
    for name, value in headers.items():
        value = str(value)
        if not name or any(c in name for c in " :\r\n\0") or any(c in value for c in "\r\n\0"):
            raise invalid(f"headers.{name}", f"is {value!r}: want a name and a value in one line")
        lines.append(f"{name}: {value}")
    if length is not None:
        lines.append(f"Content-Length: {length}")
    try:
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    except UnicodeEncodeError:
        raise invalid("headers", "have characters that HTTP cannot send") from None


def read_head() -> Reading:
    """Reads the head of a reply. Returns a Reply without the body."""
    while True:
        line = yield from _line()
        parts = line.split(" ", 2)
        if not line.startswith("HTTP/1.") or len(parts) < 2 or not parts[1].isdigit():
            raise bad_reply(f"{line[:80]!r} is no HTTP")
        headers: dict[str, str] = {}
        for _ in range(MAX_HEADERS):
            text = yield from _line()
            if not text:
                break
            name, colon, value = text.partition(":")
            name, value = name.strip().lower(), value.strip()
            if not colon or not name:
                raise bad_reply(f"{text[:80]!r} is no header")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        else:
            raise bad_reply(f"it has more than {MAX_HEADERS} headers")
        status = int(parts[1])
        if status >= 200 or status == 101:
            reply = Reply(status, parts[2] if len(parts) > 2 else "", headers)
            if line.startswith("HTTP/1.0"):
                reply.keep = headers.get("connection", "").lower() == "keep-alive"
            return reply


def _line() -> Reading:
    line = yield LINE
    if not line.endswith(b"\n"):
        raise EOFError(
            "the connection was closed before the reply's end" if line else "the connection was closed without a reply"
        )
    return line.rstrip(b"\r\n").decode("latin-1")


def _length(reply: Reply) -> int | None:
    text = reply.headers.get("content-length")
    if text is None:
        return None
    if not text.isascii() or not text.isdigit():
        raise bad_reply(f"its Content-Length is {text!r}")
    if int(text) > MAX_REPLY:
        raise bad_reply(f"its body has {text} bytes: want at most {MAX_REPLY}")
    return int(text)


def _no_body(method: str, reply: Reply) -> bool:
    return method == "HEAD" or reply.status in (204, 304) or reply.status < 200


def _chunked(reply: Reply) -> bool:
    return reply.headers.get("transfer-encoding", "").lower().endswith("chunked")


def read_reply(method: str) -> Reading:
    """Reads a whole reply."""
    reply = yield from read_head()
    yield from read_body(method, reply)
    return reply


def read_body(method: str, reply: Reply) -> Reading:
    """Reads the body of a reply into the Reply."""
    if _no_body(method, reply):
        return
    if _chunked(reply):
        parts, total = [], 0
        while True:
            part = yield from read_chunk()
            if not part:
                break
            total += len(part)
            if total > MAX_REPLY:
                raise bad_reply(f"its body has more than {MAX_REPLY} bytes")
            parts.append(part)
        reply.body = b"".join(parts)
        return
    n = _length(reply)
    if n is None:
        reply.keep = False
        reply.body = yield REST
    elif n:
        reply.body = yield n


def read_chunk() -> Reading:
    """Reads a chunk; an empty chunk is the last."""
    text = (yield from _line()).partition(";")[0].strip()
    try:
        n = int(text, 16)
    except ValueError:
        n = -1
    if n < 0 or n > MAX_REPLY:
        raise bad_reply(f"a chunk has the length {text[:20]!r}")
    if n:
        data = yield n
        yield from _line()
        return data
    while (yield from _line()):  # trailers
        pass
    return b""


class Event(NamedTuple):
    """A server-sent event: the name ("message" by default), the data, and the id."""

    name: str
    data: str
    id: str = ""

    def json(self) -> Any:
        """The data as JSON."""
        import json

        try:
            return json.loads(self.data)
        except ValueError as error:
            raise bad_reply(error) from None


class Events:
    """Reads the server-sent events of a reply, in order."""

    MAX = 64 << 20  # bytes of an event

    def __init__(self, method: str, reply: Reply) -> None:
        self._chunked = _chunked(reply)
        self._left = None if self._chunked else _length(reply)
        self._ended = _no_body(method, reply)
        self._text = bytearray()
        self._name, self._id, self._data = "", "", []
        self._size = 0

    def next(self) -> Reading:
        """Reads the next event. Returns None at the end."""
        while True:
            line = yield from self._next_line()
            if line is None:
                return None
            if line:
                self._field(line)
            elif self._data:
                event = Event(self._name or "message", "\n".join(self._data), self._id)
                self._name, self._data, self._size = "", [], 0
                return event
            else:
                self._name = ""

    def _field(self, line: bytes) -> None:
        self._size += len(line)
        if self._size > self.MAX:
            raise bad_reply(f"an event has more than {self.MAX} bytes")
        name, _, value = line.decode("utf-8", "replace").partition(":")
        value = value[1:] if value.startswith(" ") else value
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._name = value
        elif name == "id":
            self._id = value

    def _next_line(self) -> Reading:
        while True:
            at = self._text.find(b"\n")
            if at >= 0:
                line = bytes(self._text[:at])
                del self._text[: at + 1]
                return line[:-1] if line.endswith(b"\r") else line
            if len(self._text) > self.MAX:
                raise bad_reply(f"an event has more than {self.MAX} bytes")
            if self._ended:
                return None
            if self._chunked:
                more = yield from read_chunk()
                self._ended = not more
            elif self._left is None:
                more = yield LINE
                self._ended = not more
            else:
                n = min(self._left, 64 << 10)
                more = (yield n) if n else b""
                self._left -= n
                self._ended = not self._left
            self._text += more
