package ws_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/gorilla/websocket"

	"millrace/ingest/ws"
)

// bare echoes with gorilla alone and a reused buffer: the baseline.
func bare(w http.ResponseWriter, r *http.Request) {
	up := websocket.Upgrader{ReadBufferSize: 4096, WriteBufferSize: 4096}
	c, err := up.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer c.Close()
	b := make([]byte, 1<<20)
	for {
		kind, rd, err := c.NextReader()
		if err != nil {
			return
		}
		n := 0
		for err == nil {
			var m int
			m, err = rd.Read(b[n:])
			n += m
		}
		if c.WriteMessage(kind, b[:n]) != nil {
			return
		}
	}
}

// BenchmarkEcho is 16 clients with 8 frames under way each; ns/op is per frame.
func BenchmarkEcho(b *testing.B) {
	for _, size := range []int{1 << 10, 30 << 10, 300 << 10} {
		b.Run(fmt.Sprintf("bare/%dKB", size>>10), func(b *testing.B) {
			srv := httptest.NewServer(http.HandlerFunc(bare))
			defer srv.Close()
			echo(b, strings.Replace(srv.URL, "http", "ws", 1), size)
		})
		b.Run(fmt.Sprintf("millrace/%dKB", size>>10), func(b *testing.B) {
			r := start(b, ws.Options{})
			echo(b, "ws://"+r.addr+"/v2/models/echo/stream?policy=every&window=16&outputs=binary&codec=opaque", size)
			r.stop()
		})
	}
}

func echo(b *testing.B, url string, size int) {
	const clients, window = 16, 8
	b.SetBytes(int64(size))
	b.ReportAllocs()
	conns := make([]*websocket.Conn, clients)
	for i := range conns {
		c, _, err := websocket.DefaultDialer.Dial(url, nil)
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		conns[i] = c
	}
	frame, err := websocket.NewPreparedMessage(websocket.BinaryMessage, make([]byte, size))
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	var wg sync.WaitGroup
	for i, c := range conns {
		n := b.N / clients
		if i < b.N%clients {
			n++
		}
		wg.Go(func() {
			room := make(chan struct{}, window)
			go func() {
				for range n {
					room <- struct{}{}
					if c.WritePreparedMessage(frame) != nil {
						return
					}
				}
			}()
			sink := make([]byte, 64<<10)
			for range n {
				_, r, err := c.NextReader()
				for err == nil {
					_, err = r.Read(sink)
				}
				if err != io.EOF {
					b.Error(err)
					return
				}
				<-room
			}
		})
	}
	wg.Wait()
	b.StopTimer()
}

// BenchmarkIdle measures the cost of an idle session after its first frame, including the small cost of the client in
// this process.
func BenchmarkIdle(b *testing.B) {
	const n = 500
	r := start(b, ws.Options{})
	defer r.stop()
	read := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	d := websocket.Dialer{ReadBufferSize: 256, WriteBufferSize: 256}
	for b.Loop() {
		before := read()
		conns := make([]*websocket.Conn, n)
		for i := range conns {
			c, _, err := d.Dial("ws://"+r.addr+"/v2/models/echo/stream?outputs=none", nil)
			if err != nil {
				b.Fatal(err)
			}
			conns[i] = c
			_ = c.WriteMessage(websocket.BinaryMessage, make([]byte, 30<<10))
			if _, _, err := c.ReadMessage(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(read()-before)/n, "B/session")
		for _, c := range conns {
			c.Close()
		}
		r.until("all are gone", func() bool { return r.ws.Stats().Conns == 0 })
	}
}
