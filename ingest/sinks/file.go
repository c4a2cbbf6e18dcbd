package sinks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"millrace/internal/setting"
	"millrace/stream"
)

// keepFiles are kept beside the one written to: NAME.1 is the newest.
const keepFiles = 3

func init() { Register(Kind{Name: "file", Exclusive: true, New: func() Settings { return new(File) }}) }

// File appends results to a file of JSON lines.
type File struct {
	Path    string `json:"file" path:"file" help:"JSON lines are appended to it"`
	MaxSize int64  `json:"max_size" unit:"bytes" min:"1KiB" default:"64MiB" help:"of the file, which then is put aside; three are kept"`
}

// Enabled implements Settings.
func (c *File) Enabled() bool { return c.Path != "" }

// Validate implements Settings.
func (c *File) Validate() error {
	if c.MaxSize != 0 && c.Path == "" {
		return stream.Errorf(stream.InvalidArgument, "sinks.max_size", "has no sinks.file to bound")
	}
	return nil
}

// Open implements Settings.
func (c *File) Open(e Env) Sink {
	settings := *c
	setting.Fill(&settings)
	return &file{path: settings.Path, max: settings.MaxSize, stream: e.Stream, log: e.Log}
}

// file writes in Write, which is for one goroutine: a disk is waited for, and
// what it cannot take is lost.
type file struct {
	path   string
	max    int64
	stream string
	log    *slog.Logger

	f    *os.File
	size int64
	torn bool // the last line is cut off

	counters
}

// Write implements Sink.
func (s *file) Write(line []byte) {
	err := s.append(line)
	if s.fail(err); err != nil {
		s.lost.Add(1)
		s.log.Error("a result is not in its file", "stream", s.stream, "error", err)
		return
	}
	s.sent.Add(1)
}

// Run implements Sink; Write has delivered everything.
func (s *file) Run(context.Context) {}

// Close implements Sink.
func (s *file) Close() {
	if s.f != nil {
		_ = s.f.Close()
		s.f = nil
	}
}

// append appends a line. After an error the file is opened anew for the next.
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

// ready opens the file, and puts a full one aside.
func (s *file) ready(n int64) error {
	if s.f != nil && s.size > 0 && s.size+n > s.max {
		s.Close()
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
