package conn

import "sync/atomic"

// counts maps words to counters. Every word has a counter from the start.
type counts map[string]*atomic.Uint64

func newCounts[T ~string](words []T) counts {
	c := counts{}
	for _, w := range words {
		c[string(w)] = new(atomic.Uint64)
	}
	return c
}

func (c counts) add(word string) {
	if n := c[word]; n != nil {
		n.Add(1)
	}
}

// read returns the counters by words of type T.
func read[T ~string](c counts) map[T]uint64 {
	out := make(map[T]uint64, len(c))
	for w, n := range c {
		out[T(w)] = n.Load()
	}
	return out
}
