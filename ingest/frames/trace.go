package frames

import (
	"bytes"
	"context"
	"encoding/hex"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"millrace/stream"
)

// Limits of the values a client may send besides trace ids. Longer text loses whole members at its end, and
// PropagatedContext.Truncated is set.
const (
	MaxTracestate    = 512  // bytes, the minimum required by W3C
	MaxTracestates   = 32   // members
	MaxBaggage       = 8192 // bytes
	MaxBaggageLength = 64   // members
)

// TraceHeaders are the headers of a request with its trace context: W3C traceparent, tracestate and baggage, B3 in
// one or several headers, and uber-trace-id. The values are not copied until Context.
type TraceHeaders struct {
	traceparent, b3, uber []byte
	b3Trace, b3Span       []byte
	b3Sampled, b3Flags    []byte
	tracestate, baggage   []byte
	tracestates, baggages int
	any                   bool
}

// Add takes a header. The case of names does not matter; other headers are ignored.
func (h *TraceHeaders) Add(name, value []byte) {
	switch len(name) {
	case len("b3"):
		h.take(&h.b3, name, "b3", value)
	case len("baggage"):
		h.append(&h.baggage, &h.baggages, name, "baggage", value)
	case len("tracestate"): // and of x-b3-flags
		h.append(&h.tracestate, &h.tracestates, name, "tracestate", value)
		h.take(&h.b3Flags, name, "x-b3-flags", value)
	case len("traceparent"): // and of x-b3-spanid
		h.take(&h.traceparent, name, "traceparent", value)
		h.take(&h.b3Span, name, "x-b3-spanid", value)
	case len("x-b3-traceid"): // and of x-b3-sampled
		h.take(&h.b3Trace, name, "x-b3-traceid", value)
		h.take(&h.b3Sampled, name, "x-b3-sampled", value)
	case len("uber-trace-id"):
		h.take(&h.uber, name, "uber-trace-id", value)
	}
}

// take stores a header that may come only once: two different values count as malformed.
func (h *TraceHeaders) take(to *[]byte, name []byte, want string, value []byte) {
	if !fold(name, want) {
		return
	}
	h.any = true
	value = bytes.TrimSpace(value)
	if *to != nil && !bytes.Equal(*to, value) {
		value = []byte("given twice")
	}
	*to = value
}

// append stores a list header, which may come in parts.
func (h *TraceHeaders) append(to *[]byte, n *int, name []byte, want string, value []byte) {
	if !fold(name, want) {
		return
	}
	h.any = true
	if *n++; *n == 1 {
		*to = value
	} else if len(*to) <= MaxBaggage {
		*to = append(append(bytes.Clone(*to), ','), value...)
	}
}

// fold reports whether name, of the same length, is want in any case.
func fold(name []byte, want string) bool {
	for i := range name {
		if name[i]|0x20 != want[i] && name[i] != want[i] {
			return false
		}
	}
	return true
}

// Context returns the trace context of the first well-formed header of traceparent, b3, X-B3-* and uber-trace-id.
// broken names the first header ignored as malformed, or is "": W3C demands a new trace for a request with a
// malformed header.
func (h *TraceHeaders) Context() (c stream.TraceContext, broken string) {
	if !h.any {
		return c, ""
	}
	found := false
	try := func(name string, given, ok bool) {
		switch {
		case given && ok:
			found = true
		case given && broken == "":
			broken = name
		}
	}
	try("traceparent", h.traceparent != nil, Traceparent(&c, h.traceparent))
	if !found {
		try("b3", h.b3 != nil, b3(&c, h.b3))
	}
	if !found {
		try("x-b3-traceid", h.b3Trace != nil || h.b3Span != nil || h.b3Sampled != nil || h.b3Flags != nil,
			h.b3Headers(&c))
	}
	if !found {
		try("uber-trace-id", h.uber != nil, uber(&c, h.uber))
	}
	h.carry(&c, found && h.traceparent != nil && broken != "traceparent")
	return c, broken
}

