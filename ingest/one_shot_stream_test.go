package ingest_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"millrace/ingest"
	"millrace/stream"
	"millrace/workers"
	_ "millrace/workers/repeat"
)

func numbers(name string, t stream.Datatype, v ...uint32) stream.Tensor {
	var data []byte
	for _, n := range v {
		data = binary.LittleEndian.AppendUint32(data, n)
	}
	return stream.Tensor{Name: name, Datatype: t, Shape: []int{len(v)}, Data: data}
}

// repeated asks for the numbers in, each after delay milliseconds.
func repeated(delay uint32, in ...uint32) stream.Frame {
	delays := make([]uint32, len(in))
	for i := range delays {
		delays[i] = delay
	}
	return stream.Frame{Codec: stream.Tensors, Inputs: []stream.Tensor{
		numbers("IN", stream.Int32, in...), numbers("DELAY", stream.Uint32, delays...),
		numbers("WAIT", stream.Uint32, 0),
	}}
}

func counted(n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = uint32(i)
	}
	return out
}

// TestInferStream: all partial results come in order, then the ending without outputs.
func TestInferStream(t *testing.T) {
	d := newBackend(t)
	g := d.load(t, workers.Config{Name: "m", Kind: "repeat"})
	c := ingest.NewOneShot(ingest.NewGate(d, nil), "test", &d.noModel)
	defer c.Close()
	for _, n := range []int{0, 1, 5, 1000} {
		var got []string
		r, err := c.InferStream(context.Background(), d.owner(), "m", "", repeated(0, counted(n)...),
			func(r *stream.Result) error {
				if !r.Partial || r.Model != g.Model() {
					t.Errorf("%+v", r)
				}
				got = append(got, fmt.Sprint(binary.LittleEndian.Uint32(r.Outputs[0].Data)))
				if binary.LittleEndian.Uint32(r.Outputs[1].Data) != uint32(len(got)-1) {
					t.Errorf("index %v at %d", r.Outputs[1].Data, len(got))
				}
				return nil
			})
		if err != nil || len(r.Outputs) != 0 || len(got) != n || n > 0 && got[n-1] != fmt.Sprint(n-1) {
			t.Errorf("%d: %v, %v", n, got, err)
		}
		r.Release()
	}
	if n := g.Stats().PlacesUsed; n != 0 {
		t.Errorf("%d places", n)
	}
	if _, err := c.InferStream(context.Background(), d.owner(), "nobody", "", repeated(0),
		nil); stream.CodeOf(err) != stream.NotFound {
		t.Error(err)
	}
	bad := repeated(0, 1, 2)
	bad.Inputs[1] = numbers("DELAY", stream.Uint32, 0)
	if _, err := c.InferStream(context.Background(), d.owner(), "m", "", bad,
		nil); stream.CodeOf(err) != stream.InvalidArgument {
		t.Error(err)
	}
}

// TestInferStreamOfOneAnswer: a model with a single answer has no partial results.
func TestInferStreamOfOneAnswer(t *testing.T) {
	d := newBackend(t)
	d.load(t, workers.Config{Name: "m", Kind: "plain"})
	c := ingest.NewOneShot(ingest.NewGate(d, nil), "test", &d.noModel)
	defer c.Close()
	r, err := c.InferStream(context.Background(), d.owner(), "m", "", d.frame("x"), func(*stream.Result) error {
		t.Error("a partial result")
		return nil
	})
	if err != nil || len(r.Outputs) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	r.Release()
}

// TestInferOfSeveralAnswers: a caller that takes a single answer receives an error about several answers.
func TestInferOfSeveralAnswers(t *testing.T) {
	d := newBackend(t)
	d.load(t, workers.Config{Name: "m", Kind: "repeat"})
	c := ingest.NewOneShot(ingest.NewGate(d, nil), "test", &d.noModel)
	defer c.Close()
	for range 2 {
		if _, err := c.Infer(context.Background(), d.owner(), "m", "",
			repeated(0, 1, 2)); stream.CodeOf(err) != stream.Unsupported {
			t.Error(err)
		}
	}
	if r, err := c.Infer(context.Background(), d.owner(), "m", "", repeated(0)); err != nil {
		t.Error(err)
	} else {
		r.Release()
	}
}

