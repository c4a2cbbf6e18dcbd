"""Data between stages in a plasma store, which pyarrow had before version 12."""

import os
from typing import Any

from mosec.worker import Worker

_PLASMA_PATH_ENV = "MOSEC_INTERNAL_PLASMA_PATH"


class PlasmaShmIPCMixin(Worker):
    """Data wait for the next stage in a plasma store (package pyarrow), and only their id goes to it."""

    _plasma_client: Any = None

    @classmethod
    def set_plasma_path(cls, path: str) -> None:
        """Sets the store's socket, for all processes of the application."""
        os.environ[_PLASMA_PATH_ENV] = path

    def _get_client(self) -> Any:
        if self._plasma_client is None:
            from pyarrow import plasma

            path = os.environ.get(_PLASMA_PATH_ENV)
            if not path:
                raise RuntimeError(
                    "the path of the plasma store is not set: call `PlasmaShmIPCMixin.set_plasma_path()` before the "
                    "server runs"
                )
            self._plasma_client = plasma.connect(path)
        return self._plasma_client

    def serialize_ipc(self, data: Any) -> bytes:
        """Stores data and returns their id."""
        return self._get_client().put(super().serialize_ipc(data)).binary()

    def deserialize_ipc(self, data: bytes) -> Any:
        """Returns the data of an id, and deletes them."""
        from pyarrow import plasma

        client, number = self._get_client(), plasma.ObjectID(bytes(data))
        found = super().deserialize_ipc(client.get(number))
        client.delete((number,))
        return found
