package postprocess

import "slices"

// shapes returns shapes that are never written again, because results share shapes. Repeated shapes cost no memory.
type shapes struct{ made map[shapeKey][]int }

const (
	maxShapes = 4096 // kept; at the limit all shapes are removed and made again
	maxRank   = 5
)

type shapeKey struct {
	rank int
	dims [maxRank]int
}

// of returns the shape [rows, dims...].
func (s *shapes) of(rows int, dims ...int) []int {
	if len(dims) >= maxRank {
		return append([]int{rows}, dims...)
	}
	k := shapeKey{rank: 1 + len(dims)}
	k.dims[0] = rows
	copy(k.dims[1:], dims)
	if shape, ok := s.made[k]; ok {
		return shape
	}
	if s.made == nil || len(s.made) >= maxShapes {
		s.made = map[shapeKey][]int{}
	}
	shape := slices.Clone(k.dims[:k.rank:k.rank])
	s.made[k] = shape
	return shape
}
