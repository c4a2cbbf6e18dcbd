package frames

import (
	"strconv"
	"time"

	"millrace/stream"
)

// AppendTiming writes the durations of waiting, preparing the batch and running the batch, in milliseconds, in the
// form of the Server-Timing header. Steps not reached are left out.
func AppendTiming(dst []byte, t *stream.Timing) []byte {
	for _, stage := range [...]struct {
		name     string
		from, to stream.Instant
	}{
		{"queue", t.Received, t.Dequeued}, {"prepare", t.Dequeued, t.Started}, {"run", t.Started, t.Done},
	} {
		if stage.from == 0 || stage.to < stage.from {
			continue
		}
		if len(dst) > 0 {
			dst = append(dst, ", "...)
		}
		dst = append(append(dst, stage.name...), ";dur="...)
		dst = strconv.AppendFloat(dst, float64(stage.to.Sub(stage.from))/float64(time.Millisecond), 'f', 3, 64)
	}
	return dst
}
