"""The calls of ``octoai.client`` by which programs try a service out: ``infer`` and ``health_check``."""

import json
import os
import time
import urllib.error
import urllib.request
from typing import Any, Mapping, Optional

from .errors import OctoAIClientError, OctoAIServerError, OctoAIValidationError

TIMEOUT_S = 900.0


class Client:
    """Sends requests to a service. The token is sent as a bearer token; without one it is ``OCTOAI_TOKEN``."""

    def __init__(self, token: Optional[str] = None) -> None:
        """Take the token."""
        self._token = token or os.environ.get("OCTOAI_TOKEN")

    def infer(self, endpoint_url: str, inputs: Mapping[str, Any]) -> Any:
        """Return the reply to these inputs. It raises the errors of ``octoai.errors``."""
        return self._send(endpoint_url, json.dumps(inputs, default=_text).encode(), TIMEOUT_S)

    def health_check(self, endpoint_url: str, timeout: float = TIMEOUT_S) -> int:
        """Return 200 when the service answers so. It asks once a second, for ``timeout`` seconds."""
        end = time.monotonic() + timeout
        while True:
            try:
                self._send(endpoint_url, None, timeout)
                return 200
            except OctoAIServerError:
                if time.monotonic() + 1 >= end:
                    raise
            time.sleep(1)

    def _send(self, url: str, body: Optional[bytes], timeout: float) -> Any:
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as e:
            kind = (
                OctoAIValidationError
                if e.code in (400, 422)
                else OctoAIClientError
                if e.code < 500
                else OctoAIServerError
            )
            raise kind(f"{url}: status {e.code}: {e.read(65536).decode('utf-8', 'replace')}") from None
        except OSError as e:
            raise OctoAIServerError(f"{url}: {getattr(e, 'reason', e)}") from None


def _text(value: Any) -> str:
    """Return what JSON holds of the bytes in a dumped ``Media``, and of its address."""
    return value.decode() if isinstance(value, bytes) else str(value)
