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
	torn   bool // the last line is cut off
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
		text := append(line[:len(line):len(line)], '\n')
		if s.torn {
			text = append([]byte{'\n'}, text...)
		}
		var n int
		n, err = s.f.Write(text)
		s.size, s.torn = s.size+int64(n), false
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
	s.f, s.size, s.torn = f, st.Size(), torn(s.path, st)
	return nil
}

// torn says whether a file's last line is cut off, because the disk was full or
// the server was killed: what is written next would be part of it. A file that
// cannot be read counts as such, an empty line does less harm.
func torn(path string, st os.FileInfo) bool {
	if !st.Mode().IsRegular() || st.Size() == 0 {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return true
	}
	defer f.Close()
	var last [1]byte
	_, err = f.ReadAt(last[:], st.Size()-1)
	return err != nil || last[0] != '\n'
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
