"""Inputs and outputs of the methods of an OctoAI service: what requests must have, and JSON of the answers.

pydantic, version 1 or 2, is used when it is installed, and its errors are sent as FastAPI sends them.
"""

from __future__ import annotations

import inspect
import json
import math
import typing
from typing import Any, Callable

from octoai import types as octoai_types
from octoai._model import PYDANTIC
from octoai.service import ResponseAnalytics

from millrace._errors import LoadError

REFERENCE = "#/components/schemas/"


class Invalid(Exception):
    """A request that does not fit; detail is the list of errors, as FastAPI sends it."""

    def __init__(self, detail: list[dict[str, Any]]):
        super().__init__(detail)
        self.detail = _finite(json.loads(json.dumps(detail, default=_plain)))


class Malformed(ValueError):
    """A body that cannot be read at all: status 400."""


class Parameter(typing.NamedTuple):
    """A parameter of a method."""

    name: str
    hint: Any
    default: Any  # inspect.Parameter.empty: it must be given


def signature(method: Callable) -> tuple[list[Parameter], Any]:
    """Returns the parameters of a method and the hint of its result. Raises LoadError for those without hints."""
    name = method.__name__
    try:
        hints = typing.get_type_hints(method, include_extras=True)
    except Exception as e:
        raise LoadError(f"{name}: its type hints cannot be read: {e}") from e
    parameters = []
    private = "" if name == "infer" else "; public methods are endpoints: begin the name of one that is not with _"
    for p in inspect.signature(method).parameters.values():
        if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.POSITIONAL_ONLY):
            raise LoadError(
                f"{name}: parameter {p.name} cannot be given by name: want parameters with names and type "
                f"hints{private}"
            )
        if p.name not in hints:
            raise LoadError(f"{name}: parameter {p.name} has no type hint{private}")
        parameters.append(Parameter(p.name, hints[p.name], p.default))
    if not parameters:
        raise LoadError(f"{name}: it has no parameters: want at least one{private}")
    if "return" not in hints:
        raise LoadError(f"{name}: its result has no type hint{private}")
    return parameters, hints["return"]


def error(location: list[Any], kind: str, **values: Any) -> dict[str, Any]:
    """Returns one error in the words of the version of pydantic that is installed (2 when there is none)."""
    kind1, message1, kind2, message2 = _ERRORS[kind]
    if PYDANTIC == 1:
        return {"loc": location, "msg": values.get("message") or message1, "type": kind1}
    found = {"type": kind2, "loc": location, "msg": message2, "input": values.get("input")}
    if kind == "json":
        found["ctx"] = {"error": values["message"]}
    return found


_ERRORS = {
    "missing": ("value_error.missing", "field required", "missing", "Field required"),
    "json": ("value_error.jsondecode", "", "json_invalid", "JSON decode error"),
    "object": (
        "type_error.dict",
        "value is not a valid dict",
        "model_attributes_type",
        "Input should be a valid dictionary or object to extract fields from",
    ),
    "text": ("type_error.str", "str type expected", "string_type", "Input should be a valid string"),
    "file": (
        "value_error",
        "Expected UploadFile, received: <class 'str'>",
        "value_error",
        "Value error, Expected UploadFile, received: <class 'str'>",
    ),
}


def read_json(body: memoryview, content_type: str) -> Any:
    """Returns the value of a body. Raises Invalid or Malformed."""
    if not len(body):
        raise Invalid([error(["body"], "missing")])
    kind = content_type.partition(";")[0].strip().lower()
    if kind and kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise Invalid([error(["body"], "object", input=str(body[:256], "utf-8", "replace"))])
    try:
        value = json.loads(str(body, "utf-8"))
    except json.JSONDecodeError as e:
        raise Invalid([error(["body", e.pos], "json", message=str(e) if PYDANTIC == 1 else e.msg, input={})]) from None
    except UnicodeDecodeError:
        raise Malformed("There was an error parsing the body: it is not UTF-8") from None
    except RecursionError:
        raise Malformed("There was an error parsing the body: it is nested too deeply") from None
    if value is None:
        raise Invalid([error(["body"], "missing")])
    return value


p_empty = inspect.Parameter.empty

