# steps.sh has the functions that the scripts with tests share.
#
# Each step runs even when one before it failed, so that one run shows all
# failures. finish exits with 1 when any step failed.
set -u
cd "$(dirname "$0")/.." || exit 1

tags=
pkg-config --exists libjpeg 2>/dev/null && tags=turbojpeg
pkg-config --exists libwebp 2>/dev/null && tags="${tags:+$tags,}libwebp"
# Go keeps the absolute paths of cgo's files for vet in its build cache, in spite of -trimpath: a
# checkout that has ended would fail the vet of another one. So each has its own entry.
CGO_CPPFLAGS="${CGO_CPPFLAGS:-} -DMILLRACE_CHECKOUT=$(pwd | cksum | cut -d' ' -f1)"
export CGO_CPPFLAGS
# Without DWARF, a link takes little more than half of the processor time, and there are more than a hundred test binaries.
# The traces of panics and of data races do not need DWARF.
export GOFLAGS="${GOFLAGS:-} -ldflags=-w"
flaky=$PWD/scripts/flaky.txt
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

# tests PACKAGES GO-TEST-FLAG... runs the tests of a list of packages. With RERUN=1, which .ci/run
# sets, a failed test runs again, alone: at most three tests, at most twice. When it passes, the
# step passes and prints its name, which belongs into scripts/flaky.txt until the test is mended.
# A data race, a panic or a leaked goroutine fails the step whatever a second run does.
gotestsum=gotest.tools/gotestsum@v1.13.0
tests() {
    list=$1
    shift
    # shellcheck disable=SC2086 # a list of words
    [ -n "${RERUN:-}" ] || { go test "$@" $list; return; }
    work=$(mktemp -d) || return 1
    status=0
    # A test may keep its failed parts here: then a second run has only these.
    export RERUN_FOLDER="$work"
    go run "$gotestsum" --format standard-quiet --jsonfile "$work/events" --rerun-fails=2 --rerun-fails-max-failures=3 \
        --rerun-fails-run-root-test --rerun-fails-abort-on-data-race --rerun-fails-report "$work/report" --packages="$list" -- "$@" || status=1
    grep -F '"Action":"fail"' "$work/events" >"$work/failed"
    if [ $status = 0 ] && [ -s "$work/failed" ]; then
        sed 's/^/flaky: /' "$work/report"
        sed 's/:.*//' "$work/report" | sort -u | grep -vxFf "$flaky" |
            sed 's|$| belongs into scripts/flaky.txt until it is mended|'
        # A package that fails without a failed test has failed in TestMain, as with a leaked goroutine.
        package='s/.*"Package":"\([^"]*\)".*/\1/'
        grep -F '"Test":' "$work/failed" | sed "$package" | sort -u >"$work/tested"
        if grep -vF '"Test":' "$work/failed" | sed "$package" | sort -u | grep -vxFf "$work/tested" ||
            grep -E '"Output":"(panic: |fatal error: |WARNING: DATA RACE|goleak: |.*found unexpected goroutines)' "$work/events"; then
            echo "a package above failed outside of its tests, or with a panic, a data race or a leaked goroutine: a second run does not count"
            status=1
        fi
    fi
    rm -rf "$work"
    return $status
}

# faults FLAG... builds the server and runs it with clients, cameras and sinks under faults from outside.
faults() {
    work=$(mktemp -d) || return 1
    go build -tags "$tags" -o "$work/millrace" ./cmd/millrace && go build -C tools -tags "$tags" -o "$work/soak" ./soak &&
        "$work/soak" -server "$work/millrace" "$@"
    status=$?
    rm -rf "$work"
    return $status
}

# in_tools COMMAND... runs a command in the module tools: programs for developers, which the server does not contain.
in_tools() { (cd tools && "$@"); }

# packages REGEXP prints the packages in the folders that match, and below them.
packages() { go list -tags "$tags" ./... | grep -E "^millrace/($1)(/|\$)"; }

