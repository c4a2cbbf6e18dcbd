//go:build cgo

package onnx

import (
	"context"
	"sync"

	ort "github.com/yalue/onnxruntime_go"
)

// interrupter ends runs of a worker early: when the context of the run ends, and by Interrupt. ONNX Runtime checks the
// options of the run before each node of the graph, so a loop in the graph ends, too; a long node is computed to its
// end.
type interrupter struct {
	mu          sync.Mutex
	options     *ort.RunOptions // of all runs of the worker
	interrupted bool            // Interrupt was called, and ClearInterrupt was not
	ended       bool            // the options end runs
	watched     context.Context // the context of the last run
	runs        uint64          // watched contexts
	forget      func() bool     // stops watching the context
}

// Interrupt implements workers.Interrupter. A batch may have several runs of the model: Interrupt ends the run in
// progress and all later runs, until ClearInterrupt.
func (w *worker) Interrupt() {
	w.interrupter.mu.Lock()
	defer w.interrupter.mu.Unlock()
	w.interrupter.interrupted = true
	w.interrupter.end()
}

// ClearInterrupt implements workers.Interrupter.
func (w *worker) ClearInterrupt() {
	w.interrupter.mu.Lock()
	defer w.interrupter.mu.Unlock()
	w.interrupter.interrupted = false
	_ = w.interrupter.reset() // otherwise begin tries again
}

func (e *interrupter) end() {
	if e.options != nil && !e.ended {
		e.ended = e.options.Terminate() == nil
	}
}

// reset makes runs not end early any more.
func (e *interrupter) reset() error {
	if !e.ended {
		return nil
	}
	err := e.options.UnsetTerminate()
	e.ended = err != nil
	return err
}

// begin prepares a run with ctx.
func (e *interrupter) begin(ctx context.Context) (err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.options == nil {
		if e.options, err = ort.NewRunOptions(); err != nil {
			return err
		}
	}
	if ctx != e.watched {
		e.watch(ctx)
	}
	if ctx.Err() != nil || e.interrupted {
		e.end()
		return nil
	}
	return e.reset()
}

// watch makes the end of ctx end the later runs. Usually all runs of a worker have one context, so watch is called
// once.
func (e *interrupter) watch(ctx context.Context) {
	if e.forget != nil {
		e.forget()
	}
	e.runs++
	e.watched = ctx
	of := e.runs
	e.forget = context.AfterFunc(ctx, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.runs == of { // otherwise a run with another context may be in progress
			e.end()
		}
	})
}

// destroy releases the options. No run is in progress.
func (e *interrupter) destroy() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.forget != nil {
		e.forget()
	}
	if e.options != nil {
		_ = e.options.Destroy()
	}
	e.options, e.watched, e.forget, e.ended, e.interrupted = nil, nil, nil, false, false
	e.runs++
}

// ended reports whether the last run was ended early, as the next one will be.
func (w *worker) ended() bool {
	w.interrupter.mu.Lock()
	defer w.interrupter.mu.Unlock()
	return w.interrupter.ended
}

// runUntil runs the model until it has finished, ctx ends, or Interrupt is called.
func (w *worker) runUntil(ctx context.Context, in, out []ort.Value) error {
	if err := w.interrupter.begin(ctx); err != nil {
		return err
	}
	return w.session.RunWithOptions(in, out, w.interrupter.options)
}
