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

	mu    sync.Mutex
	model *modelFiles // nil = no /model, or after Destroy
}

var _ workers.FileWorker = (*worker)(nil)

// Init implements workers.Worker: the model is ready when the engine has the image.
func (w *worker) Init(ctx context.Context, env *workers.Env) (*stream.Model, error) {
	w.engine, _ = env.Containers.(*Engine)
	w.set, w.name, w.log = env.Settings.(*settings).Container, env.Name, env.Log
	if err := w.engine.checkConfigured(); err != nil {
		return nil, err
	}
	name, err := w.set.image(env.Source)
	if err != nil {
		return nil, err
	}
	if _, err := w.engine.allowedImage(name); err != nil { // before the first call of the engine
		return nil, err
	}
	if err := w.engine.removeOrphans(ctx); err != nil {
		return nil, err
	}
	if w.image, err = w.engine.resolveImage(ctx, name, w.set.Pull, env.Log); err != nil {
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
	j := &job{engine: w.engine, set: &w.set, image: w.image, model: w.name, files: files, run: f, log: w.log}
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
