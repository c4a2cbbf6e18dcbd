package conn

import (
	"sync/atomic"
	"testing"

	"millrace/stream"
)

// released counts the entries leaving an outbox.
type released struct{ all, partial int }

func (*released) Write(*Writer, *stream.Result) {}
func (r *released) Released(partial bool) {
	r.all++
	if partial {
		r.partial++
	}
}

// The number of messages and the number of bytes bound an outbox, including entries being written; a single message
// may be of any size. A refused entry is disposed of at once.
func TestOutboxBounds(t *testing.T) {
	var total atomic.Int64
	text := func(n int) Entry { return Entry{Text: make([]byte, n-entryCost)} }
	for _, c := range []struct {
		name   string
		sizes  []int
		accept int
	}{
		{"messages", []int{300, 300, 300, 300}, 3},
		{"bytes", []int{600, 400, 300}, 2},
		{"exactly", []int{600, 400}, 2},
		{"one that is too large", []int{5000, 300}, 1},
	} {
		b := newOutbox(3, 1000, &total)
		n, bytes := 0, 0
		for _, size := range c.sizes {
			if !b.Push(text(size)) {
				break
			}
			n++
			bytes += size
		}
		if n != c.accept || total.Load() != int64(bytes) {
			t.Errorf("%s: %d messages and %d bytes were taken, counted %d", c.name, n, bytes, total.Load())
		}
		batch, last := b.take(nil)
		if len(batch) != n || last || n < len(c.sizes) && b.Push(text(1000)) {
			t.Errorf("%s: %d taken by the writer, last %v; or what is being written does not count", c.name,
				len(batch), last)
		}
		for i := range batch {
			b.dispose(&batch[i])
		}
		if total.Load() != 0 || !b.Push(text(600)) || !b.Push(text(400)) {
			t.Errorf("%s: %d bytes are left", c.name, total.Load())
		}
		b.Close()
		if total.Load() != 0 {
			t.Errorf("%s: %d bytes are left of a closed one", c.name, total.Load())
		}
	}
}

func TestSizeOfAnEntry(t *testing.T) {
	e := Entry{Text: make([]byte, 10), Result: &stream.Result{Outputs: []stream.Tensor{{Data: make([]byte, 1000)},
		{Data: make([]byte, 200)}}}}
	if n := e.measure(); n != entryCost+1210 {
		t.Errorf("%d bytes", n)
	}
}

// The outbox reuses the memory of a small queue, but not of a burst.
func TestEmptied(t *testing.T) {
	for n, kept := range map[int]bool{maxSpare: true, maxSpare + 1: false} {
		batch := make([]Entry, n)
		batch[1].Text = []byte("x")
		if spare := resetEntries(batch); len(spare) != 0 || (cap(spare) == n) != kept || batch[1].Text != nil {
			t.Errorf("of %d entries room for %d is kept", n, cap(spare))
		}
	}
}

// Each result leaves an outbox once: written, refused, or discarded.
func TestOutboxReleases(t *testing.T) {
	var total atomic.Int64
	var r released
	b := newOutbox(2, 1<<20, &total)
	push := func(partial bool) bool { return b.Push(Entry{Source: &r, Result: &stream.Result{Partial: partial}}) }
	if !push(false) || !push(true) || push(false) {
		t.Fatal("the bound is not 2")
	}
	if r != (released{1, 0}) {
		t.Errorf("%+v after one was refused", r)
	}
	b.Close()
	if r != (released{3, 1}) {
		t.Errorf("%+v after the end", r)
	}
	if !push(false) { // a closed outbox discards entries, and is never full
		t.Error("a closed outbox says that it is full")
	}
	if r != (released{4, 1}) || total.Load() != 0 {
		t.Errorf("%+v, %d bytes", r, total.Load())
	}
}

// The writer learns of the end only when all entries are taken.
func TestOutboxFinish(t *testing.T) {
	var total atomic.Int64
	b := newOutbox(2, 1<<20, &total)
	b.Push(Entry{Text: []byte("x")})
	b.finish()
	if batch, last := b.take(nil); len(batch) != 1 || last {
		t.Errorf("%d, %v", len(batch), last)
	}
	if batch, last := b.take(nil); len(batch) != 0 || !last {
		t.Errorf("%d, %v", len(batch), last)
	}
}
