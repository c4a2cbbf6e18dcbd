"""Reads the dictionary of an ssf_config.yaml into the configuration that the application gets."""

import os
import re
from argparse import Namespace
from typing import Any, Dict, List

from ssf.application_interface import config as c
from ssf.application_interface.results import SSFExceptionApplicationConfigError as ConfigError

from . import ssf_types as types

_NAME = re.compile(r"[A-Za-z0-9_.~-]+")
_LEAVES = (int, float, str, bool, type(None))


def read(config: Dict[str, Any], file: str, args: Dict[str, Any]) -> c.SSFConfig:
    """Returns the configuration that a file has. The options of the command line are in args.

    Raises SSFExceptionApplicationConfigError, which names the field.
    """
    if not isinstance(config, dict):
        raise ConfigError(f"{file} has no fields: want application and endpoints")
    if args.get("modify_config"):
        modify(config, args["modify_config"])
    _expand(config, config)
    options = Namespace(**{name: value for name, value in args.items() if name != "unknown_args"})
    out = c.SSFConfig(
        ssf_version=str(config.get("ssf_version", "0.0.1")),
        config_file=file,
        config_dict=config,
        args=options,
        unknown_args=list(args.get("unknown_args") or []),
        api=args.get("api"),
    )
    _check_version(out.ssf_version)
    out.application = _application(_section(config, "application"), os.path.abspath(file), options)
    endpoints = config.get("endpoints")
    if not isinstance(endpoints, list) or not endpoints:
        raise ConfigError("endpoints is missing: want a list of endpoints")
    out.endpoints = [_endpoint(i, e, out.application) for i, e in enumerate(endpoints)]
    seen = set()
    for e in out.endpoints:
        if (e.id, str(e.version)) in seen:
            raise ConfigError(f"endpoints[{e.index}]: version {e.version} of {e.id} is there already")
        seen.add((e.id, str(e.version)))
    return out


def _check_version(version: str) -> None:
    numbers = [int(n) for n in re.findall(r"\d+", version)[:3]]
    if numbers > [1, 2, 0]:
        raise ConfigError(f"ssf_version {version} is later than 1.2.0, the latest whose interfaces Millrace has")


def _section(of: Dict[str, Any], name: str) -> Dict[str, Any]:
    value = of.get(name)
    if not isinstance(value, dict):
        raise ConfigError(f"{name} is missing in the configuration")
    return value


def _id(value: Any, where: str) -> str:
    name = str(value)
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{where}.id {name!r} has characters other than letters, digits, '_', '-', '.' and '~'")
    return name


def _application(a: Dict[str, Any], file: str, args: Namespace) -> c.ApplicationDescription:
    out = c.ApplicationDescription(package=_package(a))
    out.id = _id(a.get("id", out.id), "application")
    for name in (
        "name",
        "version",
        "license_name",
        "license_url",
        "terms_of_service",
        "startup_timeout",
        "trace",
        "ipus",
        "artifacts",
        "dependencies",
        "syspaths",
    ):
        value = a.get(name, getattr(out, name))
        setattr(
            out,
            name,
            getattr(out, name) if value is None and name in ("artifacts", "dependencies", "syspaths") else value,
        )
    out.description = a.get("desc", out.description)
    out.max_batch_size = a.get("max_batch_size", 1) or 1
    if not isinstance(out.max_batch_size, int) or not 1 <= out.max_batch_size <= 4096:
        raise ConfigError(f"application.max_batch_size is {out.max_batch_size!r}: want a whole number, 1 to 4096")
    out.total_ipus = out.ipus * getattr(args, "fastapi_replicate_server", 1) * getattr(args, "replicate_application", 1)
    if not isinstance(a.get("module"), str):
        raise ConfigError("application.module is missing: want the file of the application's module")
    out.dir = os.path.dirname(file)
    relative = os.path.join(out.dir, a["module"])
    out.file = relative if os.path.isfile(relative) else a["module"]
    out.file_dir = os.path.dirname(os.path.abspath(out.file))
    out.venv_dir = os.path.join(os.getcwd(), f"ssf-{out.id}-venv")
    return out


def _package(a: Dict[str, Any]) -> c.PackageDescription:
    p = a.get("package") or {}
    return c.PackageDescription(
        name=p.get("name", f"{a.get('id')}.{a.get('version')}.tar.gz"),
        tag=p.get("tag", f"{a.get('id')}:{a.get('version')}"),
        inclusions=p.get("inclusions") or [],
        exclusions=p.get("exclusions") or [],
        docker=p.get("docker") or {},
        docker_run=(p.get("docker") or {}).get("run", ""),
        base_image=(p.get("docker") or {}).get("baseimage"),
    )


