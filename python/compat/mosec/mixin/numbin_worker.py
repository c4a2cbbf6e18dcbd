"""Arrays between stages in the form of numbin."""

from typing import Any

from mosec.errors import DecodingError, EncodingError


class NumBinIPCMixin:
    """Data between stages are numpy arrays in the form of the package numbin."""

    def serialize_ipc(self, data: Any) -> bytes:
        """Returns an array's form. Raises EncodingError."""
        import numbin

        try:
            return numbin.dumps(data)
        except Exception as e:
            raise EncodingError from e

    def deserialize_ipc(self, data: bytes) -> Any:
        """Returns the array. Raises DecodingError."""
        import numbin

        try:
            return numbin.loads(data)
        except Exception as e:
            raise DecodingError from e
