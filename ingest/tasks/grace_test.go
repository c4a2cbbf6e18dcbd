package tasks

import (
	"log/slog"
	"os"
	"testing"
	"time"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/tasks"
	"millrace/tasks/blob"
)

// ownersRig is an adapter with a task of the key "other", which the file of keys does not have.
type ownersRig struct {
	*Adapter
	t       *testing.T
	clients *access.Access
	keys    string // the file
	task    string
}

func newOwnersRig(t *testing.T) *ownersRig {
	log, file := slog.New(slog.DiscardHandler), t.TempDir()+"/keys.yaml"
	key, _ := access.NewKey("a", access.Grant{Roles: []string{"infer"}})
	if err := access.WriteKeys(file, []access.Key{key}); err != nil {
		t.Fatal(err)
	}
	clients, err := access.New(access.Options{Keys: file, Log: log})
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
	return &ownersRig{&Adapter{opts: Options{Data: d, Log: log}, gate: ingest.NewGate(nil, clients)}, t, clients, file,
		task.ID}
}

// has checks the state of the task.
func (r *ownersRig) has(want tasks.State) {
	r.t.Helper()
	if got, err := r.opts.Data.Get(r.task); err != nil || got.State != want {
		r.t.Errorf("%s, %v, want %s", got.State, err, want)
	}
}

// TestGrace: several servers get a changed file of keys one after the other, so the tasks of an unknown owner stay for
// sharedGrace.
func TestGrace(t *testing.T) {
	r := newOwnersRig(t)
	now, known := time.Now(), map[string]*owner{}
	for _, c := range []struct {
		after time.Duration
		want  tasks.State
	}{{0, tasks.Queued}, {sharedGrace - time.Second, tasks.Queued}, {sharedGrace, tasks.Cancelled}} {
		known = r.checkOwners(t.Context(), known, sharedGrace, now.Add(c.after))
		r.has(c.want)
	}
}

// TestOwnersOfDamagedFile: a server whose file of keys cannot be read again cancels no task of a key that the server
// does not know: another server may know the key.
func TestOwnersOfDamagedFile(t *testing.T) {
	r := newOwnersRig(t)
	if err := os.WriteFile(r.keys, []byte("half: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	now, known := time.Now(), map[string]*owner{}
	for _, after := range []time.Duration{0, time.Hour} {
		r.clients.Recheck()
		known = r.checkOwners(t.Context(), known, sharedGrace, now.Add(after))
		r.has(tasks.Queued)
	}
}

// TestOwnersWithoutSetting: a server without the setting of a way to authenticate cancels no task of the way's clients.
func TestOwnersWithoutSetting(t *testing.T) {
	r := newOwnersRig(t)
	own, err := access.New(access.Options{Key: "secret of the server"})
	if err != nil {
		t.Fatal(err)
	}
	r.gate = ingest.NewGate(nil, own)
	r.checkOwners(t.Context(), map[string]*owner{}, 0, time.Now())
	r.has(tasks.Queued)
}
