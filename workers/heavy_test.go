package workers

import (
	"context"
	"sync"
	"testing"
	"time"

	"millrace/batching"
	"millrace/stream"
	"millrace/stream/buf"
)

// replaceable is a worker with pictures and affinity, whose answer is its number. The third and later workers wait in
// their start for gate.
type replaceable struct {
	Base
	number byte
}

var replaceables struct {
	sync.Mutex
	started []func(error) // Env.Replace of each
	waits   chan struct{} // one element for each worker waiting for gate
	gate    chan struct{}
}

func init() {
	Register(Kind{Name: "replaceable", New: func() Worker { return &replaceable{} }})
}

func (w *replaceable) Init(_ context.Context, env *Env) (*stream.Model, error) {
	all := &replaceables
	all.Lock()
	w.number = byte(len(all.started))
	all.started = append(all.started, env.Replace)
	all.Unlock()
	if w.number >= 2 {
		all.waits <- struct{}{}
		<-all.gate
	}
	return &stream.Model{Stateful: true, Affinity: true, MaxBatch: 4, Image: &stream.ImageSpec{Width: 8, Height: 8,
		Color: "RGB", Layout: "NHWC", Fit: "stretch"},
		Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Uint8, Shape: []int{8, 8, 3}}}}, nil
}

func (w *replaceable) Run(_ context.Context, b *batching.Batch) error {
	for i := range b.Requests {
		b.Finish(i, []stream.Tensor{{Name: "number", Datatype: stream.Uint8, Shape: []int{1}, Data: []byte{w.number}}})
	}
	return nil
}

// numbers is a sink that passes on the numbers of the answering workers.
type numbers chan byte

func (n numbers) Push(r *stream.Result) {
	if r.Outcome != stream.Answered {
		n <- 255
	} else {
		n <- r.Outputs[0].Data[0]
	}
	r.Release()
}

func (numbers) Done(stream.CloseReason) {}

// TestDecodedFramesDoNotWaitForARestart: while the worker with the stream's state is replaced, another worker runs a
// frame decoded beside the workers, like a frame waiting in the queue.
func TestDecodedFramesDoNotWaitForARestart(t *testing.T) {
	all := &replaceables
	all.started, all.waits, all.gate = nil, make(chan struct{}, 1), make(chan struct{})
	m := NewManager(ManagerOptions{Memory: buf.NewPool(0)})
	open := sync.OnceFunc(func() { close(all.gate) })
	defer func() {
		open()
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	if _, err := m.LoadConfig(t.Context(), Config{Name: "replaceable", Kind: "replaceable", Instances: 2},
		true); err != nil {
		t.Fatal(err)
	}
	g, err := m.Group("replaceable", "")
	if err != nil {
		t.Fatal(err)
	}
	g.model.Cost = func(r *stream.Request) time.Duration { return time.Duration(r.CaptureUS) * time.Microsecond }
	for range cap(g.decoders) {
		g.decoders <- struct{}{} // blocks decoding
	}
	answered := make(numbers, 2)
	s, err := g.Open(stream.Options{Policy: stream.Policy{Mode: stream.Every, Window: 2}}, answered)
	if err != nil {
		t.Fatal(err)
	}
	show := func(takes time.Duration) {
		t.Helper()
		if err := s.Submit(stream.Frame{Codec: stream.RGB24, Width: 8, Height: 8, Payload: make([]byte, 8*8*3),
			CaptureUS: takes.Microseconds()}); err != nil {
			t.Fatal(err)
		}
	}
	show(0)
	first := <-answered
	show(time.Second)
	for waiting := 0; waiting == 0; time.Sleep(time.Millisecond) {
		g.gather.Lock()
		waiting = g.intake.HeavyWaiting()
		g.gather.Unlock()
	}
	all.Lock()
	replace := all.started[first]
	all.Unlock()
	replace(nil)
	<-all.waits
	for range cap(g.decoders) {
		<-g.decoders
	}
	select {
	case second := <-answered:
		if second != 1-first {
			t.Errorf("worker %d answered, and then %d", first, second)
		}
	case <-time.After(30 * time.Second):
		t.Error("the frame waits for the worker that is replaced")
	}
	open()
	s.Close(stream.ByClient)
	<-s.Finished()
}
