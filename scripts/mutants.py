#!/usr/bin/env python3
"""Draws small faults by a seed, puts each into the code, and runs the tests that should detect it.

    scripts/mutants.py --seed 1 [--count 100] [--jobs 2] [PACKAGE...]

gremlins lists the faults that could be made (a comparison negated, a bound moved by one, a sum turned into a
difference, && into ||, break into continue). Each drawn fault is built with `go test -overlay`, which does not change
the checkout. The tests of its package run, then those of the packages that import it, the nearest folders first, until
one fails: then the fault is noticed. All run with -short. Packages in cmd and examples are not run, and only the first
--importers are, since each links its own test binary and seldom detects a fault that the earlier ones did not. So a
fault that `make check` would detect may count as missed, but not the reverse. A fault that does not compile, or that
scripts/mutants-equivalent.txt lists because it changes nothing, is left out, and another one is drawn.

Prints a line for each fault, with the test that failed, then the share that was noticed; exits with 1 when the share is
below --least. A package whose tests fail without a fault is reported, and its tests count as noticing nothing.
"""
import argparse
import concurrent.futures
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading

GREMLINS = "github.com/go-gremlins/gremlins", "v0.6.0"
PACKAGES = """
stream stream/window stream/buf batching workers
ingest ingest/frames ingest/rest ingest/rest/request ingest/sources ingest/sinks ingest/streams ingest/ws/...
client tracing config server internal/wire internal/httpd internal/backoff internal/accept internal/routines
""".split()

