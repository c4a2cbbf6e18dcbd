package spans

import "millrace/stream"

// KeptFrame is a kept frame in the format of GET /v2/traces.
type KeptFrame struct {
	TraceID    string     `json:"trace_id"`
	SpanID     string     `json:"span_id"`             // of the root span
	ParentID   string     `json:"parent_id,omitempty"` // the client's span
	Time       string     `json:"time"`                // of the root's begin, RFC 3339 with microseconds
	Model      string     `json:"model"`
	Version    string     `json:"version"`
	Protocol   string     `json:"endpoint"` // by which it came: rest, ws, millrace.v1, native or streams
	Stream     string     `json:"stream"`
	Seq        uint64     `json:"seq"`
	Outcome    string     `json:"outcome"` // result, drop or error
	Reason     string     `json:"reason"`  // of a drop
	Code       string     `json:"code"`    // of an error
	Message    string     `json:"message"` // of an error
	Kept       []string   `json:"kept"`    // the rules that kept it
	DurationUS int64      `json:"duration_us"`
	BatchRows  int        `json:"batch_rows"`
	URL        string     `json:"url"` // of its page in tracing.ui_url, "" without
	Spans      []KeptSpan `json:"spans"`
	Batch      []Member   `json:"batch"` // the other frames of its batch, 128 at most

	began stream.Instant
}

// KeptSpan is one span of a kept frame.
type KeptSpan struct {
	Name       string         `json:"name"`
	SpanID     string         `json:"span_id"`
	ParentID   string         `json:"parent_id,omitempty"`
	StartUS    int64          `json:"start_us"` // after the root's begin
	DurationUS int64          `json:"duration_us"`
	Attributes map[string]any `json:"attributes"`
}

// Member is a frame of the same batch.
type Member struct {
	TraceID string `json:"trace_id"`
	SpanID  string `json:"span_id"`
}

// Query selects kept frames. Zero fields select all.
type Query struct {
	Limit  int
	Model  string
	Reason string // a rule (slow), a reason of a drop or a code of an error
	Trace  string // trace id
}

// Stats are totals of a tracer.
type Stats struct {
	Kept map[string]uint64 // frames by rule; a frame kept by several rules counts for each
	Over map[string]uint64 // frames not kept because of the rule's limit per second
	Lost uint64            // kept frames and batches without built spans, because too many ended at once

	// Of the exporter: spans.
	Exported  uint64
	Waiting   int
	LostSpans map[string]uint64 // by reason
}
