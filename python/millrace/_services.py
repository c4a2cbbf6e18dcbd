"""Services: a class with infer or predict, or a function with this name. docs/python.md describes services."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Callable

from . import _tensors
from ._answers import Answers, fail
from ._application import Batch as Requests
from ._application import Request, current
from ._endpoints import MARK, Bound, Endpoint
from ._errors import Error, LoadError
from ._load import Source

if TYPE_CHECKING:  # _endpoints.py imports it for services that need it
    import asyncio

_CANCEL_PERIOD = 0.05
"""Seconds after which the loop of async functions looks for cancelled requests."""


def find(source: Source) -> Any:
    """Returns the application of a class or function; None if the program has none."""
    if not source.is_python:
        return None
    module = source.module()
    if source.attribute:
        target = module
        for part in source.attribute.split("."):
            target = getattr(target, part, None)
        if target is None:
            raise LoadError(
                f"{source.text} has no {source.attribute}: it has "
                f"{', '.join(_candidates(module)) or 'no class or function with infer or predict'}"
            )
        return Service(target, source)
    found = _candidates(module)
    for name, value in vars(module).items():
        if (
            inspect.isfunction(value)
            and value.__module__ == module.__name__
            and getattr(value, MARK, {}).get("endpoint")
            and name not in found
        ):
            raise LoadError(f"{name} is an endpoint, and no method: put it into the class that has infer or predict")
    if len(found) > 1:
        raise LoadError(
            f"{source.text} has several services ({', '.join(found)}): choose one, such as "
            f"{source.text}:{next(iter(found))}, or by the setting class"
        )
    for target in found.values():
        return Service(target, source)
    return None


def _candidates(module: Any) -> dict[str, Any]:
    """Returns the services of a module by name: classes with infer, predict or an endpoint, without base classes of
    services, and functions infer and predict.
    """
    classes = {
        n: c
        for n, c in vars(module).items()
        if inspect.isclass(c)
        and c.__module__ == module.__name__
        and not inspect.isabstract(c)
        and (
            any(callable(getattr(c, m, None)) for m in ("infer", "predict"))
            or any(hasattr(f, MARK) for f in vars(c).values())
        )
    }
    classes = {n: c for n, c in classes.items() if not any(c is not d and issubclass(d, c) for d in classes.values())}
    functions = {n: f for n in ("infer", "predict") if inspect.isroutine(f := getattr(module, n, None))}
    return {**classes, **functions}


class Service:
    """The application of a class or function."""

    def __init__(self, target: Any, source: Source):
        hello = source.options.get("hello") or {}
        self.name = hello.get("name") or getattr(target, "__name__", "service")
        self.parameters: dict[str, Any] = hello.get("parameters") or {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self.endpoints: dict[str, Endpoint] = {}
        self.main: Endpoint | None = None
        if inspect.isclass(target):
            _check_self(target)
            self.object = _made(target, source)
        else:
            self.object = target
        default = getattr(self.object, "max_batch_size", 0)
        if default and (type(default) is not int or not 1 <= default <= 4096):
            raise LoadError(f"max_batch_size is {default!r}: want 1 to 4096")
        if inspect.isroutine(target):
            self._add(Endpoint(target, target.__name__, "/infer", default), main=True)
        else:
            self._find_methods(default)
        self.stateful = bool(getattr(self.object, "stateful", False)) or any(
            e.stateful for e in self.endpoints.values()
        )
        self.declared = (hello.get("declared") or {}) if self.main else {}
        self.answers = Answers(self.main, bool(self.model.get("batch")))

    def _find_methods(self, default: int) -> None:
        names = [n for n in ("infer", "predict") if callable(getattr(self.object, n, None))]
        if len(names) > 1:
            raise LoadError(f"{type(self.object).__name__} has infer and predict: leave one out")
        for n in names:
            method = getattr(self.object, n)
            mark = getattr(method, MARK, None)
            path = (mark and mark.get("path")) or "/infer"
            self._add(Endpoint(method, n, path, default, example=getattr(self.object, "example", None)), main=True)
        for n in dir(type(self.object)):
            if n in names or not hasattr(inspect.getattr_static(type(self.object), n), MARK):
                continue
            method = getattr(self.object, n)
            mark = getattr(method, MARK)
            if mark.get("endpoint"):
                self._add(Endpoint(method, n, mark.get("path") or "/" + n, default))
        if not self.endpoints:
            raise LoadError(f"{type(self.object).__name__} has no method infer or predict, and no endpoints")

    def _add(self, endpoint: Endpoint, main: bool = False) -> None:
        if main:
            self.main = endpoint
        for e in self.endpoints.values():
            if (e.method, e.path) == (endpoint.method, endpoint.path):
                raise LoadError(f"{e.name} and {endpoint.name} have the same route {e.method} {e.path}")
        self.endpoints[endpoint.name] = endpoint

    @property
    def model(self) -> dict[str, Any]:
        """The result of describe without the routes."""
        out: dict[str, Any] = {"inputs": [], "outputs": [], "any": True, "batch": False}
        if self.main is not None:
            out.update(self.main.model())
        out["max_batch"] = max(e.max_batch for e in self.endpoints.values())
        if self.main is None or out["any"]:
            out["batch"] = out["max_batch"] > 1
        return out

    def describe(self) -> dict[str, Any]:
        """Implements Application."""
        from ._openapi import document

        out = self.model
        if self.stateful:
            out["stateful"] = True
        if self.main is not None and self.main.streams:
            out["decoupled"] = True
        routes = []
        for e in self.endpoints.values():
            route: dict[str, Any] = {"method": e.method, "path": e.path, "endpoint": e.name}
            if e.streams:
                route["events"] = True
            if e.openai:
                route["openai"] = True
            routes.append(route)
        out["app"] = {
            "style": "millrace",
            "routes": routes,
            "openapi": document(self.name, self.object, list(self.endpoints.values())),
        }
        return out

    def setup(self) -> None:
        """Implements Application."""
        setup = getattr(self.object, "setup", None)
        if setup is None or inspect.isroutine(self.object):
            return
        takes = inspect.signature(setup).parameters
        wrong = [
            n
            for n, p in takes.items()
            if n != "parameters" and p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        ]
        if wrong:
            raise LoadError(
                f"setup takes {', '.join(wrong)}: it may take `parameters`, those of the model, and nothing else"
            )
        self._wait(setup(self.parameters) if "parameters" in takes else setup())

    def watchdog(self) -> Any:
        """Implements Application: calls watchdog and health of the class."""
        for name in ("watchdog", "health"):
            check = getattr(self.object, name, None)
            if callable(check) and not inspect.isroutine(self.object) and self._wait(check()) is False:
                raise Error(f"{name} returned False")
        return True

    def close(self) -> None:
        """Implements Application."""
        close = getattr(self.object, "close", None)
        if callable(close) and not inspect.isroutine(self.object):
            self._wait(close())
        if self._loop is not None:
            self._loop.close()

    def _wait(self, value: Any) -> Any:
        return self.loop.run_until_complete(value) if inspect.isawaitable(value) else value

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of async functions."""
        if self._loop is None:
            from ._events import new_loop  # with asyncio, which takes a third of a child's start

            self._loop = new_loop()
        return self._loop

    def run(self, requests: Requests) -> None:
        """Implements Application."""
        if len(requests) == 1:
            r = requests[0]
            e = self.endpoint(r)
            if e is not None and not e.batch and not e.is_async:
                self.one(e, r)
                return
        later: list[tuple[Endpoint, Request]] = []
        together: dict[str, list[Request]] = {}
        for r in requests:
            e = self.endpoint(r)
            if e is None:
                continue
            if e.batch:
                together.setdefault(e.name, []).append(r)
            elif e.is_async:
                later.append((e, r))
            else:
                self.one(e, r)
        for name, group in together.items():
            self.batch(self.endpoints[name], requests, group)
        if later:
            self.loop.run_until_complete(self.concurrently(requests, later))

    def endpoint(self, r: Request) -> Endpoint | None:
        """Returns the endpoint of a request, or ends the request."""
        e = self.main if r.call is None else self.endpoints.get(r.call.endpoint)
        if e is None:
            if r.call is None:
                r.fail("the service has routes only: see its OpenAPI document", "unsupported")
            else:
                r.fail(f"there is no endpoint {r.call.endpoint}", "not_found")
        return e

    # One request at a time.

    def one(self, e: Endpoint, r: Request) -> None:
        """Runs a sync function for a request."""
        token = current.set(r)
        try:
            bound = e.bind(r, self.stateful)
            results = [e.function(*args, **keywords) for args, keywords in bound.rows]
            if e.streams:
                self.stream(e, r, results, bound)
            else:
                self.answers.reply(e, r, results, bound)
        except BaseException as x:
            fail(r, x)
        finally:
            current.reset(token)

    def stream(self, e: Endpoint, r: Request, results: list[Any], bound: Bound) -> None:
        """Sends the parts that a generator yields."""
        if len(results) != 1:
            raise Error(f"{e.name} answers in parts, and takes one row at a time", "invalid_argument")
        made = results[0]
        if not hasattr(made, "__next__"):
            made = iter(made)
        try:
            for value in made:
                if r.cancelled:
                    break
                self.answers.emit(e, r, value, bound)
        finally:
            if hasattr(made, "close"):
                made.close()
        r.done()

    # Async functions: all requests of a batch at once.

    async def concurrently(self, requests: Requests, calls: list[tuple[Endpoint, Request]]) -> None:
        """Runs async functions for several requests at the same time. A cancelled function gets CancelledError."""
        import asyncio

        tasks: dict[Any, Request] = {}
        for e, r in calls:
            token = current.set(r)
            tasks[self.loop.create_task(self.one_async(e, r))] = r
            current.reset(token)
        pending = set(tasks)
        while pending:
            _, pending = await asyncio.wait(pending, timeout=_CANCEL_PERIOD)
            if pending:
                requests.poll()
                for t in pending:
                    if tasks[t]._cancelled:
                        t.cancel()

    async def one_async(self, e: Endpoint, r: Request) -> None:
        """Runs an async function for a request."""
        import asyncio

        try:
            bound = e.bind(r, self.stateful)
            if e.streams:
                if len(bound.rows) != 1:
                    raise Error(f"{e.name} answers in parts, and takes one row at a time", "invalid_argument")
                args, keywords = bound.rows[0]
                made = e.function(*args, **keywords)
                if inspect.isawaitable(made):
                    made = await made
                try:
                    async for value in made:
                        self.answers.emit(e, r, value, bound)
                        if r.cancelled:
                            break
                        await asyncio.sleep(0)  # which lets the other requests of the batch run
                finally:
                    if hasattr(made, "aclose"):
                        await made.aclose()
                r.done()
                return
            results = [await e.function(*args, **keywords) for args, keywords in bound.rows]
            self.answers.reply(e, r, results, bound)
        except asyncio.CancelledError:
            if not r.ended:
                r.fail("nobody waits for the answer", "canceled")
        except BaseException as x:
            fail(r, x)

    # Batches.

    def batch(self, e: Endpoint, requests: Requests, group: list[Request]) -> None:
        """Runs a function for several requests at once. A request with wrong input is left out."""
        token = current.set(group[0] if len(group) == 1 else None)
        whole = len(group) == len(requests) and requests.dense and e.arrays
        try:
            if whole and not e.injected and len(e.data) == len(e.parameters) and not any(r.parameters for r in group):
                result = e.function(**{p.name: e.array(p, requests) for p in e.data})
                count = requests.rows
                bound = [None] * len(group)
            else:
                bound, lists, count = self._gather(e, requests, group, whole)
                group = [r for r, b in zip(group, bound) if b is not None]
                bound = [b for b in bound if b is not None]
                if not group:
                    return
                result = e.function(**lists)
            if inspect.isawaitable(result):
                result = self._wait(result)
            self.answers.reply_all(e, requests, group, bound, result, count)
        except Exception as x:
            for r in group:
                if not r.ended:
                    fail(r, x)
        finally:
            current.reset(token)

    def _gather(
        self, e: Endpoint, requests: Requests, group: list[Request], whole: bool
    ) -> tuple[list[Any], dict[str, Any], int]:
        bound: list[Any] = []
        for r in group:
            try:
                bound.append(e.bind(r, self.stateful, skip_arrays=whole))
            except Exception as x:
                fail(r, x)
                bound.append(None)
        whole = whole and None not in bound
        if e.arrays and not whole:  # the rows of the requests that are left
            bound = [None if b is None else e.bind(r, self.stateful) for r, b in zip(group, bound)]
        rows = [row for b in bound if b is not None for row in b.rows]
        lists: dict[str, Any] = {p.name: [] for p in e.parameters}
        for _, keywords in rows:
            for name in keywords:
                lists[name] = []
        for name in lists:
            lists[name] = [keywords.get(name, e.default(name)) for _, keywords in rows]
        for p in e.data:
            if whole:
                lists[p.name] = e.array(p, requests)
            elif rows and p.type.fixed:
                lists[p.name] = _tensors.stack(lists[p.name])
        return bound, lists, len(rows)


