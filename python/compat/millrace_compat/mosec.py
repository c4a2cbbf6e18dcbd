"""Programs that were written for mosec: their main process, and the processes of their stages.

The program is run as its __main__ once. Its Server.run() describes the stages and routes (Program) and does not
return before the server ends, since what the program has started, such as daemons, must live as long. Each process of
a stage imports the program as multiprocessing's spawn does, as __mp_main__, and serves one worker (Stage). A stage
whose class cannot be imported, or which is to be forked, runs the program up to Server.run() instead.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from types import ModuleType
from typing import TYPE_CHECKING, Any, Iterator

from millrace import _loop
from millrace._application import Batch, Request, current
from millrace._errors import LoadError

if TYPE_CHECKING:
    from millrace._load import Source

_environment: dict[str, str] = {}  # before the program ran
_stage: dict[str, Any] | None = None  # that the program is run for; None: for itself
_served: Any = None  # the application that was served
_imported = False  # and not run


def find(source: Source) -> Any:
    """Serves the program if it is one of mosec's, or returns the application of one of its stages."""
    global _stage
    text = source.options.get("stage")
    if not source.is_python or not (text or source.options.get("style") == "mosec" or "mosec" in source.imports):
        return None
    if text:
        stage = json.loads(text)
        instance = int((source.options.get("hello") or {}).get("instance") or 0)
        own = stage.get("env")
        os.environ.update(stage.get("environ") or {})
        os.environ.update(own[instance % len(own)] if own else {})
        stage["instance"] = instance
        if not stage.get("main"):
            return Stage(_worker_class(source, stage), stage)
        _stage = stage
    _environment.update(os.environ)
    code: Any = 0
    try:
        source.run()
    except SystemExit as e:
        code = e.code or 0
    if _served is None:
        raise LoadError(f"{source.text} ended (exit code {code}) without Server.run()", "ended")
    return _served


def serve(server: Any) -> None:
    """Is Server.run: serves the program until the server ends."""
    global _served
    loop = _loop.active
    if _imported:
        raise LoadError(
            "Server.run() is called when the processes of the stages import the program: put it behind `if __name__ "
            "== \"__main__\":`"
        )
    if loop is None:
        raise RuntimeError("Server.run() needs Millrace: run the program by `millrace run PROGRAM.py`")
    application: Any = Program(server)
    if _stage is not None:
        found = [r for r in server._runtimes if r.name == _stage["name"]]
        if not found:
            raise LoadError(
                f"the program has no stage {_stage['name']} any more: it has "
                f"{', '.join(r.name for r in server._runtimes)}"
            )
        application = Stage(found[0].worker, _stage)
    _served = application
    loop.serve(application)


def _worker_class(source: Source, stage: dict[str, Any]) -> Any:
    """Imports the program without running it, and returns the class of a stage."""
    module = _import(source)
    if stage["module"] != "__main__":
        module = importlib.import_module(stage["module"])
    found: Any = module
    for name in stage["class"].split("."):
        found = getattr(found, name, None)
    if found is None:
        raise LoadError(
            f"{source.text} has no class {stage['class']} when it is imported: define it outside of `if __name__ == "
            "\"__main__\"`, "
            "or give the stage start_method=\"fork\""
        )
    return found


