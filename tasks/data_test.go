package tasks

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"millrace/stream/coded"
	"millrace/tasks/blob"
)

func openData(t *testing.T, dir string) *Data {
	t.Helper()
	return openWith(t, dir, Options{})
}

func openWith(t *testing.T, dir string, o Options) *Data {
	t.Helper()
	d, err := OpenData(t.Context(), dir, true, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// stored returns the bytes of all files of tasks in a data folder.
func stored(t *testing.T, dir string) int64 {
	t.Helper()
	var n int64
	err := filepath.WalkDir(filepath.Join(dir, "files"), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestClose: a closed data folder leaves no goroutine.
func TestClose(t *testing.T) {
	openData(t, t.TempDir()).Close()
	before := goleak.IgnoreCurrent() // goroutines that the broker keeps for the process
	openData(t, t.TempDir()).Close()
	goleak.VerifyNone(t, before)
}

// TestDataFolder: a folder belongs to one process, and a folder of a later version is refused.
func TestDataFolder(t *testing.T) {
	dir := t.TempDir()
	d := openData(t, dir)
	if _, err := OpenData(t.Context(), dir, true, Options{}); err == nil ||
		!strings.Contains(err.Error(), "another process") {
		t.Errorf("opened twice: %v", err)
	}
	d.Close()
	d = openData(t, dir)
	d.Close()
	later := fmt.Sprint(formatVersion + 1)
	for text, want := range map[string]string{later: "later version", "x": "no version number"} {
		if err := os.WriteFile(filepath.Join(dir, "version"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenData(t.Context(), dir, true, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("version %q: %v, want %q", text, err, want)
		}
	}
}

// TestSweep: at the start, files without a task are removed, and no others.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	d := openData(t, dir)
	kept, _, err := d.Submit(t.Context(), Submission{Task: Task{Model: "m"}, Data: text("x"), File: true})
	if err != nil {
		t.Fatal(err)
	}
	id := newID(time.Now())
	w, err := d.files.Create(t.Context(), inputKey(id))
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(w, "lost")
	if _, err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	d.Close()
	d = openData(t, dir)
	if _, err := d.files.Open(t.Context(), inputKey(id)); coded.CodeOf(err) != coded.NotFound {
		t.Errorf("the file without a task: %v", err)
	}
	if n := stored(t, dir); n != kept.Input.Size {
		t.Errorf("%d bytes are left, want %d", n, kept.Input.Size)
	}
}

// anyModel serves every model.
type anyModel struct{}

func (anyModel) Serves(string) bool { return true }
func (anyModel) Ready() []string    { return nil }

// handlerFunc is a Handler.
type handlerFunc func(c Claim) (File, error)

func (f handlerFunc) Run(c Claim) (File, error) { return f(c) }

func consume(t *testing.T, s *Store, slots int, grace time.Duration, run handlerFunc) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	k := &Consumer{Source: s, Name: "tester", Slots: slots, Models: anyModel{}, Handler: run, Overlap: true,
		Log: slog.New(slog.DiscardHandler)}
	go func() { k.Run(ctx, grace); close(done) }()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return stop
}

// TestConsumer: a consumer runs as many tasks at once as it has slots, and every task once.
func TestConsumer(t *testing.T) {
	r := open(t, t.TempDir(), Options{})
	var now, most, runs atomic.Int64
	consume(t, r.Store, 3, 0, func(c Claim) (File, error) {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		runs.Add(1)
		time.Sleep(time.Millisecond)
		return write(t, c), nil
	})
	for range 30 {
		r.submit(Task{Model: "m"}, "x")
	}
	waitFor(t, func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.index.counts.Stored[Finished] == 30 })
	if most.Load() > 3 || runs.Load() != 30 {
		t.Errorf("%d tasks at once, %d runs", most.Load(), runs.Load())
	}
}

// fullSource gives tasks whose results find no room on the disk.
type fullSource struct {
	Source
	claims int
}

type fullClaim struct{ Claim }

func (s *fullSource) ClaimFor(context.Context, context.Context, string, Models) (Claim, error) {
	time.Sleep(time.Millisecond)
	s.claims++
	return fullClaim{}, nil
}

func (fullClaim) Task() Task               { return Task{ID: "full"} }
func (fullClaim) Context() context.Context { return context.Background() }
func (fullClaim) Finish(File) error        { return blob.ErrFull }

// TestConsumerOnFullDisk: a consumer pauses after a result that finds no room on the disk.
func TestConsumerOnFullDisk(t *testing.T) {
	for _, overlap := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := &fullSource{}
			k := &Consumer{Source: s, Slots: 1, Models: anyModel{}, Overlap: overlap,
				Log:     slog.New(slog.DiscardHandler),
				Handler: handlerFunc(func(Claim) (File, error) { return File{}, nil })}
			ctx, cancel := context.WithTimeout(t.Context(), 10*claimRetryDelay)
			defer cancel()
			k.Run(ctx, 0)
			if s.claims < 5 || s.claims > 15 {
				t.Errorf("overlap %v: %d tasks were taken in ten pauses", overlap, s.claims)
			}
		})
	}
}

