package httpd

import (
	"strconv"
	"strings"
)

// ByteRange parses a Range header with one range of size bytes (RFC 9110, 14.1.2) and
// returns it as from, up to, not including, to. Any other header means the whole; ok
// is false for a range outside of it.
func ByteRange(header string, size int64) (from, to int64, ok bool) {
	part, isBytes := strings.CutPrefix(header, "bytes=")
	first, last, isRange := strings.Cut(part, "-")
	if !isBytes || !isRange || strings.Contains(part, ",") {
		return 0, size, true
	}
	from, errFrom := strconv.ParseInt(first, 10, 64)
	to, errTo := strconv.ParseInt(last, 10, 64)
	switch {
	case first == "" && errTo == nil: // the last n bytes
		return max(0, size-to), size, to > 0
	case errFrom != nil || from < 0 || errTo != nil && last != "" || errTo == nil && to < from:
		return 0, size, true
	case from >= size:
		return 0, 0, false
	case last == "":
		return from, size, true
	}
	return from, min(to, size-1) + 1, true
}
