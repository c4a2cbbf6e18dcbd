package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"millrace/stream/coded"
)

// The segments of the log of an attempt are blobs with the keys FOLDER/log-ATTEMPT.NUMBER. When the newest segment is
// full, the next segment begins, and the segments before these two are deleted. The number of a segment times
// segmentSize is the offset of its first byte in the log, so that a reader goes on where the reader was, also after a
// restart.
const (
	segmentSize     = 512 << 10 // bytes of a segment: a log has at most twice as many
	keptLogAttempts = 3         // logs of so many attempts are kept
	maxSegments     = 1 << 40   // in the log of an attempt: offsets fit into int64
)

// LogPosition is a place in the logs of a task. The zero value is the begin.
type LogPosition struct {
	Attempt int
	Offset  int64 // of the next byte in the log of the attempt
}

// segment is a stored part of a log.
type segment struct {
	attempt int
	number  int64
	size    int64
}

func (p segment) key(id string) string {
	return fmt.Sprintf("%s/%s%d.%d", folder(id), logPrefix, p.attempt, p.number)
}

// logPrefix begins the names of segments.
const logPrefix = "log-"

// isLog reports whether a name in the folder of a task is of a segment.
func isLog(name string) bool { return strings.HasPrefix(name, logPrefix) }

// start returns the offset of the first byte of the segment.
func (p segment) start() int64 { return p.number * segmentSize }

// segments returns the segments of the logs of a task, in order.
func (s *Store) segments(ctx context.Context, id string) (found []segment, err error) {
	all, err := s.blobs.List(ctx, folder(id))
	for _, e := range all {
		p := segment{size: e.Size}
		if n, _ := fmt.Sscanf(e.Name, logPrefix+"%d.%d", &p.attempt, &p.number); n == 2 {
			found = append(found, p)
		}
	}
	slices.SortFunc(found, func(a, b segment) int {
		return cmp.Or(cmp.Compare(a.attempt, b.attempt), cmp.Compare(a.number, b.number))
	})
	return found, err
}

// logBytes returns the size of the kept logs of a task; 0 when the size cannot be read.
func (s *Store) logBytes(ctx context.Context, id string) (n int64) {
	all, err := s.segments(ctx, id)
	if err != nil {
		s.opts.Log.Warn("the logs of a task cannot be read", "task", id, "error", err)
	}
	for _, p := range all {
		n += p.size
	}
	return n
}

// Log implements Claim.
func (c *StoreClaim) Log() io.Writer {
	c.logs.Store(true)
	return &logWriter{store: c.store, id: c.id, newest: segment{attempt: c.attempt}}
}

// logWriter appends to the log of an attempt.
type logWriter struct {
	store *Store
	id    string

	mu     sync.Mutex
	newest segment
	warned bool
}

// Write implements io.Writer.
func (w *logWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	err := w.store.appendLog(w.id, &w.newest, b)
	if err != nil && coded.CodeOf(err) != coded.NotFound && !w.warned {
		w.warned = true
		w.store.opts.Log.Warn("the log of a task cannot be kept", "task", w.id, "error", err)
	}
	return len(b), nil
}

// AppendLog appends bytes to the log of an attempt, whose first byte has the offset at in the log. Bytes that the log
// has already are left out: a request may be repeated. Errors: NotFound, when the task was deleted.
func (s *Store) AppendLog(ctx context.Context, id string, attempt int, at int64, b []byte) error {
	s.logMu.Lock()
	defer s.logMu.Unlock()
	all, err := s.segments(ctx, id)
	if err != nil {
		return err
	}
	p := segment{attempt: attempt}
	for _, old := range all {
		if old.attempt == attempt {
			p = old // the last one
		}
	}
	if have := p.start() + p.size; at < have {
		b = b[min(have-at, int64(len(b))):]
	}
	return s.appendLog(id, &p, b)
}

