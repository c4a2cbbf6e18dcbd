package workers

import (
	"context"
	"sync"

	"millrace/stream"
)

// FileWorker is a worker of a model that takes files (stream.Model.Files). The group calls RunFile outside of Run: a
// file may take hours, so that RunFile bounds its own time, and goes on after Destroy. Several goroutines may call
// RunFile, as many as the group has workers.
type FileWorker interface {
	Worker
	RunFile(ctx context.Context, f *stream.FileRun) error
}

// fileRuns bounds the files that run at once.
type fileRuns struct {
	mu      sync.Mutex
	running int
	ended   chan struct{} // closed at the next end of a run; nil = nobody waits
}

// RunFile runs a file. At most as many files as the group has workers run at once: others wait. A file that runs when
// the group is unloaded runs to its end. Errors: Unsupported, when the model takes no files; Unloaded; Unavailable;
// the errors of the run.
func (g *Group) RunFile(ctx context.Context, f *stream.FileRun) error {
	if !g.model.Files {
		return stream.Errorf(stream.Unsupported, "model", "%s takes no files", g.cfg.Name)
	}
	for {
		w, wait, err := g.beginFile()
		switch {
		case err != nil:
			return err
		case w != nil:
			defer g.endFile()
			return w.RunFile(ctx, f)
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// beginFile takes a place for a file, and returns a worker to run the file. Without a free place, beginFile returns a
// channel that is closed when a place may be free.
func (g *Group) beginFile() (w FileWorker, wait <-chan struct{}, err error) {
	if err := g.unready(); err != nil {
		return nil, nil, err
	}
	g.registry.Lock()
	defer g.registry.Unlock()
	if g.state != StateReady {
		return nil, nil, g.notReady()
	}
	places := 0
	for i := range g.all {
		if i.up.Load() && !i.gone.Load() {
			places++
			w = i.worker.(FileWorker)
		}
	}
	if places == 0 {
		return nil, nil, stream.Errorf(stream.Unavailable, "", "model %s has no running worker: try again", g.cfg.Name)
	}
	g.fileRuns.mu.Lock()
	defer g.fileRuns.mu.Unlock()
	if g.fileRuns.running < places {
		g.fileRuns.running++
		return w, nil, nil
	}
	if g.fileRuns.ended == nil {
		g.fileRuns.ended = make(chan struct{})
	}
	return nil, g.fileRuns.ended, nil
}

func (g *Group) endFile() {
	g.fileRuns.mu.Lock()
	defer g.fileRuns.mu.Unlock()
	g.fileRuns.running--
	if g.fileRuns.ended != nil {
		close(g.fileRuns.ended)
		g.fileRuns.ended = nil
	}
}
