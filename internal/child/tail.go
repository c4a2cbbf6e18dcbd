package child

import (
	"bytes"
	"strings"
	"sync"
	"syscall"
)

// maxLine is the longest piece of standard error given to OnStderr at once.
const maxLine = 4 << 10

// tail keeps the last bytes of standard error in a ring buffer, and splits standard error into lines.
type tail struct {
	conn   syscall.RawConn
	onLine func([]byte)

	reading sync.Mutex // held while reading standard error and passing lines on
	buf     [maxLine]byte
	line    []byte
	drain   func(fd uintptr) // t.readReady, made once

	mu   sync.Mutex
	ring []byte
	next int  // index of the next byte to write
	full bool // the ring has wrapped
}

func newTail(conn syscall.RawConn, size int, onLine func([]byte)) *tail {
	t := &tail{conn: conn, ring: make([]byte, size), onLine: onLine}
	t.drain = t.readReady
	return t
}

// readAll reads until the end, an error, or the deadline set by supervise.
func (t *tail) readAll() {
	var n int
	once := func(fd uintptr) bool {
		var ready bool
		n, ready = t.read(fd)
		return ready
	}
	for t.conn.Read(once) == nil && n > 0 {
	}
	t.reading.Lock()
	defer t.reading.Unlock()
	if t.onLine != nil && len(t.line) > 0 {
		t.onLine(t.line)
		t.line = nil
	}
}

// readNow reads the bytes now in the pipe.
func (t *tail) readNow() { _ = t.conn.Control(t.drain) }

// readReady reads at most the capacity of a pipe: otherwise a child that writes without end would keep readReady busy
// for ever.
func (t *tail) readReady(fd uintptr) {
	for total := 0; total < 64<<10; {
		n, _ := t.read(fd)
		if n <= 0 {
			return
		}
		total += n
	}
}

// read reads once. ready is false for an empty pipe; n is 0 at the end of the pipe.
func (t *tail) read(fd uintptr) (n int, ready bool) {
	t.reading.Lock()
	defer t.reading.Unlock()
	for {
		n, err := syscall.Read(int(fd), t.buf[:])
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			return 0, false
		case err != nil:
			return 0, true
		default:
			t.write(t.buf[:n])
			return n, true
		}
	}
}

func (t *tail) write(b []byte) {
	t.keep(b)
	if t.onLine == nil {
		return
	}
	for len(b) > 0 {
		// A progress bar ends its lines with \r; such lines count, too.
		i := bytes.IndexAny(b, "\r\n")
		if i < 0 {
			t.line = append(t.line, b...)
			if len(t.line) >= maxLine {
				t.flush()
			}
			return
		}
		t.line = append(t.line, b[:i]...)
		t.flush()
		b = b[i+1:]
	}
}

func (t *tail) flush() {
	if len(t.line) > 0 {
		t.onLine(t.line)
	}
	t.line = t.line[:0]
}

func (t *tail) keep(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if over := len(b) - len(t.ring); over > 0 {
		b = b[over:]
		t.full = true
	}
	for len(b) > 0 {
		n := copy(t.ring[t.next:], b)
		b = b[n:]
		if t.next += n; t.next == len(t.ring) {
			t.next, t.full = 0, true
		}
	}
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.full {
		return string(t.ring[:t.next])
	}
	return string(t.ring[t.next:]) + string(t.ring[:t.next])
}

// lastLines returns the last n lines that are not blank, joined by " | ".
func lastLines(text string, n int) string {
	var kept []string
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := len(lines) - 1; i >= 0 && len(kept) < n; i-- {
		if l := strings.TrimSpace(lines[i]); l != "" {
			kept = append([]string{l}, kept...)
		}
	}
	return strings.Join(kept, " | ")
}
