package wire

import (
	"bytes"
	"errors"
	"reflect"
	"slices"
	"testing"

	"millrace/internal/oip"
	"millrace/stream/coded"
)

func TestPlain(t *testing.T) {
	for _, c := range []struct {
		text string
		want Plain
	}{
		{`{"seq":7,"model":"a\"}b","outputs":[{"name":"x","data":[1,2,[3,{"a":"]"}]]}],"timing":{"run_us":3},` +
			`"width":640,"height":480,"batch":5,"later":null}`, Plain{
			Seq: new(uint64(7)), Model: `a"}b`, Outputs: []byte(`[{"name":"x","data":[1,2,[3,{"a":"]"}]]}]`),
			Timing: Timing{RunUS: 3}, Width: 640, Height: 480, Batch: 5,
		}},
		{`{"seq":8,"dropped":"stale"}`, Plain{Seq: new(uint64(8)), Dropped: "stale"}},
		{` { "seq" : 9 , "error" : { "message":"no, \"so\"", "code" : "too_large" } } `,
			Plain{Seq: new(uint64(9)), Error: &PlainError{Code: "too_large", Message: `no, "so"`}}},
		{`{"seq":0,"partial":true,"outputs":[],"parameters":{"a":1}}`,
			Plain{Seq: new(uint64), Partial: true, Outputs: []byte(`[]`), Params: []byte(`{"a":1}`)}},
		{`{"error":{"code":"draining","message":"m","retryable":true,"retry_after_ms":70}}`,
			Plain{Error: &PlainError{"draining", "m", true, 70}}},
		{`{}`, Plain{}},
	} {
		m := Plain{Batch: 99}
		if err := ParsePlain([]byte(c.text), &m); err != nil || !reflect.DeepEqual(m, c.want) {
			t.Errorf("%s: %+v, %v", c.text, m, err)
		}
	}
	for text, c := range map[string]struct {
		rule  error
		field string
	}{
		``:                            {ErrSyntax, ""},
		`7`:                           {ErrSyntax, ""},
		`{"seq":}`:                    {ErrSyntax, ""},
		`{"seq":-1}`:                  {ErrValue, "seq"},
		`{"seq":1,"seq":1}`:           {ErrTwice, "seq"},
		`{"error":{"message":"m"}}`:   {ErrMissing, "error.code"},
		`{"error":"m"}`:               {ErrValue, "error"},
		`{"timing":{"queue_us":1.5}}`: {ErrValue, "timing.queue_us"},
	} {
		refusal(t, text, ParsePlain([]byte(text), new(Plain)), c.rule, "invalid_argument", c.field)
	}
}

// resultMessage is a result in binary form from a server.
func resultMessage(seq uint64, text string, data []byte) []byte {
	msg := AppendHeader(nil, &Header{Kind: KindResult, Codec: Tensors, SID: 3, Seq: seq, CaptureUS: -4, Width: 640,
		Height: 480})
	return append(AppendTensorsPrefix(msg, []byte(text)), data...)
}

func unused(n int) []byte { return make([]byte, n) }

func TestParseResult(t *testing.T) {
	text := `{"model_name":"m","model_version":"2","parameters":{"received_us":1,"queue_us":2,"prepare_us":3,` +
		`"run_us":4,"total_us":5,` +
		`"batch":6,"ack":7,"credit_limit":8,"partial":true,"own":"x"},` +
		`"outputs":[{"name":"o","datatype":"UINT8","shape":[2],"parameters":{"binary_data_size":2}}]}`
	msg := resultMessage(5, text, []byte{10, 11})
	var m Result
	var reply oip.InferResponse
	if err := ParseResult(msg, &m, &reply, unused); err != nil {
		t.Fatal(err)
	}
	want := Result{SID: 3, Seq: 5, CaptureUS: -4, Width: 640, Height: 480, Model: "m", Version: "2", Batch: 6, Ack: 7,
		Limit: 8, Partial: true, Timing: Timing{1, 2, 3, 4, 5}}
	if !reflect.DeepEqual(m, want) {
		t.Errorf("%+v", m)
	}
	if len(reply.Outputs) != 1 || !bytes.Equal(reply.Outputs[0].Data, []byte{10, 11}) || len(reply.Params) != 1 ||
		reply.Params[0].Key != "own" {
		t.Errorf("%+v", reply)
	}
	for n := range len(msg) - 1 {
		if ParseResult(msg[:n], &m, &reply, unused) == nil {
			t.Errorf("the first %d bytes are taken for a result", n)
		}
	}
	if err := ParseResult(AppendHeader(nil, &Header{Kind: KindFrame}), &m, &reply, unused); !errors.Is(err,
		ErrDirection) {
		t.Errorf("a frame: %v", err)
	}
}

func FuzzPlain(f *testing.F) {
	f.Add([]byte(`{"seq":1,"error":{"code":"x","message":"m"}}`))
	f.Add([]byte(`{"seq":2,"timing":{"total_us":3},"outputs":[{}],"parameters":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		kept := bytes.Clone(text)
		var m Plain
		err := ParsePlain(slices.Clip(text), &m)
		if !bytes.Equal(kept, text) {
			t.Fatal("the text was changed")
		}
		if err != nil {
			sound(t, err)
		}
	})
}

func FuzzResult(f *testing.F) {
	f.Add(resultMessage(1, `{"parameters":{"batch":2},"outputs":[]}`, []byte("abc")))
	f.Fuzz(func(t *testing.T, msg []byte) {
		var m Result
		var reply oip.InferResponse
		err := ParseResult(slices.Clip(msg), &m, &reply, unused)
		var ours *Error
		var theirs *coded.Error
		if err != nil && !errors.As(err, &ours) && !errors.As(err, &theirs) {
			t.Fatalf("foreign error: %#v", err)
		}
	})
}
