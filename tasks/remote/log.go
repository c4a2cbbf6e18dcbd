package remote

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"millrace/internal/ctxio"
)

const (
	maxPending = 256 << 10   // bytes of a log that wait for the server
	maxSent    = 128 << 10   // bytes of a request
	sendPause  = time.Second // between two requests with bytes of a log, or with progress
)

// logSender sends the log of an attempt to the server: at most one request in sendPause, and the rest before the end of
// the attempt. While the server does not answer, the newest bytes are kept.
type logSender struct {
	claim  *claim
	start  sync.Once
	signal chan struct{} // gets a value when bytes wait

	sending sync.Mutex // held during a request

	mu      sync.Mutex
	offset  int64 // offset of pending in the log
	pending []byte
	sent    int // bytes at the begin of pending that the server may have
}

func newLogSender(c *claim) *logSender { return &logSender{claim: c, signal: make(chan struct{}, 1)} }

// Write implements io.Writer.
func (l *logSender) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(b)
	if over := len(l.pending) + len(b) - maxPending; over > 0 {
		b = l.drop(b)
	}
	l.pending = append(l.pending, b...)
	l.start.Do(func() { go l.run() })
	select {
	case l.signal <- struct{}{}:
	default:
	}
	return n, nil
}

// drop makes place for b: of the bytes that no request had, and of b, the last bytes are kept, as many as half of
// maxPending. drop returns the part of b to keep.
func (l *logSender) drop(b []byte) []byte {
	rest := l.pending[l.sent:]
	room := (maxPending - l.sent) / 2
	lost := len(rest) + len(b) - room
	note := fmt.Sprintf("\n... %d bytes were not sent in time ...\n", lost)
	keep := []byte(note)
	if lost < len(rest) {
		keep = append(keep, rest[lost:]...)
	} else {
		b = b[lost-len(rest):]
	}
	l.pending = append(l.pending[:l.sent:l.sent], keep...)
	return b
}

// run sends bytes until the claim ends.
func (l *logSender) run() {
	for l.claim.ctx.Err() == nil {
		select {
		case <-l.claim.ctx.Done():
			return
		case <-l.signal:
		}
		if err := l.flush(l.claim.ctx); err != nil && l.claim.ctx.Err() == nil {
			l.claim.source.logFailure(err)
			select {
			case l.signal <- struct{}{}:
			default:
			}
		}
		ctxio.Sleep(l.claim.ctx, sendPause)
	}
}

// flush sends the bytes that wait.
func (l *logSender) flush(ctx context.Context) error {
	l.sending.Lock()
	defer l.sending.Unlock()
	for {
		l.mu.Lock()
		b, at := l.pending[:min(len(l.pending), maxSent)], l.offset
		l.sent = len(b)
		l.mu.Unlock()
		if len(b) == 0 {
			return nil
		}
		if err := l.send(ctx, b, at); err != nil {
			return err
		}
		l.mu.Lock()
		l.pending, l.offset, l.sent = append([]byte(nil), l.pending[len(b):]...), at+int64(len(b)), 0
		l.mu.Unlock()
	}
}

// send sends bytes. Bytes that the server refuses are dropped: the log is no reason to fail the task.
func (l *logSender) send(ctx context.Context, b []byte, at int64) error {
	ctx, cancel := context.WithTimeout(ctx, replyTimeout)
	defer cancel()
	resp, err := l.claim.source.opts.Client.Send(ctx, http.MethodPost, l.claim.path+"/log",
		http.Header{"Content-Type": {"text/plain"}, "Upload-Offset": {strconv.FormatInt(at, 10)}},
		bytes.NewReader(b), int64(len(b)))
	if err != nil && isLost(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
