package process

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"millrace/internal/child"
	"millrace/internal/codec"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

// Spec is the program of a model.
type Spec struct {
	Path     string         // of the executable, or a name to look up in PATH
	Args     []string       // after the name
	Env      []string       // NAME=VALUE, added to the variables of the server and of Settings
	Dir      string         // working directory; "" = that of Settings, or the server's
	Options  map[string]any // the member options of hello
	Params   map[string]any // the member parameters of hello
	Files    []string       // files and whole folders of the program, readable even when confined
	Settings *Settings
	// Explain may replace the error of a failed start, to say what to do.
	Explain func(error) error

	// ServerProgram is set for a program that is a part of the server; nil = another program.
	ServerProgram *ServerProgram

	cores []int // processors for the program; nil = all
}

// ServerProgram has the special rules for a program that is a part of the server, such as another process of the
// server's executable: the program gets no variables of the server, the program's errors are passed on unchanged, and
// shapes of outputs may differ from the model's declaration.
type ServerProgram struct {
	Sandbox *child.Sandbox // instead of Env.Programs; nil = no confinement
	Limits  child.Limits
	// time after limits.run for the program to answer, because the program ends its runs at limits.run itself
	Late time.Duration
	// Describe changes the metadata described by the program's message model; options is a member of the message.
	Describe func(m *stream.Model, options json.RawMessage) error
	// Ended returns the error of requests for the given reason of the program's end.
	Ended func(error) error
}

// Worker is one instance: a child process and the batches sent to the child.
type Worker struct {
	specOf func(*workers.Env) (Spec, error)
	spec   Spec
	env    *workers.Env
	log    *slog.Logger
	proc   *process

	model    *stream.Model
	pictures bool         // the server decodes pictures, each for its request
	target   codec.Target // of these
	channels int
	shared   bool // data go through shared memory

	history  *crashHistory // of all instances of the model
	slots    chan *slot
	ids      atomic.Uint64 // of batches
	segments segments
}

// NewWorker returns an instance of the program described by specOf, for the worker's Env.
func NewWorker(specOf func(*workers.Env) (Spec, error)) *Worker { return &Worker{specOf: specOf} }

var _ workers.Worker = (*Worker)(nil)

// inFlight is the number of batches that a child may have: one running, and one waiting.
const inFlight = 2

// Init starts the program, which describes the model.
func (w *Worker) Init(ctx context.Context, env *workers.Env) (m *stream.Model, err error) {
	w.env = env
	if w.env.Memory == nil {
		w.env.Memory = buf.NewPool(0)
	}
	if w.log = env.Log; w.log == nil {
		w.log = slog.New(slog.DiscardHandler)
	}
	if w.spec, err = w.specOf(env); err != nil {
		return nil, err
	}
	w.setPlacement()
	w.history = crashHistoryOf(env, *w.spec.Settings.Refuse)
	w.shared = sharedMemory && *w.spec.Settings.SharedMemory
	logs := newLogs(w.log.With("model", env.Name, "instance", env.Instance))
	if w.proc, err = begin(&w.spec, env, logs); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			w.proc.setCause("start")
			w.proc.kill(0, w.remainingStopTime)
			err = w.explained(err)
		}
	}()
	answer, err := w.proc.ask(ctx, w.hello(), isModel)
	if err != nil {
		return nil, w.startFailed(ctx, "hello", err)
	}
	defer w.proc.giveBack(answer)
	d, err := describe(answer.text)
	if err == nil {
		m, w.pictures, err = d.model()
	}
	if own := w.spec.ServerProgram; err == nil && own != nil {
		err = own.Describe(m, d.Options)
	}
	if err != nil {
		return nil, stream.Errorf(stream.Internal, "", "the program broke the protocol: %w", err)
	}
	if err := w.history.describes(*d); err != nil {
		return nil, err
	}
	if w.pictures {
		if err := w.readTarget(d.Image); err != nil {
			return nil, err
		}
	}
	if env.MaxBatch > 0 && w.spec.ServerProgram == nil {
		m.MaxBatch = env.MaxBatch // like the group later
	}
	w.model = m
	w.proc.mu.Lock()
	w.proc.begins = d.Begins
	w.proc.mu.Unlock()
	return m, nil
}

// setPlacement sets the differences between the instances.
func (w *Worker) setPlacement() {
	s, n := w.spec.Settings, w.env.Instance
	if w.spec.Dir == "" {
		w.spec.Dir = s.Dir
	}
	w.spec.Env = append(slices.Clip(w.spec.Env), s.Env...)
	if len(s.InstanceEnv) > 0 {
		w.spec.Env = append(w.spec.Env, variables(s.InstanceEnv[n%len(s.InstanceEnv)])...)
	}
	if len(s.Cores) > 0 {
		w.spec.cores, _ = parseCores(s.Cores[n%len(s.Cores)]) // parsed by Validate already
	}
}

