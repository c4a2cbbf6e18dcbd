package httpd

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"
)

// Part returns the part of a body of size bytes that the request asks for, from from up to, not including, to, and sets
// the status and the headers of the reply. Without ok the status is 416, and the reply has no part. The caller sets the
// ETag before.
func Part(c *fiber.Ctx, size int64) (from, to int64, ok bool) {
	h := &c.Response().Header
	h.Set(fiber.HeaderAcceptRanges, "bytes")
	wanted := c.Get(fiber.HeaderRange)
	if of := c.Get(fiber.HeaderIfRange); of != "" && of != string(h.Peek(fiber.HeaderETag)) {
		wanted = "" // a part of another version (RFC 9110, 13.1.5)
	}
	from, to, ok = ByteRange(wanted, size)
	switch {
	case !ok:
		c.Status(http.StatusRequestedRangeNotSatisfiable)
		h.Set(fiber.HeaderContentRange, fmt.Sprintf("bytes */%d", size))
	case from > 0 || to < size:
		c.Status(http.StatusPartialContent)
		h.Set(fiber.HeaderContentRange, fmt.Sprintf("bytes %d-%d/%d", from, to-1, size))
	}
	return from, to, ok
}

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
