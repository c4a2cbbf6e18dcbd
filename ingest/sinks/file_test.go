//go:build unix

package sinks

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func openFile(path string) *file {
	return Open(&File{Path: path}, Env{Stream: "door", Log: slog.New(slog.DiscardHandler)}).(*file)
}

// An incomplete line after a crash or on a full disk damages no later line.
func TestTornLine(t *testing.T) {
	for before, want := range map[string]string{
		"":                 `{"seq":1}` + "\n",
		"{\"seq\":0}\n":    "{\"seq\":0}\n{\"seq\":1}\n",
		"{\"seq\":0}\n{\"": "{\"seq\":0}\n{\"\n{\"seq\":1}\n",
	} {
		path := filepath.Join(t.TempDir(), "results.jsonl")
		if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		f := openFile(path)
		f.Write([]byte(`{"seq":1}`))
		if st := f.Stats(); st.Sent != 1 || st.Error != "" {
			t.Errorf("%+v", st)
		}
		if f.size != int64(len(want)) {
			t.Errorf("%d bytes were counted, want %d", f.size, len(want))
		}
		f.Close()
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("%v: %q became %q, want %q", err, before, text, want)
		}
	}
}

// The same with a real write that stops in the middle of a line, in a separate process, because the limit is for all
// writes of a process.
func TestShortWrite(t *testing.T) {
	const asked = "MILLRACE_SHORT_WRITE"
	path := os.Getenv(asked)
	if path == "" {
		path = filepath.Join(t.TempDir(), "results.jsonl")
		cmd := exec.Command(os.Args[0], "-test.run=^TestShortWrite$")
		cmd.Env = append(os.Environ(), asked+"="+path)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		const want = "{\"seq\":0}\n{\"seq\"\n{\"seq\":2}\n{\"seq\":3}\n"
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("%v: %q, want %q", err, text, want)
		}
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	room := limit.Cur
	f := openFile(path)
	defer f.Close()
	for seq := range 4 {
		if limit.Cur = room; seq == 1 {
			limit.Cur = 16 // 6 bytes into the line
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
			t.Fatal(err)
		}
		f.Write([]byte(`{"seq":` + string(rune('0'+seq)) + `}`))
		if st := f.Stats(); (st.Error != "") != (seq == 1) {
			t.Errorf("%d: %+v", seq, st)
		}
	}
	if st := f.Stats(); st.Lost != 1 || st.Sent != 3 {
		t.Errorf("%+v", st)
	}
}

func contents(t *testing.T, path, want string) {
	t.Helper()
	if text, err := os.ReadFile(path); err != nil || string(text) != want {
		t.Errorf("%s has %q, want %q: %v", filepath.Base(path), text, want, err)
	}
}

func counts(t *testing.T, f *file, sent, lost uint64, failure string) {
	t.Helper()
	if st := f.Stats(); st.Sent != sent || st.Lost != lost || (failure == "") != (st.Error == "") ||
		!strings.Contains(st.Error, failure) {
		t.Errorf("%+v, want %d sent, %d lost, %q", st, sent, lost, failure)
	}
}

// Removing, renaming or emptying an open file loses no line counted as sent.
func TestFileIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.jsonl")
	f := openFile(path)
	defer f.Close()
	f.Write([]byte("1"))
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	f.Write([]byte("2")) // as written before the file was renamed
	f.Write([]byte("3"))
	contents(t, path+".old", "1\n2\n")
	contents(t, path, "3\n")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	f.Write([]byte("4"))
	f.Write([]byte("5"))
	contents(t, path, "4\n5\n")
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	f.Write([]byte("6"))
	contents(t, path, "6\n")
	if f.size != 2 {
		t.Errorf("%d bytes are counted", f.size)
	}
	counts(t, f, 6, 0, "")
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	f.Write([]byte("7"))
	f.Write([]byte("8"))
	counts(t, f, 6, 2, "no such file")
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	f.Write([]byte("9"))
	contents(t, path, "9\n")
	counts(t, f, 7, 2, "")
}

// While nobody reads a FIFO, results are lost and nothing waits.
func TestFIFO(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f := openFile(path)
	defer f.Close()
	f.Write([]byte("1"))
	counts(t, f, 0, 1, "nobody reads")
	r, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	f.Write([]byte("2"))
	counts(t, f, 1, 1, "")
	line := bytes.Repeat([]byte("x"), 1000)
	for range 1000 { // 1 MB: more than the FIFO holds, and 1000 s if each line waited
		f.Write(line)
	}
	st := f.Stats()
	if st.Sent < 10 || st.Lost < 100 || st.Sent+st.Lost != 1002 || !strings.Contains(st.Error, "does not read") {
		t.Errorf("%+v", st)
	}
	text := make([]byte, 1<<20)
	n, err := r.Read(text)
	if err != nil || !bytes.HasPrefix(text, []byte("2\nxxx")) {
		t.Errorf("%d bytes: %v", n, err)
	}
	f.Write([]byte("3"))
	if f.Stats().Sent != st.Sent+1 {
		t.Error("a line is lost although there is room")
	}
}

// A full file that cannot be renamed grows on.
func TestRotationFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results.jsonl")
	in := filepath.Join(path+".1", "in") // a folder with content cannot be replaced
	if err := os.MkdirAll(in, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(path+".2", "in"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(path+".3", "in"), 0o700); err != nil {
		t.Fatal(err)
	}
	f := openFile(path)
	f.max = 100
	defer f.Close()
	line := bytes.Repeat([]byte("x"), 49)
	for range 10 {
		f.Write(line)
	}
	contents(t, path, strings.Repeat(string(line)+"\n", 10))
	counts(t, f, 10, 0, "cannot be renamed")
	for i := range 3 {
		if err := os.RemoveAll(fmt.Sprintf("%s.%d", path, i+1)); err != nil {
			t.Fatal(err)
		}
	}
	f.Write(line)
	contents(t, path+".1", strings.Repeat(string(line)+"\n", 10))
	contents(t, path, string(line)+"\n")
	counts(t, f, 11, 0, "")
}
