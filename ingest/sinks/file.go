package sinks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"
	"time"

	"millrace/stream"
)

// keepFiles is the number of old files kept: NAME.1 is the newest.
const keepFiles = 3

func init() { Register(Kind{Name: "file", Exclusive: true, New: func() Settings { return new(File) }}) }

// File appends results to a file of JSON lines.
type File struct {
	Path    string `json:"file" path:"file" request:"any" help:"append results to this file, one JSON object a line; a request names a file inside sinks.folder"`
	MaxSize int64  `json:"max_size" unit:"bytes" request:"any" min:"1KiB" default:"64MiB" advanced:"yes" help:"size at which the file is renamed and a new file begun; three old files are kept"`
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
	s := &file{path: c.Path, max: c.MaxSize, in: osFileSystem{}, stream: e.Stream, log: e.Log}
	if e.Requested {
		s.in, s.bounded = removedFolder{}, true
		if e.Files != nil {
			s.in = e.Files.root
			s.release = e.Files.hold(c.Path, c.MaxSize)
		}
	}
	return s
}

// file writes in Write, which one goroutine calls. Write waits for the disk, and counts failed writes as lost lines.
type file struct {
	path    string
	max     int64
	in      fileSystem
	release func() // tells Files that the sink stopped writing the file; nil = not counted, or closed
	stream  string

	bounded bool // the file never exceeds max: further lines are lost
	log     *slog.Logger

	f        *os.File
	size     int64 // of a regular file
	torn     bool  // the last line is incomplete
	regular  bool
	stuck    bool  // the reader of a FIFO does not read
	rotateAt int64 // size for the next attempt after a failed rotation; 0 = no failure

	counters
}

// fifoWait is the maximum wait of a write for the reader of a FIFO. Later writes do not wait until the reader reads
// again.
const fifoWait = time.Second

// Write implements Sink.
func (s *file) Write(line []byte) {
	written, err := s.append(line)
	if s.fail(err); err != nil && !written {
		s.lost.Add(1)
		s.log.Error("a result could not be written to its file", "stream", s.stream, "error", err)
		return
	}
	s.sent.Add(1)
}

// Run implements Sink. Run has nothing to do, because Write delivers everything.
func (s *file) Run(context.Context) {}

// Close implements Sink.
func (s *file) Close() {
	s.closeFile()
	if s.release != nil {
		s.release()
		s.release = nil
	}
}

// closeFile closes the file. The next line opens the file again.
func (s *file) closeFile() {
	if s.f != nil {
		_ = s.f.Close()
		s.f = nil
	}
}

// append appends a line, again if the file was removed meanwhile. After an error the file is opened again for the
// next line. written reports whether the line was written: an error is then why the file could not be renamed.
func (s *file) append(line []byte) (written bool, err error) {
	const tries = 3 // somebody may remove the file again and again
	if s.bounded && int64(len(line))+2 > s.max {
		return false, fmt.Errorf("sinks.file: a line of %d bytes is longer than max_size", len(line))
	}
	for range tries {
		rotated, err := s.ready(int64(len(line)) + 1)
		if err == nil {
			err = s.write(line)
		}
		var removed bool
		if err == nil {
			removed, err = s.check()
		}
		switch {
		case err != nil:
			s.closeFile()
			return false, fmt.Errorf("sinks.file: %w", err)
		case !removed:
			return true, rotated
		}
		s.closeFile()
	}
	return false, fmt.Errorf("sinks.file: %s is removed again and again", s.path)
}

func (s *file) write(line []byte) error {
	text := append(line[:len(line):len(line)], '\n')
	if s.torn {
		text = append([]byte{'\n'}, text...)
	}
	if !s.regular {
		wait := fifoWait
		if s.stuck {
			wait = 0
		}
		_ = s.f.SetWriteDeadline(time.Now().Add(max(wait, time.Millisecond))) // a device may have none
	}
	n, err := s.f.Write(text)
	s.torn = 0 < n && n < len(text)
	if s.stuck = errors.Is(err, os.ErrDeadlineExceeded); s.stuck {
		return fmt.Errorf("%s is not a regular file, and its reader does not read", s.path)
	}
	return err
}

// check looks at the file after a write. If the path no longer leads to this file, check closes the file, so that the
// next line goes to a new file at the path. removed reports that the file has no name left, so that nobody will read
// the line.
func (s *file) check() (removed bool, err error) {
	st, err := s.f.Stat()
	if err != nil {
		return false, err
	}
	s.size = st.Size()
	now, err := s.in.Stat(s.path)
	if err == nil && os.SameFile(st, now) {
		return false, nil
	}
	own, ok := st.Sys().(*syscall.Stat_t)
	removed = ok && own.Nlink == 0 && s.regular
	s.closeFile()
	return removed, nil
}

// ready opens the file for n more bytes, and rotates a full file. When renaming fails, the file grows on, and rotated
// is the error.
func (s *file) ready(n int64) (rotated, err error) {
	if err := s.open(); err != nil || !s.regular || s.size == 0 || s.size+n <= max(s.max, s.rotateAt) {
		return nil, err
	}
	s.closeFile()
	if err := s.rotate(); err != nil && s.bounded {
		return nil, fmt.Errorf("a full file cannot be renamed: %w", err)
	} else if err != nil {
		rotated = fmt.Errorf("sinks.file: a full file cannot be renamed, and grows on: %w", err)
		s.rotateAt = s.size + s.max/8
		s.log.Error("a full file of results cannot be renamed, and grows on", "stream", s.stream, "error", err)
	} else {
		s.rotateAt = 0
	}
	return rotated, s.open()
}

// open opens the file unless already open.
func (s *file) open() error {
	if s.f != nil {
		return nil
	}
	// Without O_NONBLOCK, opening a FIFO would wait for a reader, and a write to the FIFO could not have a deadline.
	f, err := s.in.OpenFile(s.path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|syscall.O_NONBLOCK, 0o644)
	if errors.Is(err, syscall.ENXIO) {
		return fmt.Errorf("%s is a FIFO that nobody reads", s.path)
	}
	if err != nil {
		return err
	}
	st, err := f.Stat()
	if err != nil {
		_ = f.Close()
		return err
	}
	s.f, s.size, s.regular = f, st.Size(), st.Mode().IsRegular()
	if s.regular {
		s.torn = torn(s.in, s.path, st)
	}
	return nil
}

// torn reports whether a file's last line is incomplete after a full disk or a kill of the server, so that the next
// line would continue the incomplete line. An unreadable file counts as torn, since an empty line does less harm.
func torn(in fileSystem, path string, st os.FileInfo) bool {
	if !st.Mode().IsRegular() || st.Size() == 0 {
		return false
	}
	f, err := in.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return true
	}
	defer f.Close()
	var last [1]byte
	_, err = f.ReadAt(last[:], st.Size()-1)
	return err != nil || last[0] != '\n'
}

// rotate renames the file to NAME.1, the previous NAME.1 to NAME.2 and so on, and removes the oldest file.
func (s *file) rotate() error {
	for i := range keepFiles {
		from, to := s.path, keepFiles-i
		if to > 1 {
			from = fmt.Sprintf("%s.%d", s.path, to-1)
		}
		if err := s.in.Rename(from, fmt.Sprintf("%s.%d", s.path, to)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
