package batching

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"millrace/stream"
	"millrace/stream/buf"
)

// group is a queue over an Intake, like a worker group, but without workers.
type group struct {
	model    *stream.Model
	intake   *Intake
	pool     *Pool
	mem      *buf.Pool
	waiting  int
	detached int
}

// testParts are the settings of batchers in these tests. epoch is later than any reading of the real clock, so that
// no waiting frame expires in tests with their own times.
const epoch stream.Instant = 1e15

var testParts = []any{&SoftSettings{MaxDelay: softDelay}, &DeadlineSettings{Slack: deadlineSlack}}

func newGroup(t testing.TB, m *stream.Model, kind string, buffers, flows int) *group {
	t.Helper()
	g := &group{model: m, mem: buf.NewPool(0)}
	b, err := NewBatcher(kind, m.MaxBatch, testParts)
	if err != nil {
		t.Fatal(err)
	}
	if g.pool, err = NewPool(m, g.mem, Heap, buffers); err != nil {
		t.Fatal(err)
	}
	g.intake = NewIntake(m, b, g.pool, flows)
	return g
}

func (g *group) Enqueue(s *stream.Stream, own any) {
	inbox, _ := own.(*Inbox)
	g.intake.Push(s, inbox)
}

func (g *group) Admit(inPlace bool) error {
	if !inPlace {
		g.waiting++
	}
	return nil
}

func (g *group) AddWaiting(n int)      { g.waiting += n }
func (g *group) Ended(*stream.Request) {}
func (g *group) Detach(*stream.Stream) { g.detached++; g.intake.Unreserve() }

func (g *group) open(t testing.TB, p stream.Policy) (*stream.Stream, *sink) {
	t.Helper()
	if err := g.intake.Reserve(); err != nil {
		t.Fatal(err)
	}
	k := &sink{}
	return stream.New(g.model, g, k, stream.Options{Policy: p}), k
}

type sink struct {
	results []string // data of the first output, or the outcome
	ages    []stream.Instant
	stale   []uint64
}

func (k *sink) Push(r *stream.Result) {
	switch r.Outcome {
	case stream.Answered:
		if len(r.Outputs) == 0 { // the frame completes no window
			k.results = append(k.results, "filling")
			break
		}
		k.results = append(k.results, string(r.Outputs[0].Data))
		k.ages = append(k.ages, r.Timing.Dequeued-r.Timing.Received)
	case stream.Dropped:
		if r.Reason == stream.Stale {
			k.stale = append(k.stale, r.Seq)
		}
		k.results = append(k.results, string(r.Reason))
	default:
		k.results = append(k.results, "error: "+string(stream.CodeOf(r.Err)))
	}
	r.Release()
}

func (*sink) Done(stream.CloseReason) {}

var window = stream.Policy{Mode: stream.Every, Window: 64}

// rows makes a frame of the given number of rows of bytes.
func rows(mem *buf.Pool, seq int, fill byte, n int, dims ...int) stream.Frame {
	size := n * stream.Elements(dims)
	l, _ := mem.Copy(bytes.Repeat([]byte{fill}, size))
	return stream.Frame{Seq: uint64(seq), Codec: stream.Tensors, Lease: l,
		Inputs: []stream.Tensor{{Name: "x", Datatype: stream.Uint8, Shape: append([]int{n}, dims...), Data: l.Bytes()}}}
}

func bytesModel(maxBatch int, shape ...int) *stream.Model {
	return &stream.Model{Name: "m", MaxBatch: maxBatch,
		Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Uint8, Shape: shape}}}
}

// echo answers a prepared batch with the batch's inputs.
func echo(b *Batch) {
	b.Outputs = []stream.Tensor{b.Inputs[0]}
	b.Split()
}

func TestRowsReturnToTheirRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := bytesModel(rapid.IntRange(1, 8).Draw(t, "max"), 2, rapid.SampledFrom([]int{3, -1}).Draw(t, "dim"))
		m.Axis = rapid.SampledFrom([]stream.BatchAxis{stream.FreeAxis, stream.FixedAxis}).Draw(t, "axis")
		g := newGroup(nilTB{}, m, Adaptive, 2, 64)
		var sinks []*sink
		var want []string
		for i := range rapid.IntRange(1, 12).Draw(t, "frames") {
			s, k := g.open(nilTB{}, window)
			n := rapid.IntRange(1, m.MaxBatch).Draw(t, "rows")
			d := 3
			if m.Inputs[0].Shape[1] < 0 {
				d = rapid.IntRange(0, 4).Draw(t, "d")
			}
			if err := s.SubmitAt(rows(g.mem, 0, byte(i+1), n, 2, d), 1); err != nil {
				t.Fatal(err)
			}
			sinks, want = append(sinks, k), append(want, string(bytes.Repeat([]byte{byte(i + 1)}, n*2*d)))
		}
		for {
			b, _, err := g.intake.Gather(2, 1, nil)
			if err != nil {
				t.Fatal(err)
			}
			if b == nil {
				break
			}
			if !b.Prepare(nil) {
				t.Fatal("nothing prepared")
			}
			if b.Rows > m.MaxBatch {
				t.Fatalf("%d rows of %d", b.Rows, m.MaxBatch)
			}
			axis := b.Rows
			if m.Axis == stream.FixedAxis {
				axis = m.MaxBatch
			}
			in := b.Inputs[0]
			if in.Shape[0] != axis || in.CheckSize("") != nil {
				t.Fatalf("shape %v of %d bytes with %d rows", in.Shape, len(in.Data), b.Rows)
			}
			if pad := in.Data[b.Rows*len(in.Data)/axis:]; bytes.ContainsFunc(pad, func(r rune) bool { return r != 0 }) {
				t.Fatal("padding is not zero")
			}
			echo(b)
			g.pool.Put(b)
		}
		for i, k := range sinks {
			if len(k.results) != 1 || k.results[0] != want[i] {
				t.Fatalf("frame %d: %q, want %q", i, k.results, want[i])
			}
		}
		if n := g.mem.Stats().Leases; n != 0 {
			t.Fatalf("%d leases", n)
		}
	})
}

// nilTB is for helpers in properties, where T is not a testing.TB.
type nilTB struct{ testing.TB }

func (nilTB) Helper()           {}
func (nilTB) Fatal(args ...any) { panic(fmt.Sprint(args...)) }

// A request that cannot be decoded fails alone; the next request takes its rows.
func TestFailedRowsAreMasked(t *testing.T) {
	for _, axis := range []stream.BatchAxis{stream.FreeAxis, stream.FixedAxis} {
		m := bytesModel(4, 2)
		m.Image, m.Axis = &stream.ImageSpec{}, axis
		g := newGroup(t, m, Adaptive, 1, 8)
		var sinks []*sink
		for i := range 4 {
			s, k := g.open(t, window)
			l, _ := g.mem.Copy([]byte{byte('a' + i)})
			_ = s.SubmitAt(stream.Frame{Codec: stream.JPEG, Payload: l.Bytes(), Lease: l}, 1)
			sinks = append(sinks, k)
		}
		b, _, _ := g.intake.Gather(2, 1, nil)
		ok := b.Prepare(func(r *stream.Request, dst []byte) error {
			dst[0], dst[1] = r.Payload[0], r.Payload[0]
			if r.Payload[0]%2 == 1 { // a and c
				return errors.New("torn")
			}
			return nil
		})
		if !ok || b.Rows != 2 || fmt.Sprint(b.Offsets) != "[0 1]" {
			t.Fatalf("%v: %d rows at %v", ok, b.Rows, b.Offsets)
		}
		want := "bbdd"
		if axis == stream.FixedAxis {
			want += "\x00\x00\x00\x00" // rows written by failed requests are cleared
		}
		if got := string(b.Inputs[0].Data); got != want {
			t.Fatalf("%q, want %q", got, want)
		}
		echo(b)
		g.pool.Put(b)
		for i, want := range []string{"error: internal", "bb", "error: internal", "dd"} {
			if got := sinks[i].results; len(got) != 1 || got[0] != want {
				t.Errorf("frame %d: %q", i, got)
			}
		}
		s, k := g.open(t, window)
		l, _ := g.mem.Copy([]byte("a"))
		_ = s.SubmitAt(stream.Frame{Codec: stream.JPEG, Payload: l.Bytes(), Lease: l}, 1)
		b, _, _ = g.intake.Gather(2, 1, nil)
		if b.Prepare(func(*stream.Request, []byte) error { return errors.New("bad picture") }) {
			t.Error("a batch without rows was prepared")
		}
		g.pool.Put(b)
		if len(k.results) != 1 || g.mem.Stats().Leases != 0 {
			t.Errorf("%q, %d leases", k.results, g.mem.Stats().Leases)
		}
	}
}

