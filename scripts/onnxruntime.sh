#!/bin/sh
# onnxruntime.sh downloads ONNX Runtime's library to the user's cache folder, once;
# all clones share it. It is one file of npm's package onnxruntime-node, whose digest
# is pinned. Everything but ONNX models works without it, so a failure is reported and
# the exit status is 0.
#
# onnxruntime.sh amd64|arm64, for releases, fetches that of an architecture, prints its path,
# and fails when it cannot.
set -u
version=1.27.0
sha512=404cc6c2bbcd060bf8b8f55d9db1ec3861b81ba4fdea676570523c68028f8cc53cc0e3e956870f5dbea4dd01a46996a0553bf61bd0679dba3a67725d5ebd5f43
wanted=${1:-}
cache=${XDG_CACHE_HOME:-${HOME:?is not set: it is needed to find the cache folder}/.cache}/millrace/onnxruntime-$version${wanted:+-$wanted}
library=$cache/libonnxruntime.so.1

found() { [ -z "$wanted" ] || echo "$library"; exit 0; }
[ -s "$library" ] && found
case ${wanted:-$(uname -s)-$(uname -m)} in
Linux-x86_64 | amd64)  platform=linux/x64 ;;
Linux-aarch64 | arm64) platform=linux/arm64 ;;
*) echo "onnxruntime: there is no library for $(uname -s) on $(uname -m): set MILLRACE_ONNX_LIBRARY to the path of one" >&2
   exit 0 ;;
esac

work=$(mktemp -d) || exit 0
trap 'rm -rf "$work"' EXIT
without() {
    echo "onnxruntime: $1; ONNX models cannot be run until \`make onnxruntime\` succeeds" >&2
    [ -z "$wanted" ]
    exit
}

echo "onnxruntime: downloading ONNX Runtime $version to $cache (once)" >&2
tarball=onnxruntime-node-$version.tgz
url=https://registry.npmjs.org/onnxruntime-node/-/$tarball
{ command -v npm >/dev/null && (cd "$work" && npm pack --silent "onnxruntime-node@$version" >/dev/null 2>&1); } ||
    { command -v curl >/dev/null && curl -fsSL --retry 3 -o "$work/$tarball" "$url"; } ||
    { command -v wget >/dev/null && wget -q -O "$work/$tarball" "$url"; } ||
    without "npm, curl and wget could not download $url"
echo "$sha512  $work/$tarball" | sha512sum --check --status || without "$tarball has another sha512 than expected"
mkdir -p "$cache" && tar -xzOf "$work/$tarball" "package/bin/napi-v6/$platform/libonnxruntime.so.1" >"$library.$$" &&
    mv "$library.$$" "$library" || { rm -f "$library.$$"; without "the library could not be unpacked to $cache"; }
found
