"""Bodies in msgpack."""

from typing import Any

from mosec.errors import DecodingError, EncodingError


class MsgpackMixin:
    """Requests and responses are msgpack (package msgpack)."""

    resp_mime_type = "application/msgpack"

    def serialize(self, data: Any) -> bytes:
        """Returns data as msgpack. Raises EncodingError."""
        import msgpack

        try:
            return msgpack.packb(data)
        except Exception as e:
            raise EncodingError from e

    def deserialize(self, data: bytes) -> Any:
        """Returns what msgpack says, with tuples as its arrays. Raises DecodingError."""
        import msgpack

        try:
            return msgpack.unpackb(data, use_list=False)
        except Exception as e:
            raise DecodingError from e
