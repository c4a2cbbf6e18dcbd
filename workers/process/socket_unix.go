//go:build unix

package process

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// socket is the server's end of the connection to a child.
type socket struct {
	file *os.File
	conn syscall.RawConn
	all  [][]byte // memory for the parts of a message
}

// newSocket returns both ends of a connection. The second is for the child.
func newSocket() (*socket, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socket pair: %w", err)
	}
	for _, fd := range fds {
		unix.CloseOnExec(fd)
	}
	_ = unix.SetNonblock(fds[0], true)
	// Room for a message with a few data, to be written at once.
	_ = unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_SNDBUF, 1<<20)
	_ = unix.SetsockoptInt(fds[1], unix.SOL_SOCKET, unix.SO_SNDBUF, 1<<20)
	s := &socket{file: os.NewFile(uintptr(fds[0]), "child")}
	theirs := os.NewFile(uintptr(fds[1]), "server")
	if s.conn, err = s.file.SyscallConn(); err != nil {
		_ = s.file.Close()
		_ = theirs.Close()
		return nil, nil, err
	}
	return s, theirs, nil
}

// errHalf means that only a part of a message was written: the child cannot understand later messages.
var errHalf = errors.New("only a part of the message was written")

// write writes the parts of a message, the first part with a descriptor unless fd is negative. A child that does not
// read the message within limit is an error: os.ErrDeadlineExceeded, and errHalf if a part was written. With limit 0
// write does not wait, except after a partial write, with writeLimit; a message of up to 32 KiB is never partial. For
// one goroutine at a time.
func (s *socket) write(parts [][]byte, fd int, limit time.Duration) error {
	s.all = append(s.all[:0], parts...)
	left := s.all
	defer clear(s.all)
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	var failed error
	full, waits, some := false, false, false
	once := func(c uintptr) bool {
		for len(left) > 0 {
			if len(left[0]) == 0 {
				left = left[1:]
				continue
			}
			n, err := unix.SendmsgBuffers(int(c), left[:min(len(left), 512)], rights, nil, unix.MSG_NOSIGNAL)
			switch {
			case err == unix.EINTR:
				continue
			case err == unix.EAGAIN:
				full = true
				return !waits
			case err != nil:
				failed = os.NewSyscallError("sendmsg", err)
				return true
			}
			rights, some = nil, true
			for n > 0 {
				if n < len(left[0]) {
					left[0] = left[0][n:]
					break
				}
				n -= len(left[0])
				left = left[1:]
			}
		}
		full = false
		return true
	}
	err := s.conn.Write(once)
	if full && limit <= 0 {
		if limit = writeLimit; !some {
			return os.ErrDeadlineExceeded
		}
	}
	if err == nil && full && failed == nil {
		// Only now a deadline is needed.
		_ = s.file.SetWriteDeadline(time.Now().Add(limit))
		waits = true
		err = s.conn.Write(once)
		_ = s.file.SetWriteDeadline(time.Time{})
	}
	if err == nil {
		err = failed
	}
	if err != nil && some {
		err = fmt.Errorf("%w: %w", errHalf, err)
	}
	return err
}
