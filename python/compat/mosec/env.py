"""Settings from the environment, and the environment of worker processes."""

from __future__ import annotations

import contextlib
import os
import warnings
from argparse import Namespace
from typing import Any, Callable, Iterator, Optional

MOSEC_ENV_PREFIX = "MOSEC_"
MOSEC_ENV_CONFIG: dict[str, Callable[[str], Any]] = {
    "path": str,
    "capacity": int,
    "timeout": int,
    "address": str,
    "port": int,
    "namespace": str,
    "debug": bool,
    "dry_run": bool,
    "log_level": str,
    "max_request_size": int,
}


def get_env_namespace(prefix: str = MOSEC_ENV_PREFIX) -> Namespace:
    """Returns the settings that variables of the environment set. Those that cannot be read are left out with a
    warning.
    """
    found = Namespace()
    for name, read in MOSEC_ENV_CONFIG.items():
        text = os.environ.get(prefix + name.upper())
        if not text:
            continue
        try:
            setattr(found, name, read(text))
        except ValueError as e:
            warnings.warn(f"{prefix}{name.upper()}={text} is ignored: {e}", RuntimeWarning, stacklevel=2)
    return found


@contextlib.contextmanager
def env_var_context(env: Optional[list[dict[str, str]]], index: int) -> Iterator[None]:
    """Sets the variables of env[index] while the context lasts."""
    before = dict(os.environ)
    try:
        os.environ.update(env[index] if env else {})
        yield
    finally:
        for name in env[index] if env else {}:
            if name in before:
                os.environ[name] = before[name]
            else:
                os.environ.pop(name, None)


def validate_env(env: Any, num: int) -> None:
    """Raises AssertionError unless env is None or a list of num dicts of strings."""
    if env is None:
        return
    assert isinstance(env, list) and all(
        isinstance(e, dict) and all(isinstance(x, str) for item in e.items() for x in item) for e in env
    ), "env must be a list with a dict of strings for each process"
    assert len(env) == num, f"env has {len(env)} entries for {num} processes: len(env) must equal num"


def validate_int_ge(number: Any, name: str, threshold: int = 1) -> None:
    """Raises AssertionError unless number is an int of at least threshold."""
    assert isinstance(number, int), f"{name} must be an integer, not {type(number).__name__}"
    assert number >= threshold, f"{name} is {number}, but must be at least {threshold}"


def validate_float_ge(number: Any, name: str, threshold: float = 0.0) -> None:
    """Raises AssertionError unless number is a float of at least threshold."""
    assert isinstance(number, float), f"{name} must be a float, not {type(number).__name__}"
    assert number >= threshold, f"{name} is {number}, but must be at least {threshold}"