// carry copies baggage, and tracestate, which belongs to a traceparent.
func (h *TraceHeaders) carry(c *stream.TraceContext, state bool) {
	if !state {
		h.tracestate = nil
	}
	if len(h.tracestate) == 0 && len(h.baggage) == 0 {
		return
	}
	st, cutState := cut(h.tracestate, MaxTracestate, MaxTracestates)
	bg, cutBaggage := cut(h.baggage, MaxBaggage, MaxBaggageLength)
	c.Propagated = &stream.PropagatedContext{State: st, Baggage: bg, Truncated: cutState || cutBaggage}
}

// cut returns a copy of a list without the members that exceed a limit.
func cut(list []byte, size, members int) (kept string, wasCut bool) {
	end := len(list)
	n := 0
	for i := range list {
		if list[i] == ',' {
			if n++; n == members {
				end = i
				break
			}
		}
	}
	for end > size {
		end = max(bytes.LastIndexByte(list[:end], ','), 0)
	}
	return strings.Clone(string(bytes.TrimSpace(list[:end]))), end < len(list)
}

// Traceparent reads a W3C traceparent, 00-TRACE-SPAN-FLAGS, and reports whether the traceparent is well-formed; if
// not, c is unchanged. Traceparent does not allocate.
func Traceparent(c *stream.TraceContext, h []byte) bool {
	if len(h) < 55 || h[2] != '-' || h[35] != '-' || h[52] != '-' || string(h[:2]) == "ff" ||
		len(h) > 55 && (string(h[:2]) == "00" || h[55] != '-') {
		return false
	}
	var (
		version, flags [1]byte
		trace          stream.TraceID
		span           stream.SpanID
	)
	if !lower(version[:], h[:2]) || !lower(trace[:], h[3:35]) || !lower(span[:], h[36:52]) ||
		!lower(flags[:], h[53:55]) ||
		trace == (stream.TraceID{}) || span == (stream.SpanID{}) {
		return false
	}
	c.Trace, c.Parent, c.Decision = trace, span, stream.NotSampled
	if flags[0]&1 == 1 {
		c.Decision = stream.Sampled
	}
	return true
}

// lower decodes hexadecimal digits; W3C allows only lower case.
func lower(dst, src []byte) bool {
	for _, b := range src {
		if b >= 'A' && b <= 'F' {
			return false
		}
	}
	_, err := hex.Decode(dst, src)
	return err == nil
}

// b3 reads TRACE-SPAN, TRACE-SPAN-STATE, TRACE-SPAN-STATE-PARENT, or a STATE alone.
func b3(c *stream.TraceContext, h []byte) bool {
	if d, ok := b3State(h); ok {
		c.Decision = d
		return true
	}
	parts := bytes.SplitN(h, []byte("-"), 5)
	if len(parts) < 2 || len(parts) > 4 {
		return false
	}
	d := stream.Undecided
	if len(parts) > 2 {
		var ok bool
		if d, ok = b3State(parts[2]); !ok {
			return false
		}
	}
	var parent stream.SpanID
	if len(parts) > 3 && !padded(parent[:], parts[3], 16) {
		return false
	}
	return ids(c, parts[0], parts[1], d, true)
}

func b3State(h []byte) (stream.Decision, bool) {
	switch string(h) {
	case "0", "false":
		return stream.NotSampled, true
	case "1", "true":
		return stream.Sampled, true
	case "d":
		return stream.Debug, true
	}
	return stream.Undecided, false
}

// b3Headers reads X-B3-TraceId, X-B3-SpanId, X-B3-Sampled and X-B3-Flags.
func (h *TraceHeaders) b3Headers(c *stream.TraceContext) bool {
	d, ok := stream.Undecided, true
	if h.b3Sampled != nil {
		d, ok = b3State(h.b3Sampled)
		ok = ok && d != stream.Debug
	}
	switch string(h.b3Flags) {
	case "", "0":
	case "1":
		d = stream.Debug
	default:
		return false
	}
	if !ok {
		return false
	}
	if h.b3Trace == nil && h.b3Span == nil {
		c.Decision = d
		return true
	}
	return ids(c, h.b3Trace, h.b3Span, d, true)
}

