"""The base class of the types: pydantic's, version 1 or 2, or one of ours when it is not installed."""

import json
from typing import Any, Dict, List

try:
    import pydantic
except ImportError:
    pydantic = None  # type: ignore[assignment]

PYDANTIC = 0 if pydantic is None else int(pydantic.VERSION.split(".")[0])
"""The major version of pydantic; 0: it is not installed."""

if PYDANTIC >= 2:
    from pydantic import BaseModel as Model
    from pydantic import Field, HttpUrl
elif PYDANTIC == 1:
    from pydantic import AnyHttpUrl as HttpUrl  # its HttpUrl refuses localhost
    from pydantic import BaseModel, Field

    class Model(BaseModel):  # type: ignore[no-redef]
        """A model of pydantic 1 with the method names of pydantic 2."""

        def model_dump(self, **options: Any) -> Dict[str, Any]:
            """Return the fields as a dict."""
            options.pop("mode", None)
            return self.dict(**options)

        def model_dump_json(self, **options: Any) -> str:
            """Return the fields as JSON."""
            return self.json(**options)

        @classmethod
        def model_validate(cls, value: Any) -> "Model":
            """Return an instance made of a dict. It raises ``ValidationError``."""
            return cls.parse_obj(value)

else:
    from urllib.parse import urlsplit

    class HttpUrl(str):  # type: ignore[no-redef]
        """A URL of a web server."""

        def __new__(cls, url: str) -> "HttpUrl":
            """Check the URL. It raises ``ValueError``."""
            parts = urlsplit(str(url))
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError("not a URL that begins with http:// or https://")
            return super().__new__(cls, url)

    def Field(default: Any = ..., **_: Any) -> Any:  # type: ignore[no-redef]  # noqa: N802
        """Return the default of a field; ``...`` means that the field must be given."""
        return default

    class ValidationError(ValueError):
        """Fields that are missing or wrong."""

        def __init__(self, name: str, errors: List[Dict[str, Any]]) -> None:
            """Take the errors as ``errors`` returns them."""
            super().__init__("; ".join(".".join([name, *map(str, e["loc"])]) + ": " + e["msg"] for e in errors))
            self._errors = errors

        def errors(self) -> List[Dict[str, Any]]:
            """Return a dict with ``loc``, ``msg`` and ``type`` for each."""
            return self._errors

    class Model:  # type: ignore[no-redef]
        """Fields with type hints, given by name. Subclasses check their values in ``_checked``."""

        def __init__(self, **fields: Any) -> None:
            """Set the fields. It raises ``ValidationError``."""
            wrong: List[Dict[str, Any]] = []
            for name in self._names():
                value = fields.get(name, getattr(type(self), name, ...))
                if value is ...:
                    wrong.append({"loc": (name,), "msg": "field required", "type": "missing"})
                    continue
                try:
                    setattr(self, name, self._checked(name, value))
                except ValidationError as e:
                    wrong += [{**x, "loc": (name, *x["loc"])} for x in e.errors()]
                except (TypeError, ValueError) as e:
                    wrong.append({"loc": (name,), "msg": str(e), "type": "value_error"})
            if wrong:
                raise ValidationError(type(self).__name__, wrong)

        @classmethod
        def _names(cls) -> Dict[str, Any]:
            return {
                name: hint
                for base in reversed(cls.__mro__)
                for name, hint in vars(base).get("__annotations__", {}).items()
            }

        def _checked(self, name: str, value: Any) -> Any:
            hint = self._names()[name]
            if hint in (str, float) and not isinstance(value, (hint, int) if hint is float else hint):
                raise TypeError(f"is {type(value).__name__}, want {hint.__name__}")
            return value

        def model_dump(self, mode: str = "python", **_: Any) -> Dict[str, Any]:
            """Return the fields as a dict, with mode ``json`` as JSON has them."""
            out = {}
            for name in self._names():
                value = getattr(self, name)
                if isinstance(value, Model):
                    value = value.model_dump(mode=mode)
                elif mode == "json" and isinstance(value, bytes):
                    value = value.decode()
                out[name] = value
            return out

        def model_dump_json(self, **_: Any) -> str:
            """Return the fields as JSON."""
            return json.dumps(self.model_dump(mode="json"))

        dict = model_dump
        json = model_dump_json

        @classmethod
        def model_validate(cls, value: Any) -> "Model":
            """Return an instance made of a dict. It raises ``ValidationError``."""
            if isinstance(value, cls):
                return value
            if not isinstance(value, dict_type):
                raise ValidationError(
                    cls.__name__, [{"loc": (), "msg": "value is not an object", "type": "model_type"}]
                )
            return cls(**value)

        parse_obj = model_validate

        @classmethod
        def model_json_schema(cls, **_: Any) -> Dict[str, Any]:
            """Return the JSON Schema."""
            properties = {name: _schema(hint) for name, hint in cls._names().items()}
            return {"title": cls.__name__, "type": "object", "properties": properties, "required": list(properties)}

        def __eq__(self, other: object) -> bool:
            """Compare the fields."""
            return type(self) is type(other) and self.model_dump() == other.model_dump()  # type: ignore[attr-defined]

        def __repr__(self) -> str:
            """Return the constructor's call."""
            return f"{type(self).__name__}({', '.join(f'{k}={getattr(self, k)!r}' for k in self._names())})"

    dict_type = dict

    def _schema(hint: Any) -> Dict[str, Any]:
        """Return the JSON Schema of a field of the types of this package."""
        if getattr(hint, "__args__", None):
            return {"anyOf": [_schema(h) for h in hint.__args__]}
        if issubclass(hint, Model):
            return hint.model_json_schema()
        if issubclass(hint, HttpUrl):
            return {"type": "string", "format": "uri"}
        return {"type": "number"} if hint is float else {"type": "string"}
