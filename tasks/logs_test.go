package tasks

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

func (r *rig) logs(id string) string {
	r.t.Helper()
	b, err := io.ReadAll(r.Logs(r.t.Context(), id))
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

// TestLogs: the log of each attempt is kept while the attempt runs and afterwards, also after a restart, counts in the
// stored bytes and in the usage of the owner, and goes with the task.
func TestLogs(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, Options{})
	task := r.submit(Task{Model: "m", Owner: "eva", Attempts: 2}, "input")
	if got := r.logs(task.ID); got != "" {
		t.Errorf("the log of a task that waits: %q", got)
	}
	c := claim(t, r.Store)
	fmt.Fprintln(c.Log(), "one")
	if got := r.logs(task.ID); got != "one\n" {
		t.Errorf("while the task runs: %q", got)
	}
	if err := c.Fail(Failure{"internal", "no"}, true); err != nil {
		t.Fatal(err)
	}
	now, _ := r.Get(task.ID)
	r.handleDue(t.Context(), momentOf(now.NotBefore.Add(time.Second)))
	c = claim(t, r.Store)
	fmt.Fprintln(c.Log(), "two")
	if err := finish(t, c); err != nil {
		t.Fatal(err)
	}
	r.broker.Close()

	r = open(t, dir, Options{})
	if got := r.logs(task.ID); got != "one\n=== attempt 2 ===\ntwo\n" {
		t.Errorf("after the end: %q", got)
	}
	const want = int64(len("input") + len("input!") + len("one\ntwo\n"))
	now, _ = r.Get(task.ID)
	if used := stored(t, r.dir) - int64(len(encode(now, contents{}))); now.LogBytes != 8 || used != want ||
		r.index.usage["eva"].Bytes != want+recordBytes {
		t.Errorf("%d bytes of logs, %d stored, want 8 and %d; the owner has %d", now.LogBytes, stored(t, r.dir), want,
			r.index.usage["eva"].Bytes)
	}
	if err := r.Delete(t.Context(), task.ID); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(c.Log(), "late") // as a container that ends after the cancellation and the deletion
	if n := stored(t, r.dir); n != 0 {
		t.Errorf("%d bytes are left after the deletion", n)
	}
}

// TestLogBounds: of a log, the last bytes are kept, at most two segments, and of the attempts, the newest three.
func TestLogBounds(t *testing.T) {
	r := open(t, t.TempDir(), Options{})
	task := r.submit(Task{Model: "m"}, "")
	w := claim(t, r.Store).Log()
	line := strings.Repeat("x", 1022) + "\n"
	n := 0
	for n < 5*segmentSize/2 {
		fmt.Fprint(w, line)
		n += len(line)
	}
	fmt.Fprint(w, "the last line\n")
	n += len("the last line\n")
	if used := stored(t, r.dir); used > 2*segmentSize {
		t.Errorf("%d bytes are kept, more than %d", used, 2*segmentSize)
	}
	got := r.logs(task.ID)
	want := fmt.Sprintf("... %d bytes are no longer kept ...\n", segmentSize)
	if !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "x\nthe last line\n") ||
		len(got) != n-segmentSize+len(want) {
		t.Errorf("%d bytes: %.60q ... %q", len(got), got, got[len(got)-20:])
	}
	for attempt := 2; attempt < 6; attempt++ {
		if err := r.AppendLog(t.Context(), task.ID, attempt, 0, []byte("x\n")); err != nil {
			t.Fatal(err)
		}
	}
	want = "=== attempt 3 ===\nx\n=== attempt 4 ===\nx\n=== attempt 5 ===\nx\n"
	if got := r.logs(task.ID); got != want {
		t.Errorf("the attempts: %.100q", got)
	}
}

// TestAppendLog: bytes that the log has are left out of a repeated request, also in a later segment.
func TestAppendLog(t *testing.T) {
	r := open(t, t.TempDir(), Options{})
	task := r.submit(Task{Model: "m"}, "")
	var all []byte
	for i := range 200 {
		all = fmt.Appendf(all, "%8d%s\n", i, strings.Repeat(".", 5000))
	}
	for at := 0; at < len(all); at += 60_000 {
		from := max(0, at-17)
		if err := r.AppendLog(t.Context(), task.ID, 1, int64(from), all[from:min(at+60_000, len(all))]); err != nil {
			t.Fatal(err)
		}
	}
	if got := []byte(r.logs(task.ID)); !bytes.Equal(got, all) {
		t.Errorf("%d bytes, want %d: %q", len(got), len(all), got[len(got)-40:])
	}
}

// TestFollowLog: a reader that follows gets each line when it is written, and ends with the task.
func TestFollowLog(t *testing.T) {
	r := open(t, t.TempDir(), Options{})
	task := r.submit(Task{Model: "m"}, "")
	lines, out := io.Pipe()
	go func() {
		buf, at := make([]byte, 1024), LogPosition{}
		for {
			n, next, err := r.FollowLog(t.Context(), task.ID, at, buf)
			if at = next; n > 0 {
				_, _ = out.Write(buf[:n])
			}
			if err != nil {
				_ = out.CloseWithError(err)
				return
			}
		}
	}()
	c := claim(t, r.Store)
	w, buf := c.Log(), make([]byte, 1024)
	for _, line := range []string{"one\n", "two\n"} {
		fmt.Fprint(w, line)
		if n, err := lines.Read(buf); err != nil || string(buf[:n]) != line {
			t.Fatalf("%q, %v, want %q", buf[:n], err, line)
		}
	}
	if err := finish(t, c); err != nil {
		t.Fatal(err)
	}
	if n, err := lines.Read(buf); err != io.EOF {
		t.Errorf("after the end: %q, %v", buf[:n], err)
	}
}
