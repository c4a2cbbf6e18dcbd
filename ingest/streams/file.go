package streams

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
)

const (
	defaultMaxSize = 64 << 20
	keepFiles      = 3 // beside the one written to: NAME.1 is the newest
)

// file is a sink of JSON lines. It is for one goroutine.
type file struct {
	path   string
	max    int64
	f      *os.File
	size   int64
	failed atomic.Uint64
}

func newFile(path string, max int64) *file {
	if max <= 0 {
		max = defaultMaxSize
	}
	return &file{path: path, max: max}
}

// write appends a line. After an error the file is opened anew for the next.
func (s *file) write(line []byte) error {
	err := s.ready(int64(len(line)) + 1)
	if err == nil {
		var n int
		n, err = s.f.Write(append(line[:len(line):len(line)], '\n'))
		s.size += int64(n)
	}
	if err != nil {
		s.failed.Add(1)
		s.close()
		return fmt.Errorf("sinks.file: %w", err)
	}
	return nil
}

// ready opens the file, and puts a full one aside.
func (s *file) ready(n int64) error {
	if s.f != nil && s.size > 0 && s.size+n > s.max {
		s.close()
		if err := s.rotate(); err != nil {
			return err
		}
	}
	if s.f != nil {
		return nil
	}
	f, err := os.OpenFile(s.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return err
	}
	s.f, s.size = f, st.Size()
	return nil
}

func (s *file) rotate() error {
	for i := keepFiles; i > 0; i-- {
		from := s.path
		if i > 1 {
			from = fmt.Sprintf("%s.%d", s.path, i-1)
		}
		if err := os.Rename(from, fmt.Sprintf("%s.%d", s.path, i)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (s *file) close() {
	if s.f != nil {
		_ = s.f.Close()
		s.f = nil
	}
}
