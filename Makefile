# Everything a developer runs. `make` alone lists the targets.
#
# ARGS=... is handed to the program behind a target, e.g.
#   make test ARGS='-run TestRing -v'      make demo ARGS=--help

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help build demo test check bench bench-overload soak deps onnxruntime clean

ARGS ?=
# Pinned, so that a new release of the checker cannot fail an old commit.
STATICCHECK ?= honnef.co/go/tools/cmd/staticcheck@v0.8.2

# Read when a recipe runs, not when make starts: deps may have installed the library by then.
TAGS    = $(shell pkg-config --exists libturbojpeg 2>/dev/null && echo turbojpeg)
VERSION = $(or $(shell git describe --tags --always --dirty 2>/dev/null),dev)

# The version comes from git describe above. Go's own stamping fails the build
# in a checkout that belongs to another user.
export GOFLAGS := $(strip $(GOFLAGS) -buildvcs=false)
# scripts/deps.sh leaves a python3 here when the first one in PATH lacks the modules.
export PATH := $(CURDIR)/out/tools:$(PATH)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

build: ## build bin/millrace, with libjpeg-turbo where it is installed
	go build -trimpath -tags '$(TAGS)' -ldflags '-X main.version=$(VERSION)' -o bin/millrace ./cmd/millrace

demo: ## install what the demo needs, build, run it; SERVE=1 leaves the server running
	@scripts/deps.sh demo
	@scripts/onnxruntime.sh
	@$(MAKE) --no-print-directory build
	bin/millrace demo $(if $(SERVE),--serve) $(ARGS)

test: ## install what the tests need and run all of them (some minutes)
	@scripts/deps.sh test
	@scripts/onnxruntime.sh
	@scripts/test.sh $(ARGS)

check: test ## test, then staticcheck and generated files: run it before a commit
	@scripts/check.sh '$(STATICCHECK)'

bench: ## Millrace beside bare loops, ratio by ratio (5 minutes); ARGS='-rows ws', -json; MICRO=1: the micro-benchmarks, ARGS='-bench Ring -count 6'
	@scripts/onnxruntime.sh
	$(if $(MICRO),go test -tags '$(TAGS)' -run '^$$' -bench . -benchmem ./... $(ARGS),go run -tags '$(TAGS)' ./cmd/millrace-bench $(ARGS))

bench-overload: ## more than it can do: goodput and age of answers, fairness, many streams, dead cameras (5 minutes); ARGS='-rows fairness', -json
	@scripts/onnxruntime.sh
	go run -tags '$(TAGS)' ./cmd/millrace-bench -rows '^overload|^fairness|^many|^cameras-dead' $(ARGS)

soak: ## the long tests (build tag soak), with the race detector; ARGS='-timeout 8h'
	@grep -rqs '^func TestSoak' --include='*_test.go' . || { echo 'soak: there is no TestSoak' >&2; exit 1; }
	go test -race -count=1 -timeout 2h -tags 'soak,invariants,$(TAGS)' -run '^TestSoak' -v ./... $(ARGS)

deps: ## install what build, demo and test need; without root, name it
	@scripts/deps.sh build demo test
	@scripts/onnxruntime.sh

onnxruntime: ## fetch the library for ONNX models into the cache folder, once
	@scripts/onnxruntime.sh

clean: ## remove what the targets above leave behind
	rm -rf bin out
