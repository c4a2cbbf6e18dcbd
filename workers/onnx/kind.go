package onnx

import (
	"millrace/batching"
	"millrace/workers"
)

// EnvLibrary is the environment variable with the library's path, used without the
// setting.
const EnvLibrary = "MILLRACE_ONNX_LIBRARY"

// IsolatedCommand is the subcommand of the millrace program that calls ServeIsolated.
const IsolatedCommand = "isolated-onnx"

// Isolation says how models run in child processes.
type Isolation struct {
	Program string   // the millrace program, as the setting onnx.program; "" = that of SetProgram, and without one such models are refused
	All     bool     // models without isolate: true, too, as the setting onnx.isolate
	Private []string // files and folders with secrets of the server, which the processes do not read
}

func init() {
	kind := workers.Kind{
		Name:     "onnx",
		Doc:      doc,
		Platform: "onnxruntime_onnx", // as other servers of the protocol call it
		New:      func() workers.Worker { return &worker{} },
		Memory:   batching.C, // the library keeps pointers into it
		Loads:    workers.HasSuffix(".onnx"),
		File:     "model.onnx",
		Settings: func() any { return new(settings) },
	}
	kind.Variant = func(of any) workers.Kind {
		if isolates(of.(*settings)) {
			return isolatedKind(kind)
		}
		return kind
	}
	workers.Register(kind)
}

type settings struct {
	Session   Session `yaml:",inline"`
	Warmup    *bool   `yaml:"warmup" default:"true" request:"any" help:"run once before the model is ready"`
	BatchAxis *bool   `yaml:"batch_axis" default:"true" request:"any" help:"false: the first dimension is not a batch, whatever the file says"`
	Controls  string  `yaml:"controls" unset:"none" request:"any" help:"inputs that the server fills with the place of a request in its sequence, as INPUT=start, INPUT=end, INPUT=ready or INPUT=id, with ; between them; INPUT=start:FALSE,TRUE for other values than 0,1"`
	Isolate   bool    `yaml:"isolate" help:"true: each instance runs in a child process, for a model that one does not trust; CPU only, without state, controls and inputs that are strings"`
	Memory    int64   `yaml:"memory_limit" min:"64MiB" max:"16TiB" unit:"bytes" unset:"none" help:"resident memory of the child process with isolate: true above which it is replaced between two batches; above twice as much it is killed at once"`
	State     string  `yaml:"state" unset:"none" request:"any" help:"outputs that are inputs of a stream's next run, as INPUT=OUTPUT or INPUT=OUTPUT:INITIAL, with ; between them"`
}

// Session are the settings of a session. Groups of the same file and settings share
// a session.
type Session struct {
	Threads      int    `yaml:"threads" default:"1" min:"1" max:"256" request:"any" help:"threads of one operator; instances run in parallel"`
	InterThreads int    `yaml:"inter_threads" default:"1" min:"1" max:"256" request:"any" help:"operators that one run computes in parallel"`
	Spinning     bool   `yaml:"spinning" request:"any" help:"let threads spin while they wait: slightly faster, at the cost of CPU time"`
	Provider     string `yaml:"provider" default:"cpu" words:"cpu cuda" request:"any" help:"execution provider"`
	Device       int    `yaml:"device" min:"0" max:"255" request:"any" help:"number of the GPU"`
	Optimization string `yaml:"optimization" default:"all" words:"none basic extended all" request:"any" help:"level of graph optimisation"`
}
