"""Levels of the log. Records go to the log of the server, whatever the application does here."""

import logging

LOG_FILENAME = "ssf.log"


def str_to_log_level(level: str) -> int:
    """Returns the level of that name; ValueError when there is none."""
    value = logging.getLevelName(level)
    if not isinstance(value, int):
        raise ValueError(f"{level!r} is not a level of the log")
    return value


def init_global_logging() -> None:
    """Does nothing: records reach the server's log without it."""


def stop_global_logging() -> None:
    """Does nothing."""
