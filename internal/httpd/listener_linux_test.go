package httpd

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// firsts returns a listener whose connections have limit for their first byte.
func firsts(t *testing.T, limit time.Duration) *listener {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := newListener(inner, limit)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func dialed(t *testing.T, l *listener) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// The HTTP server gets a connection with its first byte, and reads the byte. Earlier connections without a byte, or
// closed by their clients, cost the server nothing.
func TestConnectionsComeWithTheirFirstByte(t *testing.T) {
	l := firsts(t, time.Hour)
	silent, gone := dialed(t, l), dialed(t, l)
	_ = gone.Close()
	for i, send := range []net.Conn{dialed(t, l), silent} {
		if _, err := send.Write([]byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if c.RemoteAddr().String() != send.LocalAddr().String() {
			t.Fatalf("%v has come, want %v, which has sent a byte", c.RemoteAddr(), send.LocalAddr())
		}
		b := make([]byte, 1)
		if _, err := io.ReadFull(c, b); err != nil || b[0] != byte(i) {
			t.Errorf("connection %d: %v: %v", i, b, err)
		}
		_ = c.Close()
	}
}

// A connection without a first byte in time is closed.
func TestFirstByteInTime(t *testing.T) {
	l := firsts(t, time.Millisecond)
	c := dialed(t, l)
	ended := make(chan error)
	go func() { _, err := l.Accept(); ended <- err }()
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("%v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v", err)
	}
}

// After the listener is closed, waiting connections may still send for a moment, and Accept returns when none is
// left.
func TestClosedListener(t *testing.T) {
	l := firsts(t, time.Hour)
	silent, sends := dialed(t, l), dialed(t, l)
	accepted, ended := make(chan net.Conn, 1), make(chan error)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				ended <- err
				return
			}
			accepted <- c
		}
	}()
	for n := 0; n < 2; { // until both wait
		l.mu.Lock()
		n = l.waiting.Len()
		l.mu.Unlock()
		time.Sleep(time.Millisecond)
	}
	began := time.Now()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if l.until.Before(began.Add(idleGrace)) || l.until.After(time.Now().Add(idleGrace)) {
		t.Errorf("they end at %v, closed at %v", l.until, began)
	}
	if _, err := sends.Write([]byte{1}); err != nil {
		t.Error(err)
	}
	_ = (<-accepted).Close()
	_ = silent.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := silent.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("the connection stays: %v", err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("%v", err)
	}
	if l.open != 0 || l.waiting.Len() != 0 {
		t.Errorf("%d are open, %d wait", l.open, l.waiting.Len())
	}
}
