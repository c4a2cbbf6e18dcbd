package motion

import (
	"bytes"
	"context"
	"testing"

	"go.uber.org/goleak"

	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sink sends every result to a channel.
type sink struct {
	results chan *stream.Result
	done    chan stream.CloseReason
}

func (s sink) Push(r *stream.Result)       { s.results <- r }
func (s sink) Done(why stream.CloseReason) { s.done <- why }

// TestWorker runs two streams through a group: each has its own background, and boxes
// are pixels of the frames as sent.
func TestWorker(t *testing.T) {
	mem := buf.NewPool(0)
	m := workers.NewManager(workers.ManagerOptions{Memory: mem})
	defer func() {
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if s := mem.Stats(); s.Leases != 0 {
			t.Errorf("%d leases were not given back", s.Leases)
		}
	}()
	_, err := m.LoadConfig(t.Context(), workers.Config{Name: "m", Kind: "motion", Instances: 2,
		Params: stream.Params{"min_area": 0.001}}, true)
	if err != nil {
		t.Fatal(err)
	}
	g, err := m.Group("m", "")
	if err != nil {
		t.Fatal(err)
	}
	const w, h, side = 640, 480, 80
	type client struct {
		*stream.Stream
		sink
		y int
	}
	var clients []client
	for i := range 2 {
		s := sink{make(chan *stream.Result, 16), make(chan stream.CloseReason, 1)}
		st, err := g.Open(stream.Options{Policy: stream.Policy{Mode: stream.Every}}, s)
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, client{st, s, 100 + 200*i})
	}
	for n := range 40 {
		for _, c := range clients {
			px := bytes.Repeat([]byte{90}, w*h*3)
			x0 := 10 * n
			for y := c.y; y < c.y+side && n >= 12; y++ {
				for x := 3 * x0; x < 3*(x0+side); x++ {
					px[y*w*3+x] = 210
				}
			}
			if err := c.Submit(stream.Frame{Seq: uint64(n), Codec: stream.RGB24, Width: w, Height: h,
				Payload: px}); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range clients {
			r := <-c.results
			if r.Outcome != stream.Answered || r.Width != w || r.Height != h || len(r.Outputs) != 2 {
				t.Fatalf("frame %d: %+v, %v", n, r, r.Err)
			}
			boxes, scores := r.Outputs[0].Float32s(), r.Outputs[1].Float32s()
			for i := range r.Outputs {
				if err := r.Outputs[i].CheckSize(r.Outputs[i].Name); err != nil {
					t.Fatal(err)
				}
			}
			r.Release()
			if n < 12 {
				if len(boxes) != 0 {
					t.Fatalf("frame %d without an object: %v", n, boxes)
				}
				continue
			}
			if len(scores) != 1 || len(boxes) != 4 {
				t.Fatalf("frame %d: boxes %v, scores %v", n, boxes, scores)
			}
			for i, want := range []int{10 * n, c.y, 10*n + side, c.y + side} {
				if d := boxes[i] - float32(want); d < -6 || d > 6 {
					t.Fatalf("frame %d: box %v, want about %d at %d", n, boxes, want, i)
				}
			}
		}
	}
	for _, c := range clients {
		c.Close(stream.ByClient)
		<-c.done
	}
}

func TestManyRowsAreRefused(t *testing.T) {
	mem := buf.NewPool(0)
	m := workers.NewManager(workers.ManagerOptions{Memory: mem})
	defer func() { _ = m.Close(context.Background()) }()
	if _, err := m.LoadConfig(t.Context(), workers.Config{Name: "m", Kind: "motion",
		Params: stream.Params{"width": int64(32), "height": int64(16)}}, true); err != nil {
		t.Fatal(err)
	}
	g, err := m.Group("m", "")
	if err != nil {
		t.Fatal(err)
	}
	s := sink{make(chan *stream.Result, 4), make(chan stream.CloseReason, 1)}
	st, err := g.Open(stream.Options{OneShot: true}, s)
	if err != nil {
		t.Fatal(err)
	}
	for rows, code := range map[int]stream.Code{1: "", 2: stream.InvalidArgument} {
		in := stream.Tensor{Name: "image", Datatype: stream.Uint8, Shape: []int{rows, 16, 32, 1},
			Data: make([]byte, rows*512)}
		if err := st.Submit(stream.Frame{Codec: stream.Tensors, Inputs: []stream.Tensor{in}}); err != nil {
			t.Fatal(err)
		}
		r := <-s.results
		if stream.CodeOf(r.Err) != code {
			t.Errorf("%d rows: %v", rows, r.Err)
		}
		r.Release()
	}
	st.Close(stream.ByClient)
	<-s.done
}

func TestBadParameterNamesItsKey(t *testing.T) {
	m := workers.NewManager(workers.ManagerOptions{Memory: buf.NewPool(0)})
	defer func() { _ = m.Close(context.Background()) }()
	_, err := m.LoadConfig(t.Context(), workers.Config{Name: "m", Kind: "motion",
		Params: stream.Params{"threshold": 2.5}}, true)
	if err == nil || !bytes.Contains([]byte(err.Error()), []byte("threshold")) {
		t.Errorf("%v", err)
	}
}
