# The commands for developers. `make` without a target lists them.
#
# ARGS=... is passed to the program of a target, e.g.
#   make test ARGS='-run TestRing -v'      make demo ARGS=--help

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help build wheel demo test bare check check-rest bench bench-overload soak mutants vuln release release-check image image-check deps onnxruntime clean

ARGS ?=
# Pinned, so that a new release of the checker does not fail an old commit.
STATICCHECK ?= honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK ?= golang.org/x/vuln/cmd/govulncheck@v1.9.0

# Evaluated when a recipe runs, not when make starts, since deps may have installed the library by then.
TAGS    = $(shell pkg-config --exists libjpeg 2>/dev/null && printf turbojpeg,; pkg-config --exists libwebp 2>/dev/null && printf libwebp)
VERSION = $(or $(shell git describe --tags --always --dirty 2>/dev/null),dev)

# -buildvcs=false: the version is that of git describe above, and Go's own stamping
# fails in a checkout that belongs to another user. All targets have the same flags,
# so that they share the build cache.
export GOFLAGS := $(strip $(GOFLAGS) -buildvcs=false -trimpath)
# scripts/deps.sh leaves a python3 here when the first one in PATH lacks the modules.
export PATH := $(CURDIR)/out/tools:$(PATH)

# A program of the module tools, built and run in this folder.
tool = go build -C tools -tags '$(TAGS)' -o ../out/ ./$(1) && out/$(1)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

build: ## build bin/millrace, with libjpeg-turbo and libwebp where they are installed
	go build -tags '$(TAGS)' -ldflags '-X main.version=$(VERSION)' -o bin/millrace ./cmd/millrace

wheel: ## build the Python package's wheel in out/; equal sources give equal bytes
	@python3 python/build_backend.py out

demo: ## install what the demo needs, build, run it; SERVE=1 keeps the server running
	@scripts/deps.sh demo
	@scripts/onnxruntime.sh
	@$(MAKE) --no-print-directory build
	bin/millrace demo $(if $(SERVE),--serve) $(ARGS)

test: ## install what the tests need, run the fast ones (under five minutes)
	@scripts/deps.sh test
	@scripts/onnxruntime.sh
	@scripts/test.sh $(ARGS)

bare: ## run make demo and the tests that name programs in a clone of HEAD on a bare Debian 12, made by debootstrap; needs root (10 minutes)
	@scripts/deps.sh bare
	@scripts/bare.sh

check: test check-rest ## test, then all slower checks: run it before a commit

check-rest: ## what check adds to test: the long tests, the race detector, fuzzing, staticcheck, tidy, generated files
	@scripts/deps.sh check
	@scripts/onnxruntime.sh
	@scripts/check.sh '$(STATICCHECK)'

bench: ## compare Millrace with bare loops (10 minutes); ARGS='-rows ws', -json; MICRO=1: the micro-benchmarks, ARGS='-bench Ring -count 6'
	@$(if $(MICRO),,scripts/deps.sh bench)
	@scripts/onnxruntime.sh
	$(if $(MICRO),go test -tags '$(TAGS)' -run '^$$' -bench . -benchmem ./... $(ARGS),$(call tool,bench) $(ARGS))

bench-overload: ## overload: goodput and age of answers, fairness, many streams, failed cameras (5 minutes); ARGS='-rows fairness', -json
	@scripts/onnxruntime.sh
	$(call tool,bench) -rows '^overload|^fairness|^many|^cameras-dead' $(ARGS)

soak: ## hours of soak, faults from outside, stress and fuzzing, with seeds from the date; SEED=20260131000 repeats a run, SOAK=8h FUZZ=10m lengthen it
	@scripts/deps.sh demo
	@scripts/onnxruntime.sh
	@SEED='$(SEED)' SOAK='$(SOAK)' FUZZ='$(FUZZ)' scripts/soak.sh $(ARGS)

mutants: ## draw COUNT faults by SEED and run the tests that should notice each (a minute a fault); ARGS='stream client', --help
	@scripts/onnxruntime.sh
	@scripts/mutants.py --seed '$(or $(SEED),1)' --count '$(or $(COUNT),100)' $(ARGS)

vuln: ## look for known vulnerabilities in what the program calls; says when their database cannot be reached
	@scripts/vuln.sh '$(GOVULNCHECK)' '$(TAGS)'

release: ## build the archives for Linux in out/release, with and without cgo, checksums, bills of materials; ARCH=amd64 or arm64: only that one
	@scripts/deps.sh $(if $(filter amd64,$(ARCH)),build,release)
	@scripts/release.sh '$(VERSION)' $(ARCH)

release-check: ## run the archive for amd64 of make release in a root folder that has the C library only; needs root
	@scripts/release-check.sh

image: ## build the images for containers in out/release, out of what make release has built and Debian's ffmpeg (amd64 and arm64)
	@scripts/image.sh

image-check: ## run the image for amd64 of make image with podman and runc; needs root
	@scripts/deps.sh image-check
	@scripts/image-check.sh

deps: ## install what build, demo, test, check and bench need; without root, print it
	@scripts/deps.sh build demo test check
	@scripts/onnxruntime.sh

onnxruntime: ## download the library for ONNX models to the cache folder, once
	@scripts/onnxruntime.sh

clean: ## remove the files that these targets make
	rm -rf bin out
