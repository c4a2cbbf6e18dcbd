package client

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"millrace/internal/wire"
	"millrace/stream"
)

// listening returns a session without a connection, and its open stream 1 with frames 5 to 7; log has the stream's
// callbacks.
func listening() (s *Session, st *Stream, log *[]string) {
	log = new([]string)
	note := func(format string, args ...any) { *log = append(*log, fmt.Sprintf(format, args...)) }
	s = &Session{streams: map[uint32]*Stream{}, discard: make(chan struct{})}
	st, _ = newStream(s, "m", StreamOptions{
		OnReply: func(r Reply) { note("%d lost %v sent %d", r.Seq, r.Lost, r.Sent.Unix()) },
		OnAdvice: func(a Advice) {
			note("%+v", a)
		}, OnStats: func(s Stats) { note("%+v", s) }, OnError: func(err error) { note("%v", err) },
	})
	st.sid, st.state, st.nextSeq, st.atServer = 1, open, 8, 3
	for seq := range uint64(3) {
		st.unended = append(st.unended, unended{seq: 5 + seq, sent: time.Unix(int64(50+seq), 0)})
	}
	s.streams[1] = st
	return s, st, log
}

// Messages reach the function set for the message, and do no harm without a function, or without the stream.
func TestWhatAStreamIsTold(t *testing.T) {
	for text, want := range map[string]string{
		`{"type":"advise","sid":1,"fps":2.5,"width":3,"height":4,"quality":5,"keyframe":true}`: "{FPS:2.5 Width:3 " +
			"Height:4 Quality:5 KeyFrame:true}",
		`{"type":"stats","sid":1,"counts":{"received":5,"accepted":4,"results":3,"drops":2,"errors":1},"waiting":6,` +
			`"fps":7.5,"age_us":1500}`: "{Totals:{Received:5 Accepted:4 Results:3 Drops:2 Errors:1} Waiting:6 " +
			"FPS:7.5 Age:1.5ms}",
		`{"type":"error","sid":1,"code":"invalid_argument","message":"no"}`:     "no",
		`{"type":"result","sid":1,"seq":6,"ack":0,"partial":true}`:              "6 lost false sent 51",
		`{"type":"result","sid":1,"seq":6,"ack":1}`:                             "6 lost false sent 51",
		`{"type":"result","sid":1,"seq":6,"ack":2}`:                             "5 lost true sent 50; 6 lost false sent 51",
		`{"type":"result","sid":1,"seq":9,"ack":0,"partial":true}`:              "",
		`{"type":"credit","sid":1,"credit_limit":9,"ack":2}`:                    "5 lost true sent 50; 6 lost true sent 51",
		`{"type":"credit","sid":1,"credit_limit":9}`:                            "",
		`{"type":"opened","sid":1,"credit_limit":77,"policy":{"mode":"every"}}`: "",
	} {
		s, st, log := listening()
		if err := s.message(websocket.TextMessage, []byte(text)); err != nil || strings.Join(*log, "; ") != want {
			t.Errorf("%s\ngot  %q, %v\nwant %q", text, *log, err, want)
		}
		if st.limit == 77 || st.delivering {
			t.Errorf("%s: an open stream was opened, or something is being delivered", text)
		}
		st.opts = StreamOptions{OnReply: func(Reply) {}}
		for _, has := range []bool{true, false} {
			if !has {
				delete(s.streams, 1)
			}
			if err := s.message(websocket.TextMessage, []byte(text)); err != nil {
				t.Errorf("%s: %v", text, err)
			}
		}
	}
	// A part of a result of a lost frame is discarded.
	s, st, log := listening()
	st.unended[1].lost = true
	if err := s.message(websocket.TextMessage,
		[]byte(`{"type":"result","sid":1,"seq":6,"ack":0,"partial":true}`)); err != nil || len(*log) != 0 {
		t.Errorf("%q, %v", *log, err)
	}
}

// The error of a stream has the code of the server's reason for closing.
func TestWhyAStreamEnds(t *testing.T) {
	said := stream.Errorf(stream.Conflict, "", "said before")
	for _, c := range []struct {
		reason string
		said   error
		code   stream.Code
	}{
		{"client", said, ""}, {"unloaded", said, stream.Unloaded}, {"draining", said, stream.Draining},
		{"idle", said, stream.Timeout},
		{"slow_consumer", said, stream.Overloaded}, {"error", said, stream.Conflict}, {"error", nil, stream.Internal},
		{"anything", nil, stream.Internal},
	} {
		s, st, log := listening()
		s.serverErr = c.said
		text := fmt.Sprintf(`{"type":"closed","sid":1,"reason":%q,"totals":{"accepted":1,"results":1,"drops":0,`+
			`"errors":0}}`, c.reason)
		if err := s.message(websocket.TextMessage, []byte(text)); err != nil {
			t.Error(err)
		}
		<-st.Done()
		if stream.CodeOf(st.Err()) != c.code || st.totals.Results != 1 ||
			strings.Join(*log, "; ") != "5 lost true sent 50; 6 lost true sent 51; 7 lost true sent 52" {
			t.Errorf("%s: %v, %+v, %q", c.reason, st.Err(), st.totals, *log)
		}
	}
}

// A session accepts or refuses every type of message, complete or truncated, and ends no frame not sent before.
func TestMessages(t *testing.T) {
	head := wire.AppendHeader(nil, &wire.Header{Kind: wire.KindResult, Codec: wire.Tensors, SID: 1, Seq: 7})
	text := `{"model_name":"m","parameters":{"batch":2,"run_us":5},"outputs":[{"name":"x","datatype":"UINT8",` +
		`"shape":[3],"parameters":{"binary_data_size":3}}]}`
	binary := append(wire.AppendTensorsPrefix(head, []byte(text)), 1, 2, 3)
	if r, _, err := binaryReply(bytes.Clone(binary)); err != nil || r.Batch != 2 || len(r.Outputs) != 1 ||
		len(r.Outputs[0].Data) != 3 || r.Params != nil {
		t.Fatalf("%+v, %v", r, err)
	}
	messages := map[string]int{string(binary): websocket.BinaryMessage}
	for _, s := range []string{
		`{"type":"result","sid":1,"seq":7,"ack":1,"outputs":[{"name":"x","datatype":"FP32","shape":[2],"data":[1,` +
			`2.5]}],"timing":{"received_us":1,"run_us":3},"batch":2}`,
		`{"type":"result","sid":1,"seq":7,"ack":1,"outputs":[{"name":"x","datatype":"FP32","shape":[99999999999],` +
			`"data":[]}]}`,
		`{"type":"drop","sid":1,"seqs":[[0,9]],"reason":"stale","ack":9}`,
		`{"type":"error","code":"timeout","message":"late","sid":1,"seq":7}`,
		`{"type":"error","code":"draining","message":"bye","fatal":true}`,
		`{"type":"credit","sid":1,"credit_limit":9,"ack":4}`,
		`{"type":"advise","sid":1,"keyframe":true}`,
		`{"type":"stats","sid":1,"counts":{"accepted":1,"results":1,"drops":0,"errors":0}}`,
		`{"type":"closed","sid":1,"reason":"idle","totals":{"accepted":1,"results":1,"drops":0,"errors":0}}`, `{}`, ``,
	} {
		messages[s] = websocket.TextMessage
	}
	take := func(kind int, msg []byte) {
		s := &Session{streams: map[uint32]*Stream{}, discard: make(chan struct{})}
		st, err := newStream(s, "m", StreamOptions{OnAdvice: func(Advice) {}, OnStats: func(Stats) {},
			OnError: func(error) {}, OnReply: func(r Reply) {
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
