package handover

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func socketPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "millrace-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}

func offer(t *testing.T, path string, listeners ...*net.TCPListener) *Offer {
	t.Helper()
	o, err := NewOffer(path, func() (all []Socket) {
		for i, ln := range listeners {
			all = append(all, Socket{Name: string(rune('a' + i)), File: ln.File})
		}
		return all
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = o.Close() })
	return o
}

func listen(t *testing.T) *net.TCPListener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln.(*net.TCPListener)
}

// A connection in the queue of the predecessor's socket is accepted by the successor, and only a successor that serves
// makes the predecessor leave.
func TestTake(t *testing.T) {
	path := socketPath(t)
	if none, err := Take(path); none != nil || err != nil {
		t.Fatalf("%v, %v", none, err)
	}
	a, b := listen(t), listen(t)
	o := offer(t, path, a, b)
	queued, err := net.Dial("tcp", b.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = queued.Close() }()
	failed, err := Take(path)
	if err != nil || failed == nil {
		t.Fatal(err)
	}
	failed.Close()
	taken, err := Take(path)
	if err != nil || taken == nil {
		t.Fatal(err)
	}
	select {
	case <-o.Taken():
		t.Fatal("a successor that does not serve has taken over")
	default:
	}
	if ln, err := taken.Listener("c"); ln != nil || err != nil {
		t.Errorf("%v, %v", ln, err)
	}
	ln, err := taken.Listener("b")
	if err != nil || ln == nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	next := offer(t, path)
	left := make(chan error, 1)
	go func() { left <- taken.Serving() }()
	<-o.Taken()
	o.Leave()
	if err := <-left; err != nil {
		t.Fatal(err)
	}
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the predecessor removed the successor's socket: %v", err)
	}
	if err := next.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}

// A predecessor that ends before or after the successor serves is no failure.
func TestTakeFromEnded(t *testing.T) {
	path := socketPath(t)
	o := offer(t, path, listen(t))
	before, err := Take(path)
	if err != nil || before == nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", st, err)
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	if err := before.Serving(); err != nil {
		t.Error(err)
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}) // left by a killed server
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	if none, err := Take(path); none != nil || err != nil {
		t.Errorf("%v, %v", none, err)
	}
	offer(t, path)
}

// What is no server's socket is refused.
func TestTakeRefuses(t *testing.T) {
	path := socketPath(t)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Take(path); err == nil || !strings.Contains(err.Error(), "is not a unix socket") {
		t.Error(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	for _, says := range []string{"", "[\"a\"]\n", "x\n"} {
		ln, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			if c, err := ln.Accept(); err == nil {
				_, _ = c.Write([]byte(says))
				_ = c.Close()
			}
		}()
		if taken, err := Take(path); taken != nil || err == nil {
			t.Errorf("%q: %v", says, err)
		}
		<-answered
		_ = ln.Close()
	}
}
