"""The program's arguments. The variables MOSEC_NAME of the environment come before the defaults."""

from __future__ import annotations

import argparse
import logging
import os
import random
import tempfile
import warnings

from mosec.env import get_env_namespace

DEFAULT_WAIT_MS = 10

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def build_arguments_parser() -> argparse.ArgumentParser:
    """Returns the parser of the server's arguments."""
    parser = argparse.ArgumentParser(
        description="Server of a mosec application, run by Millrace",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
        epilog="Variables of the environment set the same, such as MOSEC_PORT=8080; arguments come before them.",
    )
    add = parser.add_argument
    add(
        "--path",
        default=os.path.join(tempfile.gettempdir(), f"mosec_{random.randrange(2**32):x}"),
        help="not used by Millrace, whose processes have socket pairs",
    )
    add("--capacity", type=int, default=1024, help="most requests that wait for the first stage; one more gets 429")
    add("--timeout", type=int, default=3000, help="longest time of a request in milliseconds; after it, it gets 408")
    add(
        "--wait",
        type=int,
        default=DEFAULT_WAIT_MS,
        help="deprecated: longest time that a batch waits for more requests, in milliseconds",
    )
    add(
        "--address",
        default="0.0.0.0",
        help="where the server listens when it serves nothing else; it refuses one for other machines without "
        "--auth-keys or --insecure",
    )
    add("--port", type=int, default=8000, help="the same, its port")
    add("--namespace", default="mosec_service", help="first part of the names of metrics")
    add("--debug", action="store_true", help="deprecated: the same as --log-level debug")
    add("--log-level", choices=list(_LEVELS), default="info", help="lowest level that is logged")
    add("--dry-run", action="store_true", help="send the first stage's example through all stages once, and end")
    add("--compression", action="store_true", help="take and send bodies in gzip and zstd")
    add(
        "--max-request-size",
        type=int,
        default=10 * 1024 * 1024,
        help="largest body of a request in bytes; a larger one gets 413",
    )
    return parser


def parse_arguments() -> argparse.Namespace:
    """Returns the settings of the server. given has the names of those that are not defaults because they were set."""
    env = get_env_namespace()
    given = set(vars(env))
    parser = build_arguments_parser()
    for action in parser._actions:
        action.default = argparse.SUPPRESS
    given.update(vars(parser.parse_known_args()[0]))
    args, _ = build_arguments_parser().parse_known_args(namespace=env)
    if args.wait != DEFAULT_WAIT_MS:
        warnings.warn("`--wait` is deprecated: set max_wait_time of append_worker", DeprecationWarning, stacklevel=2)
    if args.debug:
        args.log_level = "debug"
        warnings.warn("`--debug` is deprecated: use `--log-level=debug`", DeprecationWarning, stacklevel=2)
    args.given = given
    return args


def get_log_level() -> int:
    """Returns the level that the arguments ask for."""
    args, _ = build_arguments_parser().parse_known_args(namespace=get_env_namespace())
    return logging.DEBUG if args.debug else _LEVELS.get(args.log_level, logging.INFO)
