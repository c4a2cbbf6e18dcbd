"""Services written for OctoAI (a subclass of octoai.service.Service) as applications of the runtime.

The routes, replies and states are those of the `octoai` command line's server; ingest/apps/octoai.go has what is
not a method of the service. docs/migrating.md lists the differences.
"""

from __future__ import annotations

import ast
import inspect
import io
import logging
import os
import time
from types import ModuleType
from typing import Any, Callable

from millrace import _forms
from millrace._application import current
from millrace._errors import LoadError, user_traceback

TIME_HEADER = "octoai-inference-time-ms"
"""The header of a reply by which the server learns how long the method has run. It is not sent to the client."""

FORM_METHOD = "infer_form_data"

_log = logging.getLogger("octoai")


def find(source: Any) -> Application | None:
    """Returns the application of a module with a subclass of Service, or None."""
    if not source.is_python or (source.options.get("style") != "octoai" and "octoai" not in source.imports):
        return None
    had = volume_environment(source)
    module = source.module()
    cls = service_class(module, source.attribute)
    if cls is None:
        if source.options.get("style") == "octoai":
            raise LoadError(f"module {module.__name__} contains no classes extending base octoai.service.Service")
        return None
    if stores_assets(cls) != had:
        set_volume_environment(not had)
    return Application(cls(), async_enable(source.argv))


def async_enable(argv: list[str]) -> bool:
    """Returns the value of the program's argument --async-enable. Raises LoadError for other arguments."""
    on = True
    rest = list(argv)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name != "--async-enable":
            raise LoadError(
                f"{name}: is not an argument of services written for OctoAI: want --async-enable true or false"
            )
        if not equals:
            value = rest.pop(0) if rest else ""
        if value.lower() not in ("true", "false", "1", "0"):
            raise LoadError(f"--async-enable: {value!r} is not true or false")
        on = value.lower() in ("true", "1")
    return on


def service_class(module: ModuleType, name: str = "") -> type | None:
    """Returns the named class of a module. Without a name, or for that of Service itself, it is the module's last class
    by name that extends Service.
    """
    from octoai.service import Service

    if name and name != Service.__name__:
        found = getattr(module, name, None)
        if not isinstance(found, type):
            raise LoadError(f"module {module.__name__} has no class {name}")
        return found if issubclass(found, Service) else None
    classes = [c for _, c in inspect.getmembers(module, inspect.isclass) if issubclass(c, Service) and c is not Service]
    direct = [c for c in classes if Service in c.__bases__]
    return (direct or classes or [None])[-1]


def stores_assets(cls: type) -> bool:
    """Tells whether a service has a store_assets of its own."""
    from octoai.service import STORE_ASSETS_NOT_OVERRIDDEN

    return not hasattr(cls.store_assets, STORE_ASSETS_NOT_OVERRIDDEN)  # type: ignore[attr-defined]


def volume_environment(source: Any) -> bool:
    """Sets the variables of the volume before the import of a program that seems to need them, and returns whether."""
    needed = any(
        isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef)) and f.name == "store_assets"
        for c in ast.walk(source._tree())
        if isinstance(c, ast.ClassDef)
        for f in c.body
    )
    if needed:
        set_volume_environment(True)
    return needed


def set_volume_environment(on: bool) -> None:
    """Sets the variables that say where libraries keep what they download, or removes them."""
    from octoai.service import VOLUME_ENVIRONMENT

    for name, value in VOLUME_ENVIRONMENT.items():
        if on:
            os.environ[name] = value
        else:
            os.environ.pop(name, None)


class Endpoint:
    """A method of a service, and its route."""

    def __init__(self, name: str, method: Callable):
        from . import octoai_schema as schemas

        self.name, self.method = name, method
        self.form = name == FORM_METHOD
        parameters, result = schemas.signature(method)
        self.path = "/infer" if name == "infer" else getattr(method, "__path__", None) or "/" + name.replace("_", "-")
        if self.form:
            if not hasattr(method, "__path__"):
                raise LoadError("infer_form_data: it has no path: decorate it with @path(\"/...\")")
            if self.path == "/infer":
                raise LoadError("infer_form_data: /infer is the path of infer: want another one in @path")
            for p in parameters:
                if p.hint is not str and not schemas.is_file(p.hint):
                    raise LoadError(f"infer_form_data: parameter {p.name}: only File and str are supported in forms")
        if not self.path.startswith("/"):
            raise LoadError(f"{name}: the path {self.path!r} does not begin with /")
        self.schema = schemas.Schema(name, parameters, result)

    @property
    def media_type(self) -> str:
        """The content type of its requests."""
        from . import octoai_schema as schemas

        if not self.form:
            return "application/json"
        files = any(schemas.is_file(p.hint) for p in self.schema.parameters)
        return "multipart/form-data" if files else "application/x-www-form-urlencoded"

    def arguments(self, request: Any) -> dict[str, Any]:
        """Returns the arguments of a request's body. Raises Invalid, Malformed or FormError."""
        from . import octoai_schema as schemas

        if self.form:
            return self._form(dict(_forms.read(request.body, request.call.content_type)))
        return self.schema.arguments(schemas.read_json(request.body, request.call.content_type))

    def _form(self, fields: dict[str, Any]) -> dict[str, Any]:
        from octoai.types import File

        from . import octoai_schema as schemas

        arguments, wrong = {}, []
        for p in self.schema.parameters:
            value, place = fields.get(p.name), ["body", p.name]
            if value is None or value == "":
                wrong.append(schemas.error(place, "missing"))
            elif schemas.is_file(p.hint):
                if isinstance(value, str):
                    wrong.append(schemas.error(place, "file", input=value))
                else:
                    arguments[p.name] = File(
                        io.BytesIO(value.data), size=len(value.data), filename=value.filename, headers=value.header
                    )
            elif isinstance(value, str):
                arguments[p.name] = value
            else:
                wrong.append(schemas.error(place, "text"))
        if wrong:
            raise schemas.Invalid(wrong)
        return arguments


