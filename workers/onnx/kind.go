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
	// the millrace program, as the setting onnx.program; "" = that of SetProgram, and without one such models are
	// refused
	Program string
	All     bool     // models without isolate: true, too, as the setting onnx.isolate
	Private []string // files and folders with secrets of the server, hidden from the processes
}

func init() {
	kind := workers.Kind{
		Name:     "onnx",
		Doc:      doc,
		Platform: "onnxruntime_onnx", // the name used by other servers of the protocol
		New:      func() workers.Worker { return &worker{} },
		Memory:   batching.C, // the library keeps pointers to the memory
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
	Warmup    *bool   `yaml:"warmup" default:"true" request:"any" advanced:"yes" help:"run once before the model is ready"`
	BatchAxis *bool   `yaml:"batch_axis" default:"true" request:"any" advanced:"yes" help:"false: the first dimension is no batch, whatever the file says"`
	Controls  string  `yaml:"controls" unset:"none" request:"any" advanced:"yes" example:"START=start;END=end" help:"inputs that the server sets from the request's place in its sequence: INPUT=start, INPUT=end, INPUT=ready or INPUT=id, joined by ; (INPUT=start:FALSE,TRUE sets FALSE and TRUE instead of 0 and 1)"`
	Isolate   bool    `yaml:"isolate" advanced:"yes" help:"true: run each instance in a child process, for an untrusted model; CPU only, without state, controls and string inputs"`
	Memory    int64   `yaml:"memory_limit" min:"64MiB" max:"16TiB" unit:"bytes" unset:"none" advanced:"yes" help:"with isolate: limit of the child process's resident memory: above the limit, the process is replaced between two batches; above twice the limit, it is killed at once"`
	State     string  `yaml:"state" unset:"none" request:"any" advanced:"yes" example:"h_in=h_out" help:"outputs that are inputs of the stream's next run: INPUT=OUTPUT or INPUT=OUTPUT:INITIAL, joined by ;"`
}

// Session are the settings of a session. Groups of the same file and settings share
// a session.
type Session struct {
	Threads      int    `yaml:"threads" default:"1" min:"1" max:"256" request:"any" advanced:"yes" help:"threads of one operator; instances run in parallel"`
	InterThreads int    `yaml:"inter_threads" default:"1" min:"1" max:"256" request:"any" advanced:"yes" help:"operators of a run computed in parallel"`
	Spinning     bool   `yaml:"spinning" request:"any" advanced:"yes" help:"let threads spin while they wait: slightly faster, but uses CPU time"`
	Provider     string `yaml:"provider" default:"cpu" words:"cpu cuda" request:"any" help:"execution provider"`
	Device       int    `yaml:"device" min:"0" max:"255" request:"any" advanced:"yes" help:"number of the GPU"`
	Optimization string `yaml:"optimization" default:"all" words:"none basic extended all" request:"any" advanced:"yes" help:"level of graph optimisation"`
}
