package textfile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// file writes a file with a time of change.
func file(t *testing.T, path, text string, changed time.Time) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, changed, changed)); err != nil {
		t.Fatal(err)
	}
}

func fifo(t *testing.T, path string) {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
}

type rig struct {
	*Watched[string]
	path string
	now  time.Time
	mu   sync.Mutex
	told []string
}

func newRig(t *testing.T, text string) *rig {
	t.Helper()
	r := &rig{path: filepath.Join(t.TempDir(), "f"), now: time.Now()}
	file(t, r.path, text, r.now.Add(-time.Hour))
	w, err := Open(Options[string]{
		Paths: []string{r.path}, MaxSize: 1 << 10, Every: time.Second,
		Parse: func(texts [][]byte) (string, error) {
			if strings.Contains(string(texts[0]), "bad") {
				return "", errors.New("is bad")
			}
			return string(texts[0]), nil
		},
		Failed: func(err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if err == nil {
				err = errors.New("well")
			}
			r.told = append(r.told, err.Error())
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Watched, r.now = w, time.Now()
	return r
}

// has checks the value of the file after some seconds, and the reports since the previous check.
func (r *rig) has(t *testing.T, after time.Duration, want, told string) {
	t.Helper()
	r.now = r.now.Add(after)
	if got := r.Get(r.now); got != want {
		t.Errorf("%q, want %q", got, want)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if all := strings.Join(r.told, "; "); (all == "") != (told == "") || !strings.Contains(all, told) {
		t.Errorf("told %q, want %q", all, told)
	}
	r.told = nil
}

func TestDamagedFilesAreNotTaken(t *testing.T) {
	for _, c := range []struct{ name, text, told string }{
		{"empty", "", "is empty"},
		{"blank", " \n\n", "is empty"},
		{"comment", "# to be written\n---\n", "is empty"},
		{"cut", "one\ntw", "no line end"},
		{"zeros", "one\n\x00\x00\x00\n", "zero byte"},
		{"refused", "bad\n", "is bad"},
		{"large", strings.Repeat("x\n", 1<<10), "larger than 1KiB"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, "one\ntwo\n")
			file(t, r.path, c.text, r.now.Add(-time.Minute))
			r.has(t, time.Second, "one\ntwo\n", c.told)
			r.has(t, time.Second, "one\ntwo\n", "")
			file(t, r.path, "three\n", r.now.Add(-time.Minute))
			r.has(t, time.Second, "three\n", "well")
		})
	}
}

func TestChangingFilesAreNotTaken(t *testing.T) {
	r := newRig(t, "one\n")
	for i := range 5 {
		file(t, r.path, strings.Repeat("two\n", i+1), r.now.Add(time.Second))
		r.has(t, time.Second, "one\n", "")
	}
	r.has(t, time.Second, strings.Repeat("two\n", 5), "")
	file(t, r.path, "three\n", r.now.Add(time.Hour)) // a wrong clock
	r.has(t, time.Second, strings.Repeat("two\n", 5), "")
	r.has(t, time.Second, "three\n", "")
	file(t, r.path, "four\n", r.now.Add(time.Second))
	r.Recheck()
	r.has(t, 0, "four\n", "")
}

func TestBlankAtFirst(t *testing.T) {
	r := newRig(t, "# none\n")
	file(t, r.path, "\n", r.now.Add(-time.Minute))
	r.has(t, time.Second, "\n", "")
}

// TestFIFO: a FIFO held open by a writer replaces a file.
func TestFIFO(t *testing.T) {
	r := newRig(t, "one\n")
	if err := os.Remove(r.path); err != nil {
		t.Fatal(err)
	}
	r.has(t, time.Second, "one\n", "no such file")
	fifo(t, r.path)
	r.has(t, time.Second, "one\n", "not a regular file")
	if text, err := Read(r.path, 10); err == nil || !strings.Contains(err.Error(), "no program has written to it") {
		t.Errorf("%q, %v", text, err)
	}
	w, err := os.OpenFile(r.path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = w.Close() }()
	if _, err := Read(r.path, 10); err == nil || !strings.Contains(err.Error(), "writer holds it open") {
		t.Error(err)
	}
	if _, err := ReadChanged(t.Context(), r.path, 10, ShapeOf([]byte("one\n"))); err == nil {
		t.Error("is read again")
	}
}

// A look that does not end delays one Get for a short time, and no further Get.
func TestHungLook(t *testing.T) {
	r := newRig(t, "one\n")
	hang := make(chan struct{})
	parse := r.Parse
	r.Parse = func(texts [][]byte) (string, error) { <-hang; return parse(texts) }
	file(t, r.path, "two\n", r.now.Add(-time.Minute))
	r.has(t, time.Second, "one\n", "does not answer")
	for range 1000 { // 250 s if each waited
		r.has(t, time.Second, "one\n", "")
	}
	r.mu.Lock()
	looking := r.looking
	r.mu.Unlock()
	close(hang)
	<-looking
	r.has(t, 0, "two\n", "well")
}

func TestAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	old := ShapeOf([]byte("one\n"))
	now := time.Now()
	file(t, path, "two\n", now.Add(-time.Minute))
	if text, err := ReadChanged(t.Context(), path, 10, old); string(text) != "two\n" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	file(t, path, "", now.Add(-time.Minute))
	if _, err := ReadChanged(t.Context(), path, 10, old); err == nil || !strings.Contains(err.Error(), "is empty") {
		t.Error(err)
	}
	if _, err := ReadChanged(t.Context(), path, 10, Shape{}); err != nil { // at the start
		t.Error(err)
	}
	file(t, path, "three\n", now.Add(time.Hour)) // maybe still being written
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ReadChanged(ctx, path, 10, old); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	// two looks have found the same
	if text, err := ReadChanged(t.Context(), path, 10, old); string(text) != "three\n" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}

func TestReread(t *testing.T) {
	r := newRig(t, "one\n")
	file(t, r.path, "two\n", r.now.Add(time.Hour))
	if err := r.Reread(); err != nil {
		t.Error(err)
	}
	r.has(t, 0, "two\n", "")
	file(t, r.path, "", r.now.Add(time.Hour))
	if err := r.Reread(); err == nil {
		t.Error("an empty file was taken")
	}
	r.has(t, 0, "two\n", "is empty")
}

func TestGuard(t *testing.T) {
	var g Guard
	if _, err := Guarded(&g, "f", func() (int, error) { return 0, os.ErrNotExist }); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if n, err := Guarded(&g, "f", func() (int, error) { return 7, nil }); n != 7 || err != nil {
		t.Error(n, err)
	}
	g.hung.Add(1)
	if _, err := Guarded(&g, "f", func() (int, error) { t.Error("called"); return 0, nil }); err == nil {
		t.Error("a call while another hangs")
	}
}
