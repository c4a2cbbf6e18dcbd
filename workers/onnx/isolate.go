//go:build cgo

package onnx

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	childproc "millrace/internal/child"
	"millrace/internal/confine"
	"millrace/internal/setting"
	"millrace/stream"
	"millrace/workers"
	"millrace/workers/process"
)

// A model with isolate: true runs in a child process of the millrace program, which loads the same worker and answers
// batches over the protocol of package process. This file is the server's side, serve.go is the side of the child.

const (
	// time for the child to answer after limits.run: a node of the graph is computed to its end
	lateEnd      = 2 * time.Second
	isolatedOpen = 256 // descriptors for the child
)

// isolation is how models run in child processes.
var isolation struct {
	sync.Mutex
	Isolation
	self string // by SetProgram
}

// SetIsolation sets how models run in child processes from now on.
func SetIsolation(to Isolation) {
	isolation.Lock()
	defer isolation.Unlock()
	isolation.Isolation = to
}

// SetProgram names this process' own program, with IsolatedCommand, for servers whose configuration names no program.
func SetProgram(path string) {
	isolation.Lock()
	defer isolation.Unlock()
	isolation.self = path
}

func isolates(s *settings) bool {
	isolation.Lock()
	defer isolation.Unlock()
	return s.Isolate || isolation.All
}

// isolatedKind returns k with workers that run models in child processes.
func isolatedKind(k workers.Kind) workers.Kind {
	k.New = func() workers.Worker { return process.NewWorker(isolatedSpec) }
	k.Memory, k.Ahead = process.Memory(), true
	return k
}

// order is the description of the model for the child.
type order struct {
	Source, Digest, Library string
	Memory                  int64 // onnx.memory
	Limit                   time.Duration
	Image                   *stream.ImageSpec
	Window                  workers.Window
	Declared                workers.Declared
	Session                 Session
	Warmup, BatchAxis       bool
}

// about is the child's description of the model, beyond the protocol's.
type about struct {
	Axis      stream.BatchAxis
	MaxBatch  int
	Unbatched []string // outputs
	Metadata  map[string]string
	Left      []string // omitted outputs: no tensors
}

// isolatedSpec returns the program of a model with isolate: true.
func isolatedSpec(env *workers.Env) (process.Spec, error) {
	set := env.Settings.(*settings)
	library.Lock()
	lib, memory := library.set, library.memory
	library.Unlock()
	isolation.Lock()
	program, private := cmp.Or(isolation.Program, isolation.self), isolation.Private
	isolation.Unlock()
	switch {
	case program == "":
		return process.Spec{}, stream.Errorf(stream.Unavailable, "isolate", "is true, and this program is not "+
			"millrace, which runs such models: set onnx.program to the path "+
			"of the millrace program of the same release")
	case set.State != "":
		return process.Spec{}, stream.Errorf(stream.Unsupported, "state", "is set, and isolate is true: a model "+
			"with state cannot run in a child process yet. Serve it from a server of its own, with a model of kind "+
			"remote here")
	case set.Controls != "":
		return process.Spec{}, stream.Errorf(stream.Unsupported, "controls", "is set, and isolate is true: a model "+
			"of sequences cannot run in a child process yet. Serve it from a server of its own, with a model of "+
			"kind remote here")
	case set.Session.Provider != "cpu":
		return process.Spec{}, stream.Errorf(stream.Unsupported, "provider",
			"is %s, and isolate is true: child processes compute on the CPU only", set.Session.Provider)
	}
	source, err := filepath.Abs(env.Source)
	if err != nil {
		return process.Spec{}, stream.Errorf(stream.InvalidArgument, "source", "%w", err)
	}
	if lib != "" && strings.ContainsRune(lib, filepath.Separator) {
		if lib, err = filepath.Abs(lib); err != nil {
			return process.Spec{}, stream.Errorf(stream.InvalidArgument, "onnx.library", "%w", err)
		}
	}
	of := order{
		Source: source, Digest: env.Digest, Library: lib, Memory: memory, Limit: env.Limit, Image: env.Image,
		Window: env.Window, Declared: env.Declared,
		Session: set.Session, Warmup: *set.Warmup, BatchAxis: *set.BatchAxis,
	}
	text, err := json.Marshal(of)
	if err != nil {
		return process.Spec{}, stream.Errorf(stream.Internal, "", "%w", err)
	}
	common := &process.Settings{}
	setting.TableOf("", common).Fill()
	common.MemoryLimit = set.Memory
	if common.MaxResult = math.MaxUint32; memory > 0 { // memory limits the outputs
		common.MaxResult = min(memory, common.MaxResult)
	}
	own := &process.ServerProgram{
		Limits: childproc.Limits{Files: isolatedOpen, NoWrites: true}, Late: lateEnd,
		Describe: func(m *stream.Model, options json.RawMessage) error { return describeIsolated(env, m, options) },
		Ended:    func(err error) error { return isolatedEnded(env.Name, err) },
	}
	if err := childproc.SandboxError(); err == nil {
		own.Sandbox = sandboxOf(program, source, lib, private)
	} else if env.Log != nil && env.Instance == 0 {
		env.Log.Warn("the process of the model is not confined, and can do what the server's user can", "model",
			env.Name, "why", err)
	}
	return process.Spec{
		Path: program, Args: []string{IsolatedCommand}, Env: isolatedEnv(),
		Options:  map[string]any{"onnx": string(text)},
		Settings: common, ServerProgram: own, Explain: explainIsolated,
	}, nil
}