def _endpoint(index: int, e: Any, application: c.ApplicationDescription) -> c.EndpointDescription:
    where = f"endpoints[{index}]"
    if not isinstance(e, dict):
        raise ConfigError(f"{where} has no fields: want id, inputs and outputs")
    out = c.EndpointDescription(index=index, id=_id(e.get("id", f"endpoint_{index}"), where))
    out.version = e.get("version", out.version)
    if not _NAME.fullmatch(str(out.version)):
        raise ConfigError(f"{where}.version {out.version!r} cannot be a part of a route")
    out.description = e.get("desc", out.description)
    out.custom = e.get("custom")
    if out.custom:
        raise ConfigError(
            f"{where}.custom is not supported: {out.custom} is a FastAPI router of its own; "
            "declare inputs and outputs, or serve that router as a FastAPI application"
        )
    out.http_param_format = e.get("http_param_format")
    if out.http_param_format not in (None, "json", "query"):
        raise ConfigError(f"{where}.http_param_format is {out.http_param_format!r}: want json or query")
    out.inputs = _params(e.get("inputs"), f"{where}.inputs", "input", types.FILE)
    out.outputs = _params(e.get("outputs"), f"{where}.outputs", "output", types.PNG)
    if sum(p.dtype == types.PNG for p in out.outputs) > 1:
        raise ConfigError(
            f"{where}.outputs has several of type {types.PNG}: it is the body of the reply, of which there is one"
        )
    return out


def _params(values: Any, where: str, name: str, other: str) -> List[c.EndpointParam]:
    if values is None:
        return []
    if not isinstance(values, list):
        raise ConfigError(f"{where} is not a list")
    out: List[c.EndpointParam] = []
    for i, p in enumerate(values):
        at = f"{where}[{i}]"
        if not isinstance(p, dict) or p.get("type") is None:
            raise ConfigError(f"{at}.type is missing")
        param = c.EndpointParam(
            id=_id(p.get("id", f"{name}_{i}"), at),
            dtype=str(p["type"]),
            description=p.get("desc", f"Endpoint {name}s {i}"),
            example=p.get("example"),
        )
        if param.dtype not in types.TYPES and param.dtype != other:
            raise ConfigError(f"{at}.type {param.dtype!r} is unknown: want {', '.join(types.TYPES)} or {other}")
        if any(param.id == o.id for o in out):
            raise ConfigError(f"{at}.id {param.id!r} is there already")
        if param.example is not None and param.dtype in types.TYPES:
            try:
                types.TYPES[param.dtype].example(param.example)
            except types.Invalid as e:
                raise ConfigError(f"{at}.example {param.example!r} is not of the type {param.dtype}: {e}") from None
        out.append(param)
    return out


def modify(config: Dict[str, Any], changes: str) -> None:
    """Applies changes: `field=value`, separated by `;`. A field that is there keeps its type, a new one is a string."""
    wrong = []
    fields = [change for change in changes.split(";") if change.strip()]
    for change in fields:
        path, sign, value = change.partition("=")
        try:
            if not sign:
                raise ValueError("want field=value")
            _set(config, path.strip(), value)
        except (ValueError, TypeError) as e:
            wrong.append(f"Config field can not be set with `{change}`: {e}")
    if wrong:
        raise ConfigError(f"--modify-config: Failed to modify config with `{fields}`: " + "; ".join(wrong))


def _set(config: Any, path: str, value: str) -> None:
    steps: List[Any] = []
    for part in path.split("."):
        name = re.fullmatch(r"([^\[\]]+)(?:\[(\d+)\])?", part)
        if name is None:
            raise ValueError(f"{part!r} is not a field or an element, such as name[0]")
        steps.append(name.group(1))
        if name.group(2) is not None:
            steps.append(int(name.group(2)))
    at = config
    for i, step in enumerate(steps):
        last = i == len(steps) - 1
        if isinstance(step, int):
            if not isinstance(at, list):
                raise ValueError(f"{steps[i - 1]} is not a list")
            if step >= 1024:
                raise ValueError(f"element {step} is beyond 1023")
            at.extend([None] * (step + 1 - len(at)))
            old = at[step]
        elif not isinstance(at, dict):
            raise ValueError(f"{step} is inside a field that is not a section")
        else:
            old = at.get(step)
        if not last:
            if old is None:
                at[step] = [] if isinstance(steps[i + 1], int) else {}
            at = at[step]
        elif not isinstance(old, _LEAVES):
            at_fault = f"set dict: '{'.'.join(str(s) for s in steps[: i + 1])}'"
            if isinstance(old, list):
                raise ValueError(f"{at_fault} is a list; index required")
            raise ValueError(f"{at_fault} references an existing non-leaf field: name one of its fields")
        else:
            at[step] = _like(old, value)


def _like(old: Any, value: str) -> Any:
    if old is None:
        return value
    if isinstance(old, bool):
        if value not in ("True", "False"):
            raise ValueError("want True or False")
        return value == "True"
    return type(old)(value)


def _expand(at: Any, config: Dict[str, Any]) -> None:
    """Replaces {{field}} in all strings by the field's value."""
    for key, value in at.items() if isinstance(at, dict) else enumerate(at):
        if isinstance(value, str):
            at[key] = re.sub(r"\{\{(.*?)\}\}", lambda m: _lookup(config, m.group(1)), value)
        elif isinstance(value, (dict, list)):
            _expand(value, config)


def _lookup(config: Dict[str, Any], symbol: str) -> str:
    path, sign, default = symbol.partition(":")
    value: Any = config
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    if value is None or value == "":
        if not sign:
            raise ConfigError(f"{{{{{symbol}}}}} names no field of the configuration")
        return default
    return str(value)
