package accept

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// failing is a listener that fails a number of times before it closes.
type failing struct {
	net.Listener
	left   int
	closed chan struct{}
}

func (f *failing) Accept() (net.Conn, error) {
	if f.left == 0 {
		<-f.closed
		return nil, net.ErrClosed
	}
	f.left--
	return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
}

func (f *failing) Close() error { close(f.closed); return nil }

// A failure to accept is waited for, with growing pauses, and ends nothing; Close
// ends the wait.
func TestAcceptFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, failures := range []int{10, 1 << 30} {
			f := &failing{left: failures, closed: make(chan struct{})}
			var said bytes.Buffer
			l := &listener{Listener: f, name: "http", limit: &Limit{Log: slog.New(slog.NewTextHandler(&said, nil))},
				closed: make(chan struct{})}
			ended := make(chan error)
			go func() {
				_, err := l.Accept()
				ended <- err
			}()
			time.Sleep(4 * time.Millisecond)
			if n := l.failed.Load(); n != 1 {
				t.Errorf("%d attempts in 4 ms", n)
			}
			time.Sleep(7 * time.Millisecond)
			if n := l.failed.Load(); n != 2 {
				t.Errorf("%d attempts in 11 ms", n)
			}
			time.Sleep(time.Minute)
			if n := l.failed.Load(); n < 10 || n > 200 {
				t.Errorf("%d attempts in a minute", n)
			}
			if err := errors.Join(l.Close(), l.Close()); err != nil {
				t.Error(err)
			}
			if err := <-ended; !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
			if n := strings.Count(said.String(), "listener=http"); n < 1 || n > 61 {
				t.Errorf("%d lines in the log in a minute, want at most one a second", n)
			}
		}
	})
}

// Without a bound, connections are counted all the same.
func TestNoLimit(t *testing.T) {
	limit := &Limit{}
	l, err := limit.Listen("http", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	out, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if st := limit.Stats()["http"]; st != (Stats{Open: 1}) {
		t.Errorf("%+v", st)
	}
	_, _ = in.Close(), in.Close()
	if st := limit.Stats()["http"]; st != (Stats{}) {
		t.Errorf("after the end: %+v", st)
	}
	if (&listener{limit: limit}).log() != slog.Default() {
		t.Error("without a log of its own it does not use the default one")
	}
}

// The bound holds for all listeners together, and a connection that was closed
// twice makes one place free.
func TestLimit(t *testing.T) {
	limit := &Limit{Max: 2, Log: slog.New(slog.DiscardHandler)}
	accepted := make(chan net.Conn)
	var addrs []string
	for _, name := range []string{"http", "grpc"} {
		l, err := limit.Listen(name, "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				accepted <- c
			}
		}()
	}
	dial := func(addr string) net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		return c
	}
	dial(addrs[0])
	first := <-accepted
	dial(addrs[1])
	second := <-accepted
	if n, err := dial(addrs[1]).Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, syscall.ETIMEDOUT) {
		t.Errorf("one too many is not closed: %v", err)
	}
	if st := limit.Stats(); st["http"] != (Stats{Open: 1}) || st["grpc"] != (Stats{Open: 1, Refused: 1}) {
		t.Errorf("%+v", st)
	}
	_ = first.Close()
	_ = first.Close()
	dial(addrs[1])
	third := <-accepted
	if _, err := dial(addrs[0]).Read(make([]byte, 1)); err != io.EOF && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a connection closed twice made two places free: %v", err)
	}
	_, _ = second.Close(), third.Close()
	if st := limit.Stats(); st["http"] != (Stats{Refused: 1}) || st["grpc"] != (Stats{Refused: 1}) {
		t.Errorf("after the end: %+v", st)
	}
}

func TestListenErrors(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for addr, want := range map[string]string{
		l.Addr().String(): l.Addr().String() + " is in use: end the program",
		"192.0.2.1:0":     "192.0.2.1:0 is not an address of this machine: choose",
	} {
		if _, err := new(Limit).Listen("http", addr); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
