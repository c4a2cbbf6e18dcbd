package frames

import (
	"encoding/hex"

	"millrace/stream"
)

// TraceContext reads a W3C traceparent, 00-TRACE-SPAN-FLAGS. A malformed one is
// ignored, as the specification demands.
func TraceContext(f *stream.Frame, h []byte) {
	if len(h) < 55 || h[2] != '-' || h[35] != '-' || h[52] != '-' || string(h[:2]) == "ff" ||
		len(h) > 55 && (string(h[:2]) == "00" || h[55] != '-') {
		return
	}
	var (
		version, flags [1]byte
		trace          stream.TraceID
		span           stream.SpanID
	)
	for _, part := range [...]struct{ to, from []byte }{
		{version[:], h[:2]}, {trace[:], h[3:35]}, {span[:], h[36:52]}, {flags[:], h[53:55]},
	} {
		if _, err := hex.Decode(part.to, part.from); err != nil {
			return
		}
	}
	if trace == (stream.TraceID{}) || span == (stream.SpanID{}) {
		return
	}
	f.Trace, f.Parent, f.Sampled = trace, span, flags[0]&1 == 1
}
