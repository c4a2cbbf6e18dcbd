package child

import (
	"bytes"
	"os"
	"strings"
	"sync"
)

// maxLine is the longest piece of standard error given to OnStderr at once.
const maxLine = 4 << 10

// tail keeps the last bytes of standard error in a ring buffer, and splits standard error into lines.
type tail struct {
	mu     sync.Mutex
	ring   []byte
	next   int  // index of the next byte to write
	full   bool // the ring has wrapped
	line   []byte
	onLine func([]byte)
}

func newTail(size int, onLine func([]byte)) *tail {
	return &tail{ring: make([]byte, size), onLine: onLine}
}

// readAll reads until the end, an error, or the deadline that supervise sets.
func (t *tail) readAll(f *os.File) {
	var buf [maxLine]byte
	for {
		n, err := f.Read(buf[:])
		t.write(buf[:n])
		if err != nil {
			break
		}
	}
	if t.onLine != nil && len(t.line) > 0 {
		t.onLine(t.line)
		t.line = nil
	}
}

func (t *tail) write(b []byte) {
	t.keep(b)
	if t.onLine == nil {
		return
	}
	for len(b) > 0 {
		// A progress bar ends its lines with \r; those are lines too.
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
