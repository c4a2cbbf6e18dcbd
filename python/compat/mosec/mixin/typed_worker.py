"""Bodies in msgpack that are checked against the types in forward's signature."""

from typing import Any, Dict, Optional, Tuple

from mosec.errors import DecodingError, ValidationError
from mosec.log import get_logger
from mosec.utils import ParseTarget, parse_func_type
from mosec.worker import Worker


class TypedMsgPackMixin(Worker):
    """Requests are msgpack of the type that forward takes (package msgspec); the OpenAPI document has the types."""

    resp_mime_type = "application/msgpack"

    _input_type: Optional[Any] = None

    def deserialize(self, data: Any) -> Any:
        """Returns the request as forward's type. Raises ValidationError and DecodingError."""
        import msgspec

        if self._input_type is None:
            self._input_type = parse_func_type(self.forward, ParseTarget.INPUT)
        try:
            return msgspec.msgpack.decode(data, type=self._input_type)
        except msgspec.ValidationError as e:
            raise ValidationError(e) from e
        except msgspec.DecodeError as e:
            raise DecodingError(e) from e

    def serialize(self, data: Any) -> bytes:
        """Returns data as msgpack."""
        import msgspec

        return msgspec.msgpack.encode(data)

    @classmethod
    def get_forward_json_schema(cls, target: ParseTarget, ref_template: str) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        """Returns the schema of forward's type."""
        import msgspec

        try:
            (schema,), schemas = msgspec.json.schema_components(
                [parse_func_type(cls.forward, target)], ref_template=ref_template
            )
        except TypeError as e:
            get_logger().warning("%s has no JSON schema: %s", cls.__name__, e)
            return {}, {}
        return schema, schemas
