package tasks

import (
	"log/slog"
	"testing"
	"time"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/tasks"
	"millrace/tasks/blob"
)

// TestGrace: several servers get a changed file of keys one after the other, so the tasks of an unknown owner stay for
// sharedGrace.
func TestGrace(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	clients, err := access.New(access.Options{Key: "secret of the server", Log: log})
	if err != nil {
		t.Fatal(err)
	}
	d, err := tasks.OpenData(t.Context(), t.TempDir(), false, tasks.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	task, _, err := d.Submit(t.Context(), tasks.Submission{Task: tasks.Task{Model: "m", Owner: "key:other"},
		Data: func(blob.Writer) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	a := &Adapter{opts: Options{Data: d, Log: log}, gate: ingest.NewGate(nil, clients)}
	now, known := time.Now(), map[string]*owner{}
	for _, c := range []struct {
		after time.Duration
		want  tasks.State
	}{{0, tasks.Queued}, {sharedGrace - time.Second, tasks.Queued}, {sharedGrace, tasks.Cancelled}} {
		known = a.checkOwners(t.Context(), known, sharedGrace, now.Add(c.after))
		if got, err := d.Get(task.ID); err != nil || got.State != c.want {
			t.Errorf("after %v: %s, %v, want %s", c.after, got.State, err, c.want)
		}
	}
}
