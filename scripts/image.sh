#!/bin/sh
# image.sh builds the images for containers, for amd64 and arm64, out of the archives of
# `make release` and Debian's packages of ffmpeg, without a program for containers. Equal
# archives and packages give equal images.
set -eu
cd "$(dirname "$0")/.."
out=$PWD/out/release
work=$PWD/out/image-work
fail() { echo "image: $1" >&2; exit 1; }
for tool in apt-get dpkg-deb; do
    command -v "$tool" >/dev/null || fail "$tool is missing: images are built on Debian"
done
rm -rf "$work"
mkdir -p "$work"
. scripts/packages.sh
(cd "$out" && sha256sum --check --quiet SHA256SUMS) 2>/dev/null || fail "out/release has no archives, or others than SHA256SUMS says: run make release"
epoch=$(git log -1 --format=%ct 2>/dev/null || date +%s)
CGO_ENABLED=0 go build -C tools -o "$work/millrace-release" ./release
for arch in amd64 arm64; do
    set -- "$out"/millrace-*-linux-$arch.tar.gz
    [ -f "$1" ] && [ $# = 1 ] || fail "out/release has no archive for $arch, or several: run make release"
    name=$(basename "$1" .tar.gz)
    version=${name#millrace-}
    version=${version%-linux-"$arch"}
    apt_state "$arch"
    # With no package installed, these are all that ffmpeg depends on, down to the C library.
    (export APT_CONFIG="$work/$arch/apt/apt.conf" && apt-get -qq -y -d -o Dir::Cache::archives="$work/$arch/debs" install ffmpeg ca-certificates base-files) >"$work/apt.log" 2>&1 || apt_failed "$arch"
    for deb in "$work/$arch/debs"/*.deb; do
        package=$work/$arch/packages/$(dpkg-deb -f "$deb" Package)
        mkdir -p "$package"
        dpkg-deb -x "$deb" "$package"
        dpkg-deb -f "$deb" >"$package/control"
    done
    tar -C "$work" -xzf "$1"
    "$work/millrace-release" image "$arch" "$version" "$work/$arch/packages" "$work/$name" "$epoch" >"$out/$name.image.tar"
    echo "image: $name.image.tar, $(($(wc -c <"$out/$name.image.tar") >> 20)) MiB"
    rm -rf "${work:?}/$arch"
done
(cd "$out" && sha256sum millrace-* >SHA256SUMS)
rm -rf "$work"
