package ws_test

import (
	"context"
	"testing"

	"github.com/gorilla/websocket"

	"millrace/server"
	"millrace/workers"
)

// TestServer covers the whole server, up to a shutdown in the middle of a stream.
func TestServer(t *testing.T) {
	s, err := server.New(server.Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0",
		Models: []workers.Config{{Name: "echo", Source: "identity"}, {Name: "slow", Source: "delay"}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	<-s.Ready()
	r := &rig{t: t, addr: s.Addr("http")}
	echo := r.dial("/v2/models/echo/stream")
	echo.send([]byte("hello"))
	if m := echo.next(); m.Error != nil || m.Outputs[0].Data[0] != "hello" {
		t.Fatalf("%+v %+v", m, m.Error)
	}
	c := r.dial("/v2/models/slow/stream?policy=every&window=64&outputs=none")
	for range 40 {
		c.send([]byte("frame"))
	}
	for i := range 3 {
		if m := c.next(); m.Error != nil || *m.Seq != uint64(i) {
			t.Fatalf("%+v %+v", m, m.Error)
		}
	}
	cancel()
	for seq := uint64(3); ; seq++ {
		m := c.next()
		if m.Seq == nil {
			if m.Error == nil || m.Error.Code != "draining" {
				t.Fatalf("%+v %+v", m, m.Error)
			}
			break
		}
		if *m.Seq != seq || m.Error != nil && m.Error.Code != "draining" {
			t.Fatalf("frame %d: %+v %+v", seq, m, m.Error)
		}
	}
	c.closed(websocket.CloseGoingAway)
	echo.nextError("draining", -1)
	echo.closed(websocket.CloseGoingAway)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if st := s.Memory().Stats(); st.Leases != 0 {
		t.Errorf("%d leases left", st.Leases)
	}
}
