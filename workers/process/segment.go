package process

import (
	"millrace/stream/buf"
)

// segment is shared memory that the child maps too. Its bytes are charged to the budget as long
// as it exists. The child cannot make it smaller, so that no access here can fail.
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

// free gives the memory back. It does nothing for nil.
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
