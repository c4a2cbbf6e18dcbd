package video

import (
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// lazyPipe is the read end of a pipe whose reader is not in a hurry. A reading for each packet of each camera, with the
// thread that wakes, would be the largest cost of packets. So the reader waits while the pipe is empty, and all
// readers wake at the same moments. The pipe is outside of Go's poller, because the poller wakes on each write.
type lazyPipe struct {
	fd   int
	size int // of the pipe
	read int // bytes since the last wait

	ends  chan struct{} // closed by hurry
	once  sync.Once
	until time.Time // set before ends is closed
}

// readEach is the time between two readings of an empty pipe. After a quarter of the pipe was read at once, as of a
// file, the time is readSoon: a full pipe would hold up ffmpeg.
const readEach, readSoon = 100 * time.Millisecond, 5 * time.Millisecond

// newLazyPipe returns a pipe, and its write end.
func newLazyPipe() (*lazyPipe, *os.File, error) {
	in, out, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	fd, err := unix.FcntlInt(in.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	_ = in.Close() // takes the pipe out of the poller
	if err == nil {
		if err = unix.SetNonblock(fd, true); err != nil {
			_ = unix.Close(fd)
		}
	}
	if err != nil {
		_ = out.Close()
		return nil, nil, err
	}
	return &lazyPipe{fd: fd, size: growPacketPipe(fd), ends: make(chan struct{})}, out, nil
}

// Read implements io.Reader. One goroutine reads.
func (p *lazyPipe) Read(b []byte) (int, error) {
	for {
		n, err := unix.Read(p.fd, b)
		switch {
		case err == unix.EINTR:
		case err == unix.EAGAIN:
			if err := p.wait(); err != nil {
				return 0, err
			}
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n == 0:
			return 0, io.EOF
		default:
			p.read += n
			return n, nil
		}
	}
}

// wait waits until the next moment of reading.
func (p *lazyPipe) wait() error {
	each, ends := readEach, p.ends
	if p.read > p.size/4 {
		each = readSoon
	}
	p.read = 0
	select {
	case <-ends:
		if !time.Now().Before(p.until) {
			return os.ErrDeadlineExceeded
		}
		each, ends = readSoon, nil
	default:
	}
	t := time.NewTimer(each - time.Duration(time.Now().UnixNano())%each)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ends:
	}
	return nil
}

// hurry lets the reader read what comes until a time at once.
func (p *lazyPipe) hurry(until time.Time) {
	p.once.Do(func() {
		p.until = until
		close(p.ends)
	})
}

// Close closes the pipe after the last Read.
func (p *lazyPipe) Close() error { return unix.Close(p.fd) }
