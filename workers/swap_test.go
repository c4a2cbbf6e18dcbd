package workers_test

import (
	"testing"

	"millrace/stream"
	"millrace/workers"
)

// A swap keeps unnamed settings: the number of workers, and the parameters of earlier loads and swaps under any of
// their names.
func TestSwapKeepsWhatItDoesNotName(t *testing.T) {
	r := newRig(t)
	if err := r.Define(workers.Config{Name: "d", Kind: "delay", Params: stream.Params{"fixed": "1ms"}}); err != nil {
		t.Fatal(err)
	}
	load := func(params stream.Params) {
		t.Helper()
		if got := r.mustLoad(t, "d", workers.Load{Params: params}); got != "d" {
			t.Fatalf("%v is the endpoint %s", params, got)
		}
	}
	check := func(fixed string, rows, workers int) {
		t.Helper()
		g, err := r.Group("d", "")
		if err != nil {
			t.Fatal(err)
		}
		if m := g.Model(); m.Params["fixed"] != fixed || m.MaxBatch != rows || g.Workers() != workers {
			t.Errorf("fixed is %v, batches have %d rows, %d workers; want %s, %d, %d", m.Params["fixed"], m.MaxBatch,
				g.Workers(), fixed, rows, workers)
		}
	}
	load(stream.Params{"max_size": int64(4), "instances": int64(2)})
	check("1ms", 4, 2)
	load(stream.Params{"fixed": "2ms", "swap": true})
	check("2ms", 4, 2)
	load(stream.Params{"batching.max_size": int64(8), "swap": true})
	check("2ms", 8, 2)
	if err := r.Scale(t.Context(), "d", 3); err != nil {
		t.Fatal(err)
	}
	load(stream.Params{"batcher": "soft", "batching.max_delay": "5ms", "swap": true})
	check("2ms", 8, 3)
	load(stream.Params{"batching.kind": "hard", "swap": true}) // the batcher hard has no max_delay
	check("2ms", 8, 3)
	load(stream.Params{"instances": int64(1), "swap": true})
	check("2ms", 8, 1)
	load(stream.Params{"swap": true})
	check("2ms", 8, 1)
	if err := r.Remove(t.Context(), "d"); err != nil {
		t.Fatal(err)
	}
	load(nil)
	if g, err := r.Group("d", ""); err != nil || g.Model().Params["fixed"] != "1ms" {
		t.Errorf("a model that was unloaded and loaded again: %v", err)
	}
}
