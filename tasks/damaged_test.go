package tasks

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/stream/coded"
)

// flip changes one byte of a stored file.
func flip(t *testing.T, dir, key string) {
	t.Helper()
	name := filepath.Join(dir, "files", key)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedFiles: a model does not get a damaged input, and a client no damaged result. The messages name the task.
func TestDamagedFiles(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, Options{})
	damaged := r.submit(Task{Model: "m"}, "an input")
	flip(t, dir, inputKey(damaged.ID))
	ran := make(chan string, 2)
	consume(t, r.Store, 1, 0, func(c Claim) (File, error) {
		in, err := c.Input()
		if err != nil {
			return File{}, err
		}
		_ = in.Close()
		ran <- c.Task().ID
		return write(t, c), nil
	})
	waitFor(t, func() bool { now, _ := r.Get(damaged.ID); return now.State == Failed })
	if now, _ := r.Get(damaged.ID); now.Attempt != 1 || !strings.Contains(now.Error.Message, damaged.ID) ||
		!strings.Contains(now.Error.Message, "damaged") {
		t.Errorf("the task with a damaged input: %+v, %+v", now, now.Error)
	}
	good := r.submit(Task{Model: "m"}, "an input")
	waitFor(t, func() bool { now, _ := r.Get(good.ID); return now.State == Finished })
	if id := <-ran; id != good.ID || len(ran) > 0 {
		t.Errorf("the model got the input of %s", id)
	}
	if got := r.result(good.ID); got != "an input!" {
		t.Errorf("the result is %q", got)
	}
	flip(t, dir, resultKey(good.ID, 1))
	now, _ := r.Get(good.ID)
	if _, err := r.Result(t.Context(), now); coded.CodeOf(err) != coded.Internal ||
		!strings.Contains(err.Error(), good.ID) {
		t.Errorf("a damaged result: %v", err)
	}
}
