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
		Name:     "process",
		Doc:      "an executable that speaks the protocol of docs/process.md, in a child process",
		New:      func() workers.Worker { return NewWorker(commandOf) },
		Settings: func() any { return new(settings) },
		Loads:    executable,
		Memory:   Memory(),
		Ahead:    true,
	})
}

// Memory returns where batches of children are allocated.
func Memory() batching.Backend {
	if batching.SharedAvailable() {
		return batching.Shared
	}
	return ""
}

// settings are those of kind process.
type settings struct {
	Command string   `yaml:"command" path:"file" unset:"the source" help:"the program to start: a path, or a name that is looked up in PATH"`
	Args    []string `yaml:"args" example:"--fast" help:"arguments of the program"`
	Common  Settings `yaml:",inline"`
}

// Validate implements the validation of workers.Kind.
func (s *settings) Validate() error { return s.Common.Validate() }

// Settings are those of all kinds whose models are computed by a child process.
type Settings struct {
	Env         []string `yaml:"env" example:"OMP_NUM_THREADS=1" help:"variables of the program's environment, each NAME=VALUE, besides those of the server, which it inherits"`
	InstanceEnv []string `yaml:"instance_env" example:"CUDA_VISIBLE_DEVICES=0" help:"one entry for each instance, used in turn: variables NAME=VALUE, with ; between several"`
	Dir         string   `yaml:"dir" path:"file" unset:"the server's" help:"the program's working directory"`
	Cores       []string `yaml:"cores" example:"0-3" help:"one entry for each instance, used in turn: the processors on which it may run, such as 0-3 or 0,2,4; Linux only"`

	SharedMemory *bool `yaml:"shared_memory" default:"true" help:"false: data go through the socket and not through shared memory, which is slower"`
	MaxResult    int64 `yaml:"max_result" default:"256MiB" min:"4KiB" max:"1TiB" unit:"bytes" help:"largest result of one batch; it is leased from memory.budget"`

	Idempotent bool           `yaml:"idempotent" help:"true: a batch that passed limits.run is run once more, by the restarted program"`
	Refuse     *time.Duration `yaml:"refuse" default:"10m" min:"0s" max:"24h" help:"time for which input that ended the program, alone in its batch, is refused; 0s: it is run again"`

	MemoryLimit     int64         `yaml:"memory_limit" min:"1MiB" max:"16TiB" unit:"bytes" unset:"none" help:"resident memory of the program, with the processes it has started, above which it is replaced between two batches"`
	RecycleRequests int           `yaml:"recycle_requests" min:"1" unset:"never" help:"requests after which the program is replaced by a new one"`
	RecycleAfter    time.Duration `yaml:"recycle_after" min:"1s" unset:"never" help:"time after which the program is replaced by a new one, between two batches"`
	Grace           time.Duration `yaml:"grace" default:"2s" min:"1ms" max:"1h" help:"time that the program gets to close, and again after SIGTERM, before SIGKILL; each is at most half of what is left of limits.start, and of drain when the server ends"`

	Watchdog Watchdog `yaml:"watchdog"`
}

// Watchdog says when a program that still runs is replaced.
type Watchdog struct {
	Period           *time.Duration `yaml:"period" default:"5s" min:"0s" max:"1h" help:"time between two checks of an idle program by its own watchdog; 0s: none"`
	RequestThreshold time.Duration  `yaml:"request_threshold" min:"1ms" unset:"none" help:"mean time of the last batches above which the program is replaced"`
	RequestAverage   int            `yaml:"request_average" default:"3" min:"1" max:"1024" help:"number of batches of which request_threshold is the mean"`
}

// Validate returns what the tags do not say.
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

// executable reports whether source is the path of a program. Files that other kinds load by
// their names are left to these.
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

// commandOf returns what kind process starts.
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
	if env.Source != "" { // which a model's folder in a repository cannot set, as it can the others
		spec.Files = []string{confine.Folder(env.Source)}
	}
	return spec, nil
}
