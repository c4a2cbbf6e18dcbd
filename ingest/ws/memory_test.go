package ws_test

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/gorilla/websocket"

	"millrace/ingest/ws"
)

// heap returns the memory in use after garbage collection.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A client with large answers on many streams costs no more than the memory reserved for replay, although the client
// reads all answers. All small answers of this and other clients are kept. The memory is released with the sessions.
func TestV1KeepsWithinABound(t *testing.T) {
	const most, streams, frames, size = 8 << 20, 16, 10, 200_000
	r := start(t, ws.Options{KeptBytes: most})
	before := heap()
	v := r.v1("/v2/stream")
	v.open(100, `,"model":"echo"`)
	v.frame(100, 5)
	v.expect("result")
	payload := make([]byte, size)
	for sid := range uint32(streams) {
		v.open(int(sid), `,"model":"echo","outputs":"binary","policy":{"mode":"every","window":32}`)
		var sending sync.WaitGroup
		sending.Go(func() {
			for seq := range uint64(frames) {
				_ = v.WriteMessage(websocket.BinaryMessage, raw(1, 0, 0, sid, seq, payload))
			}
		})
		for range frames {
			if e := v.expect("binary"); len(e.binary) < size || binary.LittleEndian.Uint32(e.binary[4:]) != sid {
				t.Fatalf("%d bytes", len(e.binary))
			}
		}
		sending.Wait()
	}
	if n := r.ws.Stats().KeptBytes; n < most/4 || n > most/2 {
		t.Errorf("%d bytes are kept", n)
	}
	// The pool's idle memory does not count.
	if n := heap() - before - r.mem.Stats().Idle; n > 3*most {
		t.Errorf("the client has cost %d MiB", n>>20)
	}
	w := r.v1("/v2/stream")
	w.open(1, `,"model":"echo"`)
	w.frame(1, 9)
	w.expect("result")
	for _, c := range []struct {
		*v1
		sid uint32
		seq uint64
	}{{v, 100, 5}, {w, 1, 9}} {
		_ = c.NetConn().Close()
		again := r.v1("/v2/stream")
		again.say(`{"type":"attach","token":"` + c.token + `"}`)
		again.expect("attached")
		for {
			if e := again.next(); e.Type == "result" && e.SID == c.sid && e.Seq == c.seq {
				break
			}
		}
	}
	r.stop()
	if n := r.ws.Stats().KeptBytes; n != 0 {
		t.Errorf("%d bytes are kept of no session", n)
	}
}

// Only the newest ended streams keep their endings, until the session ends or the sid is used again.
func TestV1KeepsOfEndedStreams(t *testing.T) {
	r := start(t, ws.Options{})
	v := r.v1("/v2/stream")
	kept := func(sid int) int64 {
		v.open(sid, `,"model":"echo","outputs":"binary"`)
		v.media(raw(1, 0, 0, uint32(sid), 0, make([]byte, 50_000)))
		v.expect("binary")
		v.say(fmt.Sprintf(`{"type":"close","sid":%d}`, sid))
		v.expect("closed")
		return r.ws.Stats().KeptBytes
	}
	one := kept(1)
	if one < 50_000 {
		t.Fatalf("%d bytes are kept", one)
	}
	for range 3 {
		if n := kept(1); n > one+one/2 {
			t.Fatalf("%d bytes are kept of one stream, %d of another with its number", one, n)
		}
	}
	for sid := range 40 {
		if n := kept(1 + sid); n > 17*one {
			t.Fatalf("%d bytes are kept after %d streams", n, sid)
		}
	}
	say := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	if err := v.WriteMessage(websocket.CloseMessage, say); err != nil {
		t.Fatal(err)
	}
	r.until("the session's memory is free", func() bool { return r.ws.Stats().KeptBytes == 0 })
}
