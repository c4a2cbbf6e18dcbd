package workers_test

import (
	"context"
	"testing"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers"
)

// replaced reports its start, with Env.Replace.
type replaced struct {
	workers.Base
	env *workers.Env
}

var replacements = make(chan func(error), 1)

func init() {
	workers.Register(workers.Kind{Name: "replaced", Ahead: true, New: func() workers.Worker { return &replaced{} }})
}

func (p *replaced) Init(_ context.Context, env *workers.Env) (*stream.Model, error) {
	p.env = env
	return &stream.Model{AcceptsAnyInput: true, Ragged: true, MaxBatch: 4}, nil
}

func (p *replaced) Acquire(context.Context) error {
	replacements <- p.env.Replace
	return nil
}

func (*replaced) Run(_ context.Context, b *batching.Batch) error {
	for i := range b.Requests {
		b.Finish(i, nil)
	}
	return nil
}

// TestReplacementsWhenIdle checks that both runners of an instance go on after a planned replacement of the worker by
// either runner. A stuck runner is rare.
func TestReplacementsWhenIdle(t *testing.T) {
	r := newRig(t)
	g := r.load(t, workers.Config{Kind: "replaced"})
	s, e := open(t, g, every)
	const frames, each = 500, 100
	for i := range frames {
		for range each {
			replace := <-replacements
			replace(nil)
		}
		r.send(t, s, "x")
		e.wait(t, i+1)
	}
	<-replacements
	if n := g.Stats().Restarts; n != frames*each {
		t.Errorf("%d restarts", n)
	}
}
