package container

import (
	"context"
	"log/slog"
	"sync"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers"
)

// worker is one instance: with n instances, n containers of the model run at once.
type worker struct {
	workers.Base
	engine *Engine
	set    parameters
	image  image
	name   string
	log    *slog.Logger
	count  *workers.Processes

	mu    sync.Mutex
	model *modelFiles // nil = no /model, or after Destroy
}

var _ workers.FileWorker = (*worker)(nil)

// Init implements workers.Worker: the model is ready when the engine has the image.
func (w *worker) Init(ctx context.Context, env *workers.Env) (*stream.Model, error) {
	w.set, w.name, w.log, w.count = env.Settings.(*settings).Container, env.Name, env.Log, env.Processes
	var err error
	if w.engine, w.image, err = prepare(ctx, env, &w.set); err != nil {
		return nil, err
	}
	if w.set.Model != "" {
		if w.model, err = w.engine.modelFiles(ctx, &w.set); err != nil {
			return nil, err
		}
	}
	text := func(name string) []stream.TensorSpec {
		return []stream.TensorSpec{{Name: name, Datatype: stream.Bytes, Shape: []int{1}}}
	}
	return &stream.Model{Files: true, Inputs: text("input"), Outputs: text("output"), MaxBatch: 1, Ragged: true,
		Axis: stream.NoAxis}, nil
}

// prepare returns the engine and the image of a model, after the removal of the containers of an earlier process.
func prepare(ctx context.Context, env *workers.Env, set *parameters) (*Engine, image, error) {
	e, _ := env.Containers.(*Engine)
	if err := e.checkConfigured(); err != nil {
		return nil, image{}, err
	}
	name, err := set.image(env.Source)
	if err == nil {
		_, err = e.allowedImage(name) // before the first call of the engine
	}
	if err == nil {
		err = e.removeOrphans(ctx)
	}
	if err != nil {
		return nil, image{}, err
	}
	found, err := e.resolveImage(ctx, name, set.Pull, env.Log)
	return e, found, err
}

// Run implements workers.Worker: requests are refused, because a container may take hours.
func (w *worker) Run(_ context.Context, b *batching.Batch) error {
	for i := range b.Requests {
		b.Fail(i, stream.Errorf(stream.Unsupported, "model",
			"%s is a container, which runs tasks only: POST the file to /v2/tasks?model=%s", w.name, w.name))
	}
	return nil
}

// RunFile implements workers.FileWorker.
func (w *worker) RunFile(ctx context.Context, f *stream.FileRun) error {
	w.mu.Lock()
	files := w.model
	if files != nil {
		w.engine.retainModel(files)
		defer w.engine.releaseModel(files)
	}
	w.mu.Unlock()
	if files == nil && w.set.Model != "" {
		return stream.Errorf(stream.Unloaded, "", "model %s was unloaded", w.name)
	}
	j := &job{running: running{engine: w.engine, set: &w.set, model: w.name, log: w.log, count: w.count},
		image: w.image, files: files, run: f}
	return j.runFile(ctx)
}

// Destroy implements workers.Worker.
func (w *worker) Destroy() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.model != nil {
		w.engine.releaseModel(w.model)
		w.model = nil
	}
}
