//go:build !cgo

package onnx

import (
	"context"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers"
)

// Built is true in builds that can run ONNX models.
const Built = false

const doc = "any ONNX model, with ONNX Runtime; not in this program, which was built without cgo"

// SetLibrary has no effect in this build.
func SetLibrary(string) {}

// SetMemory has no effect in this build.
func SetMemory(int64) {}

// SetIsolation has no effect in this build.
func SetIsolation(Isolation) {}

// SetProgram has no effect in this build.
func SetProgram(string) {}

// ServeIsolated returns why there is no library.
func ServeIsolated() error {
	_, err := Library()
	return err
}

func isolates(*settings) bool { return false }

func isolatedKind(k workers.Kind) workers.Kind { return k }

// Library returns why there is no library.
func Library() (string, error) {
	return "", stream.Errorf(stream.Unavailable, "", "this program was built without cgo, so it cannot run ONNX "+
		"models: install the archive of the release without pure-go in its name, or build it with CGO_ENABLED=1 and "+
		"a C compiler")
}

// worker is a worker that cannot be started.
type worker struct{ workers.Base }

var _ workers.Worker = (*worker)(nil)

// Init returns why models cannot be loaded.
func (*worker) Init(context.Context, *workers.Env) (*stream.Model, error) {
	_, err := Library()
	return nil, stream.Errorf(stream.Unavailable, "source", "%w", err)
}

// Run is not called: Init fails.
func (*worker) Run(context.Context, *batching.Batch) error { return nil }
