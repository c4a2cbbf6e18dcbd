package child

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// stdinWriter writes several slices to a pipe with one system call, so that the child wakes up only once. A
// stdinWriter is for one goroutine at a time.
type stdinWriter struct {
	conn syscall.RawConn
	all  [][]byte // memory for left
	left [][]byte
	err  error
	once func(fd uintptr) bool // s.writev, made once
}

func newStdinWriter(f *os.File) (*stdinWriter, error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	s := &stdinWriter{conn: conn}
	s.once = s.writev
	return s, nil
}

func (s *stdinWriter) write(parts [][]byte) error {
	s.all = s.all[:0]
	for _, p := range parts {
		if len(p) > 0 {
			s.all = append(s.all, p)
		}
	}
	defer clear(s.all) // the caller's memory
	s.left, s.err = s.all, nil
	if err := s.conn.Write(s.once); err != nil {
		return err
	}
	if s.err != nil {
		return os.NewSyscallError("writev", s.err)
	}
	return nil
}

// writev writes the remaining slices. The result is false when the pipe is full: the caller calls again when there is
// room.
func (s *stdinWriter) writev(fd uintptr) bool {
	for len(s.left) > 0 {
		n, err := unix.Writev(int(fd), s.left)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return false
		case err != nil:
			s.err = err
			return true
		}
		for n > 0 {
			if n < len(s.left[0]) {
				s.left[0] = s.left[0][n:]
				break
			}
			n -= len(s.left[0])
			s.left = s.left[1:]
		}
	}
	return true
}
