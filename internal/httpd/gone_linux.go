package httpd

import (
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// watcher learns from the kernel which clients have closed their side of a connection. A
// connection is added once and costs nothing until then. It has one goroutine, which starts
// with the first connection and waits for events of an epoll descriptor.
type watcher struct {
	mu    sync.Mutex
	conns map[uint64]*conn // by a number that no other connection had: a descriptor's number is used again
	last  uint64
	file  *os.File // the epoll descriptor; nil = not opened
	ended bool
	done  chan struct{} // closed by the goroutine at its end
}

// add watches c. A connection that cannot be watched is not: its requests run to their end.
func (w *watcher) add(c *conn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || w.file == nil && !w.open() {
		return
	}
	epoll, err := w.file.SyscallConn()
	if err != nil {
		return
	}
	w.last++
	c.watched = w.last
	w.conns[c.watched] = c
	event := unix.EpollEvent{Events: unix.EPOLLRDHUP | unix.EPOLLET&0xffffffff, Fd: int32(uint32(c.watched)), Pad: int32(uint32(c.watched >> 32))}
	_ = epoll.Control(func(at uintptr) {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.EpollCtl(int(at), unix.EPOLL_CTL_ADD, int(fd), &event)
		})
	})
}

// open makes the epoll descriptor and starts the goroutine.
func (w *watcher) open() bool {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return false
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		_ = unix.Close(fd)
		return false
	}
	w.file, w.conns, w.done = os.NewFile(uintptr(fd), "epoll"), map[uint64]*conn{}, make(chan struct{})
	raw, err := w.file.SyscallConn()
	if err != nil {
		_ = w.file.Close()
		w.file = nil
		return false
	}
	go w.run(raw)
	return true
}

// run waits for events until the descriptor is closed. Go's own poller waits for the
// descriptor, so that no thread is held.
func (w *watcher) run(raw syscall.RawConn) {
	defer close(w.done)
	events := make([]unix.EpollEvent, 64)
	for {
		n := 0
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, failed = unix.EpollWait(int(fd), events, 0)
			return n > 0 || failed != nil
		})
		if err != nil || failed != nil && failed != unix.EINTR {
			return
		}
		for _, e := range events[:max(n, 0)] {
			if c := w.take(uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32); c != nil {
				c.left()
			}
		}
	}
}

// take returns the connection with that number, once; nil when it is closed.
func (w *watcher) take(number uint64) *conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := w.conns[number]
	delete(w.conns, number)
	return c
}

func (w *watcher) remove(c *conn) { w.take(c.watched) }

// close ends the goroutine and waits for it.
func (w *watcher) close() {
	w.mu.Lock()
	w.ended = true
	file := w.file
	w.mu.Unlock()
	if file != nil {
		_ = file.Close()
		<-w.done
	}
}