// TestConsumerErrors: an error about the request fails the task at once, another error after the last attempt.
func TestConsumerErrors(t *testing.T) {
	r := open(t, t.TempDir(), Options{})
	consume(t, r.Store, 1, 0, func(c Claim) (File, error) {
		return File{}, coded.Errorf(coded.Code(c.Task().Model), "inputs", "is wrong")
	})
	wrong := r.submit(Task{Model: string(coded.InvalidArgument)}, "x")
	unlucky := r.submit(Task{Model: string(coded.Unavailable)}, "x")
	waitFor(t, func() bool {
		a, _ := r.Get(wrong.ID)
		b, _ := r.Get(unlucky.ID)
		return a.State == Failed && a.Attempt == 1 && a.Error.Message == "inputs: is wrong" &&
			b.State == Queued && b.Attempt == 1
	})
}

// TestDrain: a consumer that ends finishes its task within the grace, and gives back what takes longer.
func TestDrain(t *testing.T) {
	for _, c := range []struct {
		name  string
		grace time.Duration
		want  State
	}{{"within the grace", time.Minute, Finished}, {"without grace", 0, Queued}} {
		t.Run(c.name, func(t *testing.T) {
			r := open(t, t.TempDir(), Options{})
			task := r.submit(Task{Model: "m", Attempts: 1}, "x")
			running, goOn := make(chan bool), make(chan bool)
			stop := consume(t, r.Store, 1, c.grace, func(k Claim) (File, error) {
				f := write(t, k)
				close(running)
				select {
				case <-k.Context().Done():
					return File{}, k.Context().Err()
				case <-goOn:
					return f, nil
				}
			})
			<-running
			if c.grace > 0 {
				go func() { time.Sleep(10 * time.Millisecond); close(goOn) }() // usually after the stop below
			}
			stop()
			if now, _ := r.Get(task.ID); now.State != c.want || now.Attempt != 1 {
				t.Errorf("the task is %s, want %s", now.State, c.want)
			}
		})
	}
}

// TestDraining: an attempt that a server which shuts down has refused does not count.
func TestDraining(t *testing.T) {
	r := open(t, t.TempDir(), Options{})
	task := r.submit(Task{Model: "m", Attempts: 1}, "x")
	var runs atomic.Int64
	consume(t, r.Store, 1, 0, func(c Claim) (File, error) {
		if runs.Add(1) == 1 {
			return File{}, coded.Errorf(coded.Draining, "", "the server is shutting down")
		}
		return write(t, c), nil
	})
	waitFor(t, func() bool { now, _ := r.Get(task.ID); return now.State == Finished })
}

// TestServed: a consumer that begins to serve a model gets the tasks that wait for the model.
func TestServed(t *testing.T) {
	r := open(t, t.TempDir(), Options{})
	task := r.submit(Task{Model: "m"}, "x")
	var serves atomic.Bool
	got := make(chan *StoreClaim)
	go func() {
		c, _ := r.Claim(t.Context(), "tester", func(string) bool { return serves.Load() })
		got <- c
	}()
	waitFor(t, func() bool { r.mu.Lock(); defer r.mu.Unlock(); return r.index.readySignal != nil })
	serves.Store(true)
	r.ModelsChanged()
	if c := <-got; c.Task().ID != task.ID {
		t.Errorf("claimed %s", c.Task().ID)
	}
}

