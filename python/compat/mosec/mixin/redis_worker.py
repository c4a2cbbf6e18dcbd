"""Data between stages in a Redis server."""

import os
from typing import Any

from mosec.worker import Worker

_REDIS_URL_ENV = "MOSEC_INTERNAL_REDIS_URL"
_DEFAULT_KEY = "REDIS_SHM_IPC_KEY"


class RedisShmIPCMixin(Worker):
    """Data wait for the next stage in a Redis server (package redis), and only their number goes to it."""

    _redis_client: Any = None
    _redis_key = _DEFAULT_KEY

    @classmethod
    def set_redis_url(cls, url: str) -> None:
        """Sets the server's address, for all processes of the application."""
        os.environ[_REDIS_URL_ENV] = url

    def _get_client(self) -> Any:
        if self._redis_client is None:
            import redis

            url = os.environ.get(_REDIS_URL_ENV)
            if not url:
                raise RuntimeError(
                    "the address of Redis is not set: call `RedisShmIPCMixin.set_redis_url()` before the server runs"
                )
            self._redis_client = redis.from_url(url)
        return self._redis_client

    def serialize_ipc(self, data: Any) -> bytes:
        """Stores data and returns their number."""
        client = self._get_client()
        number = str(client.incr(self._redis_key)).encode()
        client.set(number, super().serialize_ipc(data))
        return number

    def deserialize_ipc(self, data: bytes) -> Any:
        """Returns the data of a number, and deletes them."""
        with self._get_client().pipeline() as pipe:
            pipe.get(bytes(data))
            pipe.delete(bytes(data))
            found = pipe.execute()[0]
        return super().deserialize_ipc(found)
