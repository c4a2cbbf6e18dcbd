package process

import (
	"strconv"
	"sync"
	"sync/atomic"

	"millrace/batching"
	"millrace/stream"
)

// segments are the child's ids for shared memory.
type segments struct {
	last atomic.Int64
	mu   sync.Mutex
	of   map[*batching.Segment]int // memory of batches mapped by the child
}

// segmentID returns the child's id for the memory of a batch, and sends an unknown memory to the child; 0 = send the
// data in another way.
func (w *Worker) segmentID(s *batching.Segment) (int, error) {
	if s == nil || !w.shared {
		return 0, nil
	}
	g := &w.segments
	g.mu.Lock()
	defer g.mu.Unlock()
	if id, ok := g.of[s]; ok {
		return id, nil
	}
	id := int(g.last.Add(1))
	var err error
	conn, failed := s.File.SyscallConn()
	if failed != nil {
		return 0, failed
	}
	if failed := conn.Control(func(fd uintptr) { err = w.sendSegment(id, s.Size, false, int(fd)) }); failed != nil {
		return 0, failed
	}
	if err != nil {
		return 0, err
	}
	if g.of == nil {
		g.of = make(map[*batching.Segment]int)
	}
	g.of[s] = id
	return id, nil
}

// sendSegment gives the child shared memory.
func (w *Worker) sendSegment(id, size int, writable bool, fd int) error {
	text := appendInt([]byte(`{"type":"segment"`), "id", int64(id))
	text = appendInt(text, "size", int64(size))
	text = append(text, `,"writable":`...)
	text = append(strconv.AppendBool(text, writable), '}')
	w.post(text, fd) // if the child has gone or does not read, the batch says so
	return nil
}

// drop tells the child that shared memory is no longer needed.
func (w *Worker) drop(id int) {
	w.post(dropText(id), -1)
}

func dropText(id int) []byte {
	return append(appendInt([]byte(`{"type":"drop_segment"`), "id", int64(id)), '}')
}

// dropGone tells the child of unused memory of batches, unless a message is being sent to the child: then a later
// call does.
func (g *segments) dropGone(w *Worker) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for s, id := range g.of {
		if s.Gone() && w.tryPost(dropText(id)) {
			delete(g.of, s)
		}
	}
}

// size makes the segments of a slot as large as a batch needs.
func (w *Worker) size(s *slot, b *batching.Batch) error {
	if n := w.needs(b, s.lo, s.hi); s.oversizedIn.needsReplacement(n, s.in.size()) {
		if err := w.replace(&s.in, grown(n), false); err != nil {
			return err
		}
	}
	want := max(s.usedOut+s.wantOut, w.resultBytes(b), 1)
	s.usedOut = 0
	if limit := int(w.spec.Settings.MaxResult); want > limit {
		want = limit
	}
	if s.oversizedOut.needsReplacement(want, s.out.size()) {
		// Without the segment, results come through the socket.
		_ = w.replace(&s.out, min(grown(want), max(int(w.spec.Settings.MaxResult), segmentStep)), true)
	}
	return nil
}

// oversizeCount counts the batches in a row with a need far below the segment's size.
type oversizeCount int

// needsReplacement reports whether a segment of has bytes, for a batch with a need of n bytes, must be replaced because
// the segment is too small, or has been much too large for many batches.
func (l *oversizeCount) needsReplacement(n, has int) bool {
	if n > has {
		*l = 0
		return true
	}
	if has <= 16*segmentStep || n >= has/spareTimes {
		*l = 0
		return false
	}
	if *l++; *l < spareAfter {
		return false
	}
	*l = 0
	return true
}

// replace makes a new segment in place of the old segment.
func (w *Worker) replace(at **segment, n int, writable bool) error {
	if old := *at; old != nil {
		*at = nil
		w.drop(old.id)
		old.free()
	}
	s, err := newSegment(w.env.Memory, int(w.segments.last.Add(1)), n)
	if err != nil {
		return err
	}
	if err := w.sendSegment(s.id, n, writable, s.fd); err != nil {
		s.free()
		return err
	}
	*at = s
	return nil
}

// resultBytes returns the size of the outputs of a dense batch, if declared by the model.
func (w *Worker) resultBytes(b *batching.Batch) (n int) {
	if len(b.Inputs) == 0 {
		return 0
	}
	for i := range w.model.Outputs {
		out := &w.model.Outputs[i]
		e := stream.Elements(out.Shape)
		if e <= 0 || e > 1<<40 {
			continue
		}
		n += aligned(e * out.Datatype.Size() * w.model.MaxBatch)
	}
	return n
}
