"""The tests that an application of Simple Server Framework has for itself: `millrace app test`, `millrace ssf test`.

Standard input has config, file and args as the option `ssf` of a child process. MILLRACE_ADDR is the server's URL, and
MILLRACE_TOKEN its key.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from typing import Any

logger = logging.getLogger("ssf")


def main() -> int:
    """Runs the tests and returns 0 if all passed, or a result code."""
    from ssf.application_interface import results
    from .ssf_build import begin_log

    given = json.load(sys.stdin)
    begin_log(given)
    try:
        return run(given)
    except results.SSFException as e:
        logger.exception(e)
        return e.result_code
    except Exception as e:
        logger.exception(e)
        return results.RESULT_APPLICATION_TEST_ERROR


def run(given: dict[str, Any]) -> int:
    """Runs the tests."""
    from ssf.application_interface.results import RESULT_APPLICATION_TEST_ERROR
    from ssf.application_interface.utils import temporary_cwd
    from . import ssf_config
    from .ssf import instance

    config = ssf_config.read(given["config"], given["file"], given["args"])
    tests = instance(config, "SSFApplicationTestInterface", "create_ssf_application_test_instance")
    if given["args"].get("api") == "grpc":
        print("the tests are run over HTTP only: leave --api grpc out")
        return RESULT_APPLICATION_TEST_ERROR
    try:
        import requests
    except ImportError:
        print("the tests need the module requests: write requests into tests/requirements.txt")
        return RESULT_APPLICATION_TEST_ERROR
    address, session = os.environ["MILLRACE_ADDR"], requests.Session()
    key = os.environ.get("MILLRACE_TOKEN")
    if key:
        session.get(address + "/login", params={"api_key": key}, timeout=60).raise_for_status()
    failed = 0
    with temporary_cwd(config.application.file_dir):
        if tests.begin(session, address):
            print("begin failed")
            return RESULT_APPLICATION_TEST_ERROR
        index, more = 0, True
        while more:
            passed, text, more = tests.subtest(session, address, index)
            print(f"{'passed' if passed else 'FAILED'}: {index}: {text}")
            failed += not passed
            index += 1
        if tests.end(session, address):
            print("end failed")
            failed += 1
    return RESULT_APPLICATION_TEST_ERROR if failed else 0
