package batching

import (
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"millrace/stream/buf"
)

// Segment is memory of a batch's inputs that other processes can map, of the backend Shared: a file without a name.
type Segment struct {
	// ID is unique among all segments of this process, past and present.
	ID   uint64
	File *os.File // open until Gone reports true; the holder must not close File
	Size int

	bytes []byte
	holds atomic.Int32 // references by the batch, and by results in the segment
	gone  atomic.Bool
}

// Gone reports whether the segment is no longer used, so that processes can unmap the memory. Safe for concurrent
// use.
func (s *Segment) Gone() bool { return s.gone.Load() }

func (s *Segment) free() {
	s.unmap()
	_ = s.File.Close() // cannot fail without a name or unwritten data
	s.bytes = nil
	s.gone.Store(true)
}

// contains reports whether data are a part of the segment.
func (s *Segment) contains(data []byte) bool {
	first := uintptr(unsafe.Pointer(unsafe.SliceData(s.bytes)))
	at := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	return len(data) <= len(s.bytes) && at >= first && at-first <= uintptr(len(s.bytes)-len(data))
}

// spares are the segments of a pool beyond one per batch: a spare replaces a segment held by results. Existing spares
// count in the byte budget like leases.
type spares struct {
	mem  *buf.Pool
	mu   sync.Mutex
	max  int
	made int // in spare, and in use for segments held by results
	free []*Segment
}

// take returns a segment of n bytes, or nil if no segment is left.
func (p *spares) take(n int) *Segment {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.free) - 1; last >= 0 {
		s := p.free[last]
		p.free[last], p.free = nil, p.free[:last]
		return s
	}
	if p.made >= p.max || p.mem.Charge(int64(n)) != nil {
		return nil
	}
	s, err := newSegment(n)
	if err != nil {
		p.mem.Refund(int64(n))
		return nil
	}
	p.made++
	return s
}

// release gives up one reference to s; after the last release, s becomes a spare.
func (p *spares) release(s *Segment) {
	if s.holds.Add(-1) > 0 {
		return
	}
	s.holds.Store(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, s)
	p.shrink()
}

// resize sets the largest number of spares. resize does nothing for nil.
func (p *spares) resize(most int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.max = most
	p.shrink()
}

// shrink frees spare segments above the limit. The caller holds mu.
func (p *spares) shrink() {
	for last := len(p.free) - 1; last >= 0 && p.made > p.max; last-- {
		p.mem.Refund(int64(p.free[last].Size))
		p.free[last].free()
		p.free[last], p.free = nil, p.free[:last]
		p.made--
	}
}

// lendFrom is the size from which the memory of a result is lent. Copying a smaller result costs less than lending,
// and a small result would hold a much larger segment.
const lendFrom = 64 << 10

// lend returns data as a lease that holds the batch's segment; nil if data are not in the segment, or if the pool has
// no other segment for the batch.
func (b *Batch) lend(data []byte) *buf.Buf {
	s := b.segment
	if s == nil || len(data) < lendFrom || !s.contains(data) {
		return nil
	}
	if b.next == nil {
		if b.next = b.spares.take(s.Size); b.next == nil {
			return nil
		}
	}
	s.holds.Add(1)
	return b.mem.Lend(data, func() { b.spares.release(s) })
}

// replaceLent gives the batch another segment if results hold the batch's segment.
func (b *Batch) replaceLent() {
	if b.next == nil {
		return
	}
	old := b.segment
	b.segment, b.next = b.next, nil
	b.place()
	b.spares.release(old)
}

// sharedAlign is the alignment of each input in a segment.
const sharedAlign = 64

var lastSegment atomic.Uint64

// Segment returns the memory under the inputs of b, or nil for unshared memory. The Segment stays the same during a
// run of b.
func (b *Batch) Segment() *Segment { return b.segment }

// Offset returns the offset of the rows of input k in the segment, or -1 for an input outside the segment: the memory
// of an input with free dimensions is leased for each run.
func (b *Batch) Offset(k int) int {
	if b.segment == nil {
		return -1
	}
	return b.offsets[k]
}

// share allocates the memory of all inputs, with the given sizes, as one segment, and sets data.
func (b *Batch) share(sizes []int) error {
	total := 0
	for _, n := range sizes {
		if n == 0 {
			b.offsets = append(b.offsets, -1)
			continue
		}
		b.offsets = append(b.offsets, total)
		total += (n + sharedAlign - 1) / sharedAlign * sharedAlign
	}
	b.data = make([][]byte, len(sizes))
	if total == 0 {
		return nil
	}
	s, err := newSegment(total)
	if err != nil {
		return err
	}
	b.segment = s
	b.place()
	return nil
}

// place sets the memory of the inputs in the segment.
func (b *Batch) place() {
	for k, at := range b.offsets {
		if at >= 0 {
			n := b.rowBytes[k] * max(b.Model.MaxBatch, 1)
			b.data[k] = b.segment.bytes[at : at+n : at+n]
		}
	}
}
