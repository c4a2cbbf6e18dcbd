#!/bin/sh
# soak.sh [GO TEST FLAG...] runs what takes hours: the soak, the stress and the
# simulations with many seeds, and every fuzz target for a minute. The seeds
# come from the date; SEED=... repeats the run of another day, SOAK=30m and
# FUZZ=1m are its lengths.
. "$(dirname "$0")/steps.sh"
# Seeds are counted up from the first; thousands keep those of one day from the next.
SEED=${SEED:-$(date +%Y%m%d)000}
export MILLRACE_TEST_SEED="$SEED"
echo "soak: SEED=$SEED make soak repeats this run"

step soak go test -race -count=1 -timeout 0 -tags "invariants,$tags" -run '^TestSoak$' -v ./server "$@" -args -soak "${SOAK:-30m}"
step stress go test -race -count=1 -timeout 0 -tags "invariants,$tags" -run '^TestStress$' -v ./workers "$@" -args -stress.rounds 300
step simulations go test -count=1 -timeout 0 -tags "invariants,$tags" -v ./batching "$@"
step properties go test -count=1 -timeout 0 -tags "invariants,$tags" ./stream "$@" -args -rapid.checks 100000 -rapid.seed "$SEED"
step fuzz fuzz "${FUZZ:-1m}"
finish