// isolatedEnv returns the variables of the child: the variables for the search for the library, and a variable that
// shortens Go's report of a crash.
func isolatedEnv() []string {
	env := []string{"GOTRACEBACK=none"}
	for _, name := range []string{EnvLibrary, "LD_LIBRARY_PATH", "HOME", "XDG_CACHE_HOME"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// sandboxOf returns what the child may reach: the system's libraries, the library of ONNX Runtime, and the model's
// files, but no network.
func sandboxOf(program, source, lib string, private []string) *childproc.Sandbox {
	files := append(confine.SystemFiles(), program, "/proc/cpuinfo", "/proc/meminfo")
	for _, place := range searchPaths(lib) {
		for _, path := range place.paths {
			if strings.ContainsRune(path, filepath.Separator) {
				dir := filepath.Dir(path)
				files = append(files, path, filepath.Join(dir, "libstdc++.so.6"), filepath.Join(dir, "libgcc_s.so.1"))
			}
		}
	}
	return confine.Sandbox(append(files, source, confine.Folder(source)), private)
}

// describeIsolated completes the metadata by the child's description.
func describeIsolated(env *workers.Env, m *stream.Model, options json.RawMessage) error {
	var a about
	if err := json.Unmarshal(options, &a); err != nil {
		return fmt.Errorf("options of model: %w", err)
	}
	switch a.Axis {
	case stream.NoAxis:
		a.MaxBatch = 1
	case stream.FixedAxis, stream.FreeAxis:
	default:
		return fmt.Errorf("options of model: %d is not a batch axis", a.Axis)
	}
	if a.MaxBatch < 1 || a.MaxBatch > maxIsolatedBatch {
		return fmt.Errorf("options of model: the batch has %d rows: want 1 to %d", a.MaxBatch, maxIsolatedBatch)
	}
	m.Name, m.Axis, m.MaxBatch, m.Metadata = env.Name, a.Axis, a.MaxBatch, a.Metadata
	for i := range m.Outputs {
		m.Outputs[i].Unbatched = slices.Contains(a.Unbatched, m.Outputs[i].Name)
	}
	if len(a.Left) > 0 && env.Log != nil && env.Instance == 0 {
		env.Log.Warn("outputs of the model are left out: they are maps or sequences, not tensors", "model", env.Name,
			"outputs", strings.Join(a.Left, ","), "hint", zipMap)
	}
	return nil
}

// maxIsolatedBatch is the largest batch of a model with isolate: true.
const maxIsolatedBatch = 1 << 16

// isolatedEnded returns the error of requests whose batch ended with the process.
func isolatedEnded(name string, err error) error {
	var e *stream.Error
	if !errors.As(err, &e) {
		e = &stream.Error{Code: stream.Internal, Msg: err.Error()}
	}
	return &stream.Error{Code: e.Code, Field: e.Field, Err: err,
		Msg: fmt.Sprintf("the process of model %s (isolate) has ended during the run, and another one takes its "+
			"place: send other input, or look at the model (%s)", name, e.Msg)}
}

// explainIsolated names the setting of the program in errors of the start.
func explainIsolated(err error) error {
	var e *stream.Error
	if errors.As(err, &e) && e.Field == "command" {
		return &stream.Error{Code: e.Code, Field: "onnx.program", Msg: e.Msg, Err: e.Err}
	}
	return err
}