if PYDANTIC:
    import pydantic

    class Schema:
        """The inputs and the output of one method."""

        def __init__(self, name: str, parameters: list[Parameter], result: Any):
            prefix = "" if name == "infer" else "".join(p.capitalize() for p in name.split("_"))
            fields: dict[str, Any] = {
                p.name: (str if is_file(p.hint) else p.hint, ... if p.default is p_empty else p.default)
                for p in parameters
            }
            try:
                self.input = pydantic.create_model(prefix + "Input", **fields)
                self.output = pydantic.create_model(
                    prefix + "Output", output=(result, None), analytics=(ResponseAnalytics, None)
                )
                self._answer = pydantic.create_model(prefix + "Answer", output=(result, None))
            except Exception as e:
                raise LoadError(f"{name}: its type hints cannot be checked by pydantic {pydantic.VERSION}: {e}") from e
            self.parameters = parameters

        def arguments(self, value: Any) -> dict[str, Any]:
            """Returns the arguments for the method of a JSON value. Raises Invalid."""
            if not isinstance(value, dict):
                raise Invalid([error(["body"], "object", input=value)])
            try:
                made = self.input.parse_obj(value) if PYDANTIC == 1 else self.input.model_validate(value)
            except pydantic.ValidationError as e:
                found = e.errors() if PYDANTIC == 1 else e.errors(include_url=False)
                raise Invalid([{**f, "loc": ["body", *f["loc"]]} for f in found]) from None
            return {p.name: getattr(made, p.name) for p in self.parameters}

        def answer(self, value: Any) -> bytes:
            """Returns the JSON of what the method returned. Raises what pydantic raises."""
            made = self._answer(output=value)
            if PYDANTIC == 1:
                try:
                    text = made.json(allow_nan=False, separators=(",", ":"), ensure_ascii=False)
                except ValueError:
                    text = json.dumps(_finite(json.loads(made.json())), separators=(",", ":"), ensure_ascii=False)
            else:
                text = made.model_dump_json()
            return text[len('{"output":') : -1].encode("utf-8", "replace")

        def schemas(self) -> dict[str, Any]:
            """Returns the JSON schemas of inputs and output and of all that they use, by name."""
            if PYDANTIC == 1:
                from pydantic.schema import schema

                # The names of fields in outputs are not their aliases.
                return {
                    **schema([self.output], by_alias=False, ref_prefix=REFERENCE)["definitions"],
                    **schema([self.input], ref_prefix=REFERENCE)["definitions"],
                }
            from pydantic.json_schema import models_json_schema

            found: dict[str, Any] = {}
            for model, mode, alias in ((self.output, "serialization", False), (self.input, "validation", True)):
                _, made = models_json_schema([(model, mode)], by_alias=alias, ref_template=REFERENCE + "{model}")
                found.update(made["$defs"])
            return found

        @property
        def names(self) -> tuple[str, str]:
            """The names of the schemas of inputs and output."""
            return self.input.__name__, self.output.__name__

else:
    from millrace import _hints, _types
    from millrace._plain import plain

    class Schema:  # type: ignore[no-redef]
        """The inputs and the output of one method."""

        def __init__(self, name: str, parameters: list[Parameter], result: Any):
            prefix = "" if name == "infer" else "".join(p.capitalize() for p in name.split("_"))
            self.names = prefix + "Input", prefix + "Output"
            self.parameters = parameters
            self._types = {
                p.name: _hints.of(str if is_file(p.hint) else p.hint, f"{name}: parameter {p.name}") for p in parameters
            }
            self._result = _hints.of(result, f"{name}: its result")

        def arguments(self, value: Any) -> dict[str, Any]:
            """Returns the arguments for the method of a JSON value. Raises Invalid."""
            if not isinstance(value, dict):
                raise Invalid([error(["body"], "object", input=value)])
            arguments, wrong = {}, []
            for p in self.parameters:
                if p.name in value:
                    arguments[p.name] = self._types[p.name].check(value[p.name], ("body", p.name), wrong)
                elif p.default is p_empty:
                    wrong.append(error(["body", p.name], "missing", input=value))
                else:
                    arguments[p.name] = p.default
            if wrong:
                raise Invalid(wrong)
            return arguments

        def answer(self, value: Any) -> bytes:
            """Returns the JSON of what the method returned. Raises ValueError when it is not what the hint says."""
            made = json.loads(json.dumps(value, default=plain))
            wrong: list[dict[str, Any]] = []
            self._result.check(made, ("the result",), wrong)
            if wrong:
                raise _types.Invalid(wrong)
            return json.dumps(_finite(made), separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")

        def schemas(self) -> dict[str, Any]:
            """Returns the JSON schemas of inputs and output and of all that they use, by name."""
            found: dict[str, Any] = {}
            properties = {}
            for p in self.parameters:
                properties[p.name] = self._types[p.name].schema(found)
                if p.default is not p_empty:
                    properties[p.name] = {
                        **properties[p.name],
                        "default": json.loads(json.dumps(p.default, default=plain)),
                    }
            name_in, name_out = self.names
            output = {"output": self._result.schema(found), "analytics": _hints.of(ResponseAnalytics, "").schema(found)}
            found[name_in] = {
                "title": name_in,
                "type": "object",
                "properties": properties,
                "required": [p.name for p in self.parameters if p.default is p_empty],
            }
            found[name_out] = {"title": name_out, "type": "object", "properties": output}
            return found


def _plain(value: Any) -> Any:
    """Returns what JSON can hold of a value in an error of pydantic."""
    if isinstance(value, (set, frozenset, tuple)):
        return sorted(value, key=str)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _finite(value: Any) -> Any:
    """Returns a JSON value with null in place of numbers that JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [_finite(v) for v in value]
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    return value


def is_file(hint: Any) -> bool:
    """Tells whether a parameter takes an uploaded file: octoai.types.File, or FastAPI's UploadFile."""
    return isinstance(hint, type) and (issubclass(hint, octoai_types.File) or hint.__name__ == "UploadFile")
