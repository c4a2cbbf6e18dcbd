"""Serves applications of Simple Server Framework: an ssf_config.yaml and the module that it names.

The server reads the file (options `ssf`: config, the file as a dictionary; args, the options of its command line).
A call is checked by the declared inputs, handed to the application's request, and answered with the declared outputs.
"""

from __future__ import annotations

import base64
import inspect
import json
import logging
import os
import re
import sys
import time
import types as python_types
from typing import Any
from urllib.parse import parse_qs

from . import ssf_openapi
from millrace._errors import LoadError, describe, user_traceback

NAMES = ("ssf_config.yaml", "ssf_config.yml")

logger = logging.getLogger("ssf")


def find(program: Any) -> Application | None:
    """Returns the application of an ssf_config.yaml, or None for another program."""
    given = program.options.get("ssf")
    if given is None:
        if program.path is not None and os.path.basename(program.path) in NAMES:
            raise LoadError(f"{program.path} was not read by the server: this is a fault of it")
        return None
    from ssf.application_interface.results import SSFException
    from . import ssf_config
    from millrace._load import missing

    hello = program.options.get("hello") or {}
    args, replica = given.get("args") or {}, hello.get("instance") or 0
    if "DEBUG" in (args.get("stdout_log_level"), args.get("file_log_level")):
        logging.getLogger().setLevel(logging.DEBUG)
    try:
        config = ssf_config.read(given["config"], given["file"], args)
        logger.info("> [%d] Worker of %s [%d->%d]", replica, config.application.id, os.getppid(), os.getpid())
        return Application(config, replica)
    except SSFException as e:
        if isinstance(e.__cause__, ModuleNotFoundError):
            raise missing(given["file"], e.__cause__) from e.__cause__
        raise LoadError(str(e), f"ssf-{e.result_code}") from e.__cause__


class Refused(Exception):
    """A request that is not as its endpoint declares."""

    def __init__(self, status: int, detail: Any):
        super().__init__(detail)
        self.status, self.detail = status, detail


FAILED = "There was an error processing inputs"  # the detail that clients know


