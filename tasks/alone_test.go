package tasks

import (
	"testing"

	"millrace/stream/coded"
)

// TestAlone: a store that has the bucket alone follows no changes, and reads all records after a change of unknown
// outcome. A task that is deleted meanwhile stays deleted.
func TestAlone(t *testing.T) {
	d := openData(t, t.TempDir())
	r := &rig{Store: d.Store, t: t}
	own := d.kv.(boundedKV).KeyValue.(*ownBucket)
	deleted := r.submit(Task{Model: "m"}, "x")
	if err := d.Delete(t.Context(), deleted.ID); err != nil {
		t.Fatal(err)
	}
	unknown := deleted
	unknown.ID = newID(deleted.Created)
	if _, err := d.kv.Create(t.Context(), taskPrefix+unknown.ID, encode(unknown, contents{})); err != nil {
		t.Fatal(err)
	}
	later := r.submit(Task{Model: "m"}, "x")
	if _, err := d.Get(unknown.ID); coded.CodeOf(err) != coded.NotFound {
		t.Errorf("the change of another: %v", err)
	}
	own.signalReread()
	waitFor(t, func() bool { _, err := d.Get(unknown.ID); return err == nil })
	waitFor(t, func() bool { d.mu.Lock(); defer d.mu.Unlock(); return !d.index.followed })
	if err := d.Delete(t.Context(), later.ID); err != nil {
		t.Fatal(err)
	}
	if list, _ := d.List(Query{Limit: 10}); len(list) != 1 || len(d.index.tombstones) != 0 {
		t.Errorf("%d tasks, deletions to wait for: %v", len(list), d.index.tombstones)
	}
}
