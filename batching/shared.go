package batching

import (
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"millrace/stream/buf"
)

// Segment is the memory of a batch's inputs that other processes can map, of the backend
// Shared: a file without a name.
type Segment struct {
	// ID tells it from every other one that this process has had.
	ID   uint64
	File *os.File // open until Gone reports true; its holder must not close it
	Size int

	bytes []byte
	holds atomic.Int32 // of the batch, and of the results that are in it
	gone  atomic.Bool
}

// Gone reports whether the segment is used no more, so that whoever has mapped the memory can
// give it up. Safe for concurrent use.
func (s *Segment) Gone() bool { return s.gone.Load() }

func (s *Segment) free() {
	s.unmap()
	_ = s.File.Close() // without a name or anything to write, it cannot fail
	s.bytes = nil
	s.gone.Store(true)
}

// contains reports whether data are a part of the segment.
func (s *Segment) contains(data []byte) bool {
	first := uintptr(unsafe.Pointer(unsafe.SliceData(s.bytes)))
	at := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	return len(data) <= len(s.bytes) && at >= first && at-first <= uintptr(len(s.bytes)-len(data))
}

// spares are the segments of a pool beyond those of its batches: they take the places of segments
// that results hold. As long as they exist, they count in the byte budget as leases do.
type spares struct {
	mem  *buf.Pool
	mu   sync.Mutex
	most int
	made int // in spare, and in use for others that results hold
	free []*Segment
}

// take returns a segment of n bytes, or nil if there is none.
func (p *spares) take(n int) *Segment {
	p.mu.Lock()
	defer p.mu.Unlock()
	if last := len(p.free) - 1; last >= 0 {
		s := p.free[last]
		p.free[last], p.free = nil, p.free[:last]
		return s
	}
	if p.made >= p.most || p.mem.Charge(int64(n)) != nil {
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

// release gives up one hold of s; the last one makes it a spare one.
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

// resize sets how many there may be. It does nothing for nil.
func (p *spares) resize(most int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.most = most
	p.shrink()
}

// shrink frees spare segments above the limit. The caller holds mu.
func (p *spares) shrink() {
	for last := len(p.free) - 1; last >= 0 && p.made > p.most; last-- {
		p.mem.Refund(int64(p.free[last].Size))
		p.free[last].free()
		p.free[last], p.free = nil, p.free[:last]
		p.made--
	}
}

// lendFrom is the size from which the memory of a result is lent: a smaller one is copied for less
// than what lending costs, and would hold a segment that is many times larger.
const lendFrom = 64 << 10

// lend returns data, which the batch's segment then holds as long as the lease; nil if they are not
// in it, or if there is no other segment for the batch.
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

// replaceLent gives the batch another segment if results hold its own.
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

// Segment returns the memory under the inputs of b, or nil when it is not shared. It stays the
// same during a run of b.
func (b *Batch) Segment() *Segment { return b.segment }

// Offset returns where the rows of input k begin in the segment, or -1 when they are not in
// it: of an input with free dimensions, whose memory is leased for each run.
func (b *Batch) Offset(k int) int {
	if b.segment == nil {
		return -1
	}
	return b.offsets[k]
}

// share allocates the memory of all inputs of these sizes as one segment, and sets data.
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
