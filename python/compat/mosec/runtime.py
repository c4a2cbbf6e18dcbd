"""A stage and its settings."""

from __future__ import annotations

from typing import Dict, List, Optional, Type

from mosec.env import validate_env, validate_float_ge, validate_int_ge
from mosec.worker import Worker

NEW_PROCESS_METHOD = {"spawn", "fork"}


class Runtime:
    """A stage: a worker class, the number of its processes, and how they get their batches."""

    _stage_id = 0  # how many there are

    def __init__(
        self,
        worker: Type[Worker],
        num: int = 1,
        max_batch_size: int = 1,
        max_wait_time: int = 0,
        timeout: float = 0.0,
        start_method: str = "spawn",
        env: Optional[List[Dict[str, str]]] = None,
    ):
        """max_wait_time is in milliseconds (0: --wait), timeout of forward in seconds (0: --timeout). Raises
        AssertionError.
        """
        self.worker, self.num, self.max_batch_size, self.max_wait_time = worker, num, max_batch_size, max_wait_time
        self.timeout_sec = float(timeout)
        self.start_method, self.env = start_method, env
        assert isinstance(worker, type) and issubclass(worker, Worker), "worker must be inherited from mosec.Worker"
        validate_int_ge(num, "worker number")
        validate_int_ge(max_batch_size, "maximum batch size")
        validate_int_ge(max_wait_time, "maximum wait time", 0)
        validate_float_ge(self.timeout_sec, "forward timeout", 0)
        validate_env(env, num)
        assert (
            start_method in NEW_PROCESS_METHOD
        ), f"start_method is {start_method!r}: must be one of {sorted(NEW_PROCESS_METHOD)}"
        Runtime._stage_id += 1
        self.name = f"{worker.__name__}_{Runtime._stage_id}"

    def _align_timeout_wait(self, timeout_sec: float, max_wait_time: int) -> None:
        """Sets what was left out."""
        self.timeout_sec = self.timeout_sec or timeout_sec
        self.max_wait_time = self.max_wait_time or max_wait_time
