package tasks

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go/jetstream"
)

// openInterval opens a data folder as with tasks.sync interval.
func openInterval(t *testing.T, dir string) *Data {
	t.Helper()
	d, err := OpenData(t.Context(), dir, false, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// recordState returns the state in the record of a task.
func recordState(t *testing.T, s *Store, id string) State {
	t.Helper()
	e, err := s.kv.Get(t.Context(), taskPrefix+id)
	if err != nil {
		t.Fatal(err)
	}
	task, _, err := decode(e.Value())
	if err != nil {
		t.Fatal(err)
	}
	return task.State
}

// TestBegun: with tasks.sync interval, an attempt begins without a revision, and the next start knows the attempt.
// Lines of attempts that have ended, or were cut off, count for nothing. Zeros before a line are no part of the line.
func TestBegun(t *testing.T) {
	dir := t.TempDir()
	d := openInterval(t, dir)
	r := &rig{Store: d.Store, t: t}
	ended := r.submit(Task{Model: "m", Priority: 3}, "x")
	begun := r.submit(Task{Model: "m", Priority: 2}, "x")
	queued := r.submit(Task{Model: "m", Priority: 1}, "x")
	if err := finish(t, claim(t, d.Store)); err != nil {
		t.Fatal(err)
	}
	c := claim(t, d.Store)
	if got, state := c.Task(), recordState(t, d.Store, begun.ID); got.ID != begun.ID || got.State != Running ||
		got.Attempt != 1 || state != Queued {
		t.Fatalf("%+v, and the record says %s", got, state)
	}
	d.Close()
	name := filepath.Join(dir, begunName)
	text, err := os.ReadFile(name)
	if err != nil || bytes.Count(text, []byte("\n")) != 2 {
		t.Fatalf("%s, %v", text, err)
	}
	cut := bytes.ReplaceAll(text[:bytes.IndexByte(text, '\n')-3], []byte(ended.ID), []byte(queued.ID))
	first := bytes.IndexByte(text, '\n') + 1
	clear(text[:first]) // lost bytes, with the line break
	if err := os.WriteFile(name, append(text, cut...), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, open := range []func(*testing.T, string) *Data{openData, openInterval} {
		d = open(t, dir)
		for id, want := range map[string]struct {
			state   State
			attempt int
		}{ended.ID: {Finished, 1}, begun.ID: {Running, 1}, queued.ID: {Queued, 0}} {
			got, err := d.Get(id)
			if err != nil || got.State != want.state || got.Attempt != want.attempt ||
				recordState(t, d.Store, id) != want.state {
				t.Errorf("%s is %+v, %v, want %v", id, got, err, want)
			}
		}
		if st := d.Stats(); st.Attempts != 0 || st.Found != 2 {
			t.Errorf("after the start: %+v", st)
		}
		d.Close()
	}
}

// TestBegunIsNotReplaced: a change or a deletion that was decided before an attempt has begun does not replace the
// attempt, and an attempt that begins during a change is a revision.
func TestBegunIsNotReplaced(t *testing.T) {
	d := openInterval(t, t.TempDir())
	r := &rig{Store: d.Store, t: t}
	task := r.submit(Task{Model: "m"}, "x")
	d.Store.mu.Lock()
	revision := d.index.tasks[task.ID].revision
	d.Store.mu.Unlock()
	c := claim(t, d.Store)
	cancelled := task
	cancelled.State = Cancelled
	if _, err := d.Store.write(t.Context(), cancelled, nil, revision); !errors.Is(err, errStale) {
		t.Errorf("a change decided before: %v", err)
	}
	if err := d.Store.remove(t.Context(), task, revision); !errors.Is(err, errStale) {
		t.Errorf("a deletion decided before: %v", err)
	}
	if _, err := d.Cancel(t.Context(), task.ID); err != nil {
		t.Fatal(err)
	}
	if err := c.Finish(File{}); !errors.Is(err, ErrClaimLost) {
		t.Errorf("the cancelled attempt: %v", err)
	}
	if got, err := d.Get(task.ID); err != nil || got.State != Cancelled || got.Attempt != 1 {
		t.Errorf("%+v, %v", got, err)
	}

	task = r.submit(Task{Model: "m"}, "x")
	release, err := d.Store.reserveChange(&task)
	if err != nil {
		t.Fatal(err)
	}
	c = claim(t, d.Store)
	if state := recordState(t, d.Store, task.ID); state != Running {
		t.Errorf("the record says %s", state)
	}
	release()
	if err := finish(t, c); err != nil {
		t.Error(err)
	}
}

// TestBegunIsShortened: the file keeps the attempts that run, and few others.
func TestBegunIsShortened(t *testing.T) {
	dir := t.TempDir()
	d := openInterval(t, dir)
	r := &rig{Store: d.Store, t: t}
	first := r.submit(Task{Model: "m"}, "x")
	claim(t, d.Store)
	other := r.submit(Task{Model: "m"}, "x")
	for range 3 * maxBegun {
		d.begun.mu.Lock()
		if !d.Store.addBegun(&other) {
			t.Error("the file cannot be written")
		}
		d.begun.mu.Unlock()
	}
	text, err := os.ReadFile(filepath.Join(dir, begunName))
	if n := bytes.Count(text, []byte("\n")); err != nil || n > maxBegun || !bytes.Contains(text, []byte(first.ID)) {
		t.Errorf("%d lines, with the first: %v, %v", n, bytes.Contains(text, []byte(first.ID)), err)
	}
}

// TestBegunOnFullDisk: a start succeeds while the records of begun attempts cannot be written, knows the attempts, and
// a later start writes the records.
func TestBegunOnFullDisk(t *testing.T) {
	dir := t.TempDir()
	d := openInterval(t, dir)
	task := (&rig{Store: d.Store, t: t}).submit(Task{Model: "m"}, "x")
	line := fmt.Appendf(nil, `{"id":%q,"attempt":1,"consumer":"c","started":"2026-01-02T03:04:05Z"}`, task.ID)
	if err := os.WriteFile(filepath.Join(dir, begunName), line, 0o600); err != nil {
		t.Fatal(err)
	}
	failing := &failingKV{KeyValue: d.kv}
	d.kv = failing
	if err := d.recoverBegun(t.Context(), dir); err != nil || failing.n != 1 {
		t.Fatalf("%v, %d changes", err, failing.n)
	}
	if got, err := d.Get(task.ID); err != nil || got.State != Running || got.Attempt != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	d.kv = failing.KeyValue
	d.Close()
	d = openInterval(t, dir)
	defer d.Close()
	if state := recordState(t, d.Store, task.ID); state != Running {
		t.Errorf("after another start, the record says %s", state)
	}
}

// failingKV is a bucket without room.
type failingKV struct {
	jetstream.KeyValue
	n int
}

func (f *failingKV) Update(context.Context, string, []byte, uint64) (uint64, error) {
	f.n++
	return 0, errors.New("no room")
}

// TestExportOfBegun: an archive has the attempts that have begun without a revision.
func TestExportOfBegun(t *testing.T) {
	dir := t.TempDir()
	d := openInterval(t, dir)
	task := (&rig{Store: d.Store, t: t}).submit(Task{Model: "m"}, "x")
	claim(t, d.Store)
	d.Close()
	var archive bytes.Buffer
	if _, err := Export(t.Context(), dir, &archive, ArchiveOptions{}); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "data")
	if _, err := Import(t.Context(), to, &archive, ArchiveOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := openInterval(t, to).Get(task.ID); err != nil || got.State != Running || got.Attempt != 1 {
		t.Errorf("%+v, %v", got, err)
	}
}
