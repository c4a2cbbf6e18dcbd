package streams

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace/ingest"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/stream/window"
)

// nowhere is a queue from which nobody takes frames.
type nowhere struct{}

func (nowhere) Enqueue(*stream.Stream, any) {}
func (nowhere) Admit(bool) error            { return nil }
func (nowhere) AddWaiting(int)              {}
func (nowhere) Ended(*stream.Request)       {}
func (nowhere) Detach(*stream.Stream)       {}

// No window spans frames lost by a live source: because the window was full, because memory was short, or because the
// source was opened again.
func TestWindowsBehindALoss(t *testing.T) {
	mem := buf.NewPool(0)
	m := &stream.Model{
		Name: "pairs", MaxBatch: 1, Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Uint8,
			Shape: []int{2, 1, 1, 3}}},
		Image: &stream.ImageSpec{Width: 1, Height: 1}, Assembly: &window.Window{Length: 2, Hop: 1, Memory: mem},
	}
	f := &runner{queue: newEndings(16)}
	c := &consumer{f: f}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	o := &modelFeed{f: f, c: c, ctx: ctx, cancel: cancel, window: ingest.NewWindow(), every: true}
	o.stream = stream.New(m, nowhere{}, o, stream.Options{Policy: stream.Policy{Mode: stream.Every, Window: 1}})
	seq := uint64(0)
	// send returns whether the frame completed a window.
	send := func() bool {
		t.Helper()
		l, err := mem.Copy([]byte{1, 2, 3})
		if err != nil {
			t.Fatal(err)
		}
		before := o.stream.WaitingFrames()
		o.frame(stream.Frame{Seq: seq, Codec: stream.RGB24, Width: 1, Height: 1, Payload: l.Bytes(), Lease: l}, false)
		seq++
		return o.stream.WaitingFrames() > before
	}
	o.fresh = true
	if send() || !send() {
		t.Fatal("two frames are no window")
	}
	send() // no room: a window waits
	if c.drops[stream.Reason(stream.FlowControl)] != 1 {
		t.Fatalf("%v", c.drops)
	}
	r, _ := o.stream.Take(stream.Now(), 1, nil, 0)
	r.Finish(nil, nil, true)
	r.Unbind()
	if send() {
		t.Fatal("frames from before and behind one for which there was no room are a window")
	}
	o.fresh = true // the source was opened again
	if send() {
		t.Fatal("frames from before and behind a reconnect are a window")
	}
	if !send() {
		t.Fatal("two frames behind a reconnect are no window")
	}
	r, _ = o.stream.Take(stream.Now(), 1, nil, 0)
	r.Finish(nil, nil, true)
	r.Unbind()
	o.dropForMemory()
	if send() {
		t.Fatal("frames from before and behind one for which there was no memory are a window")
	}
	o.stream.Close(stream.SourceEnded)
	if n := mem.Stats().Leases; n != 0 {
		t.Fatalf("%d leases", n)
	}
}

// Only in mode Every does an unreadable picture wait for earlier results.
func TestUnreadableWaits(t *testing.T) {
	for _, mode := range []stream.Mode{stream.Every, stream.Latest} {
		synctest.Test(t, func(t *testing.T) {
			mem := buf.NewPool(0)
			m := &stream.Model{
				Name: "m", MaxBatch: 1, Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Uint8,
					Shape: []int{1, 1, 3}}},
				Image: &stream.ImageSpec{Width: 1, Height: 1},
			}
			f := &runner{queue: newEndings(16)}
			ctx, cancel := context.WithCancel(t.Context())
			o := &modelFeed{f: f, c: &consumer{f: f}, ctx: ctx, cancel: cancel, window: ingest.NewWindow(),
				every: mode == stream.Every}
			o.stream = stream.New(m, nowhere{}, o, stream.Options{Policy: stream.Policy{Mode: mode, Window: 4}})
			l, err := mem.Copy([]byte{1, 2, 3})
			if err != nil {
				t.Fatal(err)
			}
			o.model = m
			o.frame(stream.Frame{Codec: stream.RGB24, Width: 1, Height: 1, Payload: l.Bytes(), Lease: l}, false)
			over := false
			go func() {
				o.unreadable(stream.Frame{Seq: 1}, errors.New("no picture"))
				over = true
			}()
			synctest.Wait()
			if over != (mode == stream.Latest) {
				t.Errorf("%v, with a frame in flight: over %v", mode, over)
			}
			cancel()
			synctest.Wait()
			if !over {
				t.Errorf("%v: it waits after the end", mode)
			}
			o.stream.Close(stream.SourceEnded)
			if n := mem.Stats().Leases; n != 0 {
				t.Errorf("%v: %d leases", mode, n)
			}
		})
	}
}

// faultyAssembly makes assemblers that panic.
type faultyAssembly struct{ stream.Assembler }

func (a faultyAssembly) NewAssembler(*stream.Model, bool) stream.Assembler { return a }
func (faultyAssembly) IsRequest(*stream.Frame) bool                        { panic("at once") }
func (faultyAssembly) Reset()                                              {}

// A panic before or after the submission of a frame leaves no lease. The source releases only its own lease.
func TestPanicLeavesNoLease(t *testing.T) {
	m := &stream.Model{
		Name: "m", MaxBatch: 1, Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Uint8, Shape: []int{1, 1, 3}}},
		Image: &stream.ImageSpec{Width: 1, Height: 1}, Assembly: faultyAssembly{},
	}
	for _, submitted := range []bool{false, true} {
		mem := buf.NewPool(0)
		f := &runner{queue: newEndings(16)}
		ctx, cancel := context.WithCancel(t.Context())
		o := &modelFeed{f: f, c: &consumer{f: f}, ctx: ctx, cancel: cancel, window: ingest.NewWindow(), model: m}
		f.feeds.Store(&[]*modelFeed{o})
		if submitted {
			o.stream = stream.New(m, nowhere{}, o, stream.Options{Policy: stream.Policy{Mode: stream.Latest}})
		}
		l, err := mem.Copy([]byte{1, 2, 3})
		if err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("submitted %v: no panic", submitted)
				}
				l.Release()
			}()
			current(f).frame(stream.Frame{Codec: stream.RGB24, Width: 1, Height: 1, Payload: l.Bytes(), Lease: l})
		}()
		if submitted {
			r := f.queue.next().r
			if r.Outcome != stream.Failed || stream.CodeOf(r.Err) != stream.Internal {
				t.Errorf("the frame ended as %v: %v", r.Outcome, r.Err)
			}
			r.Release()
			o.stream.Close(stream.SourceEnded)
			<-o.stream.Finished()
		}
		cancel()
		if n := mem.Stats().Leases; n != 0 {
			t.Errorf("submitted %v: %d leases", submitted, n)
		}
	}
}

// Several goroutines can wait for the results of a model's frames, for example at the end of a video after the
// model's removal. All waits end.
func TestSeveralWaitForAFeed(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 1000 {
		o := &modelFeed{ctx: ctx, window: ingest.NewWindow()}
		o.window.Receive()
		var waiting sync.WaitGroup
		for range 3 {
			waiting.Go(func() {
				if !o.wait(1) {
					t.Error("the frame is answered, and a goroutine waits")
				}
			})
		}
		runtime.Gosched() // let the goroutines start to wait
		o.window.Answer(1)
		waiting.Wait()
	}
}