class Endpoint:
    """An endpoint's inputs and outputs."""

    def __init__(self, config: Any, application: Any):
        from . import ssf_types as types

        self.config, self.path = config, f"/v{config.version}/{config.id}"
        self.types, self.prefix = types, application.id + "_"
        self.files = [p for p in config.inputs if p.dtype == types.FILE]
        self.values = [(p, types.TYPES[p.dtype]) for p in config.inputs if p.dtype != types.FILE]
        self.query = bool(self.files) or config.http_param_format == "query"
        self.body = next((p for p in config.outputs if p.dtype == types.PNG), None)
        self.outputs = [(p, types.TYPES[p.dtype]) for p in config.outputs if p.dtype != types.PNG]

    def meta(self, replica: int, user: str) -> dict[str, Any]:
        """Returns what the application is told of a request besides its inputs."""
        c = self.config
        meta = {
            "endpoint_id": str(c.id),
            "endpoint_version": str(c.version),
            "endpoint_index": c.index,
            "replica": replica,
        }
        if user:
            meta["user_id"] = user
        return meta

    def inputs(self, request: Any, opened: list[Any]) -> dict[str, Any]:
        """Returns the inputs of a request by name; Refused when they are not as declared. Files are added to opened."""
        faults: list[dict[str, Any]] = []
        found: dict[str, Any] = {}
        if self.query:
            try:
                given = parse_qs(request.call.query, keep_blank_values=True, max_num_fields=10000)
            except ValueError as e:
                raise Refused(400, f"the query cannot be read: {e}") from None
            for p, t in self.values:
                words = given.get(p.id)
                self._take(
                    found,
                    faults,
                    "query",
                    p,
                    t,
                    None if words is None else words if t.many else words[-1],
                    words is None,
                )
            if self.files:
                self._upload(request, found, faults, opened)
        elif self.values:
            body = self._json(request)
            for p, t in self.values:
                self._take(found, faults, "body", p, t, body.get(p.id), p.id not in body)
        if faults:
            raise Refused(422, faults)
        return {p.id: found[p.id] for p in self.config.inputs}

    def _take(
        self, found: dict[str, Any], faults: list[dict[str, Any]], where: str, p: Any, t: Any, value: Any, missing: bool
    ) -> None:
        if missing:
            faults.append({"loc": [where, p.id], "msg": "field required", "type": "value_error.missing"})
            return
        try:
            found[p.id] = t.value(value)
        except self.types.Invalid as e:
            faults.append({"loc": [where, p.id, *e.at], "msg": str(e), "type": e.kind})

    @staticmethod
    def _json(request: Any) -> dict[str, Any]:
        body = bytes(request.body)
        if not body:
            raise Refused(422, [{"loc": ["body"], "msg": "field required", "type": "value_error.missing"}])
        try:
            value = json.loads(body)
        except json.JSONDecodeError as e:
            raise Refused(422, [{"loc": ["body", e.pos], "msg": str(e), "type": "value_error.jsondecode"}]) from None
        except (ValueError, RecursionError):
            raise Refused(400, "There was an error parsing the body") from None
        if not isinstance(value, dict):
            raise Refused(422, [{"loc": ["body"], "msg": "value is not a valid dict", "type": "type_error.dict"}])
        return value

    def _upload(self, request: Any, found: dict[str, Any], faults: list[dict[str, Any]], opened: list[Any]) -> None:
        parts = _parts(request.call.content_type, bytes(request.body))
        for p in self.files:
            if p.id not in parts:
                faults.append({"loc": ["body", p.id], "msg": "field required", "type": "value_error.missing"})
                continue
            filename, data = parts[p.id]
            found[p.id] = self.file(filename, data, opened)

    def file(self, filename: str, data: bytes, opened: list[Any]) -> str:
        """Returns the path of a temporary file with the suffix of filename; opened has what deletes it."""
        suffix = os.path.splitext(os.path.basename(filename))[1]
        import tempfile  # only here, since each child imports this module

        f = tempfile.NamedTemporaryFile(
            prefix=self.prefix, suffix=suffix if len(suffix) < 32 and suffix.isprintable() else ""
        )
        opened.append(f)
        f.write(data)
        f.flush()
        return f.name

    def answer(self, request: Any, result: dict[str, Any], headers: dict[str, str]) -> None:
        """Answers a request with the application's outputs; raises when they are not as declared."""
        if self.body is None:
            out = {p.id: t.answer(result[p.id]) for p, t in self.outputs}
            request.reply(_compact(out), content_type="application/json", headers=headers)
            return
        data = result[self.body.id]
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"output {self.body.id} is of type {type(data).__name__}: want bytes")
        for p, _ in self.outputs:
            headers[p.id] = _header(str(result[p.id]))
        request.reply(data, content_type="image/png", headers=headers)

    def tensors(self, given: dict[str, Any], opened: list[Any]) -> dict[str, Any]:
        """Returns the inputs of a request over gRPC by name."""
        found: dict[str, Any] = {}
        for p in self.config.inputs:
            tensor = given.get(p.id)
            if tensor is None:
                raise Refused(400, f"Input name = '{p.id}', type = '{p.dtype}' not found")
            t = self.types.TYPES.get(p.dtype)
            contents = t.contents if t else "bytes"
            values = tensor["values"] if tensor["contents"] == contents else []
            if not values or contents == "bytes" and t is None and not values[0]:
                raise Refused(400, f"contents.{contents}_contents not set in input name = '{p.id}'.")
            if contents == "bytes":
                values = [base64.b64decode(v) for v in values]
            if t is None:
                if not os.path.splitext(tensor.get("file_name") or "")[1]:
                    raise Refused(
                        400,
                        f"'file_name' not set in parameters string_param of input '{p.id}', or without an extension",
                    )
                found[p.id] = self.file(tensor["file_name"], values[-1], opened)
                continue
            try:
                values = [t.read(v.decode() if contents == "bytes" else v) for v in values]
            except (UnicodeDecodeError, self.types.Invalid) as e:
                raise Refused(400, f"input '{p.id}' is not of the type {p.dtype}: {e}") from None
            found[p.id] = values if t.many else values[-1]
        return found

    def answer_tensors(self, request: Any, result: dict[str, Any], headers: dict[str, str]) -> None:
        """Answers a request over gRPC."""
        out = []
        for p in self.config.outputs:
            t = self.types.TYPES.get(p.dtype)
            value = result[p.id]
            if t is None:
                datatype, contents, values = "BYTES", "bytes", [base64.b64encode(value).decode()]
            else:
                datatype, contents = t.datatype, t.contents
                values = t.answer(value) if t.many else [t.answer(value)]
                if contents == "bytes":
                    values = [base64.b64encode(v.encode()).decode() for v in values]
            out.append(
                {
                    "name": p.id,
                    "datatype": datatype,
                    "contents": contents,
                    "description": str(p.description),
                    "values": values,
                }
            )
        request.reply(_compact({"outputs": out}), content_type="application/json", headers=headers)


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _header(text: str) -> str:
    if not text.isprintable() and text:
        raise ValueError("an output has characters that a header cannot have")
    text.encode("latin-1")
    return text