# asking PACKAGE... prints the packages with tests that do more, or run at all, without -short.
asks='testing[.]Short[(][)]|testbuild[.]Peer[(]|podmantest[.]Start[(]|s3test[.]Start(TLS)?[(]'
asking() {
    go list -tags "$tags" -f '{{.ImportPath}} {{.Dir}}' "$@" | while read -r package dir; do
        ! grep -qsE "$asks" "$dir"/*_test.go || echo "$package"
    done
}

# asking_tests PACKAGE... prints a regular expression for the tests that ask for -short: `make test` has run all others as
# they are. It fails when another function asks, since the tests that call the function would be missed.
asking_tests() {
    go list -tags "$tags" -f '{{$d := .Dir}}{{range .TestGoFiles}}{{$d}}/{{.}} {{end}}{{range .XTestGoFiles}}{{$d}}/{{.}} {{end}}' "$@" |
        xargs awk -v asks="$asks" '
            /^func / { name = $2; sub(/\(.*/, "", name) }
            $0 ~ asks && name ~ /^Test/ { names[name] }
            $0 ~ asks && name !~ /^Test/ {
                print FILENAME ": " name " asks testing.Short(): let the tests ask" >"/dev/stderr"
                failed = 1
            }
            END {
                for (name in names) list = list (list == "" ? "" : "|") name
                print "^(" list ")$"
                exit failed || list == ""
            }'
}

# naming prints tests with which every place runs that names programs or Python modules (internal/testneeds): FOLDER TEST.
# For a function with names that is no test, this is the first test, by the shortest way, that calls the function, and
# that does not ask for -short.
naming() {
    find . \( -path ./tools -o -name node_modules \) -prune -o -name '*_test.go' -print | sort | xargs awk -v asks="$asks" '
        function test_of(i, seen, level, callers, j) {
            for (level = name[i]; level != ""; level = substr(callers, 2)) {
                callers = ""
                seen[i]
                for (j = 1; j <= n; j++) {
                    if (folder[j] != folder[i] || j in seen || body[j] !~ "[^A-Za-z0-9_](" level ")[(]") continue
                    if (name[j] ~ /^Test/ && body[j] !~ asks) return name[j]
                    seen[j]
                    callers = callers "|" name[j]
                }
            }
        }
        FNR == 1 { inside = 0 }
        /^func / {
            inside = 1
            folder[++n] = FILENAME
            sub(/\/[^\/]*$/, "", folder[n])
            name[n] = $0
            sub(/^func (\([^)]*\) )?/, "", name[n])
            sub(/[^A-Za-z0-9_].*/, "", name[n])
        }
        inside { body[n] = body[n] "\n" $0 }
        END {
            for (i = 1; i <= n; i++) {
                if (body[i] !~ /testneeds[.](Program|Python)[(]/) continue
                test = name[i] ~ /^Test/ ? name[i] : test_of(i)
                if (test != "") print folder[i], test
            }
        }' | sort -u
}

# naming_tests GO-TEST-FLAG... runs the tests of naming.
naming_tests() {
    found=$(naming)
    [ -n "$found" ] || { echo "no test names a program"; return 1; }
    tests "$(echo "$found" | cut -d ' ' -f 1 | sort -u)" -run "^($(echo "$found" | cut -d ' ' -f 2 | sort -u | paste -s -d '|' -))\$" "$@"
}

# fuzz FUZZTIME [GO TEST FLAG...] runs every Fuzz function in the tree for FUZZTIME
# (a number of runs, as in 2000x, or a time). Each package is built once. With the flag -fuzz=. coverage
# chooses the inputs, which needs an own build of all packages. Minimising is
# limited, since one input could otherwise take up to a minute.
fuzz() {
    fuzztime=$1
    shift
    work=$(mktemp -d) || return 1
    status=0
    for dir in $(grep -rlsE --include='*_test.go' --exclude-dir=node_modules --exclude-dir=testdata '^func Fuzz' . |
        xargs -n 1 dirname | sort -u); do
        if ! go test -c -vet=off -tags "$tags" -o "$work/fuzz.test" "$@" "$dir"; then
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
