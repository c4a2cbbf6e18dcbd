"""The OpenAPI document of a service."""

from __future__ import annotations

import inspect
import json
from typing import Any

from . import _hints, _plain, _types
from ._endpoints import Endpoint
from ._errors import LoadError
from ._outputs import Response
from ._pictures import Boxes, BoxesHint
from ._types import MISSING


def document(name: str, of: Any, endpoints: list[Endpoint]) -> dict[str, Any]:
    """Returns the document of a service with these endpoints."""
    defs: dict[str, Any] = {"ValidationError": _ERROR}
    paths: dict[str, Any] = {}
    for e in endpoints:
        paths.setdefault(e.path, {})[e.method.lower()] = _operation(e, defs)
    info = {"title": name, "version": str(getattr(of, "version", None) or "1")}
    doc = inspect.getdoc(of) or ""
    if doc and type(of).__doc__ is not None:
        info["description"] = doc
    return {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": defs}}


_ERROR = {
    "type": "object",
    "properties": {
        "error": {"type": "string"},
        "detail": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "loc": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]}},
                    "msg": {"type": "string"},
                    "type": {"type": "string"},
                },
            },
        },
    },
    "required": ["error"],
}


def _operation(e: Endpoint, defs: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {"operationId": e.name}
    doc = inspect.getdoc(e.function) or ""
    if doc:
        out["summary"] = doc.split("\n", 1)[0]
        if "\n" in doc:
            out["description"] = doc
    in_body = [p for p in e.parameters if e.method != "GET"]
    if e.method == "GET":
        out["parameters"] = [
            {"name": p.name, "in": "query", "required": p.default is MISSING, "schema": _member(p, defs)}
            for p in e.parameters
        ]
    elif in_body:
        if e.whole and len(e.parameters) == 1:
            schema = e.data[0].type.schema(defs)
        else:
            schema = {
                "type": "object",
                "properties": {p.name: _member(p, defs) for p in e.parameters},
                "required": [p.name for p in e.parameters if p.default is MISSING],
                "additionalProperties": e.takes_any_keyword,
            }
        content: dict[str, Any] = {"application/json": {"schema": schema}}
        if e.example is not None:
            content["application/json"]["example"] = json.loads(_plain.to_json(e.example))
        form = {
            "type": "object",
            "properties": {
                p.name: {"type": "string", "format": "binary"}
                if p.type.raw and not _is_text(p.type)
                else _member(p, defs)
                for p in e.parameters
            },
        }
        if not e.whole:
            content["multipart/form-data"] = {"schema": form}
        if e.raw is not None and not _is_text(e.raw.type) and len([p for p in e.data if p.default is MISSING]) <= 1:
            content["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
        out["requestBody"] = {"required": any(p.default is MISSING for p in e.parameters), "content": content}
    kind, schema = _answer(e, defs)
    out["responses"] = {
        "200": {"description": "the answer", "content": {kind: {"schema": schema}}},
        "422": {
            "description": "input that does not fit",
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/ValidationError"}}},
        },
    }
    return out


def _is_text(t: _types.Type) -> bool:
    return isinstance(t, _types.Plain)


def _member(p: Any, defs: dict[str, Any]) -> dict[str, Any]:
    schema = p.type.schema(defs)
    if p.default is not MISSING and p.default is not None:
        schema = {**schema, "default": json.loads(_plain.to_json(p.default))}
    return schema


def _answer(e: Endpoint, defs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Returns the content type and schema of an answer, or of a part of an answer."""
    kind = "text/event-stream" if e.streams else "application/json"
    hint = e.result
    if hint is bytes:
        return ("text/event-stream" if e.streams else "application/octet-stream"), {
            "type": "string",
            "format": "binary",
        }
    if hint is Boxes or isinstance(hint, BoxesHint):
        numbers = {"type": "array", "items": {"type": "number"}}
        return kind, {
            "type": "object",
            "properties": {
                "boxes": {"type": "array", "items": numbers},
                "scores": numbers,
                "classes": numbers,
                "labels": {"type": "array", "items": {"type": "string"}},
            },
        }
    if hint is inspect.Parameter.empty or hint is Response:
        return kind, {}
    try:
        return kind, _hints.of(hint, e.name).schema(defs)
    except LoadError:
        return kind, {}
