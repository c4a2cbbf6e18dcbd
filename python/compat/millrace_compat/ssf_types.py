"""The types of inputs and outputs in ssf_config.yaml: how they are read from requests, and written to replies."""

from typing import Any, Callable, Dict, List, NamedTuple, Optional


class Invalid(ValueError):
    """A value that is not of its type: `kind` is the name that clients know the fault by."""

    def __init__(self, message: str, kind: str, at: tuple = ()) -> None:
        super().__init__(message)
        self.kind = kind
        self.at = at  # indices inside the value


def _integer(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        raise Invalid("value is not a valid integer", "type_error.integer") from None


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise Invalid("value is not a valid float", "type_error.float") from None


_TRUE = {"1", "true", "t", "yes", "y", "on"}
_FALSE = {"0", "false", "f", "no", "n", "off"}


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).lower() if isinstance(value, (int, str)) else ""
    if word in _TRUE or word in _FALSE:
        return word in _TRUE
    raise Invalid("value could not be parsed to a boolean", "type_error.bool")


def _string(value: Any) -> str:
    if isinstance(value, (str, int, float)):
        return str(value)
    raise Invalid("str type expected", "type_error.str")


def _any(value: Any) -> Any:
    return value


class Type(NamedTuple):
    """A type of ssf_config.yaml. Those of gRPC are those of its tensors: "" = it has none."""

    name: str
    read: Callable[[Any], Any]  # an element from JSON or from a query; raises Invalid
    write: Callable[[Any], Any]  # an element for JSON
    schema: Optional[str]  # of an element, in OpenAPI; None = anything
    contents: str  # where gRPC has its elements
    datatype: str  # what gRPC calls them in outputs
    many: bool = False

    def value(self, value: Any) -> Any:
        """Returns a value of a JSON body as the application gets it."""
        if value is None:
            raise Invalid("none is not an allowed value", "type_error.none.not_allowed")
        if not self.many:
            return self.read(value)
        if not isinstance(value, list):
            raise Invalid("value is not a valid list", "type_error.list")
        elements: List[Any] = []
        for i, element in enumerate(value):
            try:
                if element is None and self.read is not _any:
                    raise Invalid("none is not an allowed value", "type_error.none.not_allowed")
                elements.append(self.read(element))
            except Invalid as e:
                raise Invalid(str(e), e.kind, (i,)) from None
        return elements

    def answer(self, value: Any) -> Any:
        """Returns an output of the application for a JSON body; TypeError or ValueError when it is not of the type."""
        return [self.write(v) for v in value] if self.many else self.write(value)

    def example(self, text: Any) -> Any:
        """Returns an example of ssf_config.yaml as a value: lists are separated by commas."""

        def one(word: str) -> Any:
            return word == "True" if self.schema == "boolean" else self.read(word)

        return [one(w) for w in str(text).split(",")] if self.many else one(str(text))

    def json_schema(self) -> Dict[str, Any]:
        element = {"type": self.schema} if self.schema else {}
        return {"type": "array", "items": element} if self.many else element


_SCALARS = [
    Type("String", _string, str, "string", "bytes", "BYTE_STRING"),
    Type("Integer", _integer, int, "integer", "int", "INT32"),
    Type("Float", _float, float, "number", "fp64", "FP64"),
    Type("Boolean", _boolean, bool, "boolean", "bool", "BOOL"),
    Type("Any", _any, _any, None, "", ""),
]

TYPES: Dict[str, Type] = {t.name: t for t in _SCALARS}
TYPES.update({"List" + t.name: t._replace(name="List" + t.name, many=True) for t in _SCALARS})

FILE = "TempFile"  # an uploaded file, of which the application gets the path; an input only
PNG = "PngImageBytes"  # the body of the reply; an output only
