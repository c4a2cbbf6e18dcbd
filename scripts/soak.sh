#!/bin/sh
# soak.sh [GO TEST FLAG...] runs the tests that take hours: the soak, a server under faults
# from outside, kills and power failures of processes with tasks, the stress and the simulations
# with many seeds, and every fuzz target for a minute. The seeds are made from the date;
# SEED=... repeats the run of another day, and SOAK=30m and FUZZ=1m set the lengths.
. "$(dirname "$0")/steps.sh"
# Seeds count up from the first one; the factor 1000 keeps those of two days different.
SEED=${SEED:-$(date +%Y%m%d)000}
export MILLRACE_TEST_SEED="$SEED"
echo "soak: SEED=$SEED make soak repeats this run"

step soak go test -race -count=1 -timeout 0 -tags "invariants,$tags" -run '^TestSoak$' -v ./server/tests/frames "$@" -args -soak "${SOAK:-30m}"
step faults faults -for "${SOAK:-30m}" -seed "$SEED" -reloads 1000
step stress go test -race -count=1 -timeout 0 -tags "invariants,$tags" -run '^TestStress$' -v ./workers "$@" -args -stress.rounds 300
step simulations go test -count=1 -timeout 0 -tags "invariants,$tags" -v ./batching "$@"
step properties go test -count=1 -timeout 0 -tags "invariants,$tags" ./stream "$@" -args -rapid.checks 100000 -rapid.seed "$SEED"
step kills go test -count=1 -timeout 0 -tags "invariants,$tags" -run '^TestKill$' -v ./tasks "$@" -args -tasks.kills 1000
step disks in_tools go test -count=1 -timeout 0 -tags "$tags" -v ./powercut "$@" -args -powercut.points 10000 -powercut.fulls 500
step fuzz fuzz "${FUZZ:-1m}" -fuzz=.
finish
