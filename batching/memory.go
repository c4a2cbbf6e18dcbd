package batching

import (
	"fmt"

	"golang.org/x/sys/unix"

	"millrace/stream"
)

// Backend says where batch memory comes from.
type Backend string

// The backends.
const (
	Heap Backend = "heap"
	// C is memory outside the Go heap, mapped from the system: it never moves,
	// the collector never scans it, and libraries may keep pointers into it.
	C Backend = "c"
)

// Memory is the input tensors of one batch, at full size.
type Memory struct {
	data     [][]byte // per input, MaxBatch rows
	rowBytes []int
	mapped   [][]byte
}

// Pool is a bounded set of batch memories. Their number bounds the batches of a
// group that are open or running at once. The caller serialises.
type Pool struct {
	model   *stream.Model
	backend Backend
	size    int
	made    int
	free    []*Memory
}

// NewPool returns a pool of n memories for model, made as they are first
// needed. A ragged model's memories hold nothing and only count.
func NewPool(model *stream.Model, backend Backend, n int) (*Pool, error) {
	if backend != Heap && backend != C {
		return nil, stream.Errorf(stream.InvalidArgument, "batching.memory", "%q is not a backend: want heap or c", string(backend))
	}
	return &Pool{model: model, backend: backend, size: max(n, 1)}, nil
}

// Size and Free return how many memories there are, and how many are unused.
func (p *Pool) Size() int { return p.size }

// Free returns how many memories are unused.
func (p *Pool) Free() int { return len(p.free) + p.size - p.made }

// Resize changes the bound; memories in use above it are given up as they come
// back.
func (p *Pool) Resize(n int) { p.size = max(n, 1) }

// Take returns a memory, or nil when all are in use.
func (p *Pool) Take() (*Memory, error) {
	if n := len(p.free); n > 0 {
		m := p.free[n-1]
		p.free = p.free[:n-1]
		return m, nil
	}
	if p.made >= p.size {
		return nil, nil
	}
	m, err := p.make()
	if err == nil {
		p.made++
	}
	return m, err
}

// Put gives a memory back.
func (p *Pool) Put(m *Memory) {
	if p.made > p.size {
		p.made--
		m.release()
		return
	}
	p.free = append(p.free, m)
}

// Quarantine writes a memory off: a run that hangs may still use it. Its place
// is free again; see Restore.
func (p *Pool) Quarantine() { p.made-- }

// Close frees the unused memories.
func (p *Pool) Close() {
	for _, m := range p.free {
		m.release()
	}
	p.made -= len(p.free)
	p.free = nil
	p.size = 0
}

func (p *Pool) make() (*Memory, error) {
	m := &Memory{}
	if p.model.Ragged {
		return m, nil
	}
	for _, in := range p.model.Inputs {
		row := stream.Elements(in.Shape) * in.Datatype.Size()
		if row <= 0 {
			row = 0 // a free dimension: the group sizes it per batch
		}
		b, err := m.alloc(p.backend, row*max(p.model.MaxBatch, 1))
		if err != nil {
			m.release()
			return nil, err
		}
		m.data = append(m.data, b)
		m.rowBytes = append(m.rowBytes, row)
	}
	return m, nil
}

func (m *Memory) alloc(backend Backend, n int) ([]byte, error) {
	if backend == Heap || n == 0 {
		return make([]byte, n), nil
	}
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes for a batch: %w", n, err)
	}
	m.mapped = append(m.mapped, b)
	return b, nil
}

func (m *Memory) release() {
	for _, b := range m.mapped {
		_ = unix.Munmap(b) // only fails for an address that is not mapped
	}
	m.mapped, m.data = nil, nil
}