def _check_self(target: type) -> None:
    """Refuses methods without self."""
    for name in dir(target):
        method = inspect.getattr_static(target, name)
        if inspect.isfunction(method) and (name in ("infer", "predict", "setup") or hasattr(method, MARK)):
            first = next(iter(inspect.signature(method).parameters.values()), None)
            if (
                first is None
                or first.kind is first.KEYWORD_ONLY
                or first.name != "self"
                and first.annotation is not first.empty
            ):
                raise LoadError(f"{target.__name__}.{name} has no argument self, which is the first one of a method")


def _made(target: type, source: Source) -> Any:
    """Makes the object of a class."""
    try:
        takes = inspect.signature(target).parameters.values()
    except ValueError:
        takes = ()  # type: ignore[assignment]
    needed = [p.name for p in takes if p.default is p.empty and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
    if needed:
        raise LoadError(
            f"{target.__name__} cannot be made: __init__ takes {', '.join(needed)}. It gets nothing; `setup(self, "
            "parameters)` gets the model's parameters"
        )
    try:
        return target()
    except Exception as e:
        from ._errors import describe

        raise LoadError(f"{source.text}: {target.__name__}() failed: {describe(e)}") from e


def endpoint(path: Any = None, *, method: str = "POST", example: Any = None, openai: bool = False) -> Any:
    """Makes a method an endpoint: @endpoint, or @endpoint("/path", method="GET"). The default path is /NAME.

    example is an example body, for the OpenAPI document. openai=True is the form of OpenAI: a request with "stream":
    true gets each part that the method yields as an event, and [DONE] at the end; a request without "stream" gets the
    only part as JSON. Raises ValueError for a wrong path or method.
    """
    if callable(path):
        return _mark(path, endpoint=True)
    if path is not None and (not isinstance(path, str) or not path.startswith("/")):
        raise ValueError(f"endpoint({path!r}): a path begins with a slash")
    if method not in ("GET", "POST", "PUT", "DELETE", "PATCH"):
        raise ValueError(f"endpoint(method={method!r}): want GET, POST, PUT, DELETE or PATCH")
    if openai and method != "POST":
        raise ValueError(
            f"endpoint(method={method!r}, openai=True): OpenAI's form is for POST, whose body has \"stream\""
        )
    return lambda f: _mark(f, endpoint=True, path=path, method=method, example=example, openai=openai)


def batch(max_size: int) -> Callable[[Any], Any]:
    """Makes a function take up to max_size requests at once: each argument has their values."""
    if callable(max_size):
        raise ValueError("batch takes the largest number of requests: @millrace.batch(16)")
    if type(max_size) is not int or not 1 <= max_size <= 4096:
        raise ValueError(f"batch({max_size!r}): want the largest number of requests, 1 to 4096")
    return lambda f: _mark(f, batch=max_size)


def _mark(function: Any, **values: Any) -> Any:
    mark = dict(getattr(function, MARK, {}))
    mark.update(values)
    setattr(function, MARK, mark)
    return function


_ = _tensors  # the module is imported before a program changes the path
