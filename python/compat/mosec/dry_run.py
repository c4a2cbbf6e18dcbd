"""The dry run: the first stage's example goes through each route once, without a server."""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from typing import Any, Dict, List, Type

from mosec.env import env_var_context
from mosec.log import get_internal_logger
from mosec.runtime import Runtime
from mosec.worker import Worker

logger = get_internal_logger()


def _example(worker_class: Type[Worker]) -> Any:
    return worker_class.example or (worker_class.multi_examples[0] if worker_class.multi_examples else None)


def _stage(worker_class: Type[Worker], name: str, batch: bool, first: bool, pipe: Any) -> None:
    """Is the process of a stage: says when it is prepared, then answers each message (the first stage: its example)."""
    worker = worker_class()
    worker._send = lambda text, index=0: logger.info("%s event: %s", name, text)  # type: ignore[attr-defined]
    pipe.send_bytes(b"")
    while True:
        try:
            message = pipe.recv_bytes()
        except EOFError:
            return
        data = _example(worker_class) if first else worker.deserialize(message)
        logger.info("%s received %s", name, data)
        answer = worker.forward([data])[0] if batch else worker.forward(data)
        logger.info("%s inference result: %s", name, answer)
        pipe.send_bytes(worker.serialize(answer))


class DryRunner:
    """Runs each stage in one process, with its first environment. Exits with the code of a process that failed."""

    def __init__(self, router: Dict[str, List[Runtime]]):
        self.router = router

    def run(self) -> None:
        """Runs all routes."""
        context = multiprocessing.get_context("spawn")
        for path, runtimes in self.router.items():
            logger.info("init dry run for endpoint %s with %s", path, [r.name for r in runtimes])
            stages = []
            try:
                for i, runtime in enumerate(runtimes):
                    ours, theirs = context.Pipe()
                    process = context.Process(
                        target=_stage,
                        args=(runtime.worker, runtime.name, runtime.max_batch_size > 1, i == 0, theirs),
                        daemon=True,
                    )
                    with env_var_context(runtime.env, 0):
                        process.start()
                    theirs.close()
                    stages.append((runtime.name, process, ours))
                for stage in stages:
                    self._receive(*stage)
                logger.info("dry run init successful")
                self._warm_up(runtimes[0].worker, stages)
            finally:
                for _, process, ours in stages:
                    ours.close()
                    process.join(5)
                    process.kill()
        logger.info("dry run exit")

    def _warm_up(self, first: Type[Worker], stages: List[Any]) -> None:
        """Sends the example of the first stage through all."""
        example = _example(first)
        if not example:
            logger.info("cannot find the example in the 1st stage worker, skip warmup")
            return
        began = time.perf_counter()
        stages[0][2].send_bytes(b"")
        result = self._receive(*stages[0])
        for stage in stages[1:]:
            stage[2].send_bytes(result)
            result = self._receive(*stage)
        logger.info(
            "dry run result: %s",
            json.dumps(
                {"request": example, "result_size": len(result), "warmup_duration": time.perf_counter() - began},
                default=repr,
            ),
        )

    def _receive(self, name: str, process: Any, pipe: Any) -> bytes:
        """Returns the next message of a stage, or exits as its process did."""
        try:
            return pipe.recv_bytes()
        except (EOFError, OSError):
            process.join()
            logger.warning("%s exited with code %s in the dry run", name, process.exitcode)
            sys.exit(process.exitcode or 1)
