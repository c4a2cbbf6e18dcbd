"""Calls authenticate_user(username, password) of a module. The server's setting auth.module names the module.

The server starts this program with the file of the module as argument. Each line of standard input is a JSON object
with username and password. Each answer is a line: {"user": ID}, where ID is null for nobody, or {"error": TEXT}. The
first line says that the module was loaded. Standard output of the module goes to standard error, into the log of the
server. Texts of errors have no arguments of the call.
"""

import importlib.util
import json
import os
import sys
import traceback


def place(error: BaseException) -> str:
    """The type of an error and the place of the raise, without the text, since the text may have the password."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f", {frames[-1].filename}, line {frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{where}"


def load(path: str):
    """The function of the module in the file path."""
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location("authenticate_user", path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a module in Python: want a file that ends with .py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, "authenticate_user", None)
    if not callable(function):
        raise ValueError(f"{path} has no function authenticate_user(username, password)")
    return function


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)

    def answer(**values) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    try:
        function = load(sys.argv[1])
    except BaseException as error:  # what a module raises while it is loaded has no password
        answer(error=f"{type(error).__name__}: {error}")
        return
    answer(user=None)
    for line in sys.stdin.buffer:
        request = json.loads(line)
        try:
            user = function(request["username"], request["password"])
            answer(user=None if user is None or user == "" or user is False else str(user))
        except Exception as error:
            answer(error=f"authenticate_user failed: {place(error)}")


if __name__ == "__main__":
    main()
