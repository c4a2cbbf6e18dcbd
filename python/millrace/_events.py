"""The event loop of a program's async functions."""

from __future__ import annotations

import asyncio
import contextvars
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Callable


class _Threads(ThreadPoolExecutor):
    """Runs functions in the context of the callers, so that log lines belong to the request."""

    def submit(  # type: ignore[override]
        self, function: Callable[..., Any], *args: Any, **keywords: Any
    ) -> Future[Any]:
        """Implements Executor."""
        return super().submit(contextvars.copy_context().run, function, *args, **keywords)


def new_loop() -> asyncio.AbstractEventLoop:
    """Makes the event loop of this thread. run_in_executor keeps the context, as asyncio.to_thread does."""
    loop = asyncio.new_event_loop()
    loop.set_default_executor(_Threads(thread_name_prefix="asyncio"))
    asyncio.set_event_loop(loop)
    return loop