// One large row from a client must not make the server allocate MaxBatch times the row.
func TestFreeRowsTakeNoMoreThanTheyNeed(t *testing.T) {
	g := newGroup(t, bytesModel(64, -1), Adaptive, 1, 8)
	s, _ := g.open(t, window)
	_ = s.SubmitAt(rows(g.mem, 0, 1, 1, 1<<16), 1)
	b, _, _ := g.intake.Gather(2, 1, nil)
	b.Prepare(nil)
	if n := len(b.data[0]); n > 1<<17 {
		t.Errorf("%d bytes for one row of %d", n, 1<<16)
	}
	b.FailAll(errors.New("enough"))
	g.pool.Put(b)
}

func TestSplitRefusesOutputsOfTheWrongShape(t *testing.T) {
	for name, out := range map[string][]stream.Tensor{
		"none":        nil,
		"no shape":    {{Name: "y", Datatype: stream.Uint8, Data: make([]byte, 2)}},
		"other rows":  {{Name: "y", Datatype: stream.Uint8, Shape: []int{3, 1}, Data: make([]byte, 3)}},
		"uneven data": {{Name: "y", Datatype: stream.Uint8, Shape: []int{2, 2}, Data: make([]byte, 3)}},
		"less text":   {{Name: "y", Datatype: stream.Bytes, Shape: []int{2, 1}, Data: []byte("\x02\x00\x00\x00ab")}},
		"cut text": {{Name: "y", Datatype: stream.Bytes, Shape: []int{2, 1},
			Data: []byte("\x00\x00\x00\x00\x09\x00\x00\x00")}},
	} {
		g := newGroup(t, bytesModel(4, 2), Adaptive, 1, 8)
		var sinks []*sink
		for range 2 {
			s, k := g.open(t, window)
			_ = s.SubmitAt(rows(g.mem, 0, 1, 1, 2), 1)
			sinks = append(sinks, k)
		}
		b, _, _ := g.intake.Gather(2, 1, nil)
		b.Prepare(nil)
		b.Finish(0, []stream.Tensor{{Name: "y", Data: []byte("one")}, {Name: "z", Data: []byte("two")}})
		b.Outputs = out
		b.Split()
		g.pool.Put(b)
		if sinks[0].results[0] != "one" || sinks[1].results[0] != "error: internal" {
			t.Errorf("%s: %q, %q", name, sinks[0].results, sinks[1].results)
		}
	}
}

// Rows of BYTES differ in length; each request gets its own rows.
func TestSplitCutsTextsWhereTheyEnd(t *testing.T) {
	g := newGroup(t, bytesModel(4, 2), Adaptive, 1, 8)
	var sinks []*sink
	for _, n := range []int{1, 2, 1} {
		s, k := g.open(t, window)
		_ = s.SubmitAt(rows(g.mem, 0, 1, n, 2), 1)
		sinks = append(sinks, k)
	}
	b, _, _ := g.intake.Gather(2, 1, nil)
	b.Prepare(nil)
	text := func(words ...string) (data string) {
		for _, w := range words {
			data += string([]byte{byte(len(w)), 0, 0, 0}) + w
		}
		return data
	}
	all := text("a", "bcd", "", "efghi", "jk", "l", "mn", "")
	b.Outputs = []stream.Tensor{{Name: "y", Datatype: stream.Bytes, Shape: []int{4, 2}, Data: []byte(all)}}
	b.Split()
	g.pool.Put(b)
	for i, want := range []string{text("a", "bcd"), text("", "efghi", "jk", "l"), text("mn", "")} {
		if got := sinks[i].results; len(got) != 1 || got[0] != want {
			t.Errorf("request %d: %q, want %q", i, got, want)
		}
	}
}

