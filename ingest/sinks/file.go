package sinks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"millrace/stream"
)

// keepFiles is the number of old files that are kept: NAME.1 is the newest.
const keepFiles = 3

func init() { Register(Kind{Name: "file", Exclusive: true, New: func() Settings { return new(File) }}) }

// File appends results to a file of JSON lines.
type File struct {
	Path    string `json:"file" path:"file" help:"a file to which JSON lines are appended"`
	MaxSize int64  `json:"max_size" unit:"bytes" min:"1KiB" default:"64MiB" help:"size at which the file is renamed and a new one begun; three old ones are kept"`
}

// Enabled implements Settings.
func (c *File) Enabled() bool { return c.Path != "" }

// Validate implements Settings.
func (c *File) Validate() error {
	if c.MaxSize != 0 && c.Path == "" {
		return stream.Errorf(stream.InvalidArgument, "sinks.max_size", "is set without sinks.file")
	}
	return nil
}

// Open implements Settings.
func (c *File) Open(e Env) Sink {
	return &file{path: c.Path, max: c.MaxSize, stream: e.Stream, log: e.Log}
}

// file writes in Write, which one goroutine calls: it waits for the disk, and counts
// what cannot be written as lost.
type file struct {
	path   string
	max    int64
	stream string
	log    *slog.Logger

	f    *os.File
	size int64
	torn bool // the last line is incomplete

	counters
}

// Write implements Sink.
func (s *file) Write(line []byte) {
	err := s.append(line)
	if s.fail(err); err != nil {
		s.lost.Add(1)
		s.log.Error("a result could not be written to its file", "stream", s.stream, "error", err)
		return
	}
	s.sent.Add(1)
}

// Run implements Sink. Write has delivered everything, so that it does nothing.
func (s *file) Run(context.Context) {}

// Close implements Sink.
func (s *file) Close() {
	if s.f != nil {
		_ = s.f.Close()
		s.f = nil
	}
}

// append appends a line. After an error the file is opened again for the next line.
func (s *file) append(line []byte) error {
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
		s.Close()
		return fmt.Errorf("sinks.file: %w", err)
	}
	return nil
}

// ready opens the file for n more bytes, and renames a full one.
func (s *file) ready(n int64) error {
	if err := s.open(); err != nil || s.size == 0 || s.size+n <= s.max {
		return err
	}
	s.Close()
	if err := s.rotate(); err != nil {
		return err
	}
	return s.open()
}

// open opens the file where it is not open.
func (s *file) open() error {
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

// torn reports whether a file's last line is incomplete, because the disk was full or
// the server was killed: the next line would become part of it. A file that cannot be
// read counts as such, because an empty line does less harm.
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

// rotate puts the file aside: it is NAME.1 then, the one before it NAME.2, and the oldest is gone.
func (s *file) rotate() error {
	for i := range keepFiles {
		from, to := s.path, keepFiles-i
		if to > 1 {
			from = fmt.Sprintf("%s.%d", s.path, to-1)
		}
		if err := os.Rename(from, fmt.Sprintf("%s.%d", s.path, to)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
