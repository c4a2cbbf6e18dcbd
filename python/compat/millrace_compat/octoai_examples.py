"""Examples of requests to an OctoAI service: templates in the form of Mustache, and what they make with example values.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from . import octoai_schema as schemas

# The smallest files of their kind: a PNG picture of one pixel, and a WAV file of one sample.
_PICTURE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="
_SOUND = "UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQIAAAAAAA=="
_MEDIA = {"Image": _PICTURE, "Audio": _SOUND, "Video": "<base64 of a video>", "Media": _PICTURE}


class Template(NamedTuple):
    """A text with tags {{{name}}} and {{{name.name}}}, and their values."""

    generated_template: str
    template_hash: dict[str, Any]


FORMATS = ("curl", "python")


def template(endpoint: Any, form: str) -> Template:
    """Returns the example of a request to an endpoint in one of FORMATS."""
    inputs = example(endpoint)
    values = {name: json.dumps(value, ensure_ascii=False) for name, value in inputs.items()}
    if form == "curl":
        values = {name: value.replace("'", "'\\''") for name, value in values.items()}
        members = ",\n".join(f'    {json.dumps(name)}: {{{{{{inputs.{name}}}}}}}' for name in inputs)
        text = (
            f'curl -X POST "{{{{{{endpoint_url}}}}}}{endpoint.path}" \\\n'
            '  -H "Content-Type: application/json" \\\n'
            f"  --data-raw '{{\n{members}\n  }}'\n"
        )
    else:
        values = {name: repr(value) for name, value in inputs.items()}
        members = "".join(f'    {json.dumps(name)}: {{{{{{inputs.{name}}}}}}},\n' for name in inputs)
        text = (
            "import json\nimport urllib.request\n\n"
            f"inputs = {{\n{members}}}\n"
            "request = urllib.request.Request(\n"
            f'    "{{{{{{endpoint_url}}}}}}{endpoint.path}",\n'
            "    data=json.dumps(inputs).encode(),\n"
            '    headers={"Content-Type": "application/json"},\n'
            ")\n"
            "with urllib.request.urlopen(request) as response:\n"
            '    print(json.load(response)["output"])\n'
        )
    return Template(text, {"endpoint_url": "http://localhost:8080", "inputs": values})


def render(made: Template) -> str:
    """Returns the text with the values in place of the tags."""

    def value(tag: re.Match) -> str:
        found: Any = made.template_hash
        for name in tag[1].split("."):
            found = found[name]
        return found

    return re.sub(r"\{\{\{([\w.]+)\}\}\}", value, made.generated_template)


def example(endpoint: Any) -> dict[str, Any]:
    """Returns the parameters that requests must have, with example values; all of them when none must be given."""
    found = endpoint.schema.schemas()
    schema = found[endpoint.schema.names[0]]
    names = schema.get("required") or list(schema["properties"])
    return {name: _value(schema["properties"][name], found, name, 0) for name in names}


def _value(schema: dict[str, Any], found: dict[str, Any], name: str, depth: int) -> Any:
    if "$ref" in schema:
        target = schema["$ref"].rpartition("/")[2]
        if target in _MEDIA and "data" in found[target].get("properties", {}):
            return {"data": _MEDIA[target]}
        return _value(found[target], found, name, depth)
    for key in ("example", "default", "const"):
        if key in schema:
            return schema[key]
    for key in ("examples", "enum"):
        if schema.get(key):
            return schema[key][0]
    for key in ("allOf", "anyOf", "oneOf"):
        if schema.get(key):
            return _value(schema[key][0], found, name, depth)
    kind = schema.get("type")
    if depth > 8:
        return None
    if kind == "object":
        properties = schema.get("properties", {})
        return {
            n: _value(properties[n], found, n, depth + 1) for n in schema.get("required", properties) if n in properties
        }
    if kind == "array":
        if "prefixItems" in schema or isinstance(schema.get("items"), list):
            return [_value(s, found, name, depth + 1) for s in schema.get("prefixItems") or schema["items"]]
        return [_value(schema.get("items", {}), found, name, depth + 1)] * max(1, min(schema.get("minItems", 1), 16))
    if kind in ("integer", "number"):
        low = schema.get("minimum", schema.get("exclusiveMinimum", 0) + (1 if "exclusiveMinimum" in schema else 0))
        return low if kind == "integer" or not isinstance(low, int) else float(low)
    if kind == "string" and schema.get("format") == "uri":
        return "http://localhost:8080/"
    return {"boolean": True, "null": None}.get(str(kind), "A text")