func TestOutputsWithoutMemoryAreDrops(t *testing.T) {
	g := newGroup(t, bytesModel(4, 2), Adaptive, 1, 8)
	g.pool.mem = buf.NewPool(1)
	s, k := g.open(t, window)
	_ = s.SubmitAt(rows(g.mem, 0, 1, 1, 2), 1)
	b, _, _ := g.intake.Gather(2, 1, nil)
	b.Prepare(nil)
	echo(b)
	g.pool.Put(b)
	if k.results[0] != string(stream.Memory) {
		t.Errorf("%q", k.results)
	}
}

// The memory of free dimensions is leased only during a batch's run.
func TestFreeDimensionsAreLeased(t *testing.T) {
	g := newGroup(t, bytesModel(4, -1), Adaptive, 1, 8)
	s, k := g.open(t, window)
	for i, budget := range []int64{1 << 20, 1 << 20, 1} {
		_ = s.SubmitAt(rows(g.mem, i, byte(i), 1, 2000), 1)
		b, _, _ := g.intake.Gather(2, 1, nil)
		b.mem = buf.NewPool(budget)
		if good := b.Prepare(nil); good != (budget > 1) {
			t.Fatalf("a budget of %d: %v", budget, good)
		} else if good {
			if n := b.mem.Stats().Leased; n < 2000 {
				t.Errorf("%d bytes leased", n)
			}
			echo(b)
		}
		g.pool.Put(b)
		if budget == 1 && k.results[i] != string(stream.Memory) {
			t.Errorf("%q", k.results)
		}
	}
	if b := g.pool.free[0]; b.leases[0] != nil || b.data[0] != nil {
		t.Error("the last batch kept its memory")
	}
}

func TestPoolIsBounded(t *testing.T) {
	for _, backend := range []Backend{Heap, C} {
		p, err := NewPool(bytesModel(4, 100), buf.NewPool(0), backend, 2)
		if err != nil {
			t.Fatal(err)
		}
		take := func() *Batch {
			t.Helper()
			b, err := p.Take()
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		a, b := take(), take()
		if a == nil || b == nil || take() != nil || p.Free() != 0 {
			t.Fatal("the pool did not give two")
		}
		copy(a.Row(0, 3), "writable")
		p.Quarantine() // the run of a hangs
		if c := take(); c == nil || take() != nil {
			t.Fatal("not exactly one place is free")
		} else {
			p.Put(c)
		}
		p.Restore(a) // the run of a has returned: its batch is not reused
		if p.Free() != 1 || len(p.free) != 1 || a.data != nil && backend == C {
			t.Fatalf("%d free", p.Free())
		}
		p.Resize(1)
		p.Put(b)
		if p.Free() != 1 || p.made != 1 {
			t.Fatalf("%d free of %d made, one allowed", p.Free(), p.made)
		}
		p.Resize(2)
		a, b = take(), take()
		p.Put(a)
		p.Put(b)
		p.Resize(1)
		if p.Free() != 1 || p.made != 1 {
			t.Fatalf("%d free of %d made: an unused batch is kept", p.Free(), p.made)
		}
		p.Close()
		if p.Free() != 0 || p.made != 0 {
			t.Fatalf("%d made after Close", p.made)
		}
	}
	if _, err := NewPool(bytesModel(1, 1), nil, "gpu", 1); stream.CodeOf(err) != stream.InvalidArgument {
		t.Fatal(err)
	}
}
