"""The tests that an application of Simple Server Framework has for itself: `millrace app test`.

Standard input has config, file and args as the option `ssf` of a child process. MILLRACE_ADDR is the server's URL, and
MILLRACE_TOKEN its key.
"""

from __future__ import annotations

import json
import os
import sys


def main() -> int:
    """Runs the tests and returns 0 if all passed."""
    from ssf.application_interface.utils import temporary_cwd
    from . import ssf_config
    from .ssf import instance

    try:
        import requests
    except ImportError:
        print("the tests need the module requests: write requests into tests/requirements.txt")
        return 1
    given = json.load(sys.stdin)
    config = ssf_config.read(given["config"], given["file"], given["args"])
    tests = instance(config, "SSFApplicationTestInterface", "create_ssf_application_test_instance")
    address, session = os.environ["MILLRACE_ADDR"], requests.Session()
    session.get(address + "/login", params={"api_key": os.environ["MILLRACE_TOKEN"]}, timeout=60).raise_for_status()
    failed = 0
    with temporary_cwd(config.application.file_dir):
        if tests.begin(session, address):
            print("begin failed")
            return 1
        index, more = 0, True
        while more:
            passed, text, more = tests.subtest(session, address, index)
            print(f"{'passed' if passed else 'FAILED'}: {index}: {text}")
            failed += not passed
            index += 1
        if tests.end(session, address):
            print("end failed")
            failed += 1
    return 1 if failed else 0
