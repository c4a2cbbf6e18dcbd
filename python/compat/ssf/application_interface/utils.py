"""Helpers of applications."""

import contextlib
import importlib.util
import logging
import os
import subprocess
import sys

from ssf.application_interface.results import SSFExceptionApplicationModuleError

API_FASTAPI = "fastapi"
API_GRPC = "grpc"

logger = logging.getLogger("ssf")


def get_ipu_count(env=None) -> int:
    """Returns how many IPUs gc-info finds; 0 where there is no such program."""
    try:
        found = subprocess.run(["gc-info", "--ipu-count"], stdout=subprocess.PIPE, env=env, check=True)
        return int(found.stdout)
    except (OSError, ValueError, subprocess.SubprocessError) as e:
        logger.debug("IPUs could not be counted: %s", e)
        return 0


def load_module(module_file: str, module_name: str):
    """Returns the module of that name, loaded from the file unless it is loaded already."""
    if module_name not in sys.modules:
        try:
            spec = importlib.util.spec_from_file_location(module_name, module_file)
            module = importlib.util.module_from_spec(spec)
            sys.modules[module_name] = module
            spec.loader.exec_module(module)
        except Exception as e:
            sys.modules.pop(module_name, None)
            raise SSFExceptionApplicationModuleError(f"{module_file} could not be loaded: {e}") from e
    return sys.modules[module_name]


@contextlib.contextmanager
def temporary_cwd(target_cwd: str):
    """Changes the working directory, and back at the end."""
    before = os.getcwd()
    os.chdir(target_cwd)
    try:
        yield
    finally:
        os.chdir(before)
