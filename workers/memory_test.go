package workers_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
	"millrace/workers/results/postprocess"
)

// dense has rows of 12 bytes in and 12 bytes out, four in a batch; two workers have
// three batches.
const denseMemory = 4 * (3*12 + 2*12)

// slowDense is dense whose Allocate waits.
type slowDense struct{ dense }

var lazy atomic.Pointer[chan struct{}]

func init() {
	workers.Register(workers.Kind{Name: "lazy", New: func() workers.Worker { return &slowDense{} }})
}

func (*slowDense) Allocate(context.Context) error { <-*lazy.Load(); return nil }

// The reserved memory follows the number of workers.
func TestMemoryFollowsTheWorkers(t *testing.T) {
	r := newRig(t)
	reserved := func(what string, want int64) {
		t.Helper()
		if n := r.mem.Stats().Reserved; n != want {
			t.Errorf("%s: %d bytes are reserved, want %d", what, n, want)
		}
	}
	ctx := context.Background()
	r.load(t, workers.Config{Name: "d", Kind: "dense", Instances: 2})
	reserved("loaded", denseMemory)
	if err := r.Scale(ctx, "d", 4); err != nil {
		t.Fatal(err)
	}
	reserved("scaled up", 4*(5*12+4*12))
	if err := r.Scale(ctx, "d", 1); err != nil {
		t.Fatal(err)
	}
	reserved("scaled down", 4*(3*12+1*12))
	if err := r.Swap(ctx, "d", workers.Config{Kind: "dense"}); err != nil {
		t.Fatal(err)
	}
	reserved("swapped", 4*(2*12+1*12))
	if err := r.Unload(ctx, "d", ""); err != nil {
		t.Fatal(err)
	}
	reserved("unloaded", 0)
	if _, err := r.LoadConfig(ctx, workers.Config{Name: "d", Kind: "dense",
		Parts: []any{&postprocess.Config{Masks: &postprocess.Masks{Output: "none"}}}}, true); err == nil {
		t.Fatal("an impossible configuration was loaded")
	}
	reserved("refused", 0)
}

// A model scaled down to make room for another model needs memory only for its present workers when replaced.
func TestReplacedModelReservesForItsWorkers(t *testing.T) {
	r, s := newShelf(t)
	s.put("d", workers.Config{Kind: "dense", Version: "1", Instances: 8})
	r.mustLoad(t, "d", workers.Load{})
	if err := r.Scale(t.Context(), "d", 2); err != nil {
		t.Fatal(err)
	}
	const need = 4 * (9*12 + 2*12)
	other := r.mem.Reservable() - need
	if err := r.mem.Reserve(other); err != nil {
		t.Fatal(err)
	}
	r.mustLoad(t, "d", workers.Load{Params: stream.Params{"swap": true}})
	if n := r.mem.Stats().Reserved - other; n != need {
		t.Errorf("%d bytes are reserved, want %d", n, need)
	}
	if g, err := r.Group("d", ""); err != nil || g.Workers() != 2 {
		t.Errorf("%d workers (%v)", g.Workers(), err)
	}
	r.mem.Unreserve(other)
}

// When frames hold the budget, a load is refused as overloaded and keeps no memory.
func TestLoadWhileFramesHoldTheMemory(t *testing.T) {
	mem := buf.NewPool(16 << 10)
	m := workers.NewManager(workers.ManagerOptions{Memory: mem})
	t.Cleanup(func() { _ = m.Close(context.Background()) })
	frame, err := mem.Lease(14 << 10)
	if err != nil {
		t.Fatal(err)
	}
	cfg := workers.Config{Name: "d", Kind: "dense", Batching: workers.Batching{MaxSize: 100}}
	if _, err := m.LoadConfig(context.Background(), cfg, true); stream.CodeOf(err) != stream.Overloaded {
		t.Errorf("%v", err)
	}
	if n := mem.Stats().Reserved; n != 0 {
		t.Errorf("%d bytes are reserved", n)
	}
	frame.Release()
	if _, err := m.LoadConfig(context.Background(), cfg, true); err != nil {
		t.Error(err)
	}
	cfg.Batching.MaxSize = 4096
	if _, err := m.LoadConfig(context.Background(), cfg, true); stream.CodeOf(err) != stream.TooLarge {
		t.Errorf("%v", err)
	}
}

// A hung start keeps its memory until the start ends, and then releases the memory.
func TestMemoryOfAStartThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		gate := make(chan struct{})
		lazy.Store(&gate)
		// enough to reach Allocate
		cfg := workers.Config{Name: "l", Kind: "lazy", Limits: workers.Limits{Start: 2 * time.Second}}
		if _, err := r.LoadConfig(context.Background(), cfg, true); stream.CodeOf(err) != stream.Timeout {
			t.Fatalf("%v", err)
		}
		if n := r.mem.Stats().Reserved; n != 4*3*12 {
			t.Errorf("%d bytes are reserved", n)
		}
		close(gate)
		until(t, "its memory is given back", func() bool { return r.mem.Stats().Reserved == 0 })
	})
}