// uber reads TRACE:SPAN:PARENT:FLAGS, the colons perhaps as %3A. Leading zeros of ids may
// be missing.
func uber(c *stream.TraceContext, h []byte) bool {
	if bytes.IndexByte(h, '%') >= 0 {
		h = bytes.ReplaceAll(bytes.ReplaceAll(h, []byte("%3A"), []byte(":")), []byte("%3a"), []byte(":"))
	}
	parts := bytes.SplitN(h, []byte(":"), 5)
	var flags [1]byte
	if len(parts) != 4 || !padded(flags[:], parts[3], 2) {
		return false
	}
	var parent stream.SpanID // deprecated, and not used
	if !padded(parent[:], parts[2], 16) {
		return false
	}
	d := stream.NotSampled
	switch {
	case flags[0]&2 != 0:
		d = stream.Debug
	case flags[0]&1 != 0:
		d = stream.Sampled
	}
	return ids(c, parts[0], parts[1], d, false)
}

// ids sets the ids of a context; whole means that no leading zeros may be missing. Trace ids have 16 or 32 digits.
func ids(c *stream.TraceContext, trace, span []byte, d stream.Decision, whole bool) bool {
	if whole && (len(trace) != 16 && len(trace) != 32 || len(span) != 16) {
		return false
	}
	var t stream.TraceID
	var s stream.SpanID
	if !padded(t[:], trace, 32) || !padded(s[:], span, 16) || t == (stream.TraceID{}) || s == (stream.SpanID{}) {
		return false
	}
	c.Trace, c.Parent, c.Decision = t, s, d
	return true
}

// padded decodes 1 to n hexadecimal digits, with zeros in front.
func padded(dst, digits []byte, n int) bool {
	if len(digits) == 0 || len(digits) > n {
		return false
	}
	var text [32]byte
	for i := range n - len(digits) {
		text[i] = '0'
	}
	copy(text[n-len(digits):], digits)
	_, err := hex.Decode(dst, text[:n])
	return err == nil
}

// AppendTraceparent appends the context of a client as a W3C traceparent, with a new span as the parent if the client
// named none.
func AppendTraceparent(dst []byte, c *stream.TraceContext) []byte {
	parent := c.Parent
	if parent == (stream.SpanID{}) {
		parent = stream.NewSpanID()
	}
	dst = hex.AppendEncode(append(dst, "00-"...), c.Trace[:])
	dst = hex.AppendEncode(append(dst, '-'), parent[:])
	if c.Decision >= stream.Sampled {
		return append(dst, "-01"...)
	}
	return append(dst, "-00"...)
}

// AppendTraceresponse appends the ids of a frame's root span in the form of a traceparent; the flag says that the
// trace is kept and can be looked up.
func AppendTraceresponse(dst []byte, r *stream.Result) []byte {
	dst = hex.AppendEncode(append(dst, "00-"...), r.Trace[:])
	dst = hex.AppendEncode(append(dst, '-'), r.Span[:])
	if r.Kept {
		return append(dst, "-01"...)
	}
	return append(dst, "-00"...)
}

// Contexts reads the trace contexts of an adapter's clients and counts malformed contexts. At level debug, Contexts
// logs a malformed context once a second, with the total. Contexts is safe for concurrent use.
type Contexts struct {
	Log    *slog.Logger
	broken atomic.Uint64
	logged atomic.Int64 // the stream.Instant of the last line; 0 = no line yet
}

// Request returns the context of a request with the headers h.
func (x *Contexts) Request(h *TraceHeaders) stream.TraceContext {
	c, broken := h.Context()
	if broken != "" {
		x.ignored(broken)
	}
	return c
}

// Frame sets the context of a frame by the frame's own traceparent.
func (x *Contexts) Frame(f *stream.Frame, traceparent []byte) {
	if !Traceparent(&f.TraceContext, traceparent) {
		x.ignored("ext.traceparent")
		f.TraceContext = stream.TraceContext{Trace: stream.NewTraceID()} // replaces the connection's trace
	}
}

func (x *Contexts) ignored(name string) {
	total := x.broken.Add(1)
	if !x.Log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	now, last := stream.Now(), x.logged.Load()
	if last != 0 && now.Sub(stream.Instant(last)) < time.Second || !x.logged.CompareAndSwap(last, int64(now)) {
		return
	}
	x.Log.Debug("a malformed trace context was ignored: the frame begins a trace", "header", name, "total", total)
}

// Broken returns how many were malformed.
func (x *Contexts) Broken() uint64 { return x.broken.Load() }
