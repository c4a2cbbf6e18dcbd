#!/bin/sh
# deps.sh SET... installs what the sets (build, demo, bench, test, check, bare, release,
# image-check) need.
#
# As root with apt-get it installs the missing packages. Otherwise it prints their names
# and exits with 0: build and tests continue without them.
set -u
root=$(cd "$(dirname "$0")/.." && pwd) || exit 1

# A need is probe:name=package[,package]. The probes: cmd, a command in PATH;
# pc, a library known to pkg-config; py, a module that a python3 can import.
needs() {
    case $1 in
    build) echo cmd:gcc=gcc,libc6-dev cmd:pkg-config=pkg-config pc:libjpeg=libjpeg-dev pc:libwebp=libwebp-dev ;;
    demo)  needs build
           echo cmd:ffmpeg=ffmpeg cmd:ffprobe=ffmpeg cmd:curl=curl,ca-certificates ;;
    bench) needs build
           echo cmd:ffmpeg=ffmpeg cmd:ffprobe=ffmpeg py:cv2=python3-opencv py:fastapi=python3-fastapi py:uvicorn=python3-uvicorn cmd:gst-launch-1.0=gstreamer1.0-tools,gstreamer1.0-plugins-good,gstreamer1.0-libav,gstreamer1.0-opencv py:celery=python3-celery py:redis=python3-redis cmd:redis-server=redis-server ;;
    test)  needs demo
           echo cmd:python3=python3 cmd:openssl=openssl py:ensurepip=python3-venv py:numpy=python3-numpy py:grpc=python3-grpcio,python3-protobuf cmd:protoc=protobuf-compiler py:websockets=python3-websockets py:onnx=python3-onnx py:pydantic=python3-pydantic py:PIL=python3-pil py:fastapi=python3-fastapi py:multipart=python3-multipart py:httpx=python3-httpx py:requests=python3-requests py:pytest=python3-pytest py:msgpack=python3-msgpack py:redis=python3-redis cmd:redis-server=redis-server cmd:mosquitto=mosquitto cmd:mosquitto_sub=mosquitto-clients cmd:mosquitto_pub=mosquitto-clients cmd:mosquitto_passwd=mosquitto cmd:nginx=nginx cmd:fcgiwrap=fcgiwrap cmd:promtool=prometheus cmd:prometheus=prometheus cmd:groff=groff-base cmd:git=git cmd:ssh-keyscan=openssh-client cmd:sshd=openssh-server ;;
    check) needs test
           needs bench
           echo cmd:chromium=chromium cmd:npm=npm cmd:podman=podman cmd:runc=runc cmd:systemd-analyze=systemd cmd:dbus-daemon=dbus,libpam-systemd
           echo py:gi.overrides.Gst=python3-gst-1.0,gir1.2-gst-rtsp-server-1.0,gstreamer1.0-plugins-base,gstreamer1.0-plugins-good ;;
    release) needs build
           echo cmd:aarch64-linux-gnu-gcc=gcc-aarch64-linux-gnu,libc6-dev-arm64-cross cmd:npm=npm ;;
    bare)  echo cmd:debootstrap=debootstrap cmd:git=git ;;
    image-check) echo cmd:podman=podman cmd:runc=runc cmd:python3=python3 ;;
    *)     return 1 ;;
    esac
}

# python_lacks INTERPRETER MODULE... prints the modules it cannot import.
python_lacks() {
    py=$1
    shift
    "$py" -c 'import sys, importlib.util as u
print(*[m for m in sys.argv[1:] if u.find_spec(m) is None])' "$@" 2>/dev/null || echo "$@"
}

# find_modules MODULE... prints the modules that must be installed. apt installs for the
# system's python3 only. If another python3 without the modules is first in PATH, the
# function links the system's one into out/tools, which make puts first.
find_modules() {
    [ $# -gt 0 ] || return 0
    [ -n "$(python_lacks python3 "$@")" ] || return 0
    lacks=$(python_lacks /usr/bin/python3 "$@")
    if [ -z "$lacks" ]; then
        mkdir -p "$root/out/tools" && ln -sf /usr/bin/python3 "$root/out/tools/python3"
    fi
    echo "$lacks"
}

# missing prints the packages of the unmet needs, one per line.
missing() {
    modules=
    for need in $wanted; do
        case $need in py:*) modules="$modules $(expr "$need" : 'py:\([^=]*\)')" ;; esac
    done
    # shellcheck disable=SC2086 # a list of words
    modules=" $(find_modules $modules) "
    for need in $wanted; do
        thing=${need#*:} thing=${thing%%=*}
        case $need in
        cmd:*) command -v "$thing" >/dev/null || [ -x "/usr/sbin/$thing" ] ;; # where users have no PATH to
        pc:*)  pkg-config --exists "$thing" 2>/dev/null ;;
        py:*)  case $modules in *" $thing "*) false ;; esac ;;
        esac || echo "${need#*=}" | tr ',' '\n'
    done
}

apt() {
    DEBIAN_FRONTEND=noninteractive apt-get -qq -y -o Acquire::Retries=3 \
        -o DPkg::Lock::Timeout=120 -o Dpkg::Use-Pty=0 "$@" >>"$log" 2>&1
}

# --list SET prints the needs of a set: internal/testneeds compares them with what tests run.
if [ "${1:-}" = --list ]; then
    needs "$2"
    exit
fi

wanted=
for set in "$@"; do
    wanted="$wanted $(needs "$set")" || { echo "deps: no set is called \"$set\": give build, demo, bench, test, check, bare, release or image-check" >&2; exit 2; }
done
# shellcheck disable=SC2086 # a list of words
wanted=$(printf '%s\n' $wanted | sort -u)

packages=$(missing | tr '\n' ' ')
[ -n "$packages" ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "deps: continuing without: $packages(to install them, as root: apt-get install --no-install-recommends $packages)"
    exit 0
fi

log=$(mktemp) || exit 0
# The packages' services (prometheus) must not be started: the tests run the programs.
policy=/usr/sbin/policy-rc.d
if [ -e "$policy" ] || ! printf '#!/bin/sh\nexit 101\n' >"$policy"; then policy=; else chmod +x "$policy"; fi
trap 'rm -f "$log" $policy' EXIT
echo "deps: installing $packages"
apt update || echo "deps: apt-get update failed, trying the present package lists"
# shellcheck disable=SC2086 # a list of words
if ! apt install --no-install-recommends $packages; then
    # Install one by one, so that one package that fails does not prevent the others.
    for package in $packages; do
        apt install --no-install-recommends "$package" || echo "deps: could not install $package"
    done
fi
packages=$(missing | tr '\n' ' ')
if [ -n "$packages" ]; then
    tail -n 5 "$log"
    echo "deps: continuing without: $packages"
fi
exit 0
