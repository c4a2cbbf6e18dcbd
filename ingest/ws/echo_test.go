package ws_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/gorilla/websocket"

	"millrace/ingest/ws"
	"millrace/internal/oip"
	"millrace/stream"
	"millrace/workers"
)

func TestEchoJSON(t *testing.T) {
	r := start(t, ws.Options{})
	for _, path := range []string{"/v2/models/echo/stream", "/v2/models/echo/versions/1/stream",
		"/v2/stream?model=echo"} {
		c := r.dial(path)
		for i := range 3 {
			text := fmt.Sprintf("hello \"%d\"\n", i)
			c.send([]byte(text))
			m := c.next()
			if m.Seq == nil || *m.Seq != uint64(i) || m.Model != "echo" || m.Batch != 1 || len(m.Outputs) != 1 ||
				m.Outputs[0].Data[0] != text {
				t.Fatalf("%s: %+v", path, m)
			}
			for _, k := range []string{"received_us", "queue_us", "prepare_us", "run_us", "total_us"} {
				if _, ok := m.Timing[k]; !ok {
					t.Errorf("timing has no %s: %v", k, m.Timing)
				}
			}
		}
	}
}

func TestEchoNone(t *testing.T) {
	r := start(t, ws.Options{})
	c := r.dial("/v2/models/echo/stream?outputs=none&policy=every")
	c.send([]byte{0xff, 0xd8, 0xff, 0})
	if m := c.next(); m.Seq == nil || m.Outputs != nil || m.Timing == nil || m.Error != nil {
		t.Fatalf("%+v", m)
	}
}

// TestEchoBinary reads the binary form with the protocol's decoder, for payloads around the size limits of leases and
// write buffers.
func TestEchoBinary(t *testing.T) {
	r := start(t, ws.Options{})
	c := r.dial("/v2/models/echo/stream?outputs=binary&policy=every")
	for i, n := range []int{1, 1000, 4096, 30_000, 32 << 10, 33 << 10, 300_000, 1, 8 << 20} {
		in := bytes.Repeat([]byte{byte(i + 1)}, n)
		c.send(in)
		kind, b, err := c.ReadMessage()
		if err != nil || kind != websocket.BinaryMessage {
			t.Fatalf("%d bytes: kind %d, %v, %.200s", n, kind, err, b)
		}
		if b[0] != 1 || b[1] != 3 || b[2] != 12 || binary.LittleEndian.Uint64(b[8:]) != uint64(i) {
			t.Fatalf("header %x", b[:32])
		}
		size := int(binary.LittleEndian.Uint32(b[32:]))
		var m oip.InferResponse
		if err := oip.DecodeResponse(&m, b[36:], size, func(n int) []byte {
			return make([]byte, n)
		}, oip.Limits{}); err != nil {
			t.Fatalf("%v in %s", err, b[36:36+size])
		}
		got, rest, ok := oip.NextBytes(m.Outputs[0].Data)
		if !ok || len(rest) != 0 || !bytes.Equal(got, in) {
			t.Fatalf("%d bytes: payload differs", n)
		}
		if p, ok := m.Params.Get("batch"); !ok || p.Int != 1 {
			t.Errorf("parameters %+v", m.Params)
		}
	}
}

// TestOrder checks that replies have the order of their frames, including frames refused before the stream.
func TestOrder(t *testing.T) {
	r := start(t, ws.Options{})
	c := r.dial("/v2/models/slow/stream?policy=every&window=8&outputs=none")
	const n = 40
	go func() {
		for i := range n {
			b := []byte("frame")
			if i%5 == 3 {
				b = nil
			}
			if c.WriteMessage(websocket.BinaryMessage, b) != nil {
				return
			}
		}
	}()
	for i := range n {
		m := c.next()
		if m.Seq == nil || *m.Seq != uint64(i) {
			t.Fatalf("reply %d is %+v", i, m)
		}
		if (i%5 == 3) != (m.Error != nil) {
			t.Errorf("frame %d: error %v", i, m.Error)
		}
	}
}

// TestLatest checks that each frame has one reply, and that the last frame is answered.
func TestLatest(t *testing.T) {
	r := start(t, ws.Options{})
	c := r.dial("/v2/models/slow/stream?policy=latest&outputs=none")
	const n = 200
	for range n {
		c.send([]byte("frame"))
	}
	results, drops := 0, map[string]int{}
	seen := map[uint64]bool{}
	last := uint64(0)
	for range n {
		m := c.next()
		if m.Seq == nil || seen[*m.Seq] {
			t.Fatalf("a second reply, or none: %+v", m)
		}
		seen[*m.Seq] = true
		if m.Dropped != "" {
			drops[m.Dropped]++
			continue
		}
		if *m.Seq < last {
			t.Errorf("result %d after %d", *m.Seq, last)
		}
		last = *m.Seq
		results++
	}
	if last != n-1 || results == 0 || results+drops["superseded"]+drops["overtaken"] != n || drops["superseded"] == 0 {
		t.Errorf("%d results, last %d, drops %v", results, last, drops)
	}
}

func TestStale(t *testing.T) {
	r := start(t, ws.Options{}, workers.Config{Name: "very-slow", Kind: "delay",
		Params: stream.Params{"fixed": "60ms"}})
	c := r.dial("/v2/models/very-slow/stream?policy=every&deadline_ms=30&outputs=none")
	stale := 0
	for range 10 {
		c.send([]byte("frame"))
		c.send([]byte("frame"))
		for range 2 {
			if m := c.next(); m.Dropped == "stale" {
				stale++
			}
		}
	}
	if stale == 0 {
		t.Error("no frame was stale")
	}
}
