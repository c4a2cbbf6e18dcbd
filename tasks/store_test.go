package tasks

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/stream/coded"
	"millrace/tasks/blob"
)

// rig is a store on an embedded server in a folder.
type rig struct {
	*Store
	t      testing.TB
	dir    string
	broker *Broker
}

func open(t testing.TB, dir string, o Options) *rig {
	t.Helper()
	b, err := Embed(storeFolder(dir), true, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	r := &rig{t: t, dir: dir, broker: b}
	r.Store = r.another(o)
	return r
}

// another opens a second store of the same broker, as another process would.
func (r *rig) another(o Options) *Store {
	r.t.Helper()
	files, err := blob.OpenFiles(filepath.Join(r.dir, "files"), blob.FilesOptions{Sync: true})
	if err != nil {
		r.t.Fatal(err)
	}
	s, err := Open(r.t.Context(), r.broker, files, o)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

func text(s string) func(blob.Writer) error {
	return func(w blob.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

func (r *rig) submit(t Task, input string) Task {
	r.t.Helper()
	t, there, err := r.Submit(r.t.Context(), Submission{Task: t, Data: text(input)})
	if err != nil || there {
		r.t.Fatalf("submit: %v, there: %v", err, there)
	}
	return t
}

func claim(t testing.TB, s *Store) *StoreClaim {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	c, err := s.Claim(ctx, "tester", func(string) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// write makes the result of a claim: the input and an exclamation mark.
func write(t testing.TB, c Claim) File {
	t.Helper()
	in, err := c.Input()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	out, err := c.Create()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(out, "!")
	info, err := out.Commit()
	if err != nil {
		t.Fatal(err)
	}
	return File{Info: info, Type: "text/plain"}
}

func finish(t testing.TB, c *StoreClaim) error {
	t.Helper()
	return c.Finish(write(t, c))
}

func (r *rig) result(id string) string {
	r.t.Helper()
	t, err := r.Get(id)
	if err != nil {
		r.t.Fatal(err)
	}
	f, err := r.Result(r.t.Context(), t)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(f)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := t.Result.Check(strings.NewReader(string(b))); err != nil {
		r.t.Error(err)
	}
	return string(b)
}

// TestTask: a task is queued, runs, finishes, is there after a restart, and is deleted with its files.
func TestTask(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, Options{})
	task := r.submit(Task{Model: "m", Owner: "eva"}, "hello")
	if task.State != Queued || task.Input.Size != 5 || CheckID(task.ID) != nil {
		t.Fatalf("submitted: %+v", task)
	}
	c := claim(t, r.Store)
	if now, _ := r.Get(task.ID); now.State != Running || now.Attempt != 1 || now.Consumer != "tester" {
		t.Fatalf("claimed: %+v", now)
	}
	if err := r.Delete(t.Context(), task.ID); coded.CodeOf(err) != coded.Conflict {
		t.Errorf("a running task is deleted: %v", err)
	}
	if err := finish(t, c); err != nil {
		t.Fatal(err)
	}
	r.broker.Close()

	r = open(t, dir, Options{})
	if got := r.result(task.ID); got != "hello!" {
		t.Errorf("after a restart the result is %q", got)
	}
	if err := r.Delete(t.Context(), task.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Get(task.ID); coded.CodeOf(err) != coded.NotFound {
		t.Errorf("after the deletion: %v", err)
	}
	if n := stored(t, r.dir); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}

// TestOrder: the next task is the one with the highest priority, then the earliest, of the consumer's models.
func TestOrder(t *testing.T) {
	r := open(t, t.TempDir(), Options{})
	for _, n := range []struct {
		name, model string
		priority    int
	}{{"a", "m", 0}, {"b", "other", 9}, {"c", "m", 1}, {"d", "m", 1}, {"e", "m", -1}} {
		r.submit(Task{Model: n.model, Priority: n.priority}, n.name)
		time.Sleep(2 * time.Millisecond) // ids have the millisecond
	}
	got := ""
	for range 4 {
		c, err := r.Claim(t.Context(), "tester", func(model string) bool { return model == "m" })
		if err != nil {
			t.Fatal(err)
		}
		in, err := c.Input()
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(in)
		_ = in.Close()
		got += string(b)
	}
	if got != "cdae" {
		t.Errorf("the order is %s, want cdae", got)
	}
}

// TestOneConsumerWins: of two processes that claim one task, one gets the task; a late result is refused and deleted.
func TestOneConsumerWins(t *testing.T) {
	r := open(t, t.TempDir(), Options{})
	other := r.another(Options{})
	task := r.submit(Task{Model: "m"}, "x")
	first := claim(t, r.Store)
	late := write(t, first)

	// The other process takes the task, as after the end of the lease.
	lapse(t, other, task.ID)
	second := claim(t, other)
	if second.Task().Attempt != 2 {
		t.Fatalf("attempt %d, want 2", second.Task().Attempt)
	}
	<-first.Context().Done()
	if err := first.Finish(late); coded.CodeOf(err) != coded.Canceled {
		t.Errorf("the late consumer's result: %v", err)
	}
	if _, err := r.blobs.Open(t.Context(), resultKey(task.ID, 1)); coded.CodeOf(err) != coded.NotFound {
		t.Errorf("the late consumer's file: %v", err)
	}
	if err := finish(t, second); err != nil {
		t.Error(err)
	}
	waitFor(t, func() bool { now, err := r.Get(task.ID); return err == nil && now.State == Finished })
	if got := r.result(task.ID); got != "x!" {
		t.Errorf("the result is %q", got)
	}
}

// lapse does in s what is due when the lease of a running task is over.
func lapse(t testing.TB, s *Store, id string) {
	t.Helper()
	waitFor(t, func() bool { task, err := s.Get(id); return err == nil && task.State == Running })
	s.handleDue(t.Context(), momentOf(time.Now().Add(s.opts.Lease+time.Second)))
}

func waitFor(t testing.TB, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited for 20 s")
		}
	}
}

// TestLostConsumers: a task whose consumers are lost as often as it may be tried fails, and can be retried.
func TestLostConsumers(t *testing.T) {
	r := open(t, t.TempDir(), Options{})
	task := r.submit(Task{Model: "m", Attempts: 2}, "x")
	for range 2 {
		claim(t, r.Store)
		lapse(t, r.Store, task.ID)
	}
	now, _ := r.Get(task.ID)
	if now.State != Failed || now.Error == nil || now.Error.Code != string(coded.Unavailable) {
		t.Fatalf("after two lost consumers: %+v", now)
	}
	if _, err := r.Retry(t.Context(), task.ID, nil); err != nil {
		t.Fatal(err)
	}
	if c := claim(t, r.Store); c.Task().Attempt != 3 || c.Task().LastAttempt != 4 {
		t.Errorf("after the retry: %+v", c.Task())
	} else if err := finish(t, c); err != nil {
		t.Error(err)
	}
	if _, err := r.Retry(t.Context(), task.ID, nil); coded.CodeOf(err) != coded.Conflict {
		t.Errorf("a finished task is queued again: %v", err)
	}
}

// TestFailedAttempts: a failed attempt is repeated after a wait, the last one is final.
func TestFailedAttempts(t *testing.T) {
	r := open(t, t.TempDir(), Options{})
	task := r.submit(Task{Model: "m", Attempts: 2}, "x")
	if err := claim(t, r.Store).Fail(Failure{"internal", "no luck"}, true); err != nil {
		t.Fatal(err)
	}
	now, _ := r.Get(task.ID)
	if now.State != Queued || !now.NotBefore.After(time.Now()) {
		t.Fatalf("after the first failure: %+v", now)
	}
	r.handleDue(t.Context(), momentOf(now.NotBefore.Add(time.Second)))
	if err := claim(t, r.Store).Fail(Failure{"internal", "no luck"}, true); err != nil {
		t.Fatal(err)
	}
	if now, _ = r.Get(task.ID); now.State != Failed || now.Error.Message != "no luck" {
		t.Errorf("after the last failure: %+v", now)
	}
}

// TestTimes: a task begins no earlier than NotBefore, expires at Expires, and is deleted after its retention.
func TestTimes(t *testing.T) {
	r := open(t, t.TempDir(), Options{Retention: time.Hour})
	soon := time.Now().Add(time.Minute).UTC()
	later := r.submit(Task{Model: "m", NotBefore: soon}, "x")
	ends := r.submit(Task{Model: "m", NotBefore: soon, Expires: soon.Add(-time.Second)}, "x")
	r.mu.Lock()
	if e := r.index.next(func(string) bool { return true }); e != nil {
		t.Errorf("%s may begin too early", e.ID)
	}
	r.mu.Unlock()
	r.handleDue(t.Context(), momentOf(soon))
	if now, _ := r.Get(ends.ID); now.State != Expired {
		t.Errorf("the task that expires is %s", now.State)
	}
	c := claim(t, r.Store)
	if c.Task().ID != later.ID {
		t.Errorf("claimed %s", c.Task().ID)
	}
	if err := finish(t, c); err != nil {
		t.Fatal(err)
	}
	r.handleDue(t.Context(), momentOf(time.Now().Add(2*time.Hour)))
	if n := len(r.index.ids); n != 0 {
		t.Errorf("%d tasks are left after their retention", n)
	}
}

// TestCancel: a cancelled task tells its consumer, and has no result.
func TestCancel(t *testing.T) {
	r := open(t, t.TempDir(), Options{})
	task := r.submit(Task{Model: "m"}, "x")
	c := claim(t, r.Store)
	late := write(t, c)
	if _, err := r.Cancel(t.Context(), task.ID); err != nil {
		t.Fatal(err)
	}
	<-c.Context().Done()
	if err := c.Finish(late); coded.CodeOf(err) != coded.Canceled {
		t.Errorf("the result of a cancelled task: %v", err)
	}
	if _, err := r.Cancel(t.Context(), task.ID); coded.CodeOf(err) != coded.Conflict {
		t.Errorf("cancelled twice: %v", err)
	}
	if now, _ := r.Get(task.ID); now.State != Cancelled {
		t.Errorf("the task is %s", now.State)
	}
}

// TestKey: two submissions with one key of one owner are one task.
func TestKey(t *testing.T) {
	r := open(t, t.TempDir(), Options{})
	n := Submission{Task: Task{Model: "m", Owner: "eva", Key: "order 7"}, Data: text("x")}
	a, there, err := r.Submit(t.Context(), n)
	if err != nil || there {
		t.Fatal(err, there)
	}
	b, there, err := r.another(Options{}).Submit(t.Context(), n)
	if err != nil || !there || a.ID != b.ID {
		t.Errorf("the second submission: %s, there %v, %v; want %s", b.ID, there, err, a.ID)
	}
	n.Owner = "adam"
	if c, there, err := r.Submit(t.Context(), n); err != nil || there || c.ID == a.ID {
		t.Errorf("the submission of another owner: %s, there %v, %v", c.ID, there, err)
	}
}

// TestFailedSubmission: a submission whose input does not arrive leaves neither a file nor its key.
func TestFailedSubmission(t *testing.T) {
	r := open(t, t.TempDir(), Options{})
	n := Submission{Task: Task{Model: "m", Key: "k"}, Data: func(blob.Writer) error { return io.ErrUnexpectedEOF }}
	if _, _, err := r.Submit(t.Context(), n); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	if keys, err := r.kv.Keys(t.Context()); !errors.Is(err, jetstream.ErrNoKeysFound) || stored(t, r.dir) != 0 {
		t.Errorf("keys %v, %v; %d bytes", keys, err, stored(t, r.dir))
	}
}

// TestKeyAtOnce: of submissions with one key at once, all get one task, with the input of one of them.
func TestKeyAtOnce(t *testing.T) {
	r := open(t, t.TempDir(), Options{})
	ids := make(chan Task, 8)
	for i := range cap(ids) {
		go func() {
			n := Submission{Task: Task{Model: "m", Key: "k"}, Data: text(strings.Repeat("x", i+1))}
			task, _, err := r.Submit(t.Context(), n)
			if err != nil {
				t.Error(err)
			}
			ids <- task
		}()
	}
	first := <-ids
	for range cap(ids) - 1 {
		if other := <-ids; other.ID != first.ID {
			t.Errorf("two tasks: %s and %s", first.ID, other.ID)
		}
	}
	in, err := claim(t, r.Store).Input()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	if err := first.Input.Check(in); err != nil {
		t.Error(err)
	}
	if n := stored(t, r.dir); n != first.Input.Size {
		t.Errorf("%d bytes are stored, want %d", n, first.Input.Size)
	}
}

// TestMaxBytes: a store with too many bytes refuses until a task is deleted.
func TestMaxBytes(t *testing.T) {
	r := open(t, t.TempDir(), Options{MaxBytes: 3})
	task := r.submit(Task{Model: "m"}, "four")
	n := Submission{Task: Task{Model: "m"}, Data: text("x")}
	var coding *coded.Error
	if _, _, err := r.Submit(t.Context(), n); !errors.As(err, &coding) || coding.Field != "tasks.max_bytes" {
		t.Errorf("the second task: %v", err)
	}
	if err := r.Delete(t.Context(), task.ID); err != nil {
		t.Fatal(err)
	}
	r.submit(Task{Model: "m"}, "x")
}

// TestRelease: a released task is queued at once, and the attempt does not count.
func TestRelease(t *testing.T) {
	r := open(t, t.TempDir(), Options{})
	r.submit(Task{Model: "m", Attempts: 1}, "x")
	if err := claim(t, r.Store).Release(); err != nil {
		t.Fatal(err)
	}
	if err := finish(t, claim(t, r.Store)); err != nil {
		t.Error(err)
	}
}

// TestMaxWaiting: a full store refuses, and keeps what it has.
func TestMaxWaiting(t *testing.T) {
	r := open(t, t.TempDir(), Options{MaxWaiting: 2})
	for range 2 {
		r.submit(Task{Model: "m"}, "x")
	}
	_, _, err := r.Submit(t.Context(), Submission{Task: Task{Model: "m"}, Data: text("x")})
	var coding *coded.Error
	if !errors.As(err, &coding) || coding.Code != coded.Overloaded || coding.Field != "tasks.max_waiting" {
		t.Errorf("the third task: %v", err)
	}
}
