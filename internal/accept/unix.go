package accept

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// maxSocketPath is the most bytes of the path of a unix socket that all systems take.
const maxSocketPath = 103

// SocketPath returns the path in the address of a unix socket, unix:PATH; ok is false for other addresses.
func SocketPath(addr string) (path string, ok bool) { return strings.CutPrefix(addr, "unix:") }

// CheckSocketPath returns an error for a path at which no unix socket can be. An absolute one means the same to the
// server and to its clients, and a name of Linux without a file (@NAME) would have no permissions.
func CheckSocketPath(path string) error {
	switch {
	case !strings.HasPrefix(path, "/") || strings.HasSuffix(path, "/") || strings.ContainsRune(path, 0):
		return fmt.Errorf("%.140q is not the path of a unix socket: want an absolute path, such as "+
			"unix:/run/millrace/manage.sock", path)
	case len(path) > maxSocketPath:
		return fmt.Errorf("%.140q is longer than the %d bytes that the path of a unix socket may have", path,
			maxSocketPath)
	}
	return nil
}

// ListenAt is Listen for an address that may be that of a unix socket, unix:PATH. mode are then the permissions of
// its file: who may write it may connect. A file that a server has left there, which nobody answers at, is replaced.
// Close removes the file.
func (l *Limit) ListenAt(name, addr string, mode fs.FileMode) (net.Listener, error) {
	path, is := SocketPath(addr)
	if !is {
		return l.Listen(name, addr)
	}
	if err := CheckSocketPath(path); err != nil {
		return nil, err
	}
	inner, err := l.inherit(name, addr)
	switch {
	case err != nil:
	case inner != nil:
		inner, err = newSocketListener(inner.(*net.UnixListener), path, mode)
	default:
		inner, err = listenUnix(path, mode)
	}
	if err != nil {
		return nil, explainSocket(path, err)
	}
	return l.bound(name, addr, inner), nil
}

// socketListener is a listener at a unix socket. Its file is removed only as long as it is the listener's own.
type socketListener struct {
	*net.UnixListener
	path string
	file fs.FileInfo
	kept atomic.Bool // another server listens at the file
	once sync.Once
}

func listenUnix(path string, mode fs.FileMode) (_ net.Listener, err error) {
	if err := removeStale(path); err != nil {
		return nil, err
	}
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		// Linux gives the file at most the permissions of the socket, so that it is not open to more users for a
		// moment. The umask would be that of the whole process. Other systems refuse it.
		return c.Control(func(fd uintptr) { _ = syscall.Fchmod(int(fd), uint32(mode.Perm())) })
	}}
	inner, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	return newSocketListener(inner.(*net.UnixListener), path, mode)
}

func newSocketListener(inner *net.UnixListener, path string, mode fs.FileMode) (_ net.Listener, err error) {
	l := &socketListener{UnixListener: inner, path: path}
	l.SetUnlinkOnClose(false) // which would remove the file of a server that has replaced it
	if l.file, err = os.Lstat(path); err == nil {
		err = os.Chmod(path, mode.Perm())
	}
	if err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

// removeStale removes the file of a socket at which nobody listens.
func removeStale(path string) error {
	found, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case found.Mode().Type() != fs.ModeSocket:
		return errNoSocket
	}
	c, err := net.Dial("unix", path)
	if err == nil {
		_ = c.Close()
		return syscall.EADDRINUSE
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}

var errNoSocket = errors.New("there is a file that is not a unix socket: remove it, or choose another path")

// Close implements net.Listener.
func (l *socketListener) Close() (err error) {
	l.once.Do(func() {
		if now, e := os.Lstat(l.path); e == nil && !l.kept.Load() && l.file != nil && os.SameFile(now, l.file) {
			_ = os.Remove(l.path)
		}
		err = l.UnixListener.Close()
	})
	return err
}

// explainSocket is explain for a unix socket.
func explainSocket(path string, err error) error {
	switch {
	case errors.Is(err, errNoSocket):
		return fmt.Errorf("%s: %w", path, err)
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("%s is in use: end the program that listens there, or choose another path (%w)", path,
			syscall.EADDRINUSE)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the folder of %s is not there: make it, or choose another path (%w)", path, syscall.ENOENT)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the server's user may not make, replace or ask the socket %s: choose a folder that "+
			"belongs to it (%w)", path, syscall.EACCES)
	}
	return err
}
