//go:build unix

package sinks

import (
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
)

func openFile(path string) *file {
	return Open(&File{Path: path}, Env{Stream: "door", Log: slog.New(slog.DiscardHandler)}).(*file)
}

// A line that is incomplete because of a crash or a full disk damages no later line.
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

// The same with a real write that stops in the middle of a line. It needs its own
// process, because the limit is for all writes of a process.
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
			limit.Cur = 16 // 6 bytes into its line
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
