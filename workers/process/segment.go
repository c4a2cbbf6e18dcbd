package process

import (
	"millrace/stream/buf"
)

// segment is shared memory, also mapped by the child. The bytes count in the budget as long as the segment exists.
// The child cannot shrink the segment, so no access here can fail.
type segment struct {
	id    int
	fd    int
	bytes []byte
	mem   *buf.Pool
}

// newSegment makes a segment of n bytes.
func newSegment(mem *buf.Pool, id, n int) (*segment, error) {
	if err := mem.Charge(int64(n)); err != nil {
		return nil, err
	}
	s := &segment{id: id, mem: mem}
	if err := s.open(n); err != nil {
		mem.Refund(int64(n))
		return nil, err
	}
	return s, nil
}

// free releases the memory. A nil segment is a no-op.
func (s *segment) free() {
	if s == nil || s.bytes == nil {
		return
	}
	n := len(s.bytes)
	s.close()
	s.bytes = nil
	s.mem.Refund(int64(n))
}

func (s *segment) size() int {
	if s == nil {
		return 0
	}
	return len(s.bytes)
}
