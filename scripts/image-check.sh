#!/bin/sh
# image-check.sh runs the image for amd64 of out/release with podman: without root, with a root
# file system that nothing is written to, and with 1024 files and processes. serve has an ONNX
# model and a video as a stream, with a file of keys; infer asks it, and so does a health check
# with the program itself. It needs podman and runc, as root.
set -eu
cd "$(dirname "$0")/.."
fail() { echo "image-check: $1" >&2; exit 1; }
for tool in podman runc; do
    command -v "$tool" >/dev/null || fail "$tool is missing: apt-get install podman runc; nothing was checked"
done
set -- out/release/millrace-*-linux-amd64.image.tar
[ -f "$1" ] && [ $# = 1 ] || fail "out/release has no image for amd64, or several: run make image"

work=$(mktemp -d)
name=millrace-check-$$
# Storage of its own, so that nothing of this machine's containers is touched.
pod() { podman --root "$work/root" --runroot "$work/run" --storage-driver vfs --cgroup-manager cgroupfs --events-backend file --runtime runc --log-level error "$@"; }
finish() {
    status=$?
    trap - EXIT
    [ $status = 0 ] || pod logs "$name" 2>&1 | tail -n 20 >&2 || true
    pod rm -f -t 15 "$name" >/dev/null 2>&1 || true
    rm -rf --one-file-system "$work"
    exit $status
}
trap finish EXIT
trap 'exit 1' INT TERM

image=$(pod load -q -i "$1" | sed -n 's/^Loaded image.*: //p' | head -n 1)
[ -n "$image" ] || fail "podman does not load $1"
limits="--read-only --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 --cap-drop all --security-opt no-new-privileges --network host"
# shellcheck disable=SC2086 # a list of words
once() { pod run --rm $limits "$@"; }

once "$image" --version
[ "$(pod image inspect -f '{{.Config.User}}' "$image")" = 65532:65532 ] || fail "the image runs as another user than 65532"
[ -n "$(pod image inspect -f '{{index .Labels "org.opencontainers.image.licenses"}}' "$image")" ] || fail "the image has no label with its licences"
# Without a key it does not start.
if once "$image" >"$work/open.log" 2>&1; then fail "serve without a key has started"; fi
grep -q "nobody has to authenticate" "$work/open.log" || fail "serve without a key says: $(cat "$work/open.log")"

port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
mkdir "$work/etc"
cp examples/graph/colour.onnx examples/spotter/clip.mp4 "$work/etc/"
cat >"$work/etc/millrace.yaml" <<END
http: 127.0.0.1:$port
grpc: "off"
auth: {keys: /etc/millrace/keys.yaml}
sandbox: require
models:
  - {name: colour, source: /etc/millrace/colour.onnx}
  - {name: find, source: motion}
streams:
  - {name: clip, model: find, source: /etc/millrace/clip.mp4, loop: true}
END
# The keys are made by the program of the image, in a folder that is mounted.
chmod 777 "$work/etc"
once -v "$work/etc:/keys" --entrypoint /usr/local/bin/millrace "$image" keys add /keys/keys.yaml check --role infer --role watch >"$work/key"
chmod 755 "$work/etc"
# podman takes the health check of images of Docker's own form only.
# shellcheck disable=SC2086
pod run -d --name "$name" $limits --health-cmd '["/usr/local/bin/millrace", "health"]' --health-interval disable -v "$work/etc:/etc/millrace:ro" -e "MILLRACE_ADDR=127.0.0.1:$port" -e MILLRACE_TOKEN="$(grep -oE '[A-Za-z0-9_-]{20,}' "$work/key" | tail -n 1)" \
    "$image" serve --config /etc/millrace/millrace.yaml >/dev/null
inside() { pod exec "$name" /usr/local/bin/millrace "$@"; }
wait_for() { # TEXT COMMAND...
    text=$1
    shift
    tries=0
    until "$@" 2>&1 | grep -q "$text"; do
        tries=$((tries + 1))
        [ $tries -lt 60 ] || fail "$*: $("$@" 2>&1)"
        sleep 0.5
    done
}
wait_for '^ready' inside health
pod healthcheck run "$name" || fail "the health check fails"
python3 -c 'import json; print(json.dumps({"inputs": [{"name": "image", "datatype": "FP32", "shape": [1, 3, 16, 16], "data": [0.5] * 768}]}))' >"$work/etc/request.json"
answer=$(inside infer colour --request /etc/millrace/request.json --json) || fail "infer failed"
case $answer in *'"scores"'*) echo "infer: $answer" ;; *) fail "infer answered $answer" ;; esac
# The video is read by the confined ffmpeg of the image, and the model answers its frames.
results() { inside streams --json | python3 -c 'import json, sys; s = json.load(sys.stdin)[0]; print(s["state"], "many" if s["results"] > 30 else s["results"], s.get("error"))'; }
wait_for '^running many' results
echo "stream: $(inside streams | tail -n 1)"
[ "$(pod exec "$name" /usr/local/bin/millrace doctor --json --config /etc/millrace/millrace.yaml | python3 -c 'import json, sys; print(*[s["what"] for s in json.load(sys.stdin) if s["state"] == "fail"])')" = "" ] || fail "doctor finds: $(inside doctor --config /etc/millrace/millrace.yaml)"
pod stop -t 15 "$name" >/dev/null
[ "$(pod inspect -f '{{.State.ExitCode}}' "$name")" = 0 ] || fail "serve ended with $(pod inspect -f '{{.State.ExitCode}}' "$name")"
echo "image-check: $1 runs without root, with a root file system that is only read"
