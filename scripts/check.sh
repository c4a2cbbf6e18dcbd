#!/bin/sh
# check.sh STATICCHECK (module@version) does what `make check` adds to the tests.
set -u
cd "$(dirname "$0")/.." || exit 1
status=0

tags=
pkg-config --exists libturbojpeg 2>/dev/null && tags=turbojpeg

echo "== staticcheck"
if go run "$1" -version >/dev/null 2>&1; then
    go run "$1" -tags "$tags" ./... || status=1
else
    echo "skipped: $1 is not in the module cache and the Go proxy does not answer"
fi

echo "== generated files"
snapshot() { { git status --porcelain && git diff HEAD; } | cksum; }
if git rev-parse HEAD >/dev/null 2>&1; then
    before=$(snapshot)
    go generate ./... || status=1
    if [ "$(snapshot)" != "$before" ]; then
        echo "go generate changed files; commit what it writes:"
        git status --short
        status=1
    fi
else
    echo "skipped: git reads no checkout here"
fi

[ $status = 0 ] && echo "check: all is well"
exit $status
