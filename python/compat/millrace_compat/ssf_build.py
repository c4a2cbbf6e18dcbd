"""The commands init and build of an application of Simple Server Framework: `millrace ssf init build`.

Standard input has config, file and args as the option `ssf` of a child process, and steps.
"""

from __future__ import annotations

import glob
import json
import logging
import os
import sys
from typing import Any

logger = logging.getLogger("ssf")


def main() -> int:
    """Runs the steps and returns the result code of the last one."""
    from ssf.application_interface import results
    from . import ssf_config

    given = json.load(sys.stdin)
    begin_log(given)
    try:
        config = ssf_config.read(given["config"], given["file"], given["args"])
        code = results.RESULT_OK
        for step in given["steps"]:
            logger.info("> ==== %s ==== of %s", step.capitalize(), config.application.id)
            code = init(config) if step == "init" else build(config, given.get("installed", False))
            if code != results.RESULT_OK:
                logger.error("%s returned %s", step, results.result_strings.get(code, code))
                break
        return code if isinstance(code, int) and 0 <= code < 256 else results.RESULT_APPLICATION_ERROR
    except results.SSFException as e:
        if e.log_with_level is None and e.__cause__ is not None:
            logger.exception(e)
        else:
            logger.log(e.log_with_level or logging.ERROR, e)
        return e.result_code


class Records(logging.Handler):
    """Writes records to standard error as JSON, a line each, for the log of `millrace ssf`."""

    def emit(self, record: logging.LogRecord) -> None:
        """Implements logging.Handler."""
        line = {"level": record.levelno, "pid": record.process, "message": self.format(record)}
        sys.stderr.write(json.dumps({"ssf_log": line}) + "\n")
        sys.stderr.flush()


def begin_log(given: dict[str, Any]) -> None:
    """Begins the log of a step: as records, or as text for people."""
    args = given["args"]
    level = min(logging.getLevelName(args.get(o) or "INFO") for o in ("stdout_log_level", "file_log_level"))
    if given.get("records"):
        logging.basicConfig(level=level, format="%(message)s", handlers=[Records()])
    else:
        logging.basicConfig(level=level, format="%(levelname)s %(message)s", stream=sys.stderr)


def init(config: Any) -> int:
    """Removes the files that build makes: artifacts of the configuration, and the endpoints that gc-ssf generates."""
    for endpoint in config.endpoints:
        generated = f"ssf-{config.application.id}-endpoint-{endpoint.index}-fastapi.py"
        if os.path.isfile(generated) and not os.path.islink(generated):
            logger.info("removes %s", generated)
            os.remove(generated)
    for pattern in config.application.artifacts:
        for path in glob.glob(os.path.join(config.application.dir, str(pattern))):
            if os.path.isfile(path):
                logger.info("removes %s", path)
                os.remove(path)
    return 0


def build(config: Any, installed: bool = False) -> int:
    """Calls the application's build, and says how to install what it declares, unless it is installed."""
    from ssf.application_interface.results import SSFException, SSFExceptionApplicationError
    from ssf.application_interface.utils import temporary_cwd
    from .ssf import instance

    command = install(config)
    if command and not installed:
        logger.info(
            "the application declares packages, which are not installed here: if they are missing, run %s", command
        )
    made = instance(config)
    with temporary_cwd(config.application.file_dir):
        try:
            code = made.build()
            made.shutdown()
        except SSFException:
            raise
        except Exception as e:
            raise SSFExceptionApplicationError(f"build failed: {e}") from e
    return 0 if code is None else code


def install(config: Any) -> str:
    """Returns the command that installs the application's packages in a virtual environment, or ""."""
    declared = (config.application.dependencies or {}).get("python")
    words = declared if isinstance(declared, list) else str(declared or "").split(",")
    words = [str(w).strip() for w in words if str(w).strip()]
    if not words:
        return ""
    venv = os.path.basename(config.application.venv_dir)
    files = [os.path.join(config.application.dir, w) for w in words]
    packages = [f"-r {f}" if os.path.isfile(f) else f"'{w}'" if " " not in w else w for w, f in zip(words, files)]
    return f"python3 -m venv {venv} && {venv}/bin/pip install {' '.join(packages)}"
