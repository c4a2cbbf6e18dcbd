package v1

import (
	"testing"

	"millrace/stream"
)

// The outbox counts noted drops: one entry per noticeRanges ranges, of any reason.
func TestNotedRangesAreCounted(t *testing.T) {
	var p pendingDrops
	entries := 0
	note := func(seq uint64, why stream.Reason) {
		if p.note(seq, why) {
			entries++
		}
	}
	for seq := range uint64(1000) { // a single range
		note(seq, stream.Superseded)
	}
	if entries != 1 {
		t.Errorf("%d entries for one range", entries)
	}
	reasons := []stream.Reason{stream.Superseded, stream.Stale}
	for i := range uint64(10*noticeRanges - 1) {
		note(2000+2*i, reasons[i%2])
	}
	if entries != 10 {
		t.Errorf("%d entries for %d ranges", entries, 10*noticeRanges)
	}
	note(5000, stream.Overtaken)
	if entries != 11 {
		t.Errorf("%d entries for one range more", entries)
	}
	n := 0
	for _, d := range p.take() {
		n += len(d.ranges)
	}
	if n != 10*noticeRanges+1 {
		t.Errorf("%d ranges", n)
	}
	if entries = 0; len(p.take()) != 0 {
		t.Error("what was taken is still noted")
	}
	note(6000, stream.Overtaken)
	if entries != 1 {
		t.Errorf("%d entries for the first drop after they were taken", entries)
	}
}
