package grpc

import (
	"context"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"millrace/stream/buf"
)

// The shutdown does not wait for clients that have only connected or have an unfinished handshake. A connection with
// a finished handshake is told of the shutdown.
func TestHandshakesEndAtTheShutdown(t *testing.T) {
	for name, c := range map[string]struct {
		tls  *tls.Config
		sent []byte
	}{
		"connected": {nil, nil},
		"begun":     {nil, []byte("PRI * HTTP/2.0\r\n")},
		"TLS":       {&tls.Config{}, nil},
		"begun TLS": {&tls.Config{}, []byte{22, 3, 1, 2, 0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			a := New(Options{Addr: "127.0.0.1:0", TLS: c.tls})
			a.handshakeTime = time.Hour
			at, err := a.Listen()
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			done := make(chan error, 1)
			go func() { done <- a.Serve(ctx, everybody(memoryOnly{pool: buf.NewPool(0)})) }()
			half, err := net.Dial("tcp", at.String())
			if err != nil {
				t.Fatal(err)
			}
			defer half.Close()
			if _, err := half.Write(c.sent); err != nil {
				t.Fatal(err)
			}
			var whole net.Conn
			if c.tls == nil {
				if whole, err = net.Dial("tcp", at.String()); err != nil {
					t.Fatal(err)
				}
				defer whole.Close()
				_, _ = whole.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
			}
			for want := map[bool]int64{true: 2, false: 1}[whole != nil]; a.opts.Limit.Stats()["grpc"].Open < want; {
				time.Sleep(time.Millisecond)
			}
			frames := http2.NewFramer(whole, whole)
			if whole != nil {
				_ = frames.WritePing(false, [8]byte{1})
			}
			for answered := whole == nil; !answered; { // the answer follows the handshake
				f, err := frames.ReadFrame()
				if err != nil {
					t.Fatal(err)
				}
				_, answered = f.(*http2.PingFrame)
			}
			stop()
			for told := whole == nil; !told; {
				f, err := frames.ReadFrame()
				if err != nil {
					t.Fatalf("a connection whose handshake has ended: %v", err)
				}
				if _, told = f.(*http2.GoAwayFrame); told {
					whole.Close()
				}
			}
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(30 * time.Second):
				t.Fatal("the server waits for the handshake")
			}
		})
	}
}
