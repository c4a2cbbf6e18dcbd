package workers_test

import (
	"context"
	"testing"

	"millrace/stream"
	"millrace/workers"
)

// The number of batches follows the instances that a load asks for, and a load with
// other instances is not another model.
func TestBuffersFollowInstances(t *testing.T) {
	r := newRig(t)
	if err := r.Define(workers.Config{Name: "m", Kind: "identity"}); err != nil {
		t.Fatal(err)
	}
	for _, instances := range []int64{1, 4} {
		name, err := r.Load(context.Background(), "m", workers.Load{Params: stream.Params{"instances": instances}})
		if err != nil || name != "m" {
			t.Fatalf("%q, %v", name, err)
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
