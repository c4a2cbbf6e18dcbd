"""The OpenAPI document of an OctoAI service."""

from __future__ import annotations

import inspect
from typing import Any

from . import octoai_schema as schemas

_ERRORS: dict[str, Any] = {
    "ValidationError": {
        "title": "ValidationError",
        "type": "object",
        "required": ["loc", "msg", "type"],
        "properties": {
            "loc": {
                "title": "Location",
                "type": "array",
                "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            },
            "msg": {"title": "Message", "type": "string"},
            "type": {"title": "Error Type", "type": "string"},
        },
    },
    "HTTPValidationError": {
        "title": "HTTPValidationError",
        "type": "object",
        "properties": {
            "detail": {"title": "Detail", "type": "array", "items": {"$ref": schemas.REFERENCE + "ValidationError"}}
        },
    },
}


def document(service: Any, endpoints: list[Any]) -> dict[str, Any]:
    """Returns the document of a service with these endpoints."""
    components: dict[str, Any] = {}
    paths: dict[str, Any] = {
        "/healthcheck": {"get": _get("Health", "The state of the server")},
        "/": {"get": _get("Root", "The paths of the documents")},
    }
    for e in endpoints:
        found = e.schema.schemas()
        name_in, name_out = e.schema.names
        if e.form:
            found[name_in] = _form(e, name_in)
        components.update(found)
        paths[e.path] = {
            "post": {
                "summary": e.name.replace("_", " ").title(),
                "operationId": e.name + "_post",
                **({"description": doc} if (doc := inspect.getdoc(e.method)) else {}),
                "requestBody": {
                    "required": True,
                    "content": {e.media_type: {"schema": {"$ref": schemas.REFERENCE + name_in}}},
                },
                "responses": {
                    "200": {
                        "description": "Successful Response",
                        "content": {"application/json": {"schema": {"$ref": schemas.REFERENCE + name_out}}},
                    },
                    "422": {
                        "description": "Validation Error",
                        "content": {
                            "application/json": {"schema": {"$ref": schemas.REFERENCE + "HTTPValidationError"}}
                        },
                    },
                },
            }
        }
    return {
        "openapi": "3.1.0" if schemas.PYDANTIC >= 2 else "3.0.2",
        "info": {
            "title": type(service).__name__,
            "version": "0.1.0",
            **({"description": doc} if (doc := inspect.getdoc(type(service))) else {}),
        },
        "paths": paths,
        "components": {"schemas": {**components, **_ERRORS}},
    }


def _get(name: str, text: str) -> dict[str, Any]:
    return {
        "summary": text,
        "operationId": name.lower() + "_get",
        "responses": {"200": {"description": "Successful Response", "content": {"application/json": {"schema": {}}}}},
    }


def _form(endpoint: Any, name: str) -> dict[str, Any]:
    """Returns the schema of a form."""
    return {
        "title": name,
        "type": "object",
        "required": [p.name for p in endpoint.schema.parameters],
        "properties": {
            p.name: {"type": "string", "format": "binary"} if schemas.is_file(p.hint) else {"type": "string"}
            for p in endpoint.schema.parameters
        },
    }
