"""Entry of a child process of Millrace: python -u _child.py.

This file must parse on every Python since 2.7, so that an old Python can print a message.
"""
import json
import os
import socket
import struct
import sys

OLDEST = (3, 9)


def refuse(message):
    """Sends the message `failed` and ends the process."""
    sock = socket.fromfd(int(os.environ["MILLRACE_SOCKET"]), socket.AF_UNIX, socket.SOCK_STREAM)
    text = json.dumps({"type": "failed", "kind": "unsupported", "message": message}).encode("utf-8")
    sock.sendall(struct.pack("<II", len(text), 0) + text)
    sock.close()
    sys.exit(1)


def start():
    """Puts the package and the stand-ins first on the path, and serves until the socket ends."""
    if sys.version_info < OLDEST:
        refuse(
            "%s is Python %d.%d.%d: Millrace needs %d.%d or newer. Set the model's `python` or `venv`"
            % ((sys.executable,) + tuple(sys.version_info[:3]) + OLDEST)
        )
    package = os.path.dirname(os.path.abspath(__file__))
    root = os.path.dirname(package)
    sys.path[:] = [os.path.join(root, "compat"), root] + [p for p in sys.path if os.path.abspath(p) != package]
    unwritten = sys.dont_write_bytecode
    sys.dont_write_bytecode = False  # of our own modules, which are in a folder of ours
    from millrace._loop import main
    import millrace._services  # noqa: F401

    sys.dont_write_bytecode = unwritten
    main()


if __name__ == "__main__":
    start()
