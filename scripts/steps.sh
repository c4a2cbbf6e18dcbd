# steps.sh has the functions that the scripts with tests share.
#
# Each step runs even when one before it failed, so that one run shows all
# failures. finish exits with 1 when any step failed.
set -u
cd "$(dirname "$0")/.." || exit 1

tags=
pkg-config --exists libjpeg 2>/dev/null && tags=turbojpeg
pkg-config --exists libwebp 2>/dev/null && tags="${tags:+$tags,}libwebp"
passed=0
failed=
began=$(date +%s)

# step NAME COMMAND... runs the command, prints its time, and records a failure.
step() {
    name=$1
    shift
    echo "== $name"
    start=$(date +%s)
    if "$@"; then passed=$((passed + 1)); else failed="$failed $name"; fi
    echo "   $name: $(($(date +%s) - start)) s"
}

# finish prints the result of all steps and exits.
finish() {
    set -- $failed
    echo "$(basename "$0" .sh): $(($(date +%s) - began)) s${failed:+, failed:$failed}"
    echo "$passed passed, $# failed"
    [ $# = 0 ]
    exit
}

# packages REGEXP prints the packages in the folders that match, and below them.
packages() { go list -tags "$tags" ./... | grep -E "^millrace/($1)(/|\$)"; }

# fuzz FUZZTIME [GO TEST FLAG...] runs every Fuzz function in the tree for FUZZTIME
# (a number of runs, as in 2000x, or a time). Each package is built once. Minimising is
# limited, since one input could otherwise take up to a minute.
fuzz() {
    fuzztime=$1
    shift
    work=$(mktemp -d) || return 1
    status=0
    for dir in $(grep -rlsE --include='*_test.go' --exclude-dir=node_modules --exclude-dir=testdata '^func Fuzz' . |
        xargs -n 1 dirname | sort -u); do
        if ! go test -c -vet=off -tags "$tags" -fuzz . -o "$work/fuzz.test" "$@" "$dir"; then
            status=1
            continue
        fi
        for target in $("$work/fuzz.test" -test.list '^Fuzz' | grep '^Fuzz'); do
            # The binary runs in its package's folder, as with `go test`.
            if (cd "$dir" && "$work/fuzz.test" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$fuzztime" \
                -test.fuzzminimizetime 10x -test.fuzzcachedir "$work/corpus/$dir/$target") >"$work/log" 2>&1; then
                echo "ok   $dir $target"
            else
                cat "$work/log"
                echo "FAIL $dir $target"
                status=1
            fi
        done
    done
    rm -rf "$work"
    return $status
}
