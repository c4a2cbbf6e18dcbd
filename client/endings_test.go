package client

import (
	"bytes"
	"testing"

	"github.com/gorilla/websocket"

	"millrace/internal/wire"
)

// TestMessages gives a session all kinds of messages, whole and cut short: each is
// taken or refused, and ends no frame that was not sent.
func TestMessages(t *testing.T) {
	head := wire.AppendHeader(nil, &wire.Header{Kind: wire.KindResult, Codec: wire.Tensors, SID: 1, Seq: 7})
	text := `{"model_name":"m","parameters":{"batch":2,"run_us":5},"outputs":[{"name":"x","datatype":"UINT8","shape":[3],"parameters":{"binary_data_size":3}}]}`
	binary := append(wire.AppendTensorsPrefix(head, []byte(text)), 1, 2, 3)
	if r, _, err := binaryReply(bytes.Clone(binary)); err != nil || r.Batch != 2 || len(r.Outputs) != 1 || len(r.Outputs[0].Data) != 3 || r.Params != nil {
		t.Fatalf("%+v, %v", r, err)
	}
	messages := map[string]int{string(binary): websocket.BinaryMessage}
	for _, s := range []string{
		`{"type":"result","sid":1,"seq":7,"ack":1,"outputs":[{"name":"x","datatype":"FP32","shape":[2],"data":[1,2.5]}],"timing":{"received_us":1,"run_us":3},"batch":2}`,
		`{"type":"result","sid":1,"seq":7,"ack":1,"outputs":[{"name":"x","datatype":"FP32","shape":[99999999999],"data":[]}]}`,
		`{"type":"drop","sid":1,"seqs":[[0,9]],"reason":"stale","ack":9}`, `{"type":"error","code":"timeout","message":"late","sid":1,"seq":7}`,
		`{"type":"error","code":"draining","message":"bye","fatal":true}`, `{"type":"credit","sid":1,"credit_limit":9,"ack":4}`,
		`{"type":"advise","sid":1,"keyframe":true}`, `{"type":"stats","sid":1,"counts":{"accepted":1,"results":1,"drops":0,"errors":0}}`,
		`{"type":"closed","sid":1,"reason":"idle","totals":{"accepted":1,"results":1,"drops":0,"errors":0}}`, `{}`, ``,
	} {
		messages[s] = websocket.TextMessage
	}
	take := func(kind int, msg []byte) {
		s := &Session{streams: map[uint32]*Stream{}, discard: make(chan struct{})}
		st, err := newStream(s, "m", StreamOptions{OnAdvice: func(Advice) {}, OnStats: func(Stats) {}, OnError: func(error) {}, OnReply: func(r Reply) {
			if r.Seq != 7 {
				t.Errorf("%q ends frame %d, which was not sent", msg, r.Seq)
			}
			for i := range r.Outputs {
				if err := r.Outputs[i].CheckSize(""); err != nil {
					t.Errorf("%q: %v", msg, err)
				}
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		st.sid, st.state = 1, open
		st.unended, st.atServer = []unended{{seq: 7}}, 1
		s.streams[1] = st
		_ = s.message(kind, msg)
	}
	for msg, kind := range messages {
		for n := range len(msg) + 1 {
			take(kind, []byte(msg[:n]))
		}
	}
}
