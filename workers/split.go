package workers

import (
	"strconv"
	"strings"
	"sync/atomic"

	"millrace/stream"
)

// maxWeight is the largest weight of a version.
const maxWeight = 1000

// split spreads requests over versions by weights: of as many requests in a row as the sum of the weights, each
// version gets exactly its weight, spread evenly.
type split struct {
	versions []string
	turns    []uint8 // indexes of versions
	count    atomic.Uint64
}

// next returns the version of the next request.
func (s *split) next() string {
	return s.versions[s.turns[(s.count.Add(1)-1)%uint64(len(s.turns))]]
}

// newSplit returns the split of VERSION=WEIGHT texts, nil for none.
func newSplit(weights []string) (*split, error) {
	if len(weights) == 0 {
		return nil, nil
	}
	bad := func(format string, args ...any) (*split, error) {
		return nil, stream.Errorf(stream.InvalidArgument, "versions.weights", format, args...)
	}
	s := &split{}
	var all []int
	for _, text := range weights {
		version, number, _ := strings.Cut(text, "=")
		n, err := strconv.Atoi(number)
		if version == "" || err != nil || n < 0 || n > maxWeight {
			return bad("%q is not VERSION=WEIGHT with a weight from 0 to %d", text, maxWeight)
		}
		for _, v := range s.versions {
			if v == version {
				return bad("names version %s twice", version)
			}
		}
		s.versions, all = append(s.versions, version), append(all, n)
	}
	sum, by := 0, 0
	for _, n := range all {
		sum, by = sum+n, divisor(by, n)
	}
	if sum == 0 || len(all) > 64 {
		return bad("%q: want at most 64 versions, and a weight above 0", weights)
	}
	credit := make([]int, len(all))
	for range sum / by { // each turn goes to the version with the greatest deficit
		most := 0
		for i, n := range all {
			credit[i] += n / by
			if credit[i] > credit[most] {
				most = i
			}
		}
		credit[most] -= sum / by
		s.turns = append(s.turns, uint8(most))
	}
	return s, nil
}

func divisor(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
