#!/bin/sh
# test.sh [GO TEST FLAG...] runs every test there is; `make test` calls it.
#
# Each step runs even when one before it failed, so that one run shows all that
# is wrong. The exit status is 1 when any step failed.
set -u
cd "$(dirname "$0")/.." || exit 1

# Folders whose goroutines share memory; they run again under the race detector.
concurrent='stream|batching|workers|ingest|server|internal/buf|internal/child'
fuzz_runs=2000x

tags=
pkg-config --exists libturbojpeg 2>/dev/null && tags=turbojpeg
failed=
began=$(date +%s)

# step NAME COMMAND... runs the command and notes a failure.
step() {
    name=$1
    shift
    echo "== $name"
    "$@" || failed="$failed $name"
}

format() {
    bad=$(find . \( -name '.?*' -o -name node_modules -o -path ./out \) -prune -o -name '*.go' -exec gofmt -l {} +)
    [ -z "$bad" ] || { printf 'run gofmt -w on:\n%s\n' "$bad"; return 1; }
}

# packages REGEXP prints the packages in the folders that match, and below them.
packages() { go list -tags "$tags" ./... | grep -E "^millrace/($1)(/|\$)"; }

# fuzz gives every Fuzz function in the tree a fixed number of runs; minimising
# is cut short, or one interesting input takes up to a minute.
fuzz() {
    log=$(mktemp) || return 1
    status=0
    # shellcheck disable=SC2013 # no word has a space in it
    for found in $(grep -roHsE --include='*_test.go' --exclude-dir=node_modules --exclude-dir=testdata \
        '^func Fuzz[A-Za-z0-9_]*' . | sed 's/func //' | sort -u); do
        dir=$(dirname "${found%%:*}") target=${found##*:}
        if go test -tags "$tags" -run '^$' -fuzz "^$target\$" -fuzztime $fuzz_runs -fuzzminimizetime 10x "$dir" >"$log" 2>&1; then
            echo "$(tail -n 1 "$log") $target"
        else
            cat "$log"
            status=1
        fi
    done
    rm -f "$log"
    return $status
}

step format format
step vet go vet -tags "$tags" ./...
step vet-invariants go vet -tags "invariants,$tags" ./...
step test go test -timeout 10m -tags "$tags" "$@" ./...
# shellcheck disable=SC2046 # a list of words
step race go test -race -timeout 10m -tags "invariants,$tags" "$@" $(packages "$concurrent")
# The build without libjpeg-turbo; where the library is missing, the step `test` was that build.
# shellcheck disable=SC2046 # a list of words
[ -z "$tags" ] || step pure-go-jpeg go test -timeout 10m "$@" $(packages internal/codec)
step fuzz fuzz
# The steps before it soak for some seconds. A run of chosen tests leaves it out.
[ $# -gt 0 ] || step soak go test -race -count=1 -timeout 15m -tags "invariants,$tags" -run '^TestSoak$' ./server -args -soak 3m

took=$(($(date +%s) - began))
[ -z "$failed" ] || { echo "FAIL after $took s:$failed"; exit 1; }
echo "PASS: every step, in $took s"
