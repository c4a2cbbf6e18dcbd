package accept

import (
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// socketFolder returns a folder whose path is short enough for sockets in it.
func socketFolder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "millrace")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// TestSocket: a unix socket has the permissions that were asked for, its connections are counted and bounded with the
// others, what is known of them is kept, and its file is removed at the end.
func TestSocket(t *testing.T) {
	for _, mode := range []fs.FileMode{0o600, 0o660} {
		limit := &Limit{Max: 1, PerAddress: 1, Log: slog.New(slog.DiscardHandler)}
		path := filepath.Join(socketFolder(t), "s")
		l, err := limit.ListenAt("management", "unix:"+path, mode)
		if err != nil {
			t.Fatal(err)
		}
		if at, err := os.Lstat(path); err != nil || at.Mode() != fs.ModeSocket|mode {
			t.Errorf("%v %v, want %v", at.Mode(), err, mode)
		}
		out, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		in, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if MemoryOf(in) == nil || ValueOf(in) == nil || limit.Client(in.RemoteAddr()).IsValid() {
			t.Errorf("%v %v %v", MemoryOf(in), ValueOf(in), limit.Client(in.RemoteAddr()))
		}
		MarkRequestSent(in)
		if n := limit.silent.Len(); n != 0 {
			t.Errorf("%d are silent", n)
		}
		refused, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		accepted := make(chan error, 1)
		go func() {
			_, err := l.Accept()
			accepted <- err
		}()
		if n, err := refused.Read(make([]byte, 1)); n != 0 || err == nil {
			t.Errorf("one too many is not closed: %v", err)
		}
		if st := limit.Stats()["management"]; st != (Stats{Open: 1, Refused: 1}) {
			t.Errorf("%+v", st)
		}
		_, _, _ = in.Close(), out.Close(), refused.Close()
		if err := errors.Join(l.Close(), l.Close()); err != nil {
			t.Error(err)
		}
		if err := <-accepted; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if st := limit.Stats()["management"]; st.Open != 0 {
			t.Errorf("after the end: %+v", st)
		}
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the file is left: %v", err)
		}
	}
}

// TestSocketLeftBehind: the file of a server that was killed is replaced, and that of one which listens, a file of
// another kind, and the socket of a server that has replaced this one's are left alone.
func TestSocketLeftBehind(t *testing.T) {
	limit := &Limit{Log: slog.New(slog.DiscardHandler)}
	dir := socketFolder(t)
	path := filepath.Join(dir, "s")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listen := func() (net.Listener, error) { return limit.ListenAt("management", "unix:"+path, 0o600) }
	if _, err := listen(); !errors.Is(err, syscall.EADDRINUSE) || !strings.HasPrefix(err.Error(), path+" is in use: ") {
		t.Errorf("while another one listens: %v", err)
	}
	left.SetUnlinkOnClose(false)
	_ = left.Close()
	l, err := listen()
	if err != nil {
		t.Fatalf("after it was killed: %v", err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	next, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	_ = l.Close()
	if c, err := net.Dial("unix", path); err != nil {
		t.Errorf("the end of the first has ended the second: %v", err)
	} else {
		_ = c.Close()
	}
	path = filepath.Join(dir, "file")
	if err := os.WriteFile(path, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(); err == nil || !strings.Contains(err.Error(), "not a unix socket") {
		t.Errorf("at a file: %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "kept" {
		t.Errorf("the file has become %q: %v", text, err)
	}
	path = filepath.Join(dir, "none", "s")
	if _, err := listen(); err == nil || !strings.HasPrefix(err.Error(), "the folder of "+path+" is not there") {
		t.Errorf("without the folder: %v", err)
	}
}

func TestSocketPaths(t *testing.T) {
	for path, want := range map[string]string{
		"/run/s": "", "/" + strings.Repeat("x", 102): "", "": "want an absolute path", "s": "want an absolute path",
		"@s": "want an absolute path", "/run/": "want an absolute path",
		"/a\x00b": "want an absolute path", "/" + strings.Repeat("x", 103): "is longer than",
	} {
		if err := CheckSocketPath(path); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(),
			want) {
			t.Errorf("%q: %v, want %q", path, err, want)
		}
	}
	if _, err := new(Limit).ListenAt("management", "unix:s", 0o600); err == nil {
		t.Error("listens at a relative path")
	}
}
