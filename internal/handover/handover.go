// Package handover passes the listening sockets of a server to the server that replaces it, over a unix socket. Both
// servers then accept from the same queues, so that no connection is lost: not in a queue, and not in a handshake.
//
// The successor calls Take before it listens, loads its models, serves, and calls Serving. The predecessor, which has
// called Offer, then gets Taken, stops accepting, and calls Leave.
//
// The package owns the messages between two servers, and the file of the socket. It must not know what the sockets
// serve.
package handover

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	maxSockets = 64          // in a message; Linux allows 253
	maxMessage = 64 << 10    // bytes of the names
	answerTime = time.Minute // for an answer of the other server
)

// Socket is a listening socket. File duplicates the descriptor.
type Socket struct {
	Name string
	File func() (*os.File, error)
}

// Taken is a predecessor. Its methods may be called by several goroutines.
type Taken struct {
	conn *net.UnixConn

	mu    sync.Mutex
	files map[string]*os.File
}

// Take connects to the server that offers its sockets at path, and takes them. The result is nil if there is no server.
func Take(path string) (*Taken, error) {
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case st.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s is not a unix socket: remove the file, or choose another path", path)
	}
	// Another user could keep the descriptors, and answer in place of this server.
	if of, ok := st.Sys().(*syscall.Stat_t); ok && int(of.Uid) != os.Geteuid() && of.Uid != 0 {
		return nil, fmt.Errorf("%s belongs to the user %d: choose a path in a folder of the server's user", path,
			of.Uid)
	}
	c, err := net.DialTimeout("unix", path, answerTime)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist):
		return nil, nil // left by a server that has ended
	case err != nil:
		return nil, err
	}
	t := &Taken{conn: c.(*net.UnixConn), files: map[string]*os.File{}}
	if err := t.receive(); err != nil {
		t.Close()
		return nil, fmt.Errorf("the server at %s does not hand its sockets over: %w", path, err)
	}
	return t, nil
}

// receive reads the names, a line of JSON, with the descriptors.
func (t *Taken) receive() error {
	_ = t.conn.SetDeadline(time.Now().Add(answerTime))
	var text []byte
	var fds []int
	for len(text) == 0 || text[len(text)-1] != '\n' {
		part, rights := make([]byte, 4096), make([]byte, unix.CmsgSpace(4*maxSockets))
		n, used, _, _, err := t.conn.ReadMsgUnix(part, rights)
		more, bad := descriptors(rights[:used])
		fds = append(fds, more...)
		if err = errors.Join(err, bad); err != nil || n == 0 || len(text)+n > maxMessage {
			closeAll(fds)
			return errors.Join(errors.New("the message is incomplete"), err)
		}
		text = append(text, part[:n]...)
	}
	var names []string
	if err := json.Unmarshal(text, &names); err != nil || len(names) != len(fds) {
		closeAll(fds)
		return errors.Join(fmt.Errorf("%d names with %d sockets", len(names), len(fds)), err)
	}
	for i, name := range names {
		t.files[name] = os.NewFile(uintptr(fds[i]), name)
	}
	return t.conn.SetDeadline(time.Time{})
}

func descriptors(rights []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	for _, m := range messages {
		some, err := unix.ParseUnixRights(&m)
		if err != nil {
			return fds, err
		}
		for _, fd := range some {
			unix.CloseOnExec(fd)
		}
		fds = append(fds, some...)
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// Listener returns the socket of a name, once; nil = there is none.
func (t *Taken) Listener(name string) (net.Listener, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.files[name]
	if f == nil {
		return nil, nil
	}
	delete(t.files, name)
	ln, err := net.FileListener(f)
	return ln, errors.Join(err, f.Close())
}

// Serving tells the predecessor that this server serves, and waits until the predecessor has stopped accepting.
// Serving returns nil if the predecessor has ended.
func (t *Taken) Serving() error {
	defer t.Close()
	_ = t.conn.SetDeadline(time.Now().Add(answerTime))
	if _, err := t.conn.Write([]byte("serving\n")); err != nil {
		return nil // the predecessor has ended
	}
	if _, err := bufio.NewReader(t.conn).ReadString('\n'); errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.New("the server that was replaced does not stop accepting")
	}
	return nil
}

// Close closes the sockets that no call of Listener has returned, and the connection. The predecessor stays.
func (t *Taken) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, f := range t.files {
		_ = f.Close()
		delete(t.files, name)
	}
	_ = t.conn.Close()
}

