"""The server of an application: its stages and routes."""

from __future__ import annotations

import multiprocessing.process
import subprocess
from typing import Any, Dict, List, Optional, Type, Union

from mosec.args import parse_arguments
from mosec.log import get_internal_logger
from mosec.runtime import Runtime
from mosec.utils import ParseTarget
from mosec.worker import MOSEC_REF_TEMPLATE, Worker

GUARD_CHECK_INTERVAL = 0.1
MOSEC_RESERVED_ENDPOINTS = {"/", "/metrics", "/openapi"}

logger = get_internal_logger()


class Server:
    """Collects the stages of routes, and hands them to Millrace by run."""

    def __init__(self) -> None:
        self._configs: Dict[str, Any] = vars(parse_arguments())
        self._runtimes: List[Runtime] = []
        self._router: Dict[str, List[Runtime]] = {}
        self._daemon: Dict[str, Any] = {}

    def append_worker(
        self,
        worker: Type[Worker],
        num: int = 1,
        max_batch_size: int = 1,
        max_wait_time: int = 0,
        start_method: str = "spawn",
        env: Optional[List[Dict[str, str]]] = None,
        timeout: float = 0,
        route: Union[str, List[str]] = "/inference",
    ) -> None:
        """Appends a stage to a route, or to several. See Runtime for the other arguments."""
        runtime = Runtime(worker, num, max_batch_size, max_wait_time, timeout, start_method, env)
        self._align(runtime)
        for path in [route] if isinstance(route, str) else route:
            self._append(path, runtime)
        self._runtimes.append(runtime)

    def register_runtime(self, routes: Dict[str, List[Runtime]]) -> None:
        """Sets the stages of all routes. A stage may be in several of them."""
        if self._runtimes:
            raise RuntimeError("`register_runtime` needs a server without stages: use it in place of `append_worker`")
        for path, runtimes in routes.items():
            for runtime in runtimes:
                self._append(path, runtime)
                self._align(runtime)
                if runtime not in self._runtimes:
                    self._runtimes.append(runtime)

    def register_daemon(self, name: str, proc: Union[subprocess.Popen, multiprocessing.process.BaseProcess]) -> None:
        """Names a process without which the application cannot work: when it exits, the server ends with its name."""
        assert isinstance(name, str), "the daemon's name must be a string"
        assert isinstance(
            proc, (multiprocessing.process.BaseProcess, subprocess.Popen)
        ), f"{type(proc)} is not a process or subprocess"
        self._daemon[name] = proc

    def run(self) -> None:
        """Serves the application. Returns when the server ends."""
        assert self._runtimes, "no worker registered: use `.append_worker(...)` to register at least one worker"
        if self._configs["dry_run"]:
            from mosec.dry_run import DryRunner

            DryRunner(self._router).run()
            return
        try:
            from millrace_compat import mosec as _mosec
        except ImportError:
            raise RuntimeError(
                "this mosec is Millrace's stand-in: run the program by `millrace run PROGRAM.py`"
            ) from None
        _mosec.serve(self)

    def _align(self, runtime: Runtime) -> None:
        runtime._align_timeout_wait(self._configs["timeout"] / 1000, self._configs["wait"])

    def _append(self, path: str, runtime: Runtime) -> None:
        if path in MOSEC_RESERVED_ENDPOINTS:
            raise ValueError(f"'{path}' is reserved, try another one")
        self._router.setdefault(path, []).append(runtime)


def generate_openapi(workers: List[Type[Worker]]) -> Dict[str, Any]:
    """Returns what the stages of a route say of its request and response: request_body, responses, schemas, mime."""
    if not workers:
        return {}
    first, last = workers[0], workers[-1]
    wanted, schemas = first.get_forward_json_schema(ParseTarget.INPUT, MOSEC_REF_TEMPLATE)
    answer, more = last.get_forward_json_schema(ParseTarget.RETURN, MOSEC_REF_TEMPLATE)

    def body(text: str, mime: str, schema: Dict[str, Any]) -> Optional[Dict[str, Any]]:
        return {"description": text, "content": {mime: {"schema": schema}}} if schema else None

    response = body("the answer of the last stage", last.resp_mime_type, answer)
    return {
        "request_body": body("the data of the first stage", first.resp_mime_type, wanted),
        "responses": {"200": response} if response else None,
        "schemas": {**schemas, **more},
        "mime": last.resp_mime_type,
    }
