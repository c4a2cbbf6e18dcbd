package process

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"millrace/batching"
	"millrace/internal/confine"
	"millrace/stream"
	"millrace/workers"
)

func init() {
	workers.Register(workers.Kind{
		Name:       "process",
		Doc:        "an executable that speaks the protocol of docs/process.md, in a child process",
		New:        func() workers.Worker { return NewWorker(commandOf) },
		Settings:   func() any { return new(settings) },
		Loads:      executable,
		Memory:     Memory(),
		Ahead:      true,
		HostParams: []string{"command", "args", "env", "instance_env", "dir", "cores"},
	})
}

// Memory returns where batches of children are allocated.
func Memory() batching.Backend {
	if batching.SharedAvailable() {
		return batching.Shared
	}
	return ""
}

// settings are the settings of kind process.
type settings struct {
	Command string   `yaml:"command" path:"file" unset:"the source" help:"the program: a path, or a name in PATH"`
	Args    []string `yaml:"args" example:"--fast" advanced:"yes" help:"arguments of the program"`
	Common  Settings `yaml:",inline"`
}

// Validate implements the validation of workers.Kind.
func (s *settings) Validate() error { return s.Common.Validate() }

// Settings are the common settings of all kinds with models in a child process.
type Settings struct {
	Env         []string `yaml:"env" example:"OMP_NUM_THREADS=1" advanced:"yes" help:"environment variables of the program, as NAME=VALUE, in addition to the server's environment"`
	InstanceEnv []string `yaml:"instance_env" example:"CUDA_VISIBLE_DEVICES=0" advanced:"yes" help:"one entry for each instance, used in turn: variables NAME=VALUE, joined by ;"`
	Dir         string   `yaml:"dir" path:"file" unset:"the server's" advanced:"yes" help:"working directory of the program"`
	Cores       []string `yaml:"cores" example:"0-3" advanced:"yes" help:"one entry for each instance, used in turn: the processors on which the instance may run, as 0-3 or 0,2,4; Linux only"`

	SharedMemory *bool `yaml:"shared_memory" default:"true" advanced:"yes" help:"false: send data through the socket and not through shared memory; slower"`
	MaxResult    int64 `yaml:"max_result" default:"256MiB" min:"4KiB" max:"1TiB" unit:"bytes" advanced:"yes" help:"largest result of one batch, taken from memory.budget"`

	Idempotent bool           `yaml:"idempotent" advanced:"yes" help:"true: a batch that exceeded limits.run is run once more, by the restarted program"`
	Refuse     *time.Duration `yaml:"refuse" default:"10m" min:"0s" max:"24h" advanced:"yes" help:"how long input is refused after the program crashed on a batch of this input alone; 0s: the input is run again"`

	MemoryLimit     int64         `yaml:"memory_limit" min:"1MiB" max:"16TiB" unit:"bytes" unset:"none" advanced:"yes" help:"limit of the resident memory of the program and of the program's processes: above it, the program is replaced between two batches"`
	RecycleRequests int           `yaml:"recycle_requests" min:"1" unset:"never" advanced:"yes" help:"replace the program after this number of requests"`
	RecycleAfter    time.Duration `yaml:"recycle_after" min:"1s" unset:"never" advanced:"yes" help:"replace the program after this time, between two batches"`
	Grace           time.Duration `yaml:"grace" default:"2s" min:"1ms" max:"1h" advanced:"yes" help:"time for the program to close, and again after SIGTERM, before SIGKILL; at most half of the time left of limits.start or drain"`

	Watchdog Watchdog `yaml:"watchdog"`
}

// Watchdog configures the replacement of running programs.
type Watchdog struct {
	Period           *time.Duration `yaml:"period" default:"5s" min:"0s" max:"1h" advanced:"yes" help:"time between two checks whether an idle program still answers; 0s: no checks"`
	Pause            time.Duration  `yaml:"pause" min:"1ms" max:"1h" unset:"none" advanced:"yes" help:"least time between a failed check and the start of the next program, for a device that is unwell for a while"`
	RequestThreshold time.Duration  `yaml:"request_threshold" min:"1ms" unset:"none" advanced:"yes" help:"replace the program above this mean time of the last batches"`
	RequestAverage   int            `yaml:"request_average" default:"3" min:"1" max:"1024" advanced:"yes" help:"number of batches in the mean of request_threshold"`
}

// Validate returns the errors not covered by the tags.
func (s *Settings) Validate() error {
	for _, v := range s.Env {
		if err := checkVariable("env", v); err != nil {
			return err
		}
	}
	for _, entry := range s.InstanceEnv {
		for _, v := range variables(entry) {
			if err := checkVariable("instance_env", v); err != nil {
				return err
			}
		}
	}
	for _, list := range s.Cores {
		if _, err := parseCores(list); err != nil {
			return err
		}
	}
	return nil
}

func variables(entry string) []string {
	return slices.DeleteFunc(strings.Split(entry, ";"), func(v string) bool { return v == "" })
}

func checkVariable(field, v string) error {
	name, _, ok := strings.Cut(v, "=")
	if !ok || name == "" || strings.ContainsRune(v, 0) {
		return stream.Errorf(stream.InvalidArgument, field, "has %q, which is not NAME=VALUE", name)
	}
	if name == socketVariable {
		return stream.Errorf(stream.InvalidArgument, field, "sets %s, which the server sets itself: leave it out", name)
	}
	return nil
}

// executable reports whether source is the path of a program. Files for other kinds, by name, are excluded.
func executable(source string) bool {
	if !strings.ContainsRune(source, filepath.Separator) || strings.Contains(source, "://") {
		return false
	}
	switch strings.ToLower(filepath.Ext(source)) {
	case ".py", ".onnx", ".yaml", ".yml":
		return false
	}
	st, err := os.Stat(source)
	return err == nil && st.Mode().IsRegular() && st.Mode().Perm()&0o111 != 0
}

// commandOf returns the program of kind process.
func commandOf(env *workers.Env) (Spec, error) {
	s := env.Settings.(*settings)
	path := s.Command
	if path == "" {
		path = env.Source
	}
	if path == "" {
		return Spec{}, stream.Errorf(stream.InvalidArgument, "command", "is missing: want the program to start")
	}
	spec := Spec{Path: path, Args: s.Args, Settings: &s.Common}
	if env.Source != "" { // not settable by a model's folder in a repository, unlike the other settings
		spec.Files = []string{confine.Folder(env.Source)}
	}
	return spec, nil
}
