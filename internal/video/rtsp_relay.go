package video

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"sync/atomic"
)

// relay connects ffmpeg to the RTSP server of a source. ffmpeg would follow a redirect to any address, so the relay
// reads the server's messages until PLAY, and a redirect ends the source.
type relay struct {
	*dialer
	server string // HOST:PORT
	tls    *tls.Config
}

func newRelay(ctx context.Context, d *dialer, u *url.URL) (*loopback, error) {
	r, port := &relay{dialer: d}, "554"
	if u.Scheme == SchemeRTSPS {
		port = "322"
		// Cameras have self-signed certificates; ffmpeg does not verify certificates either.
		r.tls = &tls.Config{ServerName: u.Hostname(), InsecureSkipVerify: true} //nolint:gosec // see above
	}
	if p := u.Port(); p != "" {
		port = p
	}
	r.server = net.JoinHostPort(u.Hostname(), port)
	return listen(ctx, r.serve)
}

func (r *relay) serve(ctx context.Context, conn *net.TCPConn) {
	up, err := r.connect(ctx)
	if err != nil {
		f, ok := failureIn(dialMessage(err))
		if !ok {
			f.kind = Refused
		}
		r.fail(r.src.fail(f.kind, f.why, err))
		return
	}
	defer closeWith(ctx, up)()
	var playing atomic.Bool
	replied := make(chan struct{})
	go func() {
		defer close(replied)
		defer conn.Close()
		err := copyReplies(conn, bufio.NewReader(up), &playing)
		switch {
		case errors.Is(err, errRedirect):
			r.fail(r.src.fail(Forbidden, "its server redirects to another address: use that address as the source",
				nil))
		case errors.Is(err, errReply):
			r.fail(r.src.fail(Unsupported, "its server's reply is not RTSP", nil))
		}
	}()
	b := make([]byte, 4096)
	for {
		n, err := conn.Read(b)
		// ffmpeg writes each request at once, after the reply to the previous request
		if bytes.HasPrefix(b[:n], []byte("PLAY ")) {
			playing.Store(true)
		}
		if _, e := up.Write(b[:n]); err != nil || e != nil {
			break
		}
	}
	_, _ = up.Close(), conn.Close()
	<-replied
}

func (r *relay) connect(ctx context.Context) (net.Conn, error) {
	conn, err := r.dial(ctx, r.server)
	if err != nil || r.tls == nil {
		return conn, err
	}
	t := tls.Client(conn, r.tls)
	if err := t.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return t, nil
}

var (
	errRedirect = errors.New("video: an RTSP redirect")
	errReply    = errors.New("video: no RTSP message")

	// statusLine and requestLine match the first line of an RTSP message.
	statusLine  = regexp.MustCompile(`^RTSP/1\.[0-9] ([1-9])[0-9][0-9]( |$)`)
	requestLine = regexp.MustCompile(`^[A-Z_]+ `)
)

// copyReplies copies message by message until playing, then bytes: from then on ffmpeg follows no redirects.
func copyReplies(dst io.Writer, src *bufio.Reader, playing *atomic.Bool) error {
	for !playing.Load() {
		if err := copyMessage(dst, src); err != nil {
			return err
		}
	}
	_, err := io.Copy(dst, src)
	return err
}

// copyMessage copies one message or interleaved packet. copyMessage refuses ambiguous messages: ffmpeg could read a
// redirect there that copyMessage does not see.
func copyMessage(dst io.Writer, src *bufio.Reader) error {
	if b, err := src.Peek(1); err != nil {
		return err
	} else if b[0] == '$' {
		head, err := src.Peek(4)
		if err != nil {
			return err
		}
		_, err = io.CopyN(dst, src, 4+int64(head[2])<<8+int64(head[3]))
		return err
	}
	length := int64(-1)
	for n := 0; ; n++ {
		line, err := src.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return errReply
		} else if err != nil {
			return err
		}
		text := bytes.TrimSuffix(line[:len(line)-1], []byte("\r"))
		switch {
		case bytes.ContainsFunc(text, func(c rune) bool {
			return c < ' ' && c != '\t' || c == 0x7f
		}), bytes.HasPrefix(text, []byte("$")):
			return errReply
		case n == 0:
			status := statusLine.FindSubmatch(text)
			if status == nil && !requestLine.Match(text) {
				return errReply
			}
			if status != nil && status[1][0] == '3' {
				return errRedirect
			}
		case len(text) > 0:
			if length, err = bodyLength(text, length); err != nil {
				return err
			}
		}
		if _, err := dst.Write(line); err != nil {
			return err
		}
		if len(text) == 0 {
			break
		}
	}
	if length > 0 {
		_, err := io.CopyN(dst, src, length)
		return err
	}
	return nil
}

// bodyLength returns the body's length by a header line, or else the length known before; -1 for unknown.
func bodyLength(line []byte, before int64) (int64, error) {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok || !bytes.EqualFold(bytes.TrimSpace(name), []byte("Content-Length")) {
		return before, nil
	}
	n, err := strconv.ParseUint(string(bytes.Trim(value, " \t")), 10, 20)
	if err != nil || before >= 0 || len(name) != len("Content-Length") {
		return 0, errReply
	}
	return int64(n), nil
}
