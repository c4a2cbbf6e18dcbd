package encode

import (
	"encoding/json"
	"testing"

	"millrace/stream"
	"millrace/stream/buf"
)

func sample(outputs ...stream.Tensor) *stream.Result {
	return &stream.Result{
		Outcome: stream.Answered, Seq: 7, Model: &stream.Model{Name: "spotter", Version: "1"}, Outputs: outputs, BatchSize: 4,
		Timing: stream.Timing{Received: 1000, Dequeued: 300_000, Started: 500_000, Done: 9_000_000},
	}
}

func scores() stream.Tensor {
	return stream.Tensor{Name: "scores", Datatype: stream.Float32, Shape: []int{1, 3}, Data: stream.AppendFloat32(nil, 0.5, 0.25, 1)}
}

// Members are the parameters, in the order of their names, and the outputs.
func TestMembers(t *testing.T) {
	var e Encoder
	r := sample(scores())
	r.Params = stream.Params{"b": true, "a": "x", "c": int64(1), "d": 1.5}
	text, err := e.Members([]byte("{"), r)
	const want = `{"parameters":{"a":"x","b":true,"c":1,"d":1.5},"outputs":[{"name":"scores","datatype":"FP32","shape":[1,3],"data":[0.5,0.25,1]}]`
	if err != nil || string(text) != want {
		t.Errorf("%s %v", text, err)
	}
	r.Params = nil // what was encoded before is not left in the next one
	if text, err := e.Members([]byte("{"), r); err != nil || !json.Valid(append(text, '}')) || len(text) >= len(want)-len(`"parameters":{"a":"x"}`) {
		t.Errorf("%s %v", text, err)
	}
}

// A binary result is put together in front of its tensors where they lie, if these fill their lease.
func TestBinaryInPlace(t *testing.T) {
	lease, err := buf.NewPool(0).Lease(12)
	if err != nil {
		t.Fatal(err)
	}
	copy(lease.Bytes(), scores().Data)
	var e Encoder
	r := sample(scores())
	r.Outputs[0].Data = lease.Bytes()
	r.Lease, r.Contiguous = lease, true
	e.Begin(r)
	msg, err := e.Binary(r, 0)
	if err != nil || &msg[len(msg)-1] != &lease.Bytes()[lease.Len()-1] {
		t.Errorf("the tensors were copied, or %v", err)
	}
	r.Release()
}

// Encoding allocates nothing once the encoder's memory has grown.
func TestAllocations(t *testing.T) {
	for name, encode := range map[string]func(*Encoder, *stream.Result) error{
		"members": func(e *Encoder, r *stream.Result) (err error) {
			e.Text, err = e.Members(e.Text[:0], r)
			return err
		},
		"reply": func(e *Encoder, r *stream.Result) error {
			e.Begin(r)
			e.Int("seq", int64(r.Seq))
			return e.Reply("7")
		},
		"binary, assembled": func(e *Encoder, r *stream.Result) error {
			e.Begin(r)
			_, err := e.Binary(r, 1)
			return err
		},
	} {
		var e Encoder
		r := sample(scores(), scores())
		if n := testing.AllocsPerRun(100, func() {
			if err := encode(&e, r); err != nil {
				t.Fatal(err)
			}
		}); n > 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// Memory that one large message took is not kept for the next connection.
func TestReusableEncoders(t *testing.T) {
	for _, c := range []struct {
		text, whole int
		want        bool
	}{{0, 0, true}, {1 << 20, 4 << 20, true}, {1<<20 + 1, 0, false}, {0, 4<<20 + 1, false}} {
		e := &Encoder{whole: make([]byte, 0, c.whole)}
		e.Text = make([]byte, 0, c.text)
		if e.Reusable() != c.want {
			t.Errorf("%+v", c)
		}
	}
	for n, want := range map[int]int{0: 0, 64: 64, 65: 67} {
		if got := Clip(string(make([]byte, n))); len(got) != want {
			t.Errorf("%d bytes are clipped to %d", n, len(got))
		}
	}
}
