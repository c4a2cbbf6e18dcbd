package main

import (
	"context"
	"fmt"
	"strings"

	"millrace/client"
	"millrace/server"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

// checkModels loads the models together, as serve does, so that they share the memory
// budget, and unloads them. It runs no requests.
func checkModels(ctx context.Context, cfg server.Config) (found []finding) {
	models := workers.NewManager(workers.ManagerOptions{
		Memory: buf.NewPool(cfg.Memory.Budget), Pixels: cfg.Limits.Pictures(),
	})
	for _, m := range cfg.Models {
		f := finding{What: "model " + m.Name, State: "ok"}
		if err := f.load(ctx, models, m); err != nil {
			f.State, f.Detail = wrong, err.Error()
		}
		found = append(found, f)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.Drain)
	defer cancel()
	if err := models.Close(ctx); err != nil {
		found = append(found, finding{What: "models", State: wrong, Detail: err.Error()})
	}
	return found
}

// load loads a model, and describes it in the finding.
func (f *finding) load(ctx context.Context, models *workers.Manager, cfg workers.Config) error {
	endpoint, err := models.LoadConfig(ctx, cfg, true)
	if err != nil {
		return err
	}
	g, err := models.Group(endpoint, "")
	if err != nil {
		return err
	}
	m := g.Model()
	f.Inputs, f.Outputs = tensors(m, m.Inputs), tensors(m, m.Outputs)
	w := g.Config()
	lines := []string{fmt.Sprintf("%s, %d workers, %s batching", w.Kind, w.Instances, w.Batching.Kind)}
	if m.Any {
		lines = append(lines, "takes any tensors")
	}
	for _, t := range f.Inputs {
		lines = append(lines, fmt.Sprintf("input %s %s %v", t.Name, t.Datatype, t.Shape))
	}
	for _, t := range f.Outputs {
		lines = append(lines, fmt.Sprintf("output %s %s %v", t.Name, t.Datatype, t.Shape))
	}
	f.Detail = strings.Join(lines, "\n")
	return nil
}

// tensors describes tensors as the server's metadata does.
func tensors(m *stream.Model, specs []stream.TensorSpec) (out []client.Tensor) {
	for _, s := range specs {
		out = append(out, client.Tensor{Name: s.Name, Datatype: string(s.Datatype), Shape: m.Shape(&s)})
	}
	return out
}