// appendLog appends bytes to a log with the newest segment p.
func (s *Store) appendLog(id string, p *segment, b []byte) (err error) {
	ctx := context.Background() // the bytes of a cancelled attempt are kept, too
	for len(b) > 0 && err == nil {
		if p.size >= segmentSize {
			p.number, p.size = p.number+1, 0
		}
		n := min(int64(len(b)), segmentSize-p.size)
		if err = s.appendSegment(ctx, id, p.key(id), b[:n]); err == nil && p.size == 0 {
			err = s.dropSegments(ctx, id, *p)
		}
		p.size, b = p.size+n, b[n:]
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.index.tasks[id]; e != nil && e.logSignal != nil {
		close(e.logSignal)
		e.logSignal = nil
	}
	return err
}

// appendSegment appends to a segment. The first line of a log makes the folder of a task whose input is in the record.
func (s *Store) appendSegment(ctx context.Context, id, key string, b []byte) error {
	err := s.blobs.Append(ctx, key, b)
	if s.files == nil || coded.CodeOf(err) != coded.NotFound {
		return err
	}
	if t, failed := s.Get(id); failed != nil || !t.inputSmall && t.Input.Size > 0 {
		return err
	}
	if err := s.files.MakeFolder(key); err != nil {
		return err
	}
	return s.blobs.Append(ctx, key, b)
}

// dropSegments deletes the segments that a new segment replaces.
func (s *Store) dropSegments(ctx context.Context, id string, newest segment) error {
	all, err := s.segments(ctx, id)
	for _, p := range all {
		if p.attempt <= newest.attempt-keptLogAttempts ||
			p.attempt == newest.attempt && p.number < newest.number-1 {
			err = errors.Join(err, s.blobs.Delete(ctx, p.key(id)))
		}
	}
	return err
}

// ReadLog reads the next bytes of the logs of a task into b, which has room for a heading of 100 bytes, and returns
// the place after the bytes. The log of each attempt but the first begins with a heading, and a note stands for bytes
// that are no longer kept. Errors: io.EOF at the present end.
func (s *Store) ReadLog(ctx context.Context, id string, at LogPosition, b []byte) (n int, next LogPosition, err error) {
	all, err := s.segments(ctx, id)
	if err != nil {
		return 0, at, err
	}
	for _, p := range all {
		if p.attempt < at.Attempt || p.attempt == at.Attempt && p.start()+p.size <= at.Offset {
			continue
		}
		note := ""
		if p.attempt > at.Attempt {
			at = LogPosition{Attempt: p.attempt}
			if p.attempt > 1 {
				note = fmt.Sprintf("=== attempt %d ===\n", p.attempt)
			}
		}
		if lost := p.start() - at.Offset; lost > 0 {
			note += fmt.Sprintf("... %d bytes are no longer kept ...\n", lost)
			at.Offset = p.start()
		}
		if note != "" {
			return copy(b, note), at, nil
		}
		n, err = s.readSegment(ctx, id, p, at.Offset-p.start(), b)
		at.Offset += int64(n)
		return n, at, err
	}
	return 0, at, io.EOF
}

// readSegment reads bytes of a segment from an offset below its size.
func (s *Store) readSegment(ctx context.Context, id string, p segment, at int64, b []byte) (int, error) {
	r, err := s.blobs.Open(ctx, p.key(id))
	if coded.CodeOf(err) == coded.NotFound {
		return 0, nil // deleted meanwhile: the next call sees the next segment
	}
	if err != nil {
		return 0, err
	}
	n, err := r.ReadAt(b[:min(int64(len(b)), p.size-at)], at)
	return n, errors.Join(err, r.Close())
}

// FollowLog is ReadLog, and waits at the end of the logs for further bytes. Errors: io.EOF at the end of the logs of a
// task that has ended; the error of ctx.
func (s *Store) FollowLog(ctx context.Context, id string, at LogPosition, b []byte) (n int, next LogPosition,
	err error) {
	for {
		s.mu.Lock()
		e := s.index.tasks[id]
		ended := e == nil || e.State.Ended()
		var grown, changed <-chan struct{}
		if !ended {
			if e.logSignal == nil {
				e.logSignal = make(chan struct{})
			}
			grown, changed = e.logSignal, e.changeChan()
		}
		s.mu.Unlock()
		n, at, err = s.ReadLog(ctx, id, at, b)
		if n > 0 || err != nil && !errors.Is(err, io.EOF) || err != nil && ended {
			return n, at, err
		}
		if err == nil {
			continue
		}
		select {
		case <-grown:
		case <-changed:
		case <-ctx.Done():
			return 0, at, context.Cause(ctx)
		}
	}
}

// Logs returns a reader of the logs of a task to their present end.
func (s *Store) Logs(ctx context.Context, id string) io.ReadCloser {
	return &logReader{ctx: ctx, store: s, id: id, buf: make([]byte, 32<<10)}
}

// logReader reads the logs of a task.
type logReader struct {
	ctx         context.Context
	store       *Store
	id          string
	at          LogPosition
	buf, unread []byte
}

// Read implements io.Reader.
func (r *logReader) Read(b []byte) (n int, err error) {
	for len(r.unread) == 0 && err == nil {
		n, r.at, err = r.store.ReadLog(r.ctx, r.id, r.at, r.buf)
		r.unread = r.buf[:n]
	}
	n = copy(b, r.unread)
	r.unread = r.unread[n:]
	if n > 0 {
		err = nil
	}
	return n, err
}

// Close implements io.Closer.
func (r *logReader) Close() error { return nil }
