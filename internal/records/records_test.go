package records

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// authority is the certificate of httptest, which is for example.com.
var authority = sync.OnceValue(func() *httptest.Server {
	s := httptest.NewTLSServer(nil)
	s.Close()
	return s
})

// trusting returns the configuration of a client that trusts authority.
func trusting() *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(authority().Certificate())
	return &tls.Config{RootCAs: roots}
}

// counted counts the writes to a connection.
type counted struct {
	net.Conn
	mu     sync.Mutex
	writes int
}

func (c *counted) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.writes++
	c.mu.Unlock()
	return c.Conn.Write(p)
}

func (c *counted) take() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, c.writes = c.writes, 0
	return n
}

// dial returns a client's connection with the versions of TLS up to version, what counts the
// writes below it, and the server's end.
func dial(t require, version uint16) (net.Conn, *counted, *tls.Conn) {
	near, far := net.Pipe()
	below := &counted{Conn: near}
	server := tls.Server(far, &tls.Config{Certificates: authority().TLS.Certificates, MaxVersion: version})
	shaken := make(chan error, 1)
	go func() { shaken <- server.Handshake() }()
	client, err := Dialer(func(context.Context, string, string) (net.Conn, error) {
		return below, nil
	}, trusting())(context.Background(), "tcp", "example.com:443")
	if err = errors.Join(err, <-shaken); err != nil {
		t.Fatal(err)
	}
	below.take()
	return client, below, server
}

// require is a testing.T or a rapid.T.
type require interface {
	Fatal(...any)
	Fatalf(string, ...any)
}

// TestWrites checks that messages of all sizes arrive whole, and that each leaves in one
// write for each four full records.
func TestWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		client, below, server := dial(t, rapid.SampledFrom([]uint16{tls.VersionTLS12, tls.VersionTLS13}).Draw(t,
			"version"))
		defer server.NetConn().Close()
		defer client.(*conn).below.Close()
		size := rapid.OneOf(rapid.IntRange(1, 4*Max), rapid.Custom(func(t *rapid.T) int {
			return Max*rapid.IntRange(1, 20).Draw(t, "records") + rapid.IntRange(-1, 1).Draw(t, "beside")
		}))
		for i, n := range rapid.SliceOfN(size, 1, 10).Draw(t, "sizes") {
			sent := bytes.Repeat([]byte{byte(i), byte(n), byte(n >> 8)}, n/3+1)[:n]
			got := make([]byte, n)
			received := make(chan error, 1)
			go func() {
				_, err := io.ReadFull(server, got)
				received <- err
			}()
			m, err := client.Write(sent)
			if err = errors.Join(err, <-received); m != n || err != nil {
				t.Fatalf("%d of %d bytes: %v", m, n, err)
			}
			if !bytes.Equal(got, sent) {
				t.Fatalf("message %d of %d bytes has changed", i, n)
			}
			// Of the first records of a connection, which are short, a few more fit into one write or two.
			if writes, most := below.take(), 1+n/(4*Max); n > Max && writes > most+1 ||
				n > Max && n < 3*Max && writes != 1 {
				t.Fatalf("%d bytes left in %d writes, want %d", n, writes, most)
			}
		}
	})
}

