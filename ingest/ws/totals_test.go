package ws_test

import (
	"encoding/binary"
	"math"
	"testing"

	"millrace/ingest/ws"
)

// The totals of closed match the client's own counts: each sent frame is counted once, including a frame refused at
// the backend and a frame with a result that could not be sent.
func TestTotals(t *testing.T) {
	r := start(t, ws.Options{})
	for name, form := range map[string]string{"text": "json", "binary": "binary"} {
		v := r.v1("/v2/stream")
		v.open(1, `,"model":"echo","outputs":"`+form+`","policy":{"mode":"every","window":3}`)
		tensor := func(x float32) []byte {
			text := `{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}}]}`
			body := append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...)
			return binary.LittleEndian.AppendUint32(body, math.Float32bits(x))
		}
		sent := uint64(0)
		var results, drops, errors uint64
		told := func(n uint64) {
			t.Helper()
			for results+drops+errors < n {
				switch e := v.next(); e.Type {
				case "result", "binary":
					results++
				case "drop":
					for _, span := range e.Seqs {
						drops += span[1] - span[0] + 1
					}
				case "error":
					errors++
				default:
					t.Fatalf("%+v", e)
				}
			}
		}
		send := func(b []byte) { sent++; v.media(b) }
		send(raw(4, 12, 0, 1, 10, tensor(1)))
		send(raw(4, 12, 0, 1, 11, tensor(float32(math.NaN())))) // JSON has no NaN
		send(raw(1, 0, 0, 1, 12, nil))                          // empty
		told(3)
		send(raw(1, 0, 0, 1, 5, []byte("x")))                // goes back
		send(raw(1, 99, 0, 1, 13, []byte("x")))              // of no codec
		send(raw(4, 12, 0, 1, 14, []byte{255, 0, 0, 0}))     // of no shape
		send(raw(1, 0, 0, 1, 15, []byte("x"), 4, 1, 0, 'x')) // of no parameters
		told(7)
		v.say(`{"type":"pause","sid":1}`)
		for seq := range uint64(5) {
			send(raw(1, 0, 0, 1, 20+seq, []byte("x"))) // two are more than the credit
		}
		told(9)
		v.say(`{"type":"flush","sid":1}`)
		told(12)
		v.say(`{"type":"resume","sid":1}`)
		send(raw(1, 0, 0, 1, 30, []byte("x")))
		told(sent)
		v.say(`{"type":"close","sid":1}`)
		got := v.expect("closed").Totals
		if got.Received != sent || got.Results != results || got.Drops != drops || got.Errors != errors {
			t.Errorf("%s: %+v, but %d were sent and %d results, %d drops, %d errors told", name, got, sent, results,
				drops, errors)
		}
		if got.Received != got.Results+got.Drops+got.Errors || got.Drops != 3 || got.Accepted != 6 {
			t.Errorf("%s: %+v", name, got)
		}
		if want := map[string]uint64{"text": 8, "binary": 7}[name]; got.Errors != want {
			t.Errorf("%s: %d errors, want %d", name, got.Errors, want)
		}
	}
}