// TestInferStreamEndsWithItsCaller: when the caller refuses a part, or the caller's context ends, the worker is free
// at once.
func TestInferStreamEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBackend(t)
		d.load(t, workers.Config{Name: "m", Kind: "repeat"})
		c := ingest.NewOneShot(ingest.NewGate(d, nil), "test", &d.noModel)
		defer c.Close()
		began := time.Now()
		n, enough := 0, errors.New("enough")
		_, err := c.InferStream(context.Background(), d.owner(), "m", "", repeated(1000, counted(20)...),
			func(*stream.Result) error {
				if n++; n == 3 {
					return enough
				}
				return nil
			})
		if n != 3 || !errors.Is(err, enough) {
			t.Errorf("%d parts, %v", n, err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2500*time.Millisecond)
		defer cancel()
		n = 0
		_, err = c.InferStream(ctx, d.owner(), "m", "", repeated(1000, counted(20)...), func(*stream.Result) error {
			n++
			return nil
		})
		if n != 2 || stream.CodeOf(err) != stream.Timeout {
			t.Errorf("%d parts, %v", n, err)
		}
		if r, err := c.InferStream(context.Background(), d.owner(), "m", "", repeated(0), nil); err != nil {
			t.Error(err)
		} else {
			r.Release()
		}
		if took := time.Since(began); took > 5700*time.Millisecond {
			t.Errorf("the worker was occupied for %v", took)
		}
	})
}

// TestInferStreamCountsWhatItsCallerDoesNotTake: when the caller fails with a partial result after the ending, the
// request counts as unsendable.
func TestInferStreamCountsWhatItsCallerDoesNotTake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBackend(t)
		g := d.load(t, workers.Config{Name: "m", Kind: "repeat"})
		c := ingest.NewOneShot(ingest.NewGate(d, nil), "test", &d.noModel)
		defer c.Close()
		_, err := c.InferStream(context.Background(), d.owner(), "m", "", repeated(0, counted(3)...),
			func(r *stream.Result) error {
				synctest.Wait() // until the worker has ended the request
				return stream.Errorf(stream.Unsupported, "", "cannot be sent")
			})
		if n := g.Stats().Frames; stream.CodeOf(err) != stream.Unsupported || n.Results != 1 ||
			n.Unsendable[stream.Unsupported] != 1 {
			t.Errorf("%v, %+v", err, n)
		}
	})
}

// TestInferStreamBoundsWhatWaits: the worker waits for a slow caller; when the caller takes nothing, the request
// ends.
func TestInferStreamBoundsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newBackend(t)
		d.load(t, workers.Config{Name: "m", Kind: "repeat", Limits: workers.Limits{Run: time.Hour}})
		c := ingest.NewOneShot(ingest.NewGate(d, nil), "test", &d.noModel)
		defer c.Close()
		n, most := 0, int64(0)
		r, err := c.InferStream(context.Background(), d.owner(), "m", "", repeated(0, counted(500)...),
			func(*stream.Result) error {
				n++
				time.Sleep(time.Millisecond)
				most = max(most, d.mem.Stats().Leases)
				return nil
			})
		if err != nil || n != 500 || most > 70 {
			t.Errorf("%d parts, at most %d at once, %v", n, most, err)
		}
		r.Release()
		n = 0
		_, err = c.InferStream(context.Background(), d.owner(), "m", "", repeated(0, counted(500)...),
			func(*stream.Result) error {
				if n++; n == 1 {
					time.Sleep(time.Minute)
				}
				return nil
			})
		if n != 65 && n != 64 || stream.CodeOf(err) != stream.FlowControl {
			t.Errorf("%d parts, %v", n, err)
		}
	})
}
