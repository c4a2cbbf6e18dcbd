#!/bin/sh
# release.sh VERSION [ARCH...] builds the archives of a release in out/release, on Linux for
# amd64: with ONNX Runtime and without cgo, for each ARCH (amd64 arm64). What equal sources
# give is equal, as long as the compilers and Debian's packages are.
set -eu
cd "$(dirname "$0")/.."
version=${1:?usage: release.sh VERSION [ARCH...]}
shift
[ $# -gt 0 ] || set -- amd64 arm64
out=$PWD/out/release
work=$PWD/out/release-work
runtime=$(sed -n 's/^version=//p' scripts/onnxruntime.sh)
fail() { echo "release: $1" >&2; exit 1; }

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || fail "is built on Linux for amd64 only, this is $(uname -s)-$(uname -m)"
# triplet ARCH prints the name of the architecture for compilers.
triplet() {
    case $1 in
    amd64) echo x86_64-linux-gnu ;;
    arm64) echo aarch64-linux-gnu ;;
    *) return 1 ;;
    esac
}
for arch in "$@"; do
    triplet "$arch" >/dev/null || fail "ARCH=$arch is unknown: want amd64 or arm64"
    tool=$(triplet "$arch")-gcc
    command -v "$tool" >/dev/null || fail "$tool is missing: run scripts/deps.sh build release as root"
done
for tool in apt-get dpkg-deb; do
    command -v "$tool" >/dev/null || fail "$tool is missing: archives are built on Debian"
done
rm -rf "$out" "$work"
mkdir -p "$out" "$work"
. scripts/packages.sh
epoch=$(git log -1 --format=%ct 2>/dev/null || date +%s)

# packages ARCH NAME... unpacks Debian's packages of an architecture to $work/ARCH/root.
packages() {
    arch=$1
    shift
    apt_state "$arch"
    (export APT_CONFIG="$work/$arch/apt/apt.conf" && cd "$work/$arch/debs" && apt-get -qq download "$@") >"$work/apt.log" 2>&1 || apt_failed "$arch"
    for deb in "$work/$arch/debs"/*.deb; do dpkg-deb -x "$deb" "$work/$arch/root"; done
}

# pages FOLDER PROGRAM writes manual pages, completions and what every archive has.
pages() {
    "$2" man "$1/share/man/man1"
    mkdir -p "$1/share/completions"
    for shell in bash zsh fish; do "$2" completion "$shell" >"$1/share/completions/millrace.$shell"; done
}

# archive NAME packs $work/NAME.
archive() {
    cp LICENSE CHANGELOG.md docs/deploy.md deploy/systemd/millrace.service "$work/$1/"
    tar -C "$work" --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX -cf - "$1" | gzip -9n >"$out/$1.tar.gz"
    echo "release: $1.tar.gz"
}

# full ARCH TRIPLET builds the archive with ONNX Runtime, libjpeg-turbo and libwebp.
full() {
    arch=$1 triplet=$2
    name=millrace-$version-linux-$arch
    mkdir -p "$work/$name"
    packages "$arch" libjpeg62-turbo-dev libwebp-dev libstdc++6 libgcc-s1
    root=$work/$arch/root
    export GOOS=linux GOARCH="$arch" CGO_ENABLED=1 CC="$triplet-gcc"
    CGO_CFLAGS="-O2 -I$root/usr/include -I$root/usr/include/$triplet" CGO_LDFLAGS="-L$root/usr/lib/$triplet" \
        go build -tags turbojpeg,libwebp,static -ldflags "-s -w -X main.version=$version" -o "$work/$name/millrace" ./cmd/millrace
    needed=$(readelf -d "$work/$name/millrace" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE '^(libc|libm|libdl|libpthread|librt|ld-linux.*)\.so' || true)
    [ -z "$needed" ] || fail "the program for $arch needs more than the C library: $needed"
    cp "$(scripts/onnxruntime.sh "$arch")" "$work/$name/libonnxruntime.so.1"
    find "$root" \( -name libstdc++.so.6 -o -name libgcc_s.so.1 \) -exec cp -L {} "$work/$name/" \;
    (
        export GOFLAGS="$GOFLAGS -tags=turbojpeg,libwebp,static"
        go_tool notices >"$work/$name/LICENSES.txt"
        MILLRACE_LIBRARIES="onnxruntime=$runtime=MIT $(for p in libjpeg62-turbo-dev=IJG libwebp-dev=BSD-3-Clause libstdc++6=GPL-3.0-or-later_WITH_GCC-exception-3.1 libgcc-s1=GPL-3.0-or-later_WITH_GCC-exception-3.1; do
            echo "${p%=*}=$(dpkg-deb -f "$(echo "$work/$arch/debs/${p%=*}"_*.deb)" Version)=${p#*=}"
        done)" go_tool sbom "$version" >"$work/$name/sbom.cdx.json"
    )
    for doc in "$root"/usr/share/doc/libjpeg62-turbo-dev/copyright "$root"/usr/share/doc/libwebp-dev/copyright /usr/share/doc/gcc-12-base/copyright; do
        [ ! -f "$doc" ] || { echo "== ${doc%/copyright}" && cat "$doc" && echo; }
    done | sed 's|^== .*/|== |' >>"$work/$name/LICENSES.txt"
    printf '== ONNX Runtime %s (libonnxruntime.so.1)\n\nMIT, whose text is above at github.com/yalue/onnxruntime_go. Copyright (c) Microsoft Corporation. See https://github.com/microsoft/onnxruntime/blob/v%s/LICENSE\n' "$runtime" "$runtime" >>"$work/$name/LICENSES.txt"
    cp "$work/$name/sbom.cdx.json" "$out/$name.cdx.json"
}

# pure ARCH builds the archive without cgo.
pure() {
    arch=$1
    name=millrace-$version-linux-$arch-pure-go
    mkdir -p "$work/$name"
    export GOOS=linux GOARCH="$arch" CGO_ENABLED=0
    unset CC
    go build -ldflags "-s -w -X main.version=$version" -o "$work/$name/millrace" ./cmd/millrace
    go_tool notices >"$work/$name/LICENSES.txt"
    go_tool sbom "$version" >"$work/$name/sbom.cdx.json"
    cp "$work/$name/sbom.cdx.json" "$out/$name.cdx.json"
}

# go_tool ARGUMENT... runs tools/release, built for this machine.
go_tool() { "$work/millrace-release" "$@"; }

CGO_ENABLED=0 go build -C tools -o "$work/millrace-release" ./release
# The manual pages and completions come from a program for this machine.
go build -ldflags "-s -w -X main.version=$version" -o "$work/millrace" ./cmd/millrace
pages "$work" "$work/millrace"
share=$work/share
for arch in "$@"; do
    full "$arch" "$(triplet "$arch")"
    cp -R "$share" "$work/$name/"
    archive "$name"
    pure "$arch"
    cp -R "$share" "$work/$name/"
    archive "$name"
done
(cd "$out" && sha256sum millrace-* >SHA256SUMS)
rm -rf "$work"
echo "release: $version is in out/release"
