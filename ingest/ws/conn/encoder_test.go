package conn

import (
	"encoding/json"
	"errors"
	"testing"

	"millrace/stream"
	"millrace/stream/buf"
)

func sample(outputs ...stream.Tensor) *stream.Result {
	return &stream.Result{
		Outcome: stream.Answered, Seq: 7, Model: &stream.Model{Name: "spotter", Version: "1"}, Outputs: outputs,
		BatchSize: 4,
		Timing:    stream.Timing{Received: 1000, Dequeued: 300_000, Started: 500_000, Done: 9_000_000},
	}
}

func scores() stream.Tensor {
	return stream.Tensor{Name: "scores", Datatype: stream.Float32, Shape: []int{1, 3},
		Data: stream.AppendFloat32(nil, 0.5, 0.25, 1)}
}

// Members are the parameters, in the order of their names, and the outputs.
func TestMembers(t *testing.T) {
	var e Encoder
	r := sample(scores())
	r.Params = stream.Params{"b": true, "a": "x", "c": int64(1), "d": 1.5}
	text, err := e.Members([]byte("{"), r)
	const want = `{"parameters":{"a":"x","b":true,"c":1,"d":1.5},"outputs":[{"name":"scores","datatype":"FP32",` +
		`"shape":[1,3],"data":[0.5,0.25,1]}]`
	if err != nil || string(text) != want {
		t.Errorf("%s %v", text, err)
	}
	r.Params = nil // the next message must not contain parameters of the last
	if text, err := e.Members([]byte("{"), r); err != nil || !json.Valid(append(text, '}')) ||
		len(text) >= len(want)-len(`"parameters":{"a":"x"}`) {
		t.Errorf("%s %v", text, err)
	}
}

// A binary result is assembled in front of the tensors in place when the tensors fill their lease.
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

// The memory of a long message is leased until written; without memory the message fails.
func TestLongMessages(t *testing.T) {
	long := stream.Tensor{Name: "o", Datatype: stream.Float32, Shape: []int{1, 20_000}, Data: make([]byte, 80_000)}
	for name, encode := range map[string]func(*Encoder, *stream.Result) ([]byte, error){
		"members": func(e *Encoder, r *stream.Result) (text []byte, err error) {
			text, err = e.Members(append(e.Text[:0], '{'), r)
			if err == nil {
				e.Text = append(text, '}')
			}
			return e.Text, err
		},
		"reply": func(e *Encoder, r *stream.Result) ([]byte, error) {
			e.Begin(r)
			err := e.Reply("7")
			return e.Text, err
		},
		"binary, assembled": func(e *Encoder, r *stream.Result) ([]byte, error) {
			e.Begin(r)
			return e.Binary(r, 1)
		},
	} {
		pool := buf.NewPool(1 << 20)
		var e, plain Encoder
		e.use(pool, nil)
		for range 2 {
			msg, err := encode(&e, sample(long))
			want, _ := encode(&plain, sample(long))
			if st := pool.Stats(); err != nil || string(msg) != string(want) || st.Leases != 1 {
				t.Errorf("%s: %d bytes, want %d, %v, %+v", name, len(msg), len(want), err, st)
			}
		}
		if e.written(); pool.Stats().Leases != 0 {
			t.Errorf("%s: %+v", name, pool.Stats())
		}
		if msg, err := encode(&e, sample(scores())); err != nil || len(msg) == 0 || pool.Stats().Leases != 0 {
			t.Errorf("%s: a short message %q, %v, %+v", name, msg, err, pool.Stats())
		}
		small := buf.NewPool(64 << 10)
		e.use(small, nil)
		_, err := encode(&e, sample(long))
		if !errors.Is(err, buf.ErrBudget) || !errors.Is(Unsendable(err), buf.ErrBudget) || small.Stats().Denied != 1 {
			t.Errorf("%s: %v, %+v", name, err, small.Stats())
		}
	}
}

// The next connection does not inherit the memory of a large text.
func TestReusableEncoders(t *testing.T) {
	for n, want := range map[int]bool{0: true, 4 * maxOwn: true, 4*maxOwn + 1: false} {
		e := &Encoder{Text: make([]byte, 0, n)}
		if e.reusable() != want {
			t.Errorf("a text of %d bytes", n)
		}
	}
	for n, want := range map[int]int{0: 0, 64: 64, 65: 67} {
		if got := Clip(string(make([]byte, n))); len(got) != want {
			t.Errorf("%d bytes are clipped to %d", n, len(got))
		}
	}
}
