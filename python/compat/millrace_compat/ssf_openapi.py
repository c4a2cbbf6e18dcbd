"""The OpenAPI document of an application of Simple Server Framework."""

from __future__ import annotations

from typing import Any, Iterable


def document(config: Any, endpoints: Iterable[Any]) -> dict[str, Any]:
    """Returns the document. The examples of a JSON body are those of its schema."""
    a, args = config.application, config.args
    info: dict[str, Any] = {"title": str(a.name), "description": str(a.description), "version": str(a.version)}
    if not getattr(args, "key", None):
        info["title"] += " (unsecure)"
    if a.license_name is not None:
        info["license"] = {"name": str(a.license_name)}
        if a.license_url is not None:
            info["license"]["url"] = str(a.license_url)
    if a.terms_of_service is not None:
        info["termsOfService"] = str(a.terms_of_service)
    schemas: dict[str, Any] = {
        "HTTPError": {
            "title": "HTTPError",
            "type": "object",
            "required": ["detail"],
            "properties": {"detail": {"type": "string"}},
        }
    }
    paths = {e.path: {"post": _operation(str(a.name), e, schemas)} for e in endpoints}
    return {"openapi": "3.0.2", "info": info, "paths": paths, "components": {"schemas": schemas}}


def _titled(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"title": name.replace("_", " ").title(), **schema}


def _operation(tag: str, e: Any, schemas: dict[str, Any]) -> dict[str, Any]:
    c = e.config
    name = f"{c.id}_v{c.version}"
    lines = [str(c.description).strip(), "", "Arguments:", ""] + [f"- {p.id} : {p.description}" for p in c.inputs]
    lines += ["", "Returns:", ""] + [f"- {p.id} : {p.description}" for p in c.outputs]
    lines += ["", "The header metrics-dispatch-latency of the response has the time in the application, in seconds."]
    out: dict[str, Any] = {
        "tags": [tag],
        "summary": f"{c.id} v{c.version}",
        "description": "\n".join(lines),
        "operationId": f"run_{name}",
    }
    if e.query:
        out["parameters"] = [_parameter(p, t) for p, t in e.values]
    if e.files:
        schemas[f"Body_{name}"] = {
            "title": f"Body_{name}",
            "type": "object",
            "required": [p.id for p in e.files],
            "properties": {
                p.id: _titled(p.id, {"type": "string", "format": "binary", "description": str(p.description)})
                for p in e.files
            },
        }
        out["requestBody"] = _body("multipart/form-data", f"Body_{name}")
    elif not e.query and e.values:
        schema: dict[str, Any] = {
            "title": f"Inputs_{name}",
            "type": "object",
            "required": [p.id for p, _ in e.values],
            "properties": {
                p.id: _titled(p.id, {**t.json_schema(), "description": str(p.description)}) for p, t in e.values
            },
        }
        examples = {p.id: t.example(p.example) for p, t in e.values if p.example is not None}
        if examples:
            schema["examples"] = [examples]
        schemas[f"Inputs_{name}"] = schema
        out["requestBody"] = _body("application/json", f"Inputs_{name}")
    out["responses"] = {"200": _success(e, name, schemas)}
    for status, text in (
        ("400", "The inputs could not be processed."),
        ("403", "The key or session is missing or wrong."),
    ):
        out["responses"][status] = {
            "description": text,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/HTTPError"}}},
        }
    out["responses"]["422"] = {"description": "The inputs are not as declared; detail names them."}
    return out


def _parameter(p: Any, t: Any) -> dict[str, Any]:
    out = {
        "name": p.id,
        "in": "query",
        "required": True,
        "description": str(p.description),
        "schema": _titled(p.id, t.json_schema()),
    }
    if p.example is not None:
        out["example"] = t.example(p.example)
    return out


def _body(content_type: str, schema: str) -> dict[str, Any]:
    return {"required": True, "content": {content_type: {"schema": {"$ref": f"#/components/schemas/{schema}"}}}}


def _success(e: Any, name: str, schemas: dict[str, Any]) -> dict[str, Any]:
    if e.body is not None:
        headers = {p.id: {"description": str(p.description), "schema": {"type": "string"}} for p, _ in e.outputs}
        out = {
            "description": str(e.body.description),
            "content": {"image/png": {"schema": {"type": "string", "format": "binary"}}},
        }
        return {**out, "headers": headers} if headers else out
    schemas[f"Outputs_{name}"] = {
        "title": f"Outputs_{name}",
        "type": "object",
        "properties": {
            p.id: _titled(p.id, {**t.json_schema(), "description": str(p.description)}) for p, t in e.outputs
        },
    }
    return {
        "description": "The outputs.",
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/Outputs_{name}"}}},
    }
