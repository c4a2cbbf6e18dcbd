package container

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
)

// Bounds of the output of a container to stdout and stderr.
const (
	maxKeptLog  = 64 << 10 // the last bytes that are kept
	maxErrorLog = 2 << 10  // the last bytes that are in an error message
)

// tail keeps the last bytes written. Its methods are safe for concurrent use.
type tail struct {
	mu      sync.Mutex
	buf     []byte // at most 2*maxKeptLog
	dropped int64
}

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(b)
	if over := len(b) - maxKeptLog; over > 0 {
		t.dropped += int64(over)
		b = b[over:]
	}
	if over := len(t.buf) + len(b) - maxKeptLog; over > 0 && len(t.buf)+len(b) > 2*maxKeptLog {
		t.dropped += int64(over)
		t.buf = t.buf[:copy(t.buf, t.buf[over:])]
	}
	t.buf = append(t.buf, b...)
	return n, nil
}

// lastLines returns the last lines of at most n bytes, in printable characters; "" = the container has written nothing.
func (t *tail) lastLines(n int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := bytes.TrimSpace(t.buf)
	cut := len(b) > n
	if cut {
		b = b[len(b)-n:]
		if i := bytes.IndexByte(b, '\n'); i >= 0 && i < len(b)-1 {
			b = b[i+1:]
		}
	}
	text := strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f {
			return -1
		}
		return r
	}, strings.ToValidUTF8(string(b), "\ufffd"))
	if cut {
		text = "... " + text
	}
	return text
}

// explain adds the last lines to the reason of a failure.
func (t *tail) explain(reason string) string {
	if text := t.lastLines(maxErrorLog); text != "" {
		return fmt.Sprintf("%s; its last lines: %s", reason, text)
	}
	return reason + ", and wrote no lines"
}