// TestConcurrentWrites checks that the messages of several goroutines arrive one after the
// other.
func TestConcurrentWrites(t *testing.T) {
	client, _, server := dial(t, tls.VersionTLS13)
	const writers, each, size = 4, 20, 9*Max + 100
	var all sync.WaitGroup
	for i := range writers {
		all.Go(func() {
			for range each {
				if _, err := client.Write(bytes.Repeat([]byte{byte(i)}, size)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	_ = server.SetReadDeadline(time.Now().Add(30 * time.Second)) // bytes that are lost would be waited for
	seen := make([]int, writers)
	for range writers * each {
		msg := make([]byte, size)
		if _, err := io.ReadFull(server, msg); err != nil {
			t.Fatal(err)
		}
		if slices.Max(msg) != slices.Min(msg) {
			t.Fatal("messages are mixed")
		}
		seen[msg[0]]++
	}
	all.Wait()
	if slices.Min(seen) != each {
		t.Error(seen)
	}
	_, _ = server.NetConn().Close(), client.(*conn).below.Close()
}

// TestHalfClose checks that what was written before CloseWrite arrives before the end, and
// that the answer to it is read.
func TestHalfClose(t *testing.T) {
	near, far := pair(t)
	server := tls.Server(far, &tls.Config{Certificates: authority().TLS.Certificates})
	var got []byte
	answered := make(chan error, 1)
	go func() {
		var err error
		if got, err = io.ReadAll(server); err == nil {
			_, err = server.Write([]byte("answer"))
		}
		answered <- errors.Join(err, server.Close())
	}()
	client, err := Dialer(func(context.Context, string, string) (net.Conn, error) {
		return near, nil
	}, trusting())(t.Context(), "tcp", "example.com:443")
	if err != nil {
		t.Fatal(err)
	}
	sent := bytes.Repeat([]byte("question"), 10_000)
	_, err = client.Write(sent)
	err = errors.Join(err, client.(*conn).CloseWrite())
	answer, err2 := io.ReadAll(client)
	if err = errors.Join(err, err2, <-answered, client.Close()); err != nil || string(answer) != "answer" ||
		!bytes.Equal(got, sent) {
		t.Errorf("%v, %d of %d bytes, answer %q", err, len(got), len(sent), answer)
	}
}

// pair returns the ends of a TCP connection.
func pair(t *testing.T) (near, far net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if near, err = net.Dial("tcp", l.Addr().String()); err == nil {
		far, err = l.Accept()
	}
	if err != nil {
		t.Fatal(err)
	}
	return near, far
}

// TestFailedWrites checks that a Write to a server that does not read, or has left, returns
// an error at its deadline, or at once.
func TestFailedWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, size := range []int{100, 2 * Max, 30 * Max} {
			client, _, server := dial(t, tls.VersionTLS13)
			began := time.Now()
			_ = client.SetWriteDeadline(began.Add(time.Second))
			if _, err := client.Write(make([]byte, size)); !errors.Is(err, os.ErrDeadlineExceeded) ||
				time.Since(began) != time.Second {
				t.Errorf("%d bytes that nobody reads: %v after %v", size, err, time.Since(began))
			}
			_, _ = server.NetConn().Close(), client.(*conn).below.Close()

			client, _, server = dial(t, tls.VersionTLS13)
			_ = server.NetConn().Close()
			if _, err := client.Write(make([]byte, size)); !errors.Is(err, io.ErrClosedPipe) {
				t.Errorf("%d bytes to a server that has left: %v", size, err)
			}
			_ = client.(*conn).below.Close()
		}
	})
}

// TestHandshakes checks that the certificate has to be that of the name in the address, or of
// the configuration, that a failure closes the connection, and that ctx ends a handshake.
func TestHandshakes(t *testing.T) {
	other := trusting()
	other.ServerName = "other.test"
	for _, c := range []struct {
		config *tls.Config
		addr   string
		want   string
	}{
		{trusting(), "example.com:443", ""},
		{trusting(), "other.test:443", "not other.test"},
		{other, "example.com:443", "not other.test"},
		{nil, "example.com:443", "unknown authority"},
		{&tls.Config{InsecureSkipVerify: true}, "other.test:443", ""},
	} {
		near, far := net.Pipe()
		ended := make(chan error, 1)
		go func() {
			server := tls.Server(far, &tls.Config{Certificates: authority().TLS.Certificates})
			err := server.Handshake()
			if err == nil {
				_, err = server.Read(make([]byte, 1))
			}
			ended <- err
		}()
		client, err := Dialer(func(context.Context, string, string) (net.Conn, error) {
			return near, nil
		}, c.config)(t.Context(), "tcp", c.addr)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.addr, err, c.want)
		}
		if closed := near.SetDeadline(time.Time{}) != nil; closed != (err != nil) {
			t.Errorf("%s: closed: %v, %v", c.addr, closed, err)
		}
		if err == nil {
			_ = client.Close()
		}
		if <-ended == nil {
			t.Errorf("%s: the connection is open", c.addr)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer far.Close()
		go func() { _, _ = io.Copy(io.Discard, far) }() // ends with far
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := Dialer(func(context.Context, string, string) (net.Conn, error) {
			return near, nil
		}, trusting())(ctx, "tcp", "example.com:443"); !errors.Is(err, context.DeadlineExceeded) {
			t.Error("a server that does not answer:", err)
		}
		failed := errors.New("x")
		if _, err := Dialer(func(context.Context, string, string) (net.Conn, error) {
			return nil, failed
		}, nil)(t.Context(), "tcp", ""); err != failed {
			t.Error(err)
		}
	})
}
