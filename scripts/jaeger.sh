#!/bin/sh
# jaeger.sh builds Jaeger, with which the tests of traces run, from its Go module into the
# user's cache folder, once; all clones share it. It prints the path of the program. The
# module, its digest and those of its dependencies are pinned.
set -u
version=v1.76.0
sum=h1:sWCOOF1dr+NL0PLil7mFo3BqqQL8k4WiM7aguFbc14g=
module=github.com/jaegertracing/jaeger
folder=${XDG_CACHE_HOME:-${HOME:?is not set: it is needed to find the cache folder}/.cache}/millrace/jaeger-$version
program=$folder/jaeger

fail() {
    echo "jaeger: $1" >&2
    exit 1
}

[ -x "$program" ] && { echo "$program"; exit 0; }
mkdir -p "$folder" || fail "cannot make $folder"
# Of two that build at the same time, the second waits for the first.
exec 9>"$folder/lock"
if command -v flock >/dev/null; then flock 9; fi
[ -x "$program" ] && { echo "$program"; exit 0; }

echo "jaeger: building Jaeger $version in $folder (once, some minutes)" >&2
unset GOFLAGS
cd "$folder" || exit 1 # outside of any module
found=$(GO111MODULE=on go mod download -json "$module@$version") || fail "the Go proxy has no $module@$version: $found"
case $found in
*"\"Sum\": \"$sum\""*) ;;
*) fail "$module@$version has another digest than expected: $found" ;;
esac
source=$(printf '%s\n' "$found" | sed -n 's/^[[:space:]]*"Dir": "\(.*\)",*$/\1/p')
# Without optimisation and without symbols, which takes a quarter of the time off.
go build -C "$source" -mod=readonly -buildvcs=false -trimpath -gcflags=all='-N -l' -ldflags='-s -w' -o "$program.$$" ./cmd/jaeger &&
    mv "$program.$$" "$program" || { rm -f "$program.$$"; fail "it could not be built"; }
echo "$program"