// Offer is the offer of a server's sockets at a path.
type Offer struct {
	ln      *net.UnixListener
	path    string
	file    fs.FileInfo
	sockets func() []Socket

	taken chan struct{}
	left  chan struct{}
	end   chan struct{}
	once  struct{ taken, left, end sync.Once }
	conns sync.WaitGroup
}

// NewOffer offers sockets at path, in place of a server that offers there. Only processes of this user can connect.
func NewOffer(path string, sockets func() []Socket) (*Offer, error) {
	own := path + ".new"
	if err := os.Remove(own); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		// Linux gives the file at most the permissions of the socket, so that no other user can connect for a moment.
		return c.Control(func(fd uintptr) { _ = unix.Fchmod(int(fd), 0o600) })
	}}
	any, err := config.Listen(context.Background(), "unix", own)
	if err != nil {
		return nil, fmt.Errorf("the folder %s has to belong to the server's user: %w", filepath.Dir(path), err)
	}
	inner := any.(*net.UnixListener)
	inner.SetUnlinkOnClose(false)
	o := &Offer{ln: inner, path: path, sockets: sockets, taken: make(chan struct{}), left: make(chan struct{}),
		end: make(chan struct{})}
	if err = os.Chmod(own, 0o600); err == nil {
		o.file, err = os.Lstat(own)
	}
	if err == nil {
		err = os.Rename(own, path)
	}
	if err != nil {
		return nil, errors.Join(err, inner.Close(), os.Remove(own))
	}
	o.conns.Go(o.accept)
	return o, nil
}

// Taken is closed when a successor serves.
func (o *Offer) Taken() <-chan struct{} { return o.taken }

// Leave tells the successor that this server has stopped accepting.
func (o *Offer) Leave() { o.once.left.Do(func() { close(o.left) }) }

// Close ends the offer, and removes the file unless a successor has replaced it.
func (o *Offer) Close() error {
	o.once.end.Do(func() {
		close(o.end)
		if now, err := os.Lstat(o.path); err == nil && os.SameFile(now, o.file) {
			_ = os.Remove(o.path)
		}
		_ = o.ln.Close()
	})
	o.conns.Wait()
	return nil
}

func (o *Offer) accept() {
	for {
		c, err := o.ln.AcceptUnix()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			select { // such as no free descriptor
			case <-o.end:
				return
			case <-time.After(time.Second):
				continue
			}
		}
		o.conns.Go(func() { o.serve(c) })
	}
}

// serve hands the sockets to a successor. A connection that ends without a word is of a successor that failed.
func (o *Offer) serve(c *net.UnixConn) {
	defer c.Close()
	ended := make(chan struct{})
	defer close(ended)
	o.conns.Go(func() { // ends with serve
		select {
		case <-o.end:
			_ = c.Close()
		case <-ended:
		}
	})
	if err := o.send(c); err != nil {
		return
	}
	if word, err := bufio.NewReaderSize(c, 16).ReadString('\n'); err != nil || word != "serving\n" {
		return
	}
	o.once.taken.Do(func() { close(o.taken) })
	select {
	case <-o.left:
		_, _ = c.Write([]byte("left\n"))
	case <-o.end:
	}
}

func (o *Offer) send(c *net.UnixConn) error {
	var names []string
	var fds []int
	for _, s := range o.sockets() {
		f, err := s.File()
		if err != nil {
			return err
		}
		defer f.Close()
		raw, err := f.SyscallConn() // Fd would make the socket blocking, here and in the successor
		if err == nil {
			err = raw.Control(func(fd uintptr) { names, fds = append(names, s.Name), append(fds, int(fd)) })
		}
		if err != nil {
			return err
		}
	}
	text, err := json.Marshal(names)
	if err != nil {
		return err
	}
	if len(fds) > maxSockets || len(text) >= maxMessage {
		return fmt.Errorf("%d sockets are more than %d", len(fds), maxSockets)
	}
	_ = c.SetWriteDeadline(time.Now().Add(answerTime))
	n, _, err := c.WriteMsgUnix(append(text, '\n'), unix.UnixRights(fds...), nil)
	if err == nil && n <= len(text) {
		_, err = c.Write(append(text, '\n')[n:])
	}
	return err
}
