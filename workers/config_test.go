package workers_test

import (
	"context"
	"testing"

	"millrace/stream"
	"millrace/workers"
)

// A load with another number of instances changes the number of the loaded model, and keeps the model's requests and
// workers.
func TestLoadScales(t *testing.T) {
	r := newRig(t)
	if err := r.Define(workers.Config{Name: "m", Source: "identity"}); err != nil {
		t.Fatal(err)
	}
	var first *workers.Group
	for _, instances := range []int64{2, 5, 1, 3} {
		loaded, err := r.Load(context.Background(), "m", workers.Load{Params: stream.Params{"instances": instances}})
		if err != nil || loaded.Endpoint != "m" {
			t.Fatal(loaded, err)
		}
		g, err := r.Group("m", "")
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = g
		}
		if g != first || g.Workers() != int(instances) || g.Config().Instances != int(instances) {
			t.Errorf("%d instances: %d workers, configured %d, the same group: %v", instances, g.Workers(),
				g.Config().Instances, g == first)
		}
	}
}

// The number of batches follows the instances of a load request, and a load with other instances is the same model.
func TestBuffersFollowInstances(t *testing.T) {
	r := newRig(t)
	if err := r.Define(workers.Config{Name: "m", Kind: "identity"}); err != nil {
		t.Fatal(err)
	}
	for _, instances := range []int64{1, 4} {
		loaded, err := r.Load(context.Background(), "m", workers.Load{Params: stream.Params{"instances": instances}})
		if err != nil || loaded.Endpoint != "m" {
			t.Fatalf("%v, %v", loaded, err)
		}
	}
	g, err := r.Group("m", "")
	if err != nil {
		t.Fatal(err)
	}
	if st := g.Stats(); st.Workers != 4 || st.Buffers < 5 {
		t.Errorf("%d batches for %d workers", st.Buffers, st.Workers)
	}
}