# The operator that each kind of fault puts in place of another.
SWAPS = {
    "ARITHMETIC_BASE": {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*"},
    "CONDITIONALS_BOUNDARY": {">=": ">", ">": ">=", "<=": "<", "<": "<="},
    "CONDITIONALS_NEGATION": {"==": "!=", "!=": "==", ">=": "<", "<": ">=", ">": "<=", "<=": ">"},
    "INCREMENT_DECREMENT": {"++": "--", "--": "++"},
    "INVERT_ASSIGNMENTS": {"+=": "-=", "-=": "+=", "*=": "/=", "/=": "*="},
    "INVERT_LOGICAL": {"&&": "||", "||": "&&"},
    "INVERT_LOOPCTRL": {"break": "continue", "continue": "break"},
    "INVERT_NEGATIVES": {"-": "+"},
    "REMOVE_SELF_ASSIGNMENTS": {"+=": "=", "-=": "=", "*=": "=", "/=": "=", "|=": "=", "&=": "="},
}


def run(args, **kw):
    return subprocess.run(args, text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **kw)


def gremlins():
    """Builds the tool, once, and returns its path."""
    path = os.path.abspath("out/tools/gremlins-" + GREMLINS[1])
    if not os.path.exists(path):
        # GOFLAGS may have flags that `go mod download` does not accept.
        env = dict(os.environ, GOFLAGS="-mod=mod")
        found = json.loads(
            subprocess.check_output(
                ["go", "mod", "download", "-json", "@".join(GREMLINS)], cwd=tempfile.gettempdir(), env=env
            )
        )
        os.makedirs(os.path.dirname(path), exist_ok=True)
        subprocess.check_call(
            ["go", "build", "-C", found["Dir"], "-mod=readonly", "-o", path, "./cmd/gremlins"],
            env=dict(os.environ, GOFLAGS=""),
        )
    return path


def faults(tool, packages):
    """Lists every fault that the tool could make: (file, line, column, kind)."""
    with tempfile.TemporaryDirectory() as work:
        # The tool first runs all tests for their coverage. Faults are drawn from all lines,
        # covered or not, so a replacement of the go command writes an empty profile.
        stub = os.path.join(work, "go")
        with open(stub, "w") as f:
            f.write(
                '#!/bin/sh\nout=\nwhile [ $# -gt 0 ]; do case $1 in -coverprofile) out=$2 ;; -coverprofile=*) '
                'out=${1#*=} ;; esac; shift; done\n'
                '[ -z "$out" ] || echo "mode: set" >"$out"\n'
            )
        os.chmod(stub, 0o755)
        report = os.path.join(work, "faults.json")
        done = run(
            [
                tool,
                "unleash",
                "--dry-run",
                "--silent",
                "--invert-logical",
                "--invert-loopctrl",
                "--invert-assignments",
                "--remove-self-assignments",
                "--output",
                report,
                ".",
            ],
            env=dict(os.environ, PATH=work + os.pathsep + os.environ["PATH"]),
        )
        if not os.path.exists(report):
            sys.exit("mutants: gremlins listed nothing:\n" + done.stdout)
        with open(report) as f:
            files = json.load(f)["files"]
    drawn = [(os.path.dirname(f["file_name"]), f["file_name"], m) for f in files for m in f["mutations"]]
    return sorted(
        (name, m["line"], m["column"], m["type"])
        for folder, name, m in drawn
        if any(folder == p or p.endswith("/...") and (folder + "/").startswith(p[:-3]) for p in packages)
    )


def importers(tags):
    """Maps each package to the packages that import it, also in their tests, the nearest first."""
    out = subprocess.check_output(
        [
            "go",
            "list",
            "-tags",
            tags,
            "-f",
            '{{.ImportPath}} {{len .Deps}} {{join .Imports " "}} {{join .TestImports " "}}'
            ' {{join .XTestImports " "}}',
            "./...",
        ],
        text=True,
    )
    users = {}
    for line in out.splitlines():
        name, size, *imports = line.split()
        if name.split("/")[1] not in ("cmd", "examples"):
            for p in set(imports) - {name}:
                users.setdefault(p, []).append((-len(os.path.commonpath([p, name])), int(size), name))
    return {p: [name for _, _, name in sorted(found)] for p, found in users.items()}


class Tests:
    """Runs packages' tests."""

    def __init__(self, tags, timeout):
        self.command = ["go", "test", "-short", "-failfast", "-vet=off", "-timeout", f"{timeout}s", "-tags", tags]
        self.lock = threading.Lock()
        self.fail_anyway = {}

    def notice(self, package, overlay):
        """Returns the test that failed with the fault, "" if none did, None if it does not compile."""
        # A property that fails because of the fault leaves no file behind.
        done = run([*self.command, "-overlay", overlay, package], env=dict(os.environ, RAPID_NOFAILFILE="1"))
        if done.returncode == 0:
            return ""
        if "[build failed]" in done.stdout or "[setup failed]" in done.stdout:
            return None
        with self.lock:
            if package not in self.fail_anyway:
                self.fail_anyway[package] = run([*self.command, package]).returncode != 0
                if self.fail_anyway[package]:
                    print(
                        f"mutants: the tests of {package} fail without a fault: they count as noticing nothing",
                        flush=True,
                    )
        if self.fail_anyway[package]:
            return ""
        failed = re.search(r"^\s*--- FAIL: (\S+)", done.stdout, re.M) or re.search(
            r"^(?:panic|fatal error): (.*)", done.stdout, re.M
        )
        return package[len("millrace/") :] + ": " + (failed.group(1) if failed else "exit")


def equivalents():
    """Returns the faults that change nothing: (file, changed line)."""
    with open("scripts/mutants-equivalent.txt") as f:
        return {tuple(line.split(" | ")[:2]) for line in f if not line.startswith("#")}


def attempt(fault, users, tests, left_out=()):
    """Returns the outcome of a fault (noticed, missed, equivalent or unbuildable), the changed line, and the test that
    failed.
    """
    path, line, column, kind = fault
    with open(path) as f:
        lines = f.read().split("\n")
    raw = lines[line - 1].encode()
    at = len(raw[: column - 1].decode())
    text = lines[line - 1]
    operator = next((o for o in sorted(SWAPS[kind], key=len, reverse=True) if text.startswith(o, at)), None)
    if operator is None:
        return "unbuildable", text.strip(), ""
    lines[line - 1] = text[:at] + SWAPS[kind][operator] + text[at + len(operator) :]
    if (path, lines[line - 1].strip()) in left_out:
        return "equivalent", lines[line - 1].strip(), ""
    work = tempfile.mkdtemp()
    try:
        changed, overlay = os.path.join(work, "changed.go"), os.path.join(work, "overlay.json")
        with open(changed, "w") as f:
            f.write("\n".join(lines))
        with open(overlay, "w") as f:
            json.dump({"Replace": {os.path.abspath(path): changed}}, f)
        package = "millrace/" + os.path.dirname(path)
        for p in [package, *users.get(package, [])]:
            failed = tests.notice(p, overlay)
            if failed != "":
                return "unbuildable" if failed is None else "noticed", lines[line - 1].strip(), failed or ""
        return "missed", lines[line - 1].strip(), ""
    finally:
        shutil.rmtree(work)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seed", type=int, required=True, help="the same seed draws the same faults from the same code"
    )
    parser.add_argument("--count", type=int, default=100, help="faults drawn (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="faults tried at once (%(default)s)")
    parser.add_argument("--importers", type=int, default=3, help="importing packages whose tests run (%(default)s)")
    parser.add_argument(
        "--timeout",
        type=int,
        default=120,
        help="seconds for the tests of a package; when they take longer, the fault is noticed (%(default)s)",
    )
    parser.add_argument("--least", type=float, default=0, help="exit with 1 when a smaller share is noticed, 0 to 1")
    parser.add_argument("--list", action="store_true", help="only print the faults")
    parser.add_argument(
        "packages", nargs="*", metavar="PACKAGE", help="folders; with /... also those below (%s)" % " ".join(PACKAGES)
    )
    args = parser.parse_args()
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    tags = ",".join(
        tag
        for tag, library in (("turbojpeg", "libjpeg"), ("libwebp", "libwebp"))
        if run(["pkg-config", "--exists", library]).returncode == 0
    )
    everything = faults(gremlins(), [re.sub("^\\./|/$", "", p) for p in args.packages or PACKAGES])
    draw = random.Random(args.seed).sample(everything, len(everything))
    print(
        f"{len(everything)} faults could be made; seed {args.seed} draws {min(args.count, len(everything))}", flush=True
    )
    if args.list:
        for path, line, column, kind in draw[: args.count]:
            print(f"{path}:{line}:{column} {kind}")
        return
    users = {p: found[: args.importers] for p, found in importers(tags).items()}
    tests, left_out, queue = Tests(tags, args.timeout), equivalents(), iter(draw)
    counts = {"noticed": 0, "missed": 0}
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:

        def next_fault():
            fault = next(queue, None)
            return fault and (fault, pool.submit(attempt, fault, users, tests, left_out))

        left = args.count
        while left > 0:
            batch = [x for x in (next_fault() for _ in range(min(left, args.jobs * 4))) if x]
            if not batch:
                break
            for (path, line, column, kind), outcome in batch:
                what, text, failed = outcome.result()
                if what in counts:
                    counts[what] += 1
                    left -= 1
                print(
                    f"{what:11} {path}:{line}:{column} {kind}: {text}" + (f"  [{failed}]" if failed else ""), flush=True
                )
    total = sum(counts.values())
    share = counts["noticed"] / max(total, 1)
    print(f"{counts['noticed']} of {total} faults noticed ({share:.0%}), seed {args.seed}")
    if share < args.least:
        sys.exit(1)


if __name__ == "__main__":
    main()
