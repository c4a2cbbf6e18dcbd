package stream_test

import (
	"fmt"
	"testing"

	"millrace/stream"
)

// completesNothing is the CaptureUS of a frame from which gaps makes no request.
const completesNothing = 1

// gaps assembles the frames of a model: most frames are requests, some complete nothing. gaps counts its resets.
type gaps struct{ resets int }

func (g *gaps) NewAssembler(*stream.Model, bool) stream.Assembler { return g }

func (g *gaps) IsRequest(f *stream.Frame) bool { return f.CaptureUS != completesNothing }

func (g *gaps) Assemble(f *stream.Frame) (int, *stream.Assembled, stream.Params, error) {
	f.Lease.Release()
	f.Lease, f.Payload = nil, nil
	return 0, nil, stream.Params{"empty": true}, nil
}

func (g *gaps) Reset() { g.resets++ }

func (g *gaps) Adopt(*stream.Model) bool { return false }

// assembled returns m with an assembler.
func assembled(m *stream.Model) *stream.Model {
	other := *m
	other.Name, other.Assembly = "assembled "+m.Name, &gaps{}
	return &other
}

func empty(f *stream.Frame) { f.CaptureUS = completesNothing }

// A frame that completes no request is answered in turn; in Latest, too, where the answer does not end older frames.
func TestFrameThatCompletesNothing(t *testing.T) {
	for _, p := range []stream.Policy{latest, every} {
		b := newBench(assembled(anything), p)
		_ = b.offer(empty)
		b.check(t, "0 result")
		_ = b.offer()
		_ = b.offer(empty)
		r1 := b.take(t)
		_ = b.offer()
		_ = b.offer(empty)
		b.check(t, "0 result")
		r3 := b.take(t)
		if r1.Seq != 1 || r3.Seq != 3 {
			t.Fatalf("took %d and %d", r1.Seq, r3.Seq)
		}
		answer(b.mem, r1)
		b.check(t, "0 result", "1 result", "2 result")
		answer(b.mem, r3)
		b.check(t, "0 result", "1 result", "2 result", "3 result", "4 result")
		r1.Unbind()
		r3.Unbind()
		b.Close(stream.ByClient)
		b.checkFinished(t)
	}
}

// Every interruption of the sequence of frames resets the assembler. A refusal resets the assembler in Latest only:
// in Every the client sends the frame again.
func TestAssemblerIsReset(t *testing.T) {
	submit := func(b *bench) { _ = b.offer(must) }
	for _, c := range []struct {
		name   string
		mode   stream.Mode
		resets int
		do     func(b *bench)
	}{
		{"accepted frame", stream.Latest, 0, submit},
		{"refused frame in latest", stream.Latest, 1, func(b *bench) { submit(b); submit(b) }},
		{"refused frame in every", stream.Every, 0, func(b *bench) { submit(b); submit(b) }},
		{"frame after closing", stream.Latest, 1, func(b *bench) { b.Close(stream.ByClient); submit(b) }},
		{"discontinuity", stream.Every, 1, func(b *bench) { b.MarkDiscontinuity() }},
		{"flush", stream.Every, 1, func(b *bench) { b.Flush() }},
		{"lost frame", stream.Every, 1, func(b *bench) {
			_ = b.SubmitEnded(stream.Frame{}, b.now, stream.Undecoded, nil)
		}},
		{"idle", stream.Every, 1, func(b *bench) { b.DropIdleState(1 << 62) }},
		{"swap", stream.Every, 1, func(b *bench) { b.Move(&queue{}, anything) }},
		{"close", stream.Every, 1, func(b *bench) { b.Close(stream.ByClient) }},
	} {
		m := assembled(anything)
		b := newBench(m, stream.Policy{Mode: c.mode, Window: 1})
		c.do(b)
		if got := m.Assembly.(*gaps).resets; got != c.resets {
			t.Errorf("%s: %d resets, want %d", c.name, got, c.resets)
		}
		b.Close(stream.ByClient)
	}
}

// faultyReset is an assembler whose Reset panics.
type faultyReset struct{ gaps }

func (g *faultyReset) NewAssembler(*stream.Model, bool) stream.Assembler { return g }

func (*faultyReset) Reset() { panic("at once") }

// When the assembler panics, the submitted frame's lease is released, and every accepted frame still ends.
func TestAssemblerPanicsWhenReset(t *testing.T) {
	for _, c := range []struct {
		name   string
		submit func(b *bench)
		want   []string
	}{
		{"refused frame", func(b *bench) { _ = b.offer(must) }, []string{"0 result"}},
		{"lost frame", func(b *bench) {
			l, _ := b.mem.Copy([]byte{1})
			_ = b.SubmitEnded(stream.Frame{Seq: 1, Lease: l}, b.now, stream.Undecoded, nil)
		}, []string{"1 drop undecoded", "0 result"}},
	} {
		m := assembled(anything)
		m.Assembly = &faultyReset{}
		b := newBench(m, stream.Policy{Mode: stream.Latest, Window: 1})
		if err := b.offer(must); err != nil {
			t.Fatal(err)
		}
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", c.name)
				}
			}()
			c.submit(b)
		}()
		r := b.take(t)
		answer(b.mem, r)
		r.Unbind()
		b.check(t, c.want...)
		if n := b.mem.Stats().Leases; n != 0 {
			t.Errorf("%s: %d leases", c.name, n)
		}
	}
}

// A model does not run a request assembled for an incompatible model.
func TestAssembledFramesOfAnotherModel(t *testing.T) {
	b := newBench(assembled(anything), every)
	_ = b.offer()
	r := b.take(t)
	_ = b.offer()
	b.ep = &queue{}
	next := assembled(anything)
	next.Assembly = allAssembled{}
	b.Move(b.ep, next)
	b.check(t)
	answer(b.mem, r)
	r.Unbind()
	b.check(t, "0 result", "1 error conflict")
	b.Close(stream.ByClient)
	if s := fmt.Sprint(b.Counts()); s != "{2 1 0 1}" {
		t.Error(s)
	}
}

// allAssembled is an assembler that accepts no frame as a request by itself.
type allAssembled struct{}

func (allAssembled) NewAssembler(*stream.Model, bool) stream.Assembler { return allAssembled{} }

func (allAssembled) IsRequest(*stream.Frame) bool { return false }

func (allAssembled) Assemble(*stream.Frame) (int, *stream.Assembled, stream.Params, error) {
	return 0, nil, nil, nil
}

func (allAssembled) Reset() {}

func (allAssembled) Adopt(*stream.Model) bool { return false }