// lostStream opens a data folder after the loss of the records, and returns what the start has logged.
func lostStream(t *testing.T, dir string) (*Data, string) {
	t.Helper()
	if err := os.RemoveAll(storeFolder(dir)); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	d, err := OpenData(t.Context(), dir, true, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d, log.String()
}

// TestLostStream: after the loss of the JetStream folder, finished tasks are there with their results and idempotency
// keys, and the number of lost tasks is logged. A task that is deleted then stays deleted.
func TestLostStream(t *testing.T) {
	dir := t.TempDir()
	d := openWith(t, dir, Options{blobs: true})
	r := &rig{Store: d.Store, t: t}
	task := r.submit(Task{Model: "m", Owner: "eva", Key: "order 7"}, "hello")
	if err := finish(t, claim(t, d.Store)); err != nil {
		t.Fatal(err)
	}
	damaged := r.submit(Task{Model: "m"}, "x")
	if err := finish(t, claim(t, d.Store)); err != nil {
		t.Fatal(err)
	}
	waits := r.submit(Task{Model: "m"}, "waits")
	want, _ := d.Get(task.ID)
	d.Close()
	name := filepath.Join(dir, "files", filepath.FromSlash(recordKey(damaged.ID)))
	if err := os.Truncate(name, 10); err != nil {
		t.Fatal(err)
	}

	d, log := lostStream(t, dir)
	r.Store = d.Store
	if got, err := d.Get(task.ID); err != nil || !bytes.Equal(encode(got, contents{}), encode(want, contents{})) {
		t.Errorf("the finished task: %+v, %v, want %+v", got, err, want)
	}
	if got := r.result(task.ID); got != "hello!" {
		t.Errorf("the result: %q", got)
	}
	if !strings.Contains(log, "restored=1 lost=2") {
		t.Errorf("the log: %s", log)
	}
	if list, _ := d.List(Query{Limit: 10}); len(list) != 1 {
		t.Errorf("%d tasks are listed", len(list))
	}
	if st := d.Stats(); st.Submitted != 0 || st.Stored[Finished] != 1 {
		t.Errorf("the counts: %+v", st)
	}
	for _, id := range []string{damaged.ID, waits.ID} {
		if _, err := d.files.Open(t.Context(), inputKey(id)); coded.CodeOf(err) != coded.NotFound {
			t.Errorf("the input of a lost task: %v", err)
		}
	}
	again, there, err := d.Submit(t.Context(), Submission{Task: Task{Model: "m", Owner: "eva", Key: "order 7"},
		Data: text("hello")})
	if err != nil || !there || again.ID != task.ID {
		t.Errorf("the idempotency key: %s, there %v, %v", again.ID, there, err)
	}

	// The process ends in the middle of a deletion.
	if err := d.kv.Purge(t.Context(), taskPrefix+task.ID); err != nil {
		t.Fatal(err)
	}
	d.Close()
	d = openData(t, dir)
	if _, err := d.Get(task.ID); coded.CodeOf(err) != coded.NotFound || stored(t, dir) != 0 {
		t.Errorf("the deleted task: %v, %d bytes", err, stored(t, dir))
	}
}

// TestMissingRecords: the start writes files with records that are missing.
func TestMissingRecords(t *testing.T) {
	dir := t.TempDir()
	d := openWith(t, dir, Options{blobs: true})
	r := &rig{Store: d.Store, t: t}
	task := r.submit(Task{Model: "m"}, "x")
	if err := finish(t, claim(t, d.Store)); err != nil {
		t.Fatal(err)
	}
	if err := d.files.Delete(t.Context(), recordKey(task.ID)); err != nil {
		t.Fatal(err)
	}
	d.Close()
	openData(t, dir).Close()
	d, _ = lostStream(t, dir)
	if got, err := d.Get(task.ID); err != nil || got.State != Finished {
		t.Errorf("the task: %+v, %v", got, err)
	}
}
