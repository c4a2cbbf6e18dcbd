package httpd

import (
	"errors"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// The watched events, each reported once: the client has closed its side of a connection, or a connection is readable
// or has ended.
const (
	departed = unix.EPOLLRDHUP | unix.EPOLLET&0xffffffff
	readable = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLONESHOT
)

// watcher reports the kernel's events on connections, without a goroutine or a thread per connection. A connection is
// added once and costs nothing until its event. The watcher's single goroutine starts with the first connection and
// waits for events of an epoll descriptor.
type watcher struct {
	mu    sync.Mutex
	then  map[uint64]func() // by unique number: a descriptor's number is used again
	last  uint64
	file  *os.File        // the epoll descriptor; nil = not opened
	epoll syscall.RawConn // of file
	ended bool
	done  chan struct{} // closed by the goroutine at its end
}

// add watches c and calls then, in the goroutine of the watcher, at the first event. The result is the number of c, 0
// if c cannot be watched.
func (w *watcher) add(c *conn, events uint32, then func()) (number uint64) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended || w.file == nil && !w.open() {
		return 0
	}
	w.last++
	number = w.last
	w.then[number] = then
	event := unix.EpollEvent{Events: events, Fd: int32(uint32(number)), Pad: int32(uint32(number >> 32))}
	if w.control(raw, unix.EPOLL_CTL_ADD, &event) != nil {
		delete(w.then, number)
		return 0
	}
	return number
}

// control is epoll_ctl for the descriptor of raw. The caller holds mu.
func (w *watcher) control(raw syscall.RawConn, op int, event *unix.EpollEvent) error {
	var failed error
	err := w.epoll.Control(func(at uintptr) {
		err := raw.Control(func(fd uintptr) { failed = unix.EpollCtl(int(at), op, int(fd), event) })
		failed = errors.Join(failed, err)
	})
	return errors.Join(failed, err)
}

// release makes the kernel forget a connection that stays open after its event.
func (w *watcher) release(c *conn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.control(raw, unix.EPOLL_CTL_DEL, &unix.EpollEvent{})
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
	w.file, w.then, w.done = os.NewFile(uintptr(fd), "epoll"), map[uint64]func(){}, make(chan struct{})
	if w.epoll, err = w.file.SyscallConn(); err != nil {
		_ = w.file.Close()
		w.file = nil
		return false
	}
	go w.run(w.epoll)
	return true
}

// run waits for events until the descriptor is closed. Go's own poller waits for the descriptor, so no thread is
// held.
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
			if then := w.remove(uint64(uint32(e.Fd)) | uint64(uint32(e.Pad))<<32); then != nil {
				then()
			}
		}
	}
}

// remove removes a connection by its number, and returns its function then; nil if already removed.
func (w *watcher) remove(number uint64) (then func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	then = w.then[number]
	delete(w.then, number)
	return then
}

// close ends the goroutine and waits for its end.
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
