package batching

import (
	"fmt"

	"golang.org/x/sys/unix"

	"millrace/stream"
	"millrace/stream/buf"
)

// Backend says where the memory of batches is allocated.
type Backend string

// The backends.
const (
	Heap Backend = "heap"
	// C is memory mapped outside the Go heap. C memory never moves, the garbage collector never scans C memory, and
	// libraries may keep pointers to the memory.
	C Backend = "c"
	// Shared is memory that other processes can map: see Batch.Segment. For Linux only.
	Shared Backend = "shared"
)

// SharedAvailable reports whether this system has the backend Shared.
func SharedAvailable() bool { return sharedRefused == "" }

// Pool is a bounded set of batches with their memory. The size bounds the number of a group's batches that are
// gathered or running at once. The caller serialises calls.
type Pool struct {
	model   *stream.Model
	mem     *buf.Pool
	backend Backend
	size    int
	made    int
	free    []*Batch
	spares  *spares // of the backend Shared
}

// NewPool returns a pool of n batches for model; each batch is made when first needed. Batches of a ragged model have
// no input memory. Outputs, and inputs with free dimensions, are leased from mem while a batch is in use; the caller
// reserves the other memory in mem.
func NewPool(model *stream.Model, mem *buf.Pool, backend Backend, n int) (*Pool, error) {
	switch {
	case backend == Shared && !SharedAvailable():
		return nil, stream.Errorf(stream.Unsupported, "batching.memory", "%s: want heap or c", sharedRefused)
	case backend != Heap && backend != C && backend != Shared:
		return nil, stream.Errorf(stream.InvalidArgument, "batching.memory",
			"%q is not a backend: want heap, c or shared", string(backend))
	}
	p := &Pool{model: model, mem: mem, backend: backend, size: max(n, 1)}
	if backend == Shared {
		p.spares = &spares{mem: mem, max: p.size}
	}
	return p, nil
}

func (p *Pool) Size() int { return p.size }

// Free returns how many batches are unused.
func (p *Pool) Free() int { return max(0, len(p.free)+p.size-p.made) }

// Resize changes the bound. Unused batches above the bound are freed now, and batches in use when put back.
func (p *Pool) Resize(n int) {
	p.size = max(n, 1)
	p.spares.resize(p.size)
	for last := len(p.free) - 1; last >= 0 && p.made > p.size; last-- {
		p.free[last].unmap()
		p.free[last], p.free = nil, p.free[:last]
		p.made--
	}
}

// Take returns an empty batch, or nil when all are in use.
func (p *Pool) Take() (*Batch, error) {
	if n := len(p.free); n > 0 {
		b := p.free[n-1]
		p.free = p.free[:n-1]
		return b, nil
	}
	if p.made >= p.size {
		return nil, nil
	}
	b, err := p.make()
	if err == nil {
		p.made++
	}
	return b, err
}

// Prime makes the first batch, so that lack of memory shows before a frame waits.
func (p *Pool) Prime() error {
	if p.made > 0 {
		return nil
	}
	b, err := p.make()
	if err != nil {
		return err
	}
	p.made++
	p.free = append(p.free, b)
	return nil
}

// Put returns a batch to the pool and releases the memory of its requests.
func (p *Pool) Put(b *Batch) {
	for i, r := range b.Requests {
		if b.Recycles {
			r.Recycle()
		} else {
			r.Unbind()
		}
		b.Requests[i] = nil
	}
	b.Requests, b.Rows, b.Outputs, b.prepared, b.RunStarted = b.Requests[:0], 0, nil, false, 0
	b.Recycles = false
	for k, l := range b.leases {
		if l != nil {
			l.Release()
			b.leases[k], b.data[k] = nil, nil
		}
	}
	b.replaceLent()
	if p.made > p.size {
		p.made--
		b.unmap()
		return
	}
	p.free = append(p.free, b)
}

// Quarantine takes a batch out of the pool while a hung run may still use the batch; the pool can make another batch
// in place of the quarantined batch. Call Restore when the hung run has returned.
func (p *Pool) Quarantine() { p.made-- }

// Restore frees a quarantined batch.
func (p *Pool) Restore(b *Batch) {
	p.made++
	size := p.size
	p.size = 0
	p.Put(b)
	p.size = size
}

// Close frees unused batches now, and batches in use when put back.
func (p *Pool) Close() {
	for _, b := range p.free {
		b.unmap()
	}
	p.made -= len(p.free)
	p.free, p.size = nil, 0
	p.spares.resize(0)
}

func (p *Pool) make() (*Batch, error) {
	b := &Batch{Model: p.model, mem: p.mem, spares: p.spares}
	if p.model.Ragged {
		return b, nil
	}
	b.leases = make([]*buf.Buf, len(p.model.Inputs))
	var sizes []int
	for _, in := range p.model.Inputs {
		row := max(0, stream.Elements(in.Shape)*in.Datatype.Size()) // 0: free dimensions, see Batch.sizeInputs
		sizes = append(sizes, row*max(p.model.MaxBatch, 1))
		b.rowBytes = append(b.rowBytes, row)
		b.shapes = append(b.shapes, append([]int{0}, in.Shape...))
	}
	if p.backend == Shared {
		if err := b.share(sizes); err != nil {
			return nil, err
		}
		return b, nil
	}
	for _, n := range sizes {
		data, err := b.alloc(p.backend, n)
		if err != nil {
			b.unmap()
			return nil, err
		}
		b.data = append(b.data, data)
	}
	return b, nil
}

func (b *Batch) alloc(backend Backend, n int) ([]byte, error) {
	if backend == Heap || n == 0 {
		return make([]byte, n), nil
	}
	data, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes for a batch: %w", n, err)
	}
	b.mapped = append(b.mapped, data)
	return data, nil
}

func (b *Batch) unmap() {
	for _, m := range b.mapped {
		_ = unix.Munmap(m) // fails only for an unmapped address
	}
	if b.segment != nil {
		b.segment.free()
	}
	b.mapped, b.data, b.segment = nil, nil, nil
}
