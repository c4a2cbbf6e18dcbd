"""Logging of workers. In a process of Millrace the lines go to the server's log, with the worker's name."""

from __future__ import annotations

import logging

from mosec.args import get_log_level

_NAMES = {"user": "mosec.user", "mosec": "mosec"}


def _logger(name: str) -> logging.Logger:
    logger = logging.getLogger(name)
    if logger.level == logging.NOTSET:
        logger.setLevel(_level)
    if not logger.hasHandlers():  # outside of Millrace
        logging.basicConfig(
            format="%(asctime)s %(levelname)s %(name)s %(filename)s:%(lineno)s [%(process)d]: %(message)s"
        )
    return logger


def get_logger() -> logging.Logger:
    """Returns the logger for an application's own lines."""
    return _logger(_NAMES["user"])


def get_internal_logger() -> logging.Logger:
    """Returns the logger of this package."""
    return _logger(_NAMES["mosec"])


_level = get_log_level()