def _import(source: Source) -> ModuleType:
    """Imports the program as __mp_main__."""
    global _imported
    _imported = True
    source._search()
    if source.path is not None:
        spec = importlib.util.spec_from_file_location("__mp_main__", source.path)
    else:
        of = importlib.util.find_spec(source.module_name)
        spec = of and importlib.util.spec_from_file_location("__mp_main__", of.origin)
    if spec is None or spec.loader is None:
        raise LoadError(f"{source.text} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    module.__package__ = source.module_name.rpartition(".")[0]
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    spec.loader.exec_module(module)
    return module


# Where in a route a stage is, by the endpoint of a call: whether the body is the client's, and whether the answer goes
# to the client. The steps of graphs say it, not the stages, so that a stage that was replaced still serves the graphs
# from before.
ENDS = {"only": (True, True), "first": (True, False), "middle": (False, False), "last": (False, True)}


class Program:
    """The program's main process. It describes the application, and watches its daemons."""

    def __init__(self, server: Any):
        self.server = server
        self.config: dict[str, Any] = server._configs

    def describe(self) -> dict[str, Any]:
        """Returns the stages, the graphs of routes with several, and the routes."""
        from mosec.worker import SSEWorker

        routes, graphs, names = [], [], {r.name for r in self.server._runtimes}
        capacity, single = self.config["capacity"], set()
        for path, runtimes in self.server._router.items():
            last = len(runtimes) - 1
            at = ["first", *["middle"] * (last - 1), "last"] if last else ["only"]
            model = runtimes[0].name
            if not last:
                single.add(model)
            else:
                model = _unused(names, re.sub(r"[^A-Za-z0-9_-]+", "-", path).strip("-") or "route")
                graphs.append(
                    {
                        "name": model,
                        "queue": capacity,
                        "outputs": [f"body{last + 1}"],
                        "steps": [
                            {
                                "name": f"{r.name}" if runtimes.count(r) == 1 else f"{r.name}.{i}",
                                "stage": r.name,
                                "endpoint": at[i],
                                "input": {"body": f"body{i}"},
                                "output": {"body": f"body{i + 1}"},
                            }
                            for i, r in enumerate(runtimes)
                        ],
                    }
                )
            routes.append(
                {
                    "method": "POST",
                    "path": path,
                    "endpoint": at[0],
                    "model": model,
                    "events": issubclass(runtimes[-1].worker, SSEWorker),
                    "content_type": runtimes[-1].worker.resp_mime_type,
                }
            )
        given = self.config["given"]
        extra = {n: self.config[n] for n in ("capacity", "namespace", "max_request_size", "compression")}
        extra["timeout_ms"] = self.config["timeout"]
        if self.server._daemon:
            extra["daemons"] = list(self.server._daemon)
        extra.update((n, self.config[n]) for n in ("address", "port") if n in given)
        return {
            "inputs": [],
            "outputs": [],
            "any": True,
            "batch": False,
            "max_batch": 1,
            "app": {"style": "mosec", "routes": routes, "openapi": self.openapi(), "extra": extra},
            "stages": [
                {**self._describe_stage(r), **({"queue": capacity} if r.name in single else {})}
                for r in self.server._runtimes
            ],
            "graphs": graphs,
        }

    def _describe_stage(self, r: Any) -> dict[str, Any]:
        importable = r.start_method == "spawn" and "<locals>" not in r.worker.__qualname__
        stage = {
            "name": r.name,
            "class": r.worker.__qualname__,
            "module": r.worker.__module__,
            "main": not importable,
            "max_batch_size": r.max_batch_size,
            "timeout": r.timeout_sec,
            "env": r.env,
            "environ": {k: v for k, v in os.environ.items() if _environment.get(k) != v},
        }
        return {
            "name": r.name,
            "stage": json.dumps(stage),
            "instances": r.num,
            "max_batch": r.max_batch_size,
            "wait_ms": r.max_wait_time,
            "timeout_ms": int(2000 * r.timeout_sec) + 5000,
        }

    def openapi(self) -> dict[str, Any]:
        """Returns the OpenAPI document of the routes."""
        from mosec.server import generate_openapi

        text = {"200": {"description": "OK", "content": {"text/plain": {"schema": {"type": "string"}}}}}
        paths: dict[str, Any] = {
            "/": {
                "get": {"operationId": "index", "responses": {**text, "503": {"description": "The server shuts down"}}}
            },
            "/metrics": {"get": {"operationId": "metrics", "responses": text}},
        }
        schemas: dict[str, Any] = {}
        for path, runtimes in self.server._router.items():
            said = generate_openapi([r.worker for r in runtimes])
            post: dict[str, Any] = {
                "operationId": "inference" + path.replace("/", "_"),
                "responses": {
                    "200": {"description": "The answer"},
                    "400": {"description": "The body cannot be decoded"},
                    "408": {"description": "The request took too long"},
                    "413": {"description": "The body is too large"},
                    "422": {"description": "The data are not valid"},
                    "429": {"description": "Too many requests wait"},
                    "500": {"description": "A stage failed"},
                    "503": {"description": "The server shuts down"},
                    **(said["responses"] or {}),
                },
            }
            if said["request_body"]:
                post["requestBody"] = said["request_body"]
            paths[path] = {"post": post}
            schemas.update(said["schemas"])
        return {
            "openapi": "3.1.0",
            "info": {"title": "mosec application", "version": "1"},
            "paths": paths,
            "components": {"schemas": schemas},
        }

    def setup(self) -> None:
        """Begins to watch the daemons."""
        if self.server._daemon:
            threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        """Ends the process when a daemon has exited."""
        while True:
            try:
                self.watchdog()
            except RuntimeError as e:
                os.write(2, f"{e}\n".encode())  # which is part of the reason for which the process has ended
                os._exit(1)
            time.sleep(0.1)

    def run(self, requests: Batch) -> None:
        """Refuses frames."""
        for r in requests:
            r.fail("this is the main process of an application: send requests to its routes", "unsupported")

    def watchdog(self) -> None:
        """Raises when a daemon has exited."""
        for name, process in self.server._daemon.items():
            code = process.poll() if isinstance(process, subprocess.Popen) else process.exitcode
            if code is not None:
                raise RuntimeError(f"mosec daemon [{name}] exited on error code: {code}")

    def close(self) -> None:
        """Leaves the end to the program, which goes on after Server.run()."""


def _unused(names: set[str], name: str) -> str:
    """Returns a name that is not in names, and adds it."""
    n = 1
    while (found := name if n == 1 else f"{name}-{n}") in names:
        n += 1
    names.add(found)
    return found


class Stage:
    """A process of a stage."""

    def __init__(self, worker_class: Any, stage: dict[str, Any]):
        self.worker_class, self.stage = worker_class, stage
        self.name = f"<{stage['name']}|{stage['instance'] + 1}>"
        self.batches = stage["max_batch_size"] > 1
        self.worker: Any = None

    def describe(self) -> dict[str, Any]:
        """Returns the message: bodies in, bodies out."""
        return {
            "inputs": [],
            "outputs": [{"name": "body", "datatype": "BYTES", "shape": [1]}],
            "any": True,
            "calls": True,
            "batch": False,
            "max_batch": self.stage["max_batch_size"],
        }

    def setup(self) -> None:
        """Makes the worker, and calls forward with its examples."""
        from mosec.log import get_internal_logger
        from mosec.worker import SSEWorker

        self.log = get_internal_logger()
        w = self.worker = self.worker_class()
        w.worker_id, w.max_batch_size, w.stage = (
            self.stage["instance"] + 1,
            self.stage["max_batch_size"],
            self.stage["name"],
        )
        self.events = isinstance(w, SSEWorker)
        if not w.example and not w.multi_examples:
            return
        if self.events:
            w._send = lambda text, index=0: None
        try:
            for example in w.multi_examples or [w.example]:
                w.forward(example)
        except Exception:
            self.log.error(
                "%s warmup failed: %s: the worker's example must be what its forward takes",
                self.name,
                _one_line(traceback.format_exc()),
            )
        else:
            self.log.info("%s warmup successfully", self.name)

    def run(self, requests: Batch) -> None:
        """Decodes the requests, calls forward, and answers. A request that cannot be decoded fails alone."""
        items: list[_Item] = []
        for r in requests:
            ends = None if r.call is None else ENDS.get(r.call.endpoint)
            if ends is None:  # data between stages may be pickled, so nobody but the graph of a route may send them
                r.fail(
                    f"{self.stage['name']} is a stage of an application: send requests to the application's routes",
                    "unsupported",
                )
                continue
            try:
                data = self.worker.deserialize(bytes(r.body)) if ends[0] else self.worker.deserialize_ipc(bytes(r.body))
            except Exception as e:
                self._refuse([r], e)
                continue
            items.append(_Item(r, data, ends[1]))
        for group in [items] if self.batches else [[i] for i in items]:
            if group:
                self._forward(group)

    def _forward(self, items: list[_Item], again: bool = True) -> None:
        """Answers requests by one call of forward. If it raises, each of several is tried alone once."""
        began = time.monotonic()
        token = current.set(items[0].request if len(items) == 1 else None)
        try:
            if self.events:
                self.worker._send = lambda text, index=0: items[index].request.emit(text.encode())
            with self._time_limit():
                answers = (
                    self.worker.forward([i.data for i in items])
                    if self.batches
                    else (self.worker.forward(items[0].data),)
                )
            if len(answers) != len(items):
                raise ValueError(
                    f"returned data size doesn't match the input data size:input({len(items)})!=output({len(answers)})"
                )
        except BaseException as e:
            if not _handled(e):
                raise
            if again and len(items) > 1 and isinstance(e, Exception) and not self.events:
                for item in items:  # so that one of them does not fail the others
                    if item.request.cancelled or time.monotonic() - began > self.stage["timeout"]:
                        self._refuse([item.request], e)
                    else:
                        self._forward([item], again=False)
                return
            self._refuse([i.request for i in items], e)
            return
        finally:
            current.reset(token)
        for item, answer in zip(items, answers):
            try:
                body = self.worker.serialize(answer) if item.last else self.worker.serialize_ipc(answer)
            except Exception as e:
                self._refuse([item.request], e)
            else:
                ends = self.events and item.last  # the events are the answer
                item.request.reply(
                    None if ends else body,
                    content_type=self.worker.resp_mime_type if item.last else "application/octet-stream",
                )

    @contextlib.contextmanager
    def _time_limit(self) -> Iterator[None]:
        """Raises MosecTimeoutError in the context when it takes longer than the stage's timeout."""
        from mosec.errors import MosecTimeoutError

        seconds = self.stage["timeout"]

        def end(number: int, frame: Any) -> None:
            raise MosecTimeoutError(f"[{number}]`forward` timeout after {seconds}s: {frame}")

        signal.signal(signal.SIGALRM, end)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _refuse(self, requests: list[Request], error: BaseException) -> None:
        """Answers requests with an error's status and text. That of errors which are not mosec's stays in the log."""
        from mosec.errors import MosecError, MosecTimeoutError
        from mosec.protocol import HTTPStatusCode, statuses

        if isinstance(error, (MosecError, MosecTimeoutError)):
            text = f"{error.msg}: {str(error).replace(chr(10), ' - ') or error.msg}"
            status = statuses.get(error.code, 500)
            self.log.info("%s %s", self.name, text)
        else:
            text, status = "inference internal error", statuses[HTTPStatusCode.INTERNAL_ERROR]
            self.log.warning(
                "%s %s",
                self.name,
                _one_line("".join(traceback.format_exception(type(error), error, error.__traceback__))),
            )
        for r in requests:
            r.reply(text, status=status)

    def watchdog(self) -> None:
        """Has nothing to check."""

    def close(self) -> None:
        """Leaves the end to the worker's own __del__."""


class _Item:
    """A decoded request; last says that its answer is the response."""

    __slots__ = ("request", "data", "last")

    def __init__(self, request: Request, data: Any, last: bool):
        self.request, self.data, self.last = request, data, last


def _handled(error: BaseException) -> bool:
    """Reports whether an error ends requests, and not the process."""
    from mosec.errors import MosecTimeoutError

    return isinstance(error, (Exception, MosecTimeoutError))


def _one_line(text: str) -> str:
    return text.strip().replace("\n", " ")
