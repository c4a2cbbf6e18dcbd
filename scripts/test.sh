#!/bin/sh
# test.sh [GO TEST FLAG...] runs the fast tests for `make test`. check.sh runs the long
# ones (testing.Short), and the race detector. With NAMING=1, as bare.sh runs it, only the tests
# of naming (steps.sh) run.
. "$(dirname "$0")/steps.sh"

format() {
    bad=$(find . \( -name '.?*' -o -name node_modules -o -path ./out \) -prune -o -name '*.go' -exec gofmt -l {} +)
    [ -z "$bad" ] || { printf 'run gofmt -w on:\n%s\n' "$bad"; return 1; }
}

step format format
# -vet=all: all analyzers of go vet, on the packages that the tests compile. Most tests wait for
# processes, time-outs and replies, so that more of them run in parallel than there are cores. -toolexec: the tests, and
# the nice ffmpegs that decode videos of clients, go before the compilers and linkers of other packages.
fast() {
    set -- -short -toolexec "nice -n 10" -p 4 -parallel 8 -timeout 10m -tags "$tags" "$@"
    if [ -n "${NAMING:-}" ]; then naming_tests -vet=off "$@"; else tests ./... -vet=all "$@"; fi
}
step test fast "$@"
step tools in_tools fast "$@"
finish
