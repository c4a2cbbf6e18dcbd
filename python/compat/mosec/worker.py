"""The base classes of stages."""

from __future__ import annotations

import abc
import json
import pickle
from typing import Any, Callable, Optional, Sequence

from mosec.errors import DecodingError, EncodingError
from mosec.utils import ParseTarget

MOSEC_REF_TEMPLATE = "#/components/schemas/{name}"


class Worker(abc.ABC):
    """A stage: forward does the work, on one request's data or, where max_batch_size is above 1, on a list of them.

    The first stage of a route decodes the body by deserialize, the last one makes the response by serialize; between
    stages data pass by serialize_ipc and deserialize_ipc.
    """

    example: Any = None
    """What forward is called with once before the stage is ready."""
    multi_examples: Sequence[Any] = []
    """The same, several; example is not used then."""
    resp_mime_type = "application/json"
    """The type of the response of a route that ends with this stage."""

    _worker_id = 0
    _stage = ""
    _max_batch_size = 1

    def __init__(self) -> None:
        super().__init__()

    @abc.abstractmethod
    def forward(self, data: Any) -> Any:
        """Returns the answer to data; of a list of data, the answers in their order."""
        raise NotImplementedError

    def serialize(self, data: Any) -> bytes:
        """Returns the body of the response, which is JSON. Raises EncodingError."""
        try:
            return json.dumps(data, indent=2).encode()
        except Exception as e:
            raise EncodingError from e

    def deserialize(self, data: bytes) -> Any:
        """Returns what a body in JSON says. Raises DecodingError."""
        try:
            return json.loads(data) if data else {}
        except Exception as e:
            raise DecodingError from e

    def serialize_ipc(self, data: Any) -> bytes:
        """Returns data in the form in which they go to the next stage."""
        return pickle.dumps(data, protocol=pickle.HIGHEST_PROTOCOL)

    def deserialize_ipc(self, data: bytes) -> Any:
        """Returns data of the stage before."""
        return pickle.loads(data)

    @property
    def stage(self) -> str:
        """The name of the stage."""
        return self._stage

    @stage.setter
    def stage(self, stage: str) -> None:
        self._stage = stage

    @property
    def max_batch_size(self) -> int:
        """The most requests of one call of forward."""
        return self._max_batch_size

    @max_batch_size.setter
    def max_batch_size(self, max_batch_size: int) -> None:
        self._max_batch_size = max_batch_size

    @property
    def worker_id(self) -> int:
        """The number of this process among those of the stage, from 1."""
        return self._worker_id

    @worker_id.setter
    def worker_id(self, worker_id: int) -> None:
        self._worker_id = worker_id

    @classmethod
    def get_forward_json_schema(cls, target: ParseTarget, ref_template: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns the JSON schema of forward's data or answer, and those that it refers to by name; ({}, {}) if not
        known.
        """
        return {}, {}


class SSEWorker(Worker):
    """A stage that answers by server-sent events."""

    resp_mime_type = "text/event-stream"

    _send: Optional[Callable[[str, int], None]] = None

    def send_stream_event(self, text: str, index: int = 0) -> None:
        """Sends an event at once, to the request of this number in the data of forward. Waits while the client is
        behind.
        """
        if self._send is None:
            raise RuntimeError("send_stream_event is only possible in forward of a stage that is served")
        self._send(text, index)
