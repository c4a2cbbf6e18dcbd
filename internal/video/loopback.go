package video

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// loopback accepts ffmpeg's connections on a port of 127.0.0.1.
type loopback struct {
	addr   string // 127.0.0.1:PORT
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// listen calls serve for each connection, in a new goroutine. The return of serve closes the connection; the end of
// ctx closes the connections and the listener.
func listen(ctx context.Context, serve func(ctx context.Context, conn *net.TCPConn)) (*loopback, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("video: %w", err)
	}
	l := &loopback{addr: ln.Addr().String()}
	ctx, l.cancel = context.WithCancel(ctx)
	context.AfterFunc(ctx, func() { _ = ln.Close() })
	l.wg.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			l.wg.Go(func() {
				defer closeWith(ctx, conn)()
				serve(ctx, conn.(*net.TCPConn))
			})
		}
	})
	return l, nil
}

// close closes the listener and all connections, and waits until every serve has returned.
func (l *loopback) close() {
	l.cancel()
	l.wg.Wait()
}

// closeWith closes a connection when ctx ends, or the returned function is called.
func closeWith(ctx context.Context, conn net.Conn) (done func()) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	return func() {
		stop()
		_ = conn.Close()
	}
}

// dialer connects to the addresses requested by ffmpeg.
type dialer struct {
	allow func(netip.Addr) error // nil allows all
	src   source
	fail  func(error)
	// playing is set when the first frame was read: requests are not counted any more.
	playing atomic.Bool
	process atomic.Int64  // group of the newest ffmpeg or ffprobe; 0 before
	started chan struct{} // closed when process was set
	once    sync.Once
}

// start records the process group of the started ffmpeg or ffprobe.
func (d *dialer) start(group int) {
	d.process.Store(int64(group))
	d.once.Do(func() { close(d.started) })
}

// isFFmpeg reports whether a connection to this process comes from the source's ffmpeg or ffprobe. isFFmpeg waits
// until the program has started.
func (d *dialer) isFFmpeg(ctx context.Context, conn *net.TCPConn) bool {
	if d.started == nil {
		return false
	}
	select {
	case <-d.started:
		return ownsPeer(conn, int(d.process.Load()))
	case <-ctx.Done():
		return false
	}
}

// notAllowed is an error of allow.
type notAllowed struct{ error }

// dial calls allow after the look-up, with the very address that dial then connects to. A refusal by allow fails the
// source.
func (d *dialer) dial(ctx context.Context, address string) (net.Conn, error) {
	var nd net.Dialer
	if d.allow != nil {
		nd.Control = func(_, address string, _ syscall.RawConn) error {
			a, err := netip.ParseAddrPort(address)
			if err == nil {
				err = d.allow(a.Addr().WithZone("").Unmap())
			}
			if err != nil {
				return notAllowed{err}
			}
			return nil
		}
	}
	conn, err := nd.DialContext(ctx, "tcp", address)
	var no notAllowed
	if errors.As(err, &no) {
		d.fail(d.src.fail(Forbidden, d.src.red.text(no.Error()), no.error))
	}
	return conn, err
}

// dialMessage returns why a connection failed, in ffmpeg's words.
func dialMessage(err error) string {
	var dns *net.DNSError
	var no syscall.Errno
	switch {
	case errors.As(err, &dns):
		return "Failed to resolve hostname"
	case errors.As(err, &no):
		text := no.Error()
		return strings.ToUpper(text[:1]) + text[1:]
	}
	return "Connection failed"
}