func (w *Worker) readTarget(i *describedImage) error {
	w.channels = 3
	for _, f := range []struct {
		name, value string
		into        interface{ UnmarshalText([]byte) error }
	}{{"color", i.Color, &w.target.Color}, {"layout", i.Layout, &w.target.Layout}, {"fit", i.Fit, &w.target.Fit}} {
		if f.value == "" {
			continue
		}
		if err := f.into.UnmarshalText([]byte(f.value)); err != nil {
			return stream.Errorf(stream.Internal, "", "the program broke the protocol: in model: image.%s: %w", f.name,
				err)
		}
	}
	w.channels = w.target.Color.Channels()
	w.target.Width, w.target.Height, w.target.Fill = i.Width, i.Height, workers.LetterboxGray
	return nil
}

// hello is the first message to a child.
func (w *Worker) hello() []byte {
	tensors := func(of []workers.Tensor) []describedTensor {
		out := []describedTensor{}
		for _, t := range of {
			out = append(out, describedTensor{Name: t.Name, Datatype: string(t.Datatype), Shape: t.Shape})
		}
		return out
	}
	params := w.spec.Params
	if params == nil {
		params = map[string]any{}
	}
	options := w.spec.Options
	if options == nil {
		options = map[string]any{}
	}
	return text(map[string]any{
		"type": "hello", "protocol": 1, "name": w.env.Name, "instance": w.env.Instance,
		"parameters": params, "options": options, "max_batch": w.env.MaxBatch, "shared_memory": w.shared,
		"max_result": w.spec.Settings.MaxResult, "begun": true,
		"declared": map[string]any{"inputs": tensors(w.env.Declared.Inputs),
			"outputs": tensors(w.env.Declared.Outputs), "batch": w.env.Declared.Batch},
	})
}

// startFailed returns the error of a step of the start.
func (w *Worker) startFailed(ctx context.Context, step string, err error) error {
	var r *refusal
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		w.proc.giveUp("start", err)
		said := w.proc.proc.Stderr()
		if said != "" {
			said = ": " + said
		}
		return stream.Errorf(stream.Timeout, "limits.start",
			"the program did not answer %s in time: raise the setting, or look what it waits for%s", step, said)
	case errors.As(err, &r) && w.spec.ServerProgram != nil:
		return &stream.Error{Code: cmp.Or(r.code, stream.Internal), Field: r.field, Msg: r.message, Err: err}
	case errors.As(err, &r):
		code := r.code
		if code == "" {
			code = stream.Internal
		}
		return &stream.Error{Code: code, Msg: fmt.Sprintf("the program cannot be started: %v", r), Err: err}
	}
	return stream.Errorf(stream.CodeOf(err), "", "the program did not start: %s: %w", step, err)
}

func (w *Worker) explained(err error) error {
	if w.spec.Explain != nil {
		return w.spec.Explain(err)
	}
	return err
}

// Allocate makes the places for batches in flight. Shared memory is allocated on first need.
func (w *Worker) Allocate(context.Context) error {
	w.slots = make(chan *slot, inFlight)
	for range inFlight {
		w.slots <- newSlot(w)
	}
	return nil
}

// Acquire lets the program load the program's model.
func (w *Worker) Acquire(ctx context.Context) error {
	answer, err := w.proc.ask(ctx, []byte(`{"type":"setup"}`), isReady)
	if err != nil {
		return w.explained(w.startFailed(ctx, "setup", err))
	}
	w.proc.giveBack(answer)
	w.proc.lookForOOM() // the child may be in another cgroup now
	w.proc.routines.Go(func() { w.watch(w.proc) })
	return nil
}

// Release ends the program.
func (w *Worker) Release() { w.proc.stop(w.spec.Settings.Grace, w.remainingStopTime) }

// remainingStopTime returns the remaining time for the stop.
func (w *Worker) remainingStopTime() time.Duration {
	if w.env.StopBy == nil {
		return math.MaxInt64
	}
	return w.env.StopBy().Sub(stream.Now())
}

// Deallocate frees the shared memory.
func (w *Worker) Deallocate() {
	for range inFlight {
		(<-w.slots).free()
	}
}

// Destroy ends the program, unless Release has ended the program.
func (w *Worker) Destroy() { w.proc.kill(w.spec.Settings.Grace, w.remainingStopTime) }
