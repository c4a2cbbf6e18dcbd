#!/bin/sh
# test.sh [GO TEST FLAG...] runs the fast tests; `make test` calls it. The long
# ones (testing.Short), and the race detector on the rest, are in check.sh.
. "$(dirname "$0")/steps.sh"

# Folders whose goroutines share memory, and packages below them that have none.
concurrent='stream|batching|workers|ingest/ws|client'
computing='motion|tracking|postprocess'

format() {
    bad=$(find . \( -name '.?*' -o -name node_modules -o -path ./out \) -prune -o -name '*.go' -exec gofmt -l {} +)
    [ -z "$bad" ] || { printf 'run gofmt -w on:\n%s\n' "$bad"; return 1; }
}

step format format
step vet go vet -tags "$tags" ./...
# -vet=off: the step before has vetted. Tests mostly wait, for processes, time-outs and
# replies, so more of them run in parallel than there are cores.
step test go test -short -vet=off -p 4 -parallel 8 -timeout 4m -tags "$tags" "$@" ./...
# shellcheck disable=SC2046 # a list of words
step race go test -short -vet=off -p 4 -parallel 8 -race -timeout 4m -tags "invariants,$tags" "$@" $(packages "$concurrent" | grep -vE "/($computing)\$")
finish
