#!/bin/sh
# release-check.sh runs the archive for amd64 of out/release in a root folder that has nothing
# but Debian's package libc6: serve with an ONNX file, infer, and demo, which names ffmpeg.
# As root, since it uses chroot; otherwise it says so and exits with 1.
set -eu
cd "$(dirname "$0")/.."
fail() { echo "release-check: $1" >&2; exit 1; }
if [ "${1:-}" != inside ]; then
    [ "$(id -u)" = 0 ] || fail "needs root, for chroot: nothing was checked"
    # The mounts are in a namespace of their own, and end with it.
    exec unshare --mount sh "$0" inside
fi
set -- out/release/millrace-*-linux-amd64.tar.gz
[ -f "$1" ] && [ $# = 1 ] || fail "out/release has no archive for amd64, or several: run make release"
(cd out/release && sha256sum --check --quiet SHA256SUMS)

work=$(mktemp -d)
server=
finish() {
    status=$?
    trap - EXIT
    [ -z "$server" ] || { kill "$server" && wait "$server"; } || true
    umount "$root/proc" "$root/dev" || true
    [ $status = 0 ] || tail -n 20 "$work/serve.log" >&2 || true
    rm -rf --one-file-system "$work"
    exit $status
}
root=$work/root
mkdir -p "$root/opt" "$root/proc" "$root/dev" "$root/tmp" "$work/debs"
(cd "$work/debs" && apt-get -qq download libc6 >"$work/apt.log" 2>&1) || fail "apt-get could not download libc6: $(tail -n 1 "$work/apt.log")"
dpkg-deb -x "$work"/debs/libc6_*.deb "$root"
tar -xzf "$1" -C "$root/opt"
mv "$root"/opt/millrace-* "$root/opt/millrace"
cp examples/graph/colour.onnx "$root/tmp/"
chroot=$(command -v chroot)
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
trap finish EXIT
trap 'exit 1' INT TERM
bare() { env -i HOME=/tmp "$chroot" "$root" /opt/millrace/millrace "$@"; }

bare --version
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
# Without bare: the process id must be that of the server.
env -i "$chroot" "$root" /opt/millrace/millrace serve /tmp/colour.onnx --http "127.0.0.1:$port" --grpc off >"$work/serve.log" 2>&1 &
server=$!
tries=0
until bare models --addr "127.0.0.1:$port" 2>/dev/null | grep -q READY; do
    kill -0 "$server" 2>/dev/null || fail "serve ended"
    tries=$((tries + 1))
    [ $tries -lt 100 ] || fail "serve was not ready"
    sleep 0.3
done
python3 -c 'import json; print(json.dumps({"inputs": [{"name": "image", "datatype": "FP32", "shape": [1, 3, 16, 16], "data": [0.5] * 768}]}))' >"$root/tmp/request.json"
answer=$(bare infer colour --request /tmp/request.json --json --addr "127.0.0.1:$port") || fail "infer failed"
case $answer in *'"scores"'*) echo "infer: $answer" ;; *) fail "infer answered $answer" ;; esac

status=0
bare demo >"$work/demo.log" 2>&1 || status=$?
[ $status = 1 ] && grep -q "ffmpeg is not installed" "$work/demo.log" || fail "demo: exit status $status: $(cat "$work/demo.log")"
echo "demo: $(tail -n 1 "$work/demo.log")"
echo "release-check: $1 runs with the C library only"
