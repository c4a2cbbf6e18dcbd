package process

import (
	"strconv"
	"strings"

	"millrace/stream"
)

// maxCore is the highest number of a processor.
const maxCore = 1023

// parseCores parses a list such as 0-3,8.
func parseCores(list string) (cores []int, err error) {
	bad := func() ([]int, error) {
		return nil, stream.Errorf(stream.InvalidArgument, "cores",
			"has %q: want numbers of processors such as 0-3 or 0,2,4, at most %d", list, maxCore)
	}
	for part := range strings.SplitSeq(list, ",") {
		low, high, isRange := strings.Cut(part, "-")
		first, err := strconv.Atoi(low)
		if err != nil {
			return bad()
		}
		last := first
		if isRange {
			if last, err = strconv.Atoi(high); err != nil {
				return bad()
			}
		}
		if first < 0 || last < first || last > maxCore {
			return bad()
		}
		for c := first; c <= last; c++ {
			cores = append(cores, c)
		}
	}
	return cores, nil
}
