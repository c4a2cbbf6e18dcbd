"""Downloads of files that requests name by URL."""

import http.client
import ipaddress
import urllib.error
import urllib.request
from typing import Any

TIMEOUT_S = 10.0
MAX_BYTES = 1 << 28

private_allowed = True
"""Whether loopback and private addresses may be read. The server clears it for services that it serves,
where URLs come from clients, unless the variable ``MILLRACE_SOURCES_ALLOW_PRIVATE`` is ``true``."""


def fetch(url: str, follow_redirects: bool) -> bytes:
    """Return what is at ``url``, up to ``MAX_BYTES``. It raises ``ValueError`` with the reason."""
    handlers: list = [_HTTP(), _HTTPS()]
    if not follow_redirects:
        handlers.append(_NoRedirect())
    try:
        with urllib.request.build_opener(*handlers).open(url, timeout=TIMEOUT_S) as answer:
            contents = answer.read(MAX_BYTES + 1)
    except urllib.error.HTTPError as e:
        raise ValueError(f"status {e.code} ({url})") from None
    except (OSError, http.client.HTTPException) as e:
        raise ValueError(f"{getattr(e, 'reason', e)} ({url})") from None
    if len(contents) > MAX_BYTES:
        raise ValueError(f"more than {MAX_BYTES} bytes ({url})")
    return contents


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def _check(connection: http.client.HTTPConnection) -> None:
    """Close a connection to an address that requests must not reach, before anything is sent."""
    address = connection.sock.getpeername()[0]
    if not private_allowed and not ipaddress.ip_address(address.partition("%")[0]).is_global:
        connection.close()
        raise OSError(f"{address} is a private address: set MILLRACE_SOURCES_ALLOW_PRIVATE=true to allow it")


class _Plain(http.client.HTTPConnection):
    def connect(self) -> None:
        super().connect()
        _check(self)


class _TLS(http.client.HTTPSConnection):
    def connect(self) -> None:
        super().connect()
        _check(self)


class _HTTP(urllib.request.HTTPHandler):
    def http_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(http.client.HTTPConnection if request.has_proxy() else _Plain, request)


class _HTTPS(urllib.request.HTTPSHandler):
    def https_open(self, request: urllib.request.Request) -> Any:
        return self.do_open(http.client.HTTPSConnection if request.has_proxy() else _TLS, request)