_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|(?<!\r)\n")


def _parts(content_type: str, body: bytes) -> dict[str, tuple[str, bytes]]:
    """Returns the files of a multipart body by field: file name and content."""
    from email.message import Message
    from email.parser import BytesParser
    from email.policy import HTTP

    header = Message()
    header["Content-Type"] = content_type
    boundary = header.get_boundary("")
    if header.get_content_type() != "multipart/form-data" or not boundary:
        return {}
    out: dict[str, tuple[str, bytes]] = {}
    for piece in (b"\r\n" + body).split(b"\r\n--" + boundary.encode("latin-1", "replace"))[1:]:
        if piece.startswith(b"--"):
            break
        head, gap, data = piece.lstrip(b" \t").partition(b"\r\n\r\n")
        if not gap or _CONTROL.search(head):
            raise Refused(400, "There was an error parsing the body")
        part = BytesParser(policy=HTTP).parsebytes(head.lstrip(b"\r\n") + b"\r\n\r\n", headersonly=True)
        name = part.get_param("name", header="content-disposition")
        filename = part.get_filename()
        if isinstance(name, str) and filename is not None:
            out[name] = (filename, data)
    return out


class Application:
    """Serves the application's instance of this process."""

    def __init__(self, config: Any, replica: int):
        from ssf.application_interface import results

        self.config, self.replica, self.results = config, replica, results
        self.ends: tuple[str, int] | None = None  # why the process ends after the batch, and its exit status
        self.endpoints = {e.path: e for e in (Endpoint(e, config.application) for e in config.endpoints)}
        self.interface = instance(config)
        if getattr(config.args, "api", None) == "grpc":
            for e in self.endpoints.values():
                for p in [p for p, t in e.values + e.outputs if not t.contents]:
                    raise LoadError(
                        f"{e.path}: {p.id} is of type {p.dtype}, which gRPC does not have: declare its type", "ssf-155"
                    )

    def describe(self) -> dict[str, Any]:
        """Implements Application."""
        a = self.config.application
        routes = [{"method": "POST", "path": e.path, "endpoint": e.path} for e in self.endpoints.values()]
        return {
            "inputs": [],
            "outputs": [],
            "any": True,
            "batch": False,
            "max_batch": a.max_batch_size,
            "app": {
                "style": "ssf",
                "routes": routes,
                "openapi": ssf_openapi.document(self.config, self.endpoints.values()),
                "extra": {"application": a.id},
            },
        }

    def setup(self) -> None:
        """Implements Application."""
        os.chdir(self.config.application.file_dir)
        self._ok(self.interface.startup(), "startup")

    def watchdog(self) -> None:
        """Implements Application."""
        self._ok(self.interface.watchdog(), "watchdog")

    def close(self) -> None:
        """Implements Application."""
        self._ok(self.interface.shutdown(), "shutdown")

    def failure_kind(self, error: BaseException) -> str | None:
        """Returns the kind of an error of describe or setup: its result code, which the command's exit status is."""
        code = getattr(error, "result_code", None)
        return f"ssf-{code}" if isinstance(code, int) else None

    def _ok(self, code: Any, method: str) -> None:
        if code != self.results.RESULT_OK:
            raise self.results.SSFExceptionApplicationError(f"{method} returned {_result(code, self.results)}")

    def run(self, requests: Any) -> None:
        """Implements Application. When the application raises, its requests fail and the process ends, so that it is
        started anew."""
        opened: list[Any] = []
        try:
            self._run(requests, opened)
        finally:
            for f in opened:
                try:
                    f.close()
                except FileNotFoundError:  # the application moved or deleted it
                    pass

    def _run(self, requests: Any, opened: list[Any]) -> None:
        asked = []
        for r in requests:
            if r.call is None:
                r.fail(
                    f"{self.config.application.id} answers its routes only, such as POST {next(iter(self.endpoints))}",
                    "unsupported",
                )
                continue
            if r.cancelled:
                r.drop()
                continue
            try:
                asked.append((r, *self._read(r, opened)))
            except Refused as e:
                r.reply({"detail": e.detail}, e.status)
        if not asked:
            return
        single = self.config.application.max_batch_size == 1
        try:
            for part in [asked[i : i + 1] for i in range(len(asked))] if single else [asked]:
                params, meta = [a[2] for a in part], [a[3] for a in part]
                logger.debug("[%d] Dispatcher issuing request", self.replica)
                begun = time.perf_counter()
                given = self.interface.request(params[0], meta[0]) if single else self.interface.request(params, meta)
                took = time.perf_counter() - begun
                self._check(given, single)
                for (r, e, _, _), result in zip(part, [given] if single else given + [{}] * len(part)):
                    self._answer(r, e, result, took)
        except Exception as e:
            logger.error("request failed: %s\n%s", describe(e), user_traceback(e))
            for r, *_ in asked:
                if not r.ended:
                    r.reply({"detail": FAILED}, 400)
            self.ends = describe(e), getattr(e, "result_code", self.results.RESULT_APPLICATION_ERROR)

    def _check(self, given: Any, single: bool) -> None:
        if single and not isinstance(given, dict):
            raise self.results.SSFExceptionApplicationError(
                f"Expected result as dict for unbatched request: request returned a {type(given).__name__}"
            )
        if not single and not (isinstance(given, list) and all(isinstance(g, dict) for g in given)):
            raise self.results.SSFExceptionApplicationError(
                "Expected result as list of dict for batched request, as max_batch_size above 1 needs"
            )

    def _read(self, r: Any, opened: list[Any]) -> tuple[Endpoint, dict[str, Any], dict[str, Any]]:
        """Returns the endpoint of a request, its inputs and its metadata."""
        if r.call.method == "GRPC":
            body = json.loads(bytes(r.body))
            endpoint = self.endpoints[self._named(body)]
            return endpoint, endpoint.tensors(body["inputs"], opened), endpoint.meta(self.replica, r.user_id)
        endpoint = self.endpoints[r.call.endpoint]
        return endpoint, endpoint.inputs(r, opened), endpoint.meta(self.replica, r.user_id)

    def _named(self, body: dict[str, Any]) -> str:
        """Returns the endpoint that a request over gRPC names; the only one, or only version, need not be named."""
        ids = list(dict.fromkeys(str(e.config.id) for e in self.endpoints.values()))
        name = body.get("endpoint") or (ids[0] if len(ids) == 1 else "")
        if not name:
            raise Refused(400, f"Specify endpoint id with 'endpoint' parameter (string_param). Choice: {' '.join(ids)}")
        if name not in ids:
            raise Refused(400, f"Endpoint '{name}' not found. Choice: {' '.join(ids)}")
        versions = [str(e.config.version) for e in self.endpoints.values() if e.config.id == name]
        version = body.get("version") or (versions[0] if len(versions) == 1 else "")
        if not version:
            raise Refused(
                400, f"Specify endpoint version with 'version' parameter (string_param). Choice: {' '.join(versions)}"
            )
        if version not in versions:
            raise Refused(
                400, f"Endpoint version '{version}' of endpoint '{name}' not found. Choice: {' '.join(versions)}"
            )
        return f"/v{version}/{name}"

    def _answer(self, r: Any, endpoint: Endpoint, result: dict[str, Any], took: float) -> None:
        headers = {"metrics-dispatch-latency": str(took)}
        try:
            (endpoint.answer_tensors if r.call.method == "GRPC" else endpoint.answer)(r, result, headers)
        except (KeyError, TypeError, ValueError, RecursionError) as e:
            logger.error("%s: the outputs are not as declared: %s", endpoint.path, describe(e))
            r.reply({"detail": FAILED}, 400)


