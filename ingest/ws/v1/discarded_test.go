package v1

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"

	"millrace/internal/wire"
)

// delta is a chunk of H.264 that depends on earlier chunks: a delimiter and a slice.
var delta = []byte{0, 0, 0, 1, 9, 0x30, 0, 0, 0, 1, 0x41, 0x9A, 0x24, 0x6C}

// chunks sends n chunks of undecodable H.264, from seq on.
func (v *client) chunks(sid uint32, seq, n int) {
	v.t.Helper()
	for i := range n {
		v.binary(chunk(sid, seq+i))
	}
}

func chunk(sid uint32, seq int) []byte {
	return append(wire.AppendHeader(nil, &wire.Header{Kind: wire.KindFrame, Codec: wire.H264, SID: sid,
		Seq: uint64(seq)}), delta...)
}

// `latest` lets a client send without credit; when the chunks of such a client are discarded, the server reads the
// connection more slowly. Another connection is not slowed.
func TestFloodOfChunks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		v, _ := r.hello()
		for sid := range 2 {
			v.say(fmt.Sprintf(`{"type":"open","sid":%d,"codec":"h264"}`, sid))
		}
		v.all()
		const burst, rate = 1024, 2048 // of a connection
		begin := time.Now()
		for seq := range burst / 2 {
			v.chunks(0, seq, 1)
			v.chunks(1, seq, 1)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("a burst took %v", took)
		}
		for seq := range rate / 2 {
			v.chunks(0, burst/2+seq, 1)
			v.chunks(1, burst/2+seq, 1)
		}
		if took := time.Since(begin); took < 980*time.Millisecond || took > time.Second {
			t.Errorf("as many chunks as are read in a second took %v", took)
		}
		other, _ := r.hello()
		other.say(`{"type":"open","sid":0,"codec":"h264"}`)
		begin = time.Now()
		other.chunks(0, 0, burst)
		if took := time.Since(begin); took != 0 {
			t.Errorf("a burst of another connection took %v", took)
		}
		time.Sleep(time.Second)
		ended := uint64(0)
		for _, m := range v.all() {
			if d, ok := m.(*wire.Drop); ok {
				for _, s := range d.Seqs {
					ended += s[1] - s[0] + 1
				}
			}
		}
		if ended != burst+rate {
			t.Errorf("%d drops, want %d", ended, burst+rate)
		}
		r.stop()
	})
}

// A slowed connection ends at once.
func TestFloodEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		v, _ := r.hello()
		v.say(`{"type":"open","sid":1,"codec":"h264"}`)
		go func() {
			for seq := 0; ; seq++ {
				if v.WriteMessage(websocket.BinaryMessage, chunk(1, seq)) != nil {
					return
				}
			}
		}()
		time.Sleep(time.Second)
		begin := time.Now()
		r.stop()
		if took := time.Since(begin); took != 0 {
			t.Errorf("it took %v", took)
		}
	})
}