RESERVED = ("/", "/docs", "/openapi.json", "/healthcheck")


def endpoints(service: Any) -> list[Endpoint]:
    """Returns the endpoints of a service, infer first. Raises LoadError."""
    from octoai.service import Service

    own = {name for name in dir(Service) if not name.startswith("_")}
    names = ["infer"] + [
        name
        for name, _ in inspect.getmembers(service, inspect.ismethod)
        if not name.startswith("_") and name not in own
    ]
    found = [Endpoint(name, getattr(service, name)) for name in names]
    taken = dict.fromkeys(RESERVED, "the server")
    for e in found:
        if e.path in taken:
            raise LoadError(f"{e.name}: its path {e.path} is that of {taken[e.path]}")
        taken[e.path] = e.name
    return found


class Application:
    """A service as an application of the runtime."""

    def __init__(self, service: Any, async_enable: bool = True):
        self.service = service
        self.async_enable = async_enable
        self._loop: Any = None
        self.endpoints = {e.name: e for e in endpoints(service)}

    def describe(self) -> dict[str, Any]:
        """Implements Application."""
        routes = [{"method": "POST", "path": e.path, "endpoint": e.name} for e in self.endpoints.values()]
        return {
            "inputs": [],
            "outputs": [],
            "max_batch": 1,
            "batch": False,
            "app": {
                "style": "octoai",
                "routes": routes,
                "openapi": self.openapi(),
                "extra": {"async_enable": self.async_enable, "replica_name": os.environ.get("OCTOAI_REPLICA_NAME", "")},
            },
        }

    def openapi(self) -> dict[str, Any]:
        """Returns the OpenAPI document."""
        from . import octoai_openapi as openapi

        return openapi.document(self.service, list(self.endpoints.values()))

    def setup(self) -> None:
        """Implements Application."""
        from octoai import _download

        level = os.environ.get("OCTOAI_LOG_LEVEL", "").upper()
        if level in ("ERROR", "WARNING", "INFO", "DEBUG"):
            logging.getLogger().setLevel(level)
        _download.private_allowed = os.environ.get("MILLRACE_SOURCES_ALLOW_PRIVATE") == "true"
        self.service.on_server_startup()
        self.service.setup()

    def run(self, requests: Any) -> None:
        """Implements Application."""
        for request in requests:
            self.answer(request)

    def answer(self, request: Any) -> None:
        """Answers one request."""
        from . import octoai_schema as schemas

        if request.call is None:
            request.fail("this model has routes only: call it at /infer", "unsupported")
            return
        endpoint = self.endpoints[request.call.endpoint]
        try:
            arguments = endpoint.arguments(request)
        except schemas.Invalid as e:
            request.reply({"detail": e.detail}, status=422)
            return
        except (_forms.FormError, schemas.Malformed) as e:
            request.reply({"detail": str(e)}, status=400)
            return
        token = current.set(request)
        clock = time.perf_counter if self.async_enable else time.process_time
        start = clock()
        try:
            result = endpoint.method(**arguments)
            if inspect.isawaitable(result):
                result = self._wait(result)
            milliseconds = (clock() - start) * 1000
            body = endpoint.schema.answer(result)
        except Exception as e:
            _log.exception("%s() raised an exception", endpoint.name)
            request.fail(f"{endpoint.name}: {type(e).__name__}: {e}", traceback=user_traceback(e))
            return
        finally:
            current.reset(token)
        request.reply(body, content_type="application/json", headers={TIME_HEADER: repr(milliseconds)})

    def _wait(self, awaitable: Any) -> Any:
        """Returns the result of a coroutine, in the one event loop of the process: what it has made stays there for the
        next request.
        """
        if self._loop is None:
            from millrace._events import new_loop  # with asyncio, which takes a third of a child's start

            self._loop = new_loop()
        return self._loop.run_until_complete(_value(awaitable))

    def watchdog(self) -> None:
        """Implements Application."""

    def close(self) -> None:
        """Implements Application."""
        self.service.on_server_shutdown()
        if self._loop is not None:
            self._loop.close()


async def _value(awaitable: Any) -> Any:
    return await awaitable