def _result(code: Any, results: Any) -> str:
    name = results.result_strings.get(code) if isinstance(code, int) else None
    return f"{name} ({code})" if name else repr(code)


def search_path(application: Any) -> None:
    """Adds the application's folders to the path: syspaths, that of its module, that of its configuration."""
    from millrace._load import _own_places

    folders = [os.path.abspath(os.path.join(application.dir, p)) for p in application.syspaths]
    folders += [application.file_dir, application.dir]
    at = _own_places()
    sys.path[at:at] = [f for f in dict.fromkeys(folders) if f not in sys.path]


def instance(
    config: Any, kind: str = "SSFApplicationInterface", factory: str = "create_ssf_application_instance"
) -> Any:
    """Returns the application's instance: of its factory, or of its only class that implements the interface.

    Raises SSFException.
    """
    from ssf.application_interface import results, utils

    a = config.application
    search_path(a)
    if not os.path.isfile(a.file):
        raise results.SSFExceptionApplicationConfigError(f"application.module: {a.file} does not exist")
    module = utils.load_module(a.file, a.id)
    what, methods = _KINDS[kind]
    make: Any = getattr(module, factory, None)
    if not inspect.isfunction(make):
        classes = [
            c for _, c in inspect.getmembers(module, inspect.isclass) if kind in [b.__name__ for b in c.__mro__[1:]]
        ]
        for c in classes:
            logger.info("Found %s", c)
        if len(classes) != 1:
            raise results.SSFExceptionApplicationModuleError(
                f"Only one application {what} should be defined: {a.file} has {len(classes) or 'no'} classes that "
                f"implement {kind}. Want one, or a function {factory}"
            )
        make = classes[0]
    try:
        parameters = [p for p in inspect.signature(make).parameters]
        with utils.temporary_cwd(a.file_dir):
            made = make(ssf_config=_copy(config)) if parameters == ["ssf_config"] else make()
    except results.SSFExceptionUnmetRequirement:
        raise
    except Exception as e:
        raise results.SSFExceptionApplicationModuleError(
            f"Could not create {a.id} application {what}: {getattr(make, '__name__', make)} failed: {describe(e)}"
        ) from e
    if inspect.isfunction(make):
        logger.info("Application instantiated by user-defined function`%s`", factory)
    healthy = getattr(made, "is_healthy", None)
    if kind == "SSFApplicationInterface" and callable(healthy):  # what older applications have
        logger.warning("Using application interface 'is_healthy' as 'watchdog'")
        made.watchdog = python_types.MethodType(
            lambda self: results.RESULT_OK if self.is_healthy() else results.RESULT_APPLICATION_ERROR, made
        )
    lacking = [m for m in methods if not callable(getattr(made, m, None))]
    for m in lacking:
        logger.error("Interface '%s' missing or not callable", m)
    if lacking:
        raise results.SSFExceptionApplicationModuleError(f"{type(made).__name__} lacks {', '.join(lacking)}")
    return made


# What the log calls an interface, and its methods.
_KINDS = {
    "SSFApplicationInterface": ("main interface", ("build", "startup", "request", "shutdown", "watchdog")),
    "SSFApplicationTestInterface": ("test interface", ("begin", "subtest", "end")),
}


def _copy(config: Any) -> Any:
    import copy

    return copy.deepcopy(config)
