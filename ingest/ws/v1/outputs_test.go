package v1

import (
	"testing"

	"millrace/ingest/ws/conn"
)

// While a frame is unanswered, each change of the form followed by a frame has one entry, until the results of the
// frames are written.
func TestOutputsAreBounded(t *testing.T) {
	var o outputs
	forms := []conn.Outputs{conn.AsJSON, conn.AsNone}
	o.set(conn.AsBinary, 0, true)
	for seq := range uint64(10 * maxOutputs) {
		o.set(forms[seq/4%2], seq, false)
		if o.of(seq); len(o.all) > 2 {
			t.Fatalf("%d entries after the result of frame %d", len(o.all), seq)
		}
	}
	o.set(conn.AsBinary, 0, true)
	for seq := range uint64(maxOutputs - 1) {
		if o.full() {
			t.Fatalf("full with %d entries", len(o.all))
		}
		o.set(forms[seq%2], seq+1, false)
		o.set(forms[seq%2], seq+1, false)
	}
	if !o.full() || len(o.all) != maxOutputs {
		t.Errorf("not full with %d entries", len(o.all))
	}
	if got := o.of(1); got != conn.AsBinary || len(o.all) != maxOutputs {
		t.Errorf("frame 1: %v, %d entries are left", got, len(o.all))
	}
	if got := o.of(4); got != forms[0] || len(o.all) != maxOutputs-3 || o.full() {
		t.Errorf("frame 4: %v, %d entries are left", got, len(o.all))
	}
}
