#!/bin/sh
# settings-pages.sh writes docs/config.md and docs/millrace.yaml. go generate ./cmd/millrace runs it.
# A page is replaced when its new text is complete.
set -eu
cd "$(dirname "$0")/.."
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
go run ./cmd/millrace config --markdown >"$new/config.md"
go run ./cmd/millrace config --yaml >"$new/millrace.yaml"
cp "$new/config.md" "$new/millrace.yaml" docs/
