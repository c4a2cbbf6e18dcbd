package sinks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"time"

	"millrace/internal/backoff"
	"millrace/stream"
)

const (
	socketQueue = 1000 // maximum number of waiting results; further results are lost
	socketPath  = 107  // most bytes of a Unix socket's address
)

func init() { Register(Kind{Name: "socket", New: func() Settings { return new(Socket) }}) }

// Socket writes results to the Unix socket of a listening program.
type Socket struct {
	Path string `json:"socket" path:"file" advanced:"yes" help:"write results to this Unix socket, one JSON object a line; another program must listen on the socket"`
}

// Enabled implements Settings.
func (c *Socket) Enabled() bool { return c.Path != "" }

// Validate implements Settings.
func (c *Socket) Validate() error {
	if len(c.Path) > socketPath {
		return stream.Errorf(stream.InvalidArgument, "sinks.socket",
			"%q is longer than %d bytes, the most that a Unix socket's path may have", c.Path, socketPath)
	}
	return nil
}

// Open implements Settings.
func (c *Socket) Open(e Env) Sink {
	s := &socket{
		path: c.Path, stream: e.Stream, log: e.Log, queue: make(chan socketLine, socketQueue), disconnect: func() {},
		backoff: backoff.Backoff{Max: 5 * time.Second}, // from 100 ms
		dial: func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", c.Path)
		},
	}
	s.closing, s.end = context.WithCancel(context.Background())
	return s
}

// socket connects to a path and writes a line for each result. While no program listens, socket retries with growing
// pauses. Lines wait in a bounded queue. Lines that do not fit are lost and replaced by {"lost":N}.
type socket struct {
	path, stream string
	log          *slog.Logger
	queue        chan socketLine // closed by Close
	closing      context.Context // ended by Close, to wake Run
	end          context.CancelFunc
	backoff      backoff.Backoff
	dial         func(context.Context) (net.Conn, error)
	gap          uint64 // lines lost since the last queued line; for Write and Close

	conn       net.Conn // of Run; nil = not connected
	disconnect func()

	counters
}

// socketLine is a line in the queue.
type socketLine struct {
	lost uint64 // number of lines lost before this line
	text []byte // nil = no line follows the loss
}

// Write implements Sink.
func (s *socket) Write(line []byte) {
	select {
	case s.queue <- socketLine{s.gap, line}:
		s.gap = 0
	default:
		s.gap++
		s.lost.Add(1)
	}
}

// Close implements Sink.
func (s *socket) Close() {
	if s.gap > 0 {
		select {
		case s.queue <- socketLine{lost: s.gap}:
		default: // the reader is slow or has ended, and does not get the number
		}
	}
	close(s.queue)
	s.end()
}

// Run implements Sink. Run connects before the first line, so that a wrong path is noticed early.
func (s *socket) Run(ctx context.Context) {
	last, stop := afterGrace(ctx)
	defer stop()
	defer func() { s.disconnect() }()
	s.connect(last)
	for line := range s.queue {
		if s.deliver(last, line.bytes()) {
			s.sent.Add(line.results())
			continue
		}
		s.lost.Add(line.results())
		for line := range s.queue { // the sink was closed, and these lines cannot be delivered
			s.lost.Add(line.results())
		}
	}
}

func (l socketLine) results() uint64 {
	if l.text == nil {
		return 0
	}
	return 1
}

// bytes returns the line as written to the socket.
func (l socketLine) bytes() (out []byte) {
	if l.lost > 0 {
		out = fmt.Appendf(out, "{\"lost\":%d}\n", l.lost)
	}
	if l.text != nil {
		out = append(append(out, l.text...), '\n')
	}
	return out
}

// deliver writes all of text to one connection, or again to a new connection if the old connection breaks. deliver
// returns false when the sink was closed and text cannot be delivered.
func (s *socket) deliver(last context.Context, text []byte) bool {
	for {
		reused := s.conn != nil
		if reused || s.connect(last) {
			err := s.write(last, text)
			if err == nil {
				s.backoff.Reset()
				return true
			}
			s.disconnect()
			s.failed(err)
			if errors.Is(err, os.ErrDeadlineExceeded) { // a new connection would have the same reader
				return false
			}
		}
		switch {
		case reused && last.Err() == nil: // the reader may have been restarted
		case !s.pause():
			return false
		}
		s.retries.Add(1)
	}
}

// pause waits before the next attempt, and returns false when no further attempt is allowed: after the close of the
// sink there is one more attempt.
func (s *socket) pause() bool {
	if s.closing.Err() != nil {
		return false
	}
	t := time.NewTimer(s.backoff.Next(rand.Float64()))
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.closing.Done():
	}
	return true
}

// write has no time-out while the stream runs; the queue limits the lines waiting for a slow reader. After Close the
// reader has two seconds for each write, and no time after the end of last.
func (s *socket) write(last context.Context, text []byte) error {
	if s.closing.Err() != nil {
		if err := s.conn.SetWriteDeadline(time.Now().Add(endGrace)); err != nil {
			return err
		}
	}
	if last.Err() != nil {
		return last.Err()
	}
	_, err := s.conn.Write(text)
	return err
}

// connect connects if needed, and reports whether the socket is connected.
func (s *socket) connect(last context.Context) bool {
	conn, err := s.dial(last)
	if err != nil {
		s.failed(err)
		return false
	}
	s.conn = conn
	stopClosing := context.AfterFunc(s.closing, func() { _ = conn.SetWriteDeadline(time.Now().Add(endGrace)) })
	stopLast := context.AfterFunc(last, func() { _ = conn.SetWriteDeadline(time.Now()) })
	s.disconnect = func() {
		stopClosing()
		stopLast()
		_ = conn.Close()
		s.conn, s.disconnect = nil, func() {}
	}
	if s.failure.Load() != nil {
		s.fail(nil)
		s.log.Info("a stream's socket is connected", "stream", s.stream, "path", s.path)
	}
	return true
}

// failed records why the socket is not connected, and logs the reason once.
func (s *socket) failed(err error) {
	var reason string
	var no syscall.Errno
	switch {
	case errors.Is(err, fs.ErrNotExist):
		reason = "does not exist: start the program that listens there"
	case errors.Is(err, syscall.ECONNREFUSED):
		reason = "has no program listening: start the program that reads the results"
	case errors.Is(err, fs.ErrPermission):
		reason = "may not be written to by the server's user: change its owner or mode, or that of its folder"
	case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ECONNRESET):
		reason = "was closed by its reader"
	case errors.Is(err, os.ErrDeadlineExceeded):
		reason = "has a reader that does not read"
	case errors.As(err, &no):
		reason = no.Error()
	default:
		reason = err.Error()
	}
	first := s.failure.Load() == nil
	s.fail(fmt.Errorf("sinks.socket: %s %s", s.path, reason))
	if first {
		s.log.Warn("a stream's socket is not connected", "stream", s.stream, "error", *s.failure.Load())
	}
}
