package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"millrace/client"
	"millrace/config"
	metadata "millrace/ingest/inference"
	"millrace/internal/oip"
	"millrace/server"
	"millrace/stream/buf"
	"millrace/workers"
	"millrace/workers/container"
	"millrace/workers/repository"
)

// checkModels loads the models of the configuration and of its repository together, with the stages and graphs of
// programs, as serve does, so that the models share the memory budget. Then checkModels unloads the models, without
// running requests. Warnings about unused parts of a model's configuration go to log.
func checkModels(ctx context.Context, cfg server.Config, log io.Writer) (found []finding) {
	wrongly := func(what string, err error) {
		found = append(found, finding{What: what, State: wrong, Detail: err.Error()})
	}
	lines := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	fetched, err := openSources(&cfg, lines, log)
	if err != nil {
		wrongly("model sources", err)
		return found
	}
	defer fetched.close()
	hideFromPrograms(&cfg)
	found = append(found, fetched.repository(ctx)...)
	folder, err := repository.New(repository.Options{Dir: fetched.FolderOf(&cfg), YAML: config.ReadModel})
	if err != nil {
		wrongly("model_repository", err)
		return found
	}
	options := workers.ManagerOptions{
		Memory: buf.NewPool(cfg.Memory.Budget), Pixels: cfg.Limits.Pictures(), Repository: folder,
		Log: lines,
	}
	if err := server.ConfinePrograms(&cfg, &options); err != nil {
		wrongly("confine", err)
		return found
	}
	engine, closeEngine, err := checkEngine(ctx, &cfg, options.Log)
	if err != nil {
		wrongly("containers", err)
		return found
	}
	defer closeEngine()
	options.Containers = engine
	models := workers.NewManager(options)
	for _, m := range server.Replicate(cfg).Models {
		m, state, err := fetched.model(ctx, m)
		found = append(found, state...)
		if err != nil {
			wrongly("model "+m.Name, err)
			continue
		}
		endpoint, err := models.LoadConfig(ctx, m, true)
		if err != nil {
			wrongly("model "+m.Name, err)
			continue
		}
		found = append(found, describe(models, endpoint)...)
		found = append(found, checkParts(ctx, models, endpoint)...)
	}
	names, err := folder.Names()
	if err != nil {
		wrongly("model_repository", err)
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		return slices.ContainsFunc(cfg.Models, func(m workers.Config) bool { return m.Name == name })
	})
	errs := models.LoadAll(ctx, names, nil)
	for _, name := range names {
		if err := errs[name]; err != nil {
			wrongly("model "+name, err)
		}
		found = append(found, describe(models, name)...)
		found = append(found, checkParts(ctx, models, name)...)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.Drain)
	defer cancel()
	if err := models.Close(ctx); err != nil {
		wrongly("models", err)
	}
	return found
}

// checkEngine returns the container engine with a temporary folder in place of the data folder, which a server may use,
// and a function that closes the engine.
func checkEngine(ctx context.Context, cfg *server.Config, log *slog.Logger) (*container.Engine, func(), error) {
	set := &cfg.Containers
	o := container.Options{Host: set.Host, Images: set.Images, User: set.User, Log: log}
	remove := func() {}
	if cfg.Data != "" && o.Host != "" {
		var err error
		if o.Data, err = os.MkdirTemp("", "millrace-check-"); err != nil {
			return nil, nil, err
		}
		remove = func() { _ = os.RemoveAll(o.Data) }
		if err := os.Chmod(o.Data, 0o711); err != nil { // the user of a container enters /model
			remove()
			return nil, nil, err
		}
	}
	e, err := container.New(o)
	if err == nil {
		err = e.Open(ctx)
	}
	if err != nil {
		remove()
		return nil, nil, err
	}
	return e, func() { e.Close(); remove() }, nil
}

// checkParts loads the stages and graphs of a loaded program, including parts after a failed part.
func checkParts(ctx context.Context, models *workers.Manager, name string) (found []finding) {
	g, err := models.Group(name, "")
	if err != nil || g.Model().App == nil || g.Model().App.Parts == nil {
		return nil
	}
	parts, err := server.PartsOf(g.Config(), g.Model().App.Parts)
	if err != nil {
		return []finding{{What: "model " + name, State: wrong, Detail: err.Error()}}
	}
	for _, part := range parts {
		if _, err := models.LoadConfig(ctx, part, true); err != nil {
			found = append(found, finding{What: "model " + part.Name, State: wrong, Detail: err.Error()})
			continue
		}
		found = append(found, describe(models, part.Name)...)
	}
	return found
}

// describe describes the versions of a loaded model.
func describe(models *workers.Manager, name string) (found []finding) {
	versions := models.Versions(name)
	for _, version := range versions {
		g, err := models.Group(name, version)
		if err != nil {
			continue // not loaded
		}
		m, w := g.Model(), g.Config()
		told := metadata.Describe(m)
		f := finding{What: "model " + name, State: "ok", Inputs: tensors(told.Inputs), Outputs: tensors(told.Outputs),
			InputRules: told.InputRules}
		if len(versions) > 1 {
			f.What += " version " + version
		}
		lines := []string{fmt.Sprintf("%s, %d workers, %s batching", w.Kind, g.Workers(), w.Batching.Kind)}
		lines = append(lines, told.Lines()...)
		f.Detail = strings.Join(lines, "\n")
		found = append(found, f)
	}
	return found
}

// tensors converts tensors of metadata to tensors of the client.
func tensors(of []oip.TensorMetadata) (out []client.Tensor) {
	for _, t := range of {
		out = append(out, client.Tensor(t))
	}
	return out
}
