package plain

import (
	"encoding/json"
	"errors"
	"testing"

	"millrace/ingest/ws/conn"
	"millrace/stream"
)

// The texts of drops and errors, with and without the id of a call.
func TestTexts(t *testing.T) {
	for _, c := range []struct {
		id   string
		r    stream.Result
		want string
	}{
		{"", stream.Result{Outcome: stream.Dropped, Reason: stream.Stale, Seq: 7}, `{"seq":7,"dropped":"stale"}`},
		{`a "7"`, stream.Result{Outcome: stream.Dropped, Reason: stream.Stale, Seq: 7},
			`{"id":"a \"7\"","seq":7,"dropped":"stale"}`},
		{"", stream.Result{Outcome: stream.Failed, Seq: 8, Err: stream.Errorf(stream.Unsupported, "codec",
			`not a "picture"`)},
			`{"seq":8,"error":{"code":"unsupported","message":"codec: not a \"picture\""}}`},
		{"", stream.Result{Outcome: stream.Failed, Seq: 9, Err: stream.Errorf(stream.Unavailable, "", "later")},
			`{"seq":9,"error":{"code":"unavailable","message":"later","retryable":true,"retry_after_ms":1000}}`},
		{"x", stream.Result{Outcome: stream.Failed, Err: errors.New("odd")},
			`{"id":"x","seq":0,"error":{"code":"internal","message":"odd"}}`},
	} {
		s := newSink(nil, callID{ID: c.id}, nil, nil)
		if text, isBinary := s.encode(&conn.Encoder{}, &c.r); string(text) != c.want || isBinary {
			t.Errorf("%s\nwant %s", text, c.want)
		}
	}
	for text, want := range map[string]string{
		string(errorText(callID{}, stream.Errorf(stream.Draining, "",
			"end"))): `{"error":{"code":"draining","message":"end","retryable":true,"retry_after_ms":1000}}`,
		string(errorText(callID{ID: "x", Key: "k"},
			errors.New("\x00odd"))): `{"id":"x","key":"k","error":{"code":"internal","message":"\u0000odd"}}`,
		string(doneText(callID{}, 20, 3)): `{"done":true,"frames":20,"drops":3}`,
		string(doneText(callID{ID: "x"}, 20,
			3)): `{"id":"x","done":true,"frames":20,"drops":3}`,
	} {
		if text != want || !json.Valid([]byte(text)) {
			t.Errorf("%s\nwant %s", text, want)
		}
	}
}

// A result without a representation in the requested form becomes an error with a remedy.
func TestUnsendable(t *testing.T) {
	s := newSink(nil, callID{ID: "x"}, func(e *conn.Encoder, r *stream.Result) ([]byte, bool, error) {
		_, err := e.Members(e.Text[:0], r)
		return nil, false, err
	}, nil)
	nan := stream.Tensor{Name: "n", Datatype: stream.Float32, Shape: []int{1}, Data: []byte{0, 0, 0xc0, 0x7f}}
	text, _ := s.encode(&conn.Encoder{}, &stream.Result{Outcome: stream.Answered, Seq: 3,
		Outputs: []stream.Tensor{nan}})
	var m struct {
		ID    string
		Seq   int
		Error struct{ Code string }
	}
	if err := json.Unmarshal(text, &m); err != nil || m.ID != "x" || m.Seq != 3 || m.Error.Code != "unsupported" {
		t.Errorf("%s %v", text, err)
	}
}

func TestDropAllocatesNothing(t *testing.T) {
	s, e := newSink(nil, callID{}, nil, nil), &conn.Encoder{}
	r := &stream.Result{Outcome: stream.Dropped, Reason: stream.Superseded}
	if n := testing.AllocsPerRun(100, func() { s.encode(e, r) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
