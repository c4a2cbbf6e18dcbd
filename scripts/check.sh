#!/bin/sh
# check.sh STATICCHECK (module@version) runs the steps that `make check` adds to `make test`.
. "$(dirname "$0")/steps.sh"

staticcheck() {
    if go run "$1" -version >/dev/null 2>&1; then
        go run "$1" -tags "$tags" ./... && in_tools go run "$1" -tags "$tags" ./...
    else
        echo "skipped: $1 is not in the module cache, and the Go proxy cannot be reached"
    fi
}

# tidy compares go.mod and go.sum with what `go mod tidy` writes, which may need the
# proxy for modules that only tests of dependencies use.
tidy() {
    difference=$(go mod tidy -diff && in_tools go mod tidy -diff) && return
    [ -n "$difference" ] || { echo "skipped: the Go proxy cannot be reached"; return 0; }
    printf 'run go mod tidy:\n%s\n' "$difference"
    return 1
}

# snapshot prints a checksum of the checkout, to detect that a step changed files.
snapshot() { { git status --porcelain && git diff HEAD; } | cksum; }

generate() {
    git rev-parse HEAD >/dev/null 2>&1 || { echo "skipped: this is not a git checkout"; return 0; }
    before=$(snapshot)
    # With the tags of the tests, the generators consist of packages that are compiled.
    (export GOFLAGS="$GOFLAGS -tags=$tags" && go generate ./... && in_tools go generate ./...) || return 1
    [ "$(snapshot)" = "$before" ] || { echo "go generate changed files; commit what it writes:"; git status --short; return 1; }
}

# compile TAG checks that every package compiles with a tag, and links nothing.
compile() { go list -export -tags "$1,$tags" -f '{{""}}' ./... >/dev/null; }

# without_metrics checks the build with the tag nometrics: it has nothing of Prometheus.
without_metrics() {
    parts=$(go list -tags "nometrics,$tags" -deps ./cmd/millrace | grep '^github.com/prometheus/')
    [ -z "$parts" ] || { printf 'the tag nometrics leaves in:\n%s\n' "$parts"; return 1; }
    compile nometrics && go test -vet=off -tags "nometrics,$tags" -run TestWithoutMetrics ./server/tests/service
}

# without_tracing checks the build with the tag notracing: it has no SDK, exporter, protocol or sampler of OpenTelemetry
# and nothing of Jaeger. The client of container engines keeps OpenTelemetry's interfaces, which record nothing.
without_tracing() {
    parts=$(go list -tags "notracing,$tags" -deps ./cmd/millrace | grep -E 'opentelemetry.io/(otel/sdk|otel/exporters|proto|contrib/samplers)|opentracing|jaeger-client')
    [ -z "$parts" ] || { printf 'the tag notracing leaves in:\n%s\n' "$parts"; return 1; }
    compile notracing && go test -vet=off -tags "notracing,$tags" -run TestWithoutTracing ./server/tests/service
}

# pure_go builds the program without a C compiler. `make release` does so for arm64, too.
pure_go() { CGO_ENABLED=0 go build -o /dev/null ./cmd/millrace; }

# licenses checks the licences of the modules that the program contains.
licenses() {
    work=$(mktemp -d) || return 1
    go build -C tools -o "$work/release" ./release && "$work/release" licenses
    status=$?
    rm -rf "$work"
    return $status
}

# web checks the format of the sources in web, builds the console and the JavaScript client, and
# compares them with the built files that are committed.
web() {
    (cd web && npm ci --prefer-offline --ignore-scripts --no-audit --no-fund --loglevel=error) >/dev/null || return 1
    (cd web && npm run check-format --loglevel=error) || { echo "run npm run format in web"; return 1; }
    (cd web && npm run build --workspaces --loglevel=error) >/dev/null || return 1
    git rev-parse HEAD >/dev/null 2>&1 || { echo "skipped: this is not a git checkout"; return 0; }
    changed=$(git status --porcelain web)
    [ -z "$changed" ] || { echo "the built files are not those of the sources; run npm run build in web and commit:"; echo "$changed"; return 1; }
}

step staticcheck staticcheck "$1"
step tidy tidy
step generate generate
step web web
# The programs with which tests run, before tests whose times a build beside them would change.
peers() { for name in jaeger pebble versitygw dex kubeconform; do scripts/peer.sh "$name" || return 1; done; }
step peers peers
# The tests that do more, or run at all, without -short. Those that play clips, use a browser or compile run without the
# race detector; the rest of their packages has run in `make test`. All tests of packages that only compute run without
# the race detector, too, which would slow them down tenfold; what remains of it for them is the check of unsafe
# pointers. apps/image and apps/deploy, which compress images of hundreds of megabytes, are two of them. The others run
# with it and with the tag invariants; of packages that mostly start ffmpegs, the short form.
# Most tests wait for processes, cameras and time-outs, so that more packages run at a time than there are cores.
programs='cmd|web|examples|docs'
computing='apps/(deploy|image)|internal/codec|workers/motion|workers/results/(postprocess|tracking)'
clips='internal/video'
# long PACKAGE... runs the tests of the packages that ask testing.Short().
long() {
    # shellcheck disable=SC2086 # a list of words
    list=$(asking "$@") && names=$(asking_tests $list) && tests "$list" -run "$names" -p 4 -vet=off -timeout 20m -tags "$tags"
}
# shellcheck disable=SC2046 # a list of words
step long long $(packages "$programs")
# shellcheck disable=SC2046
step long-clips long $(packages "$clips") # not beside the browsers, whose frames would be late
step long-tools in_tools long ./...
step computing tests "$(packages "$computing")" -p 4 -vet=off -gcflags=-d=checkptr -timeout 20m -tags "invariants,$tags"
step race tests "$(go list -tags "$tags" ./... | grep -vE "^millrace/($programs|$computing|$clips)(/|\$)")" -p 4 -vet=off -race -timeout 20m -tags "invariants,$tags"
step race-short tests "$(packages "$clips")" -short -p 4 -vet=off -race -timeout 20m -tags "invariants,$tags"
# The build without libjpeg-turbo and libwebp. If both are missing, `make test` has tested that build.
[ -z "$tags" ] || step pure-go-pictures go test -vet=off ./internal/codec/...
step pure-go pure_go
step licenses licenses
step nometrics without_metrics
step notracing without_tracing
# A minute and a half of what make soak does for half an hour.
step faults faults -for 85s
# Random changes of the seeds, with the packages as `make test` has compiled them; make soak chooses the inputs by coverage.
step fuzz fuzz 1000x
finish
