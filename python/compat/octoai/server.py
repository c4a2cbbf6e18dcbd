"""The command line of the server: ``python -m octoai.server [OPTION...] COMMAND``.

``run`` is done by the program ``millrace``, which is looked for in the variable ``MILLRACE_COMMAND`` and in ``PATH``.
"""

import argparse
import json
import logging
import os
import shutil
import sys
from pathlib import Path
from typing import Any, List, Optional

LEVELS = ("ERROR", "WARNING", "INFO", "DEBUG")

STORE_ASSETS_NEEDED = 10
STORE_ASSETS_NOT_NEEDED = 11

_log = logging.getLogger("octoai.server")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    p = argparse.ArgumentParser(
        prog="octoai.server", description="Serves a service of OctoAI, or tells of one.", allow_abbrev=False
    )
    p.add_argument(
        "--log-level",
        type=str.upper,
        choices=LEVELS,
        default=os.environ.get("OCTOAI_LOG_LEVEL", "INFO").upper(),
        help="of messages on the standard error (OCTOAI_LOG_LEVEL)",
    )
    p.add_argument("--service-module", default="service", help="the module of the service")
    p.add_argument("--service-class", help="its class; default: the one that extends octoai.service.Service")
    commands = p.add_subparsers(dest="command", metavar="COMMAND", required=True)
    c = commands.add_parser("api-schema", help="print the OpenAPI document", allow_abbrev=False)
    c.add_argument("--output-file", help="write it into this file")
    c = commands.add_parser("generate-usage-examples", help="print an example of a request", allow_abbrev=False)
    c.add_argument("--format", required=True, type=str.lower, choices=("curl", "python"))
    c.add_argument("--no-render", action="store_true", help="print the template and its values as JSON")
    c.add_argument("--output-file", help="write it into this file")
    commands.add_parser("setup-service", help="call the service's setup", allow_abbrev=False)
    c = commands.add_parser("store-assets", help="call the service's store_assets", allow_abbrev=False)
    c.add_argument(
        "--check-is-needed",
        action="store_true",
        help=f"only exit: with {STORE_ASSETS_NEEDED} when the service has a store_assets, else with "
        f"{STORE_ASSETS_NOT_NEEDED}",
    )
    c = commands.add_parser("run", help="serve the service", allow_abbrev=False)
    c.add_argument("--port", type=int, default=8080)
    c.add_argument(
        "--host",
        default="127.0.0.1",
        help="the address to listen at; 0.0.0.0 for other machines, with -- --auth-keys FILE or -- --insecure",
    )
    c.add_argument(
        "--async-enable", type=_bool, default=True, metavar="BOOL", help="false: inference_time_ms is processor time"
    )
    c.add_argument(
        "--timeout-keep-alive",
        type=int,
        default=900,
        metavar="SECONDS",
        help="time without a request after which a connection is closed",
    )
    c.add_argument("settings", nargs="*", metavar="-- SETTING", help="flags of millrace serve")
    return p


def _bool(text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0"):
        raise argparse.ArgumentTypeError(f"{text!r} is not true or false")
    return text.lower() in ("true", "1")


def main(argv: Optional[List[str]] = None) -> int:
    """Run a command and return the exit status."""
    arguments = sys.argv[1:] if argv is None else argv
    p = parser()
    options = p.parse_args(arguments)
    if options.log_level not in LEVELS:
        p.error(f"OCTOAI_LOG_LEVEL: want one of {', '.join(LEVELS)}")
    if options.command == "run":
        return _run(options)
    logging.basicConfig(
        level=options.log_level,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(filename)s:%(lineno)d %(message)s",
    )
    print("octoai server", flush=True)
    return _do(options)


TIME_LIMIT = "15m"
"""Longest time of a request; the services that this serves have run without one."""

START_LIMIT = "1h"
"""Longest time of an import and setup."""


def serve_arguments(options: Any) -> List[str]:
    """Return the arguments of ``millrace`` for the options of ``run``."""
    module, name = options.service_module, options.service_module.rpartition(".")[2]
    file = module.replace(".", "/") + ".py"
    # A module of a package keeps its name, since its imports may be relative.
    source = (
        f"./{file}" if "." not in module and os.path.isfile(file) else f"{module}:{options.service_class or 'Service'}"
    )
    settings = {
        "style": "octoai",
        "python": sys.executable,
        "class": options.service_class,
        "args": f"--async-enable={str(options.async_enable).lower()}",
        "limits.run": TIME_LIMIT,
        "limits.start": START_LIMIT,
    }
    model = "".join(f',{key}="{value}"' for key, value in settings.items() if value)
    return [
        "serve",
        "--model",
        f'{name}="{source}"{model}',
        "--root",
        name,
        "--http",
        f"{options.host}:{options.port}",
        "--grpc",
        "off",
        "--limits-keep-alive",
        f"{options.timeout_keep_alive}s",
        "--log-level",
        options.log_level.lower().replace("warning", "warn"),
        *options.settings,
    ]


def _run(options: Any) -> int:
    program = os.environ.pop("MILLRACE_COMMAND", None) or shutil.which("millrace")
    if not program:
        print(
            "octoai.server: run needs the program millrace in PATH, or MILLRACE_COMMAND with its path", file=sys.stderr
        )
        return 1
    os.environ["OCTOAI_LOG_LEVEL"] = options.log_level
    os.execv(program, [program, *serve_arguments(options)])


def _do(options: Any) -> int:
    _find_package()
    from millrace_compat import octoai as _octoai
    from millrace._errors import LoadError
    from millrace._load import Source

    source_options = {"style": "octoai", "class": options.service_class or ""}
    try:
        source = Source(options.service_module, [], source_options)
        if options.command == "store-assets" and options.check_is_needed:
            cls = _octoai.service_class(source.module(), source.attribute)
            return STORE_ASSETS_NEEDED if cls and _octoai.stores_assets(cls) else STORE_ASSETS_NOT_NEEDED
        application = _octoai.find(source)
    except LoadError as e:
        print(f"octoai.server: {e}", file=sys.stderr)
        return 1
    service = application.service
    _log.info("using service in %s.%s", options.service_module, type(service).__name__)
    if options.command == "setup-service":
        service.setup()
    elif options.command == "store-assets":
        service.store_assets()
    elif options.command == "api-schema":
        _put(json.dumps(application.openapi(), indent=2), options.output_file)
    else:
        from millrace_compat import octoai_examples as examples

        made = examples.template(application.endpoints["infer"], options.format)
        _put(json.dumps(made._asdict(), indent=2) if options.no_render else examples.render(made), options.output_file)
    return 0


def _find_package() -> None:
    """Make the package millrace importable, which is beside the folder of the stand-ins."""
    root = str(Path(__file__).resolve().parent.parent.parent)
    if root not in sys.path:
        sys.path.append(root)


def _put(text: str, file_name: Optional[str]) -> None:
    if file_name:
        Path(file_name).write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    sys.exit(main())
