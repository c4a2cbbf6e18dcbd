#!/bin/sh
# bare.sh runs the README's two commands, make demo and make test, in a clone of HEAD on a bare
# Debian 12: a root folder made by debootstrap that has what the README names (Go, gcc, make,
# node, npm) and what apt and TLS need. It has no git and no python3. It prints the time of each
# command, and exits with 1 when one fails.
#
# make test runs only tests with which every place runs that names programs or Python modules: in
# contrast to the machine that runs `make test`, this one shows that the command installs all of
# them. Afterwards nothing of the set test may be missing, and every Python module has to be
# importable, with what it depends on. ALL=1 runs all tests, which also shows files that a test
# needs and does not name, such as those of time zones.
#
# As root, since it uses chroot. Go, node and npm are those of this machine. The caches of
# packages (Debian's, npm's, Go modules) are kept between runs. Go's build cache is empty for make
# demo, which so shows that the root can compile everything. make test has the build cache of this
# machine, without its results of tests: what the compiler of the root would write is not compiled again.
# KEEP=1 keeps the root folder and prints its path.
set -eu
cd "$(dirname "$0")/.."
fail() { echo "bare: $1" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "needs root, for debootstrap and chroot: nothing was checked"
for tool in debootstrap git go node npm unshare; do
    command -v "$tool" >/dev/null || fail "$tool is missing, so nothing was checked: install it (scripts/deps.sh bare installs debootstrap)"
done

if [ "${1:-}" != inside ]; then
    root=$(mktemp -d /var/tmp/millrace-bare.XXXXXX)
    chmod 755 "$root" # mktemp lets nobody else in: programs of tests that run as another user need their libraries
    # Mounts and processes are in namespaces of their own, and end with them. unshare ignores
    # TERM and INT, and its death ends all of them.
    unshare --mount --pid --fork --kill-child sh "$0" inside "$root" &
    inside=$!
    finish() {
        status=$?
        trap - EXIT INT TERM HUP
        kill -KILL "$inside" 2>/dev/null && wait "$inside" 2>/dev/null || true
        rm -f "$root.log"
        if [ -n "${KEEP:-}" ]; then
            echo "bare: the root folder is $root"
        else # its last process may still be ending
            rm -rf --one-file-system "$root" 2>/dev/null || { sleep 2 && rm -rf --one-file-system "$root"; }
        fi
        exit "$status"
    }
    trap finish EXIT
    trap 'exit 130' INT TERM HUP
    wait "$inside"
    exit
fi

root=$2
cache=${XDG_CACHE_HOME:-${HOME:?is not set: it is needed to find the cache folder}/.cache}/millrace/bare
modules=$(go env GOMODCACHE)
mkdir -p "$cache/debs" "$cache/apt" "$cache/npm" "$modules"
mount --make-rprivate /
mount --bind "$root" "$root" # tests make mount namespaces, whose root has to be a mount

# timed NAME COMMAND... prints whether the command passed and how long it took, and fails as the command does.
timed() {
    name=$1
    shift
    start=$(date +%s)
    if "$@"; then state=passed; else state=failed; fi
    echo "bare: $name $state in $(($(date +%s) - start)) s"
    [ $state = passed ]
}

# The mirror of this machine's apt, of either form of its list.
mirror=$(sed -nE 's/^(URIs: *|deb +(\[[^]]*\] +)?)(https?:[^ ]*debian\/?)( .*)?$/\3/p' \
    /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources 2>/dev/null | grep -v security | head -n 1)
make_root() {
    debootstrap --variant=minbase --cache-dir="$cache/debs" --include=ca-certificates,gcc,libc6-dev,make \
        bookworm "$root" "${mirror:-http://deb.debian.org/debian}" >"$root.log" 2>&1 || { tail -n 20 "$root.log" >&2; return 1; }
    rm "$root.log"
}
timed debootstrap make_root || fail "the root folder could not be made"

# What apt, Go and npm of this machine are set to, and the certificates that they trust.
for path in /etc/apt/apt.conf /etc/apt/apt.conf.d /etc/apt/auth.conf.d /etc/apt/preferences.d /etc/apt/sources.list.d/debian.sources \
    /etc/apt/trusted.gpg.d /usr/share/keyrings/debian-archive-keyring.gpg /etc/resolv.conf /etc/hosts /etc/ssl/certs \
    /usr/local/share/ca-certificates /root/.npmrc /usr/etc/npmrc /root/.config/go; do
    [ -e "$path" ] || continue
    mkdir -p "$root$(dirname "$path")"
    cp -RL --remove-destination "$path" "$root$(dirname "$path")/"
done
[ ! -e /etc/apt/sources.list.d/debian.sources ] || : >"$root/etc/apt/sources.list"
npm=$(readlink -f "$(command -v npm)")
npm=${npm%/bin/npm-cli.js}
mkdir -p "$root/usr/lib/node_modules"
cp -L "$(command -v node)" "$root/usr/bin/node"
cp -R "$npm" "$root/usr/lib/node_modules/npm"
ln -s ../lib/node_modules/npm/bin/npm-cli.js "$root/usr/bin/npm"

# bind FROM TO shows a folder of this machine in the root.
bind() {
    mkdir -p "$root$2"
    mount --bind "$1" "$root$2"
}
bind "$(go env GOROOT)" /usr/local/go
bind "$modules" /root/go/pkg/mod
bind "$cache/apt" /var/cache/apt/archives
bind "$cache/npm" /root/.npm
mkdir -p "$cache/apt/partial"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"

git -c safe.directory='*' clone --quiet --no-hardlinks . "$root/root/millrace"
git -C "$root/root/millrace" -c safe.directory='*' checkout --quiet --detach "$(git -c safe.directory='*' rev-parse HEAD)"

# in_root COMMAND... runs a command in the clone, with the environment of a login of root.
in_root() {
    env -i HOME=/root LANG=C.UTF-8 PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        GOPROXY="$(go env GOPROXY)" GOSUMDB="$(go env GOSUMDB)" GONOSUMDB="$(go env GONOSUMDB)" GOTOOLCHAIN=local ${RERUN:+RERUN="$RERUN"} \
        ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} ${no_proxy:+no_proxy="$no_proxy"} \
        chroot "$root" sh -c 'cd /root/millrace && exec "$@"' sh "$@"
}
for absent in git python3; do
    ! in_root sh -c "command -v $absent" >/dev/null || fail "the root has $absent, which the README does not name"
done
demo=0 test=0 needs=0
timed "make demo" in_root make demo || demo=1
bind "$(go env GOCACHE)" /root/.cache/go-build
naming=1
[ -z "${ALL:-}" ] || naming=
timed "make test" in_root env GOFLAGS=-count=1 NAMING="$naming" make test || test=1
# installed shows that the set test is complete.
installed() {
    lacks=$(in_root scripts/deps.sh test) && [ -z "$lacks" ] || { echo "$lacks"; return 1; }
    modules=$(in_root scripts/deps.sh --list test | tr ' ' '\n' | sed -n 's/^py:\([^=]*\)=.*/\1/p' | sort -u | paste -s -d , -)
    [ -n "$modules" ] && in_root /usr/bin/python3 -c "import $modules"
}
timed "what make test has installed" installed || needs=1
failed=$((demo + test + needs))
echo "bare: $((3 - failed)) passed, $failed failed"
[ $failed = 0 ]
