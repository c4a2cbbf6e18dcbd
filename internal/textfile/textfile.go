// Package textfile reads files written by people and other programs while the server runs: settings, keys,
// certificates. Limits of time and size keep a FIFO or a hanging file system from blocking the reader. A file that is
// read again is accepted only when complete. The package must not know the purpose of a file.
package textfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"millrace/internal/yamltext"
)

const (
	// ReadTime is how long a read takes at most.
	ReadTime = 5 * time.Second
	// Settle is how long a file must stay unchanged before another reading.
	Settle = time.Second
	// changing is how long ReadChanged waits for a file to settle.
	changing = 10 * time.Second
)

// Read returns the contents of a file of at most most bytes. After ReadTime, Read gives up, for example when the
// writer of a FIFO keeps the FIFO open. A FIFO without a writer, or whose writer writes nothing, is an error.
func Read(path string, most int64) ([]byte, error) {
	return WithTimeout(ReadTime, path, func() ([]byte, error) { return read(path, most) })
}

// WithTimeout calls do, and returns an error about path when do takes longer than limit. Nothing can end a system call
// on a hanging file system: do continues in its goroutine until the file system answers.
func WithTimeout[T any](limit time.Duration, path string, do func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := do()
		done <- result{value, err}
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case r := <-done:
		return r.value, r.err
	case <-timer.C:
		var none T
		return none, fmt.Errorf("%s cannot be read within %v: its file system does not answer", path, limit)
	}
}

func read(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a FIFO would wait for a writer
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case st.IsDir():
		return nil, fmt.Errorf("%s is a folder", path)
	case !st.Mode().IsRegular():
		_ = f.SetReadDeadline(time.Now().Add(ReadTime / 2)) // for other files WithTimeout limits the time
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("%s does not end within %v: it is not a regular file, and its writer holds it open",
			path, ReadTime/2)
	case err != nil:
		return nil, err
	case len(text) == 0 && st.Mode()&fs.ModeNamedPipe != 0:
		return nil, fmt.Errorf("%s is a FIFO, and no program has written to it", path)
	case int64(len(text)) > most:
		return nil, fmt.Errorf("%s is larger than %s", path, size(most))
	}
	return text, nil
}

// size writes a number of bytes in the largest unit that gives a whole number.
func size(n int64) string {
	switch {
	case n%(1<<20) == 0:
		return fmt.Sprintf("%dMiB", n>>20)
	case n%(1<<10) == 0:
		return fmt.Sprintf("%dKiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}

// Shape describes a text, to recognise a damaged successor.
type Shape struct {
	Known bool // there was a text
	blank bool // the text had nothing but comments
	ended bool // the last line had a line end
}

// ShapeOf returns the shape of a text.
func ShapeOf(text []byte) Shape {
	return Shape{Known: true, blank: yamltext.Blank(text), ended: bytes.HasSuffix(text, []byte("\n"))}
}

// Check returns why text, the new contents of path, must not replace a text of shape s: text is empty or was cut.
func (s Shape) Check(path string, text []byte) error {
	now := ShapeOf(text)
	switch {
	case !s.Known:
		return nil
	case now.blank && !s.blank:
		return fmt.Errorf("%s is empty, and was not before: it may still be written", path)
	case bytes.IndexByte(text, 0) >= 0:
		return fmt.Errorf("%s has a zero byte: it may be damaged, or still be written", path)
	case s.ended && !now.ended && !now.blank:
		return fmt.Errorf("%s has no line end after its last line, and had one before: it may be cut, or still be "+
			"written; end it with an empty line if it is whole", path)
	}
	return nil
}

// state distinguishes the contents of a file.
type state struct {
	info  fs.FileInfo
	mtime time.Time
	size  int64
}

func stateOf(path string) (state, error) {
	st, err := os.Stat(path)
	if err != nil {
		return state{}, err
	}
	return state{st, st.ModTime(), st.Size()}, nil
}

func (s state) same(o state) bool {
	return s.info != nil && o.info != nil && os.SameFile(s.info, o.info) && s.mtime.Equal(o.mtime) && s.size == o.size
}

// settled reports whether a file has not changed for a while before now. A time in the future says nothing.
func (s state) settled(now time.Time) bool { return now.Sub(s.mtime) >= Settle }

// ReadChanged returns the new contents of a file with contents of shape before, once the file has not changed for the
// time Settle. The error says why the new contents are not accepted.
func ReadChanged(ctx context.Context, path string, most int64, before Shape) ([]byte, error) {
	if !before.Known {
		return Read(path, most)
	}
	var last state
	for began := time.Now(); ; {
		found, err := WithTimeout(ReadTime, path, func() (settledText, error) { return readSettled(path, most, last) })
		switch {
		case err != nil:
			return nil, err
		case found.settled:
			return found.text, before.Check(path, found.text)
		case time.Since(began) > changing:
			return nil, fmt.Errorf("%s has changed again and again for %v: it is still written", path, changing)
		}
		last = found.state
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(Settle):
		}
	}
}

// settledText is the result of a look at a file.
type settledText struct {
	state   state
	settled bool // the file does not change, and text is its contents
	text    []byte
}

// readSettled reads a file if the file has not changed since the look with the result last, or for the time Settle.
func readSettled(path string, most int64, last state) (settledText, error) {
	now, err := stateOf(path)
	regular := err == nil && now.info.Mode().IsRegular()
	if err != nil || regular && !now.settled(time.Now()) && !now.same(last) {
		return settledText{state: now}, err
	}
	text, err := read(path, most)
	if err != nil || !regular {
		return settledText{now, true, text}, err
	}
	after, err := stateOf(path)
	return settledText{after, after.same(now), text}, err
}

// Guard keeps calls from piling up on a file system that does not answer. The zero value is ready, and safe for
// concurrent use.
type Guard struct {
	hung atomic.Int32 // calls that exceeded their limit
}

// Guarded calls do like WithTimeout. While an earlier call of the guard still hangs, Guarded returns an error at once.
func Guarded[T any](g *Guard, path string, do func() (T, error)) (T, error) {
	if g.hung.Load() > 0 {
		var none T
		return none, fmt.Errorf("%s cannot be read: its file system does not answer", path)
	}
	var state atomic.Int32 // 1 = do has ended, 2 = do hangs
	value, err := WithTimeout(ReadTime, path, func() (T, error) {
		value, err := do()
		if !state.CompareAndSwap(0, 1) {
			g.hung.Add(-1)
		}
		return value, err
	})
	if err != nil {
		g.hung.Add(1)
		if !state.CompareAndSwap(0, 2) { // do has ended
			g.hung.Add(-1)
		}
	}
	return value, err
}
