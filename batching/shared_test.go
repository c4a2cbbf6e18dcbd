//go:build linux

package batching

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"millrace/stream"
	"millrace/stream/buf"
)

func sharedPool(t *testing.T, m *stream.Model, n int) *Pool {
	t.Helper()
	p, err := NewPool(m, buf.NewPool(1<<20), Shared, n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Data written into a batch's rows are in the segment's file at the given offsets, each batch has its own segment,
// and a segment is gone with its batch.
func TestSegments(t *testing.T) {
	m := &stream.Model{Name: "m", MaxBatch: 3, Inputs: []stream.TensorSpec{
		{Name: "a", Datatype: stream.Uint8, Shape: []int{5}},
		{Name: "free", Datatype: stream.Uint8, Shape: []int{-1}},
		{Name: "b", Datatype: stream.Float32, Shape: []int{2}},
	}}
	p := sharedPool(t, m, 2)
	one, err := p.Take()
	if err != nil {
		t.Fatal(err)
	}
	two, err := p.Take()
	if err != nil {
		t.Fatal(err)
	}
	s := one.Segment()
	if s == nil || two.Segment() == nil || s.ID == two.Segment().ID {
		t.Fatalf("segments %v and %v", s, two.Segment())
	}
	if st, err := s.File.Stat(); err != nil || st.Size() != int64(s.Size) || s.Size < 3*5+3*8 {
		t.Errorf("a segment of %d bytes, its file %v, %v", s.Size, st, err)
	}
	if one.Offset(1) != -1 {
		t.Errorf("an input with free dimensions is at %d", one.Offset(1))
	}
	for k, row := range map[int]string{0: "abcde", 2: "01234567"} {
		if one.Offset(k)%sharedAlign != 0 {
			t.Errorf("input %d begins at %d", k, one.Offset(k))
		}
		copy(one.Row(k, 2), row)
		got := make([]byte, len(row))
		if _, err := s.File.ReadAt(got, int64(one.Offset(k)+2*len(row))); err != nil || string(got) != row {
			t.Errorf("row 2 of input %d is %q, %v", k, got, err)
		}
	}
	if m, err := unix.Mmap(int(s.File.Fd()), 0, s.Size, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED); !errors.Is(err, unix.EPERM) {
		t.Errorf("a process with the file can write to it: %v, %v", err, unix.Munmap(m))
	}
	if err := s.File.Truncate(0); !errors.Is(err, unix.EPERM) {
		t.Errorf("a process with the file can take the memory away: %v", err)
	}
	p.Put(one)
	if again, _ := p.Take(); again.Segment() != s || s.Gone() {
		t.Error("a batch has changed its segment")
	}
	p.Put(one)
	p.Put(two)
	p.Close()
	if !s.Gone() || one.Segment() != nil || one.Offset(0) != -1 {
		t.Error("the segment of a batch that was freed is not gone")
	}
	if _, err := s.File.Seek(0, io.SeekStart); !errors.Is(err, os.ErrClosed) {
		t.Errorf("its file is open: %v", err)
	}
}

// keeps is a sink that keeps its results.
type keeps []*stream.Result

func (k *keeps) Push(r *stream.Result) { *k = append(*k, r) }
func (*keeps) Done(stream.CloseReason) {}

// Large results that are parts of the inputs are not copied; meanwhile, batches write to other segments, at most up
// to the limit; finally all segments are reserved and gone.
func TestResultsHoldTheSegment(t *testing.T) {
	const row, buffers = lendFrom, 2
	for _, late := range []bool{false, true} { // the results are released when the pool has been closed
		g := newGroup(t, bytesModel(2, row), Adaptive, buffers, 64)
		pool, err := NewPool(g.model, g.mem, Shared, buffers)
		if err != nil {
			t.Fatal(err)
		}
		b, err := NewBatcher(string(Adaptive), 2, testParts)
		if err != nil {
			t.Fatal(err)
		}
		g.pool, g.intake = pool, NewIntake(g.model, b, pool, 64)
		var held keeps
		segments := map[*Segment]bool{}
		lent := 0
		run := func(fill byte) {
			for i := range 2 {
				if err := g.intake.Reserve(); err != nil {
					t.Fatal(err)
				}
				if err := stream.New(g.model, g, &held, stream.Options{Policy: window}).SubmitAt(rows(g.mem, i,
					fill+byte(i), 1, row), 1); err != nil {
					t.Fatal(err)
				}
			}
			b, _, err := g.intake.Gather(2, 1, nil)
			if err != nil || b == nil || !b.Prepare(nil) || b.Rows != 2 {
				t.Fatal(b, err)
			}
			s := b.Segment()
			segments[s] = true
			echo(b)
			for i, r := range held[len(held)-2:] {
				if s.contains(r.Outputs[0].Data) {
					lent++
				}
				if b.Row(0, i)[0] != fill+byte(i) {
					t.Fatalf("row %d of a batch is %d", i, b.Row(0, i)[0])
				}
			}
			pool.Put(b)
			if (b.Segment() == s) == s.contains(held[len(held)-1].Outputs[0].Data) {
				t.Fatal("a batch keeps a segment that results hold, or gives one up that they do not")
			}
		}
		const runs = 6
		for i := range runs {
			run(byte(2 * i))
		}
		for i, r := range held {
			data := r.Outputs[0].Data
			if len(data) != row || data[0] != byte(i) || data[row-1] != byte(i) {
				t.Fatalf("result %d is %d to %d", i, data[0], data[row-1])
			}
		}
		// One batch was enough for all runs, with its own segment and the spare segments.
		if lent != 2*buffers || len(segments) != 1+buffers {
			t.Errorf("%d results were not copied, with %d segments", lent, len(segments))
		}
		// Loads need memory for reservations, whatever results hold.
		if s := g.mem.Stats(); s.Reserved != 0 || s.Leased < buffers*2*row || s.Leases != 2*runs {
			t.Errorf("%+v", s)
		}
		release := func() {
			for _, r := range held {
				r.Release()
			}
			held = nil
		}
		if !late {
			release()
			if run(100); lent != 2*buffers+2 {
				t.Error("a segment that was released is not lent again")
			}
			release()
		}
		pool.Close()
		release()
		if s := g.mem.Stats(); s.Leases != 0 || s.Leased != 0 {
			t.Errorf("%+v", s)
		}
		for s := range segments {
			if !s.Gone() {
				t.Error("a segment is left")
			}
		}
	}
}

// Results do not hold segments for a few bytes.
func TestSmallResultsAreCopied(t *testing.T) {
	p := sharedPool(t, bytesModel(2, lendFrom-1), 1)
	b, err := p.Take()
	if err != nil {
		t.Fatal(err)
	}
	if l := b.lend(b.Row(0, 1)); l != nil {
		t.Error("a small row is lent")
	}
	p.Put(b)
}

// TestOnlyPartsOfTheSegmentAreLent checks memory around a segment, of all sizes.
func TestOnlyPartsOfTheSegmentAreLent(t *testing.T) {
	all := make([]byte, 8*lendFrom)
	const first, last = 3 * lendFrom, 5 * lendFrom
	s := &Segment{bytes: all[first:last]}
	for from := 0; from < len(all); from += lendFrom / 2 {
		for to := from + 1; to <= len(all); to += lendFrom/2 - 1 {
			if got := s.contains(all[from:to]); got != (from >= first && to <= last) {
				t.Errorf("bytes %d to %d are in the segment: %v", from, to, got)
			}
		}
	}
}

// Lack of shared memory is an error when the first batch is made.
func TestNoSharedMemory(t *testing.T) {
	m := &stream.Model{Name: "m", MaxBatch: 1,
		Inputs: []stream.TensorSpec{{Name: "a", Datatype: stream.Uint8, Shape: []int{1 << 50}}}}
	p := sharedPool(t, m, 1)
	if err := p.Prime(); err == nil || !strings.Contains(err.Error(), "bytes of shared memory for a batch") {
		t.Errorf("a petabyte of shared memory: %v", err)
	}
	if p.made != 0 {
		t.Errorf("%d batches without memory", p.made)
	}
	ragged := sharedPool(t, &stream.Model{Name: "m", MaxBatch: 1, Ragged: true}, 1)
	if err := ragged.Prime(); err != nil {
		t.Fatal(err)
	}
	if b, err := ragged.Take(); err != nil || b.Segment() != nil {
		t.Errorf("a ragged batch has a segment: %v", err)
	}
}
