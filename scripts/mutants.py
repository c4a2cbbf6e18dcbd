#!/usr/bin/env python3
"""Draws small faults by a seed, puts each into the code, and runs the tests that should notice.

    scripts/mutants.py --seed 1 [--count 100] [--jobs 2] [PACKAGE...]

gremlins lists the faults that could be made (a comparison negated, a bound moved by one, a sum turned into a difference, && into ||, break into
continue). Each that is drawn is built in by `go test -overlay`, so that the checkout stays as it is, and the tests of its package and of the packages
that import it run with -short. A fault is noticed when they fail. One that does not compile is left out and another drawn.

Prints a line for each fault, then the share that was noticed; exits 1 when that is below --least.
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

GREMLINS = "github.com/go-gremlins/gremlins", "v0.6.0"
PACKAGES = ["stream", "batching", "workers", "ingest", "client", "tracing", "server", "internal/wire", "internal/httpd"]

# What a fault of each kind makes of the operator at its place.
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
    return subprocess.run(args, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **kw)


def gremlins():
    """Builds the tool, once, and returns its path."""
    path = os.path.abspath("out/tools/gremlins-" + GREMLINS[1])
    if not os.path.exists(path):
        # GOFLAGS may name flags that `go mod download` does not take.
        env = dict(os.environ, GOFLAGS="-mod=mod")
        found = json.loads(subprocess.check_output(["go", "mod", "download", "-json", "@".join(GREMLINS)], cwd=tempfile.gettempdir(), env=env))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        subprocess.check_call(["go", "build", "-C", found["Dir"], "-mod=readonly", "-o", path, "./cmd/gremlins"], env=dict(os.environ, GOFLAGS=""))
    return path


def faults(tool, packages):
    """Lists every fault that the tool could make: (file, line, column, kind)."""
    with tempfile.TemporaryDirectory() as work:
        # The tool first runs all tests for their coverage. The draw is from all lines,
        # covered or not, so a stand-in for the go command writes an empty profile.
        stub = os.path.join(work, "go")
        with open(stub, "w") as f:
            f.write('#!/bin/sh\nout=\nwhile [ $# -gt 0 ]; do case $1 in -coverprofile) out=$2 ;; -coverprofile=*) out=${1#*=} ;; esac; shift; done\n'
                    '[ -z "$out" ] || echo "mode: set" >"$out"\n')
        os.chmod(stub, 0o755)
        report = os.path.join(work, "faults.json")
        done = run([tool, "unleash", "--dry-run", "--silent", "--invert-logical", "--invert-loopctrl", "--invert-assignments", "--remove-self-assignments",
                    "--output", report, "."], env=dict(os.environ, PATH=work + os.pathsep + os.environ["PATH"]))
        if not os.path.exists(report):
            sys.exit("mutants: gremlins listed nothing:\n" + done.stdout)
        with open(report) as f:
            files = json.load(f)["files"]
    inside = re.compile("^(" + "|".join(re.escape(p) for p in packages) + ")/")
    return sorted((f["file_name"], m["line"], m["column"], m["type"]) for f in files for m in f["mutations"] if inside.match(f["file_name"]))


def importers(tags):
    """Maps each package to itself and those that import it, also in their tests."""
    out = subprocess.check_output(["go", "list", "-tags", tags, "-f",
                                   '{{.ImportPath}} {{join .Imports " "}} {{join .TestImports " "}} {{join .XTestImports " "}}', "./..."], text=True)
    users = {}
    for line in out.splitlines():
        name, *imports = line.split()
        for p in {name, *imports}:
            users.setdefault(p, set()).add(name)
    return users


def attempt(fault, users, tags, timeout):
    """Returns what became of a fault: noticed, missed or unbuildable, and the changed line."""
    path, line, column, kind = fault
    with open(path) as f:
        lines = f.read().split("\n")
    raw = lines[line - 1].encode()
    at = len(raw[:column - 1].decode())
    text = lines[line - 1]
    operator = next((o for o in sorted(SWAPS[kind], key=len, reverse=True) if text.startswith(o, at)), None)
    if operator is None:
        return "unbuildable", text.strip()
    lines[line - 1] = text[:at] + SWAPS[kind][operator] + text[at + len(operator):]
    work = tempfile.mkdtemp()
    try:
        changed, overlay = os.path.join(work, "changed.go"), os.path.join(work, "overlay.json")
        with open(changed, "w") as f:
            f.write("\n".join(lines))
        with open(overlay, "w") as f:
            json.dump({"Replace": {os.path.abspath(path): changed}}, f)
        package = "millrace/" + os.path.dirname(path)
        flags = ["-tags", tags, "-overlay", overlay]
        if run(["go", "build", *flags, package]).returncode:
            return "unbuildable", lines[line - 1].strip()
        # Its own package first: most faults end there.
        for group in [[package], sorted(users[package] - {package})]:
            if group and run(["go", "test", "-short", "-vet=off", "-timeout", f"{timeout}s", *flags, *group]).returncode:
                return "noticed", lines[line - 1].strip()
        return "missed", lines[line - 1].strip()
    finally:
        shutil.rmtree(work)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True, help="the draw can be repeated with the same seed on the same code")
    parser.add_argument("--count", type=int, default=100, help="faults drawn (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="faults tried at once (%(default)s)")
    parser.add_argument("--timeout", type=int, default=180, help="seconds for the tests of a package; past them the fault is noticed (%(default)s)")
    parser.add_argument("--least", type=float, default=0, help="exit 1 when a smaller share is noticed, 0 to 1")
    parser.add_argument("--list", action="store_true", help="print the draw only")
    parser.add_argument("packages", nargs="*", metavar="PACKAGE", help="folders (%s)" % " ".join(PACKAGES))
    args = parser.parse_args()
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    tags = "turbojpeg" if run(["pkg-config", "--exists", "libturbojpeg"]).returncode == 0 else ""
    everything = faults(gremlins(), [p.strip("./") for p in args.packages or PACKAGES])
    draw = random.Random(args.seed).sample(everything, len(everything))
    print(f"{len(everything)} faults could be made; seed {args.seed} draws {min(args.count, len(everything))}", flush=True)
    if args.list:
        for path, line, column, kind in draw[:args.count]:
            print(f"{path}:{line}:{column} {kind}")
        return
    users, queue = importers(tags), iter(draw)
    counts = {"noticed": 0, "missed": 0}
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        def next_fault():
            fault = next(queue, None)
            return fault and (fault, pool.submit(attempt, fault, users, tags, args.timeout))
        left = args.count
        while left > 0:
            batch = [x for x in (next_fault() for _ in range(min(left, args.jobs * 4))) if x]
            if not batch:
                break
            for (path, line, column, kind), outcome in batch:
                what, text = outcome.result()
                if what != "unbuildable":
                    counts[what] += 1
                    left -= 1
                print(f"{what:11} {path}:{line}:{column} {kind}: {text}", flush=True)
    total = sum(counts.values())
    share = counts["noticed"] / max(total, 1)
    print(f"{counts['noticed']} of {total} faults noticed ({share:.0%}), seed {args.seed}")
    if share < args.least:
        sys.exit(1)


if __name__ == "__main__":
    main()
