package wire

import (
	"encoding/json"
	"fmt"
	"strconv"

	"millrace/internal/oip"
)

// Result is the ending of an answered frame, or with Partial a part of the frame's result. A result in binary form
// has the same fields, as Open Inference Protocol parameters in the JSON.
type Result struct {
	SID       uint32 `json:"sid" want:"must"`
	Seq       uint64 `json:"seq" want:"must"`
	Ack       uint64 `json:"ack" want:"must"` // number of all ended frames of the stream, including this frame
	Limit     uint64 `json:"credit_limit,omitempty"`
	CaptureUS int64  `json:"capture_us,omitempty"`
	Model     string `json:"model,omitempty" want:"name"`
	Version   string `json:"version,omitempty" want:"name"` // of the model
	Batch     int    `json:"batch,omitempty"`               // rows of the frame's batch
	Width     int    `json:"width,omitempty" want:"side"`   // of the frame as sent, upright; 0 if the frame is not a picture
	Height    int    `json:"height,omitempty" want:"side"`
	Partial   bool   `json:"partial,omitempty"`
	Timing    Timing `json:"timing,omitzero"`
	Trace     string `json:"traceresponse,omitempty"` // 00-TRACE-SPAN-FLAGS, if asked for; flag 1: the trace is kept

	// Outputs is the JSON array of the tensors, and Params a JSON object, both in the
	// form of the Open Inference Protocol; nil = none.
	Outputs json.RawMessage `json:"outputs,omitempty" want:"array"`
	Params  json.RawMessage `json:"parameters,omitempty" want:"object"`
}

// Timing splits the time of a frame by its steps, in microseconds; 0 = not reached.
type Timing struct {
	ReceivedUS int64 `json:"received_us,omitempty"` // since 1970, by the server's clock
	QueueUS    int64 `json:"queue_us,omitempty"`    // until the frame was put into a batch
	PrepareUS  int64 `json:"prepare_us,omitempty"`  // until the batch began to run
	RunUS      int64 `json:"run_us,omitempty"`
	TotalUS    int64 `json:"total_us,omitempty"` // from receipt to result
}

// Drop is the ending of frames dropped for the same reason.
type Drop struct {
	SID    uint32  `json:"sid" want:"must"`
	Seqs   []Range `json:"seqs" want:"must"`        // at least one range, in ascending order, with gaps between
	Reason string  `json:"reason" want:"must,word"` // stream.Reason
	Ack    uint64  `json:"ack,omitempty"`           // as in Result
	Limit  uint64  `json:"credit_limit,omitempty"`
}

// Range is the first and the last of successive seqs.
type Range [2]uint64

// AddSeq adds seq to ranges, which are ascending and do not touch. For ascending seqs, AddSeq takes constant time.
func AddSeq(ranges []Range, seq uint64) []Range {
	i := len(ranges) // seq belongs after ranges[:i]
	for i > 0 && ranges[i-1][0] > seq {
		i--
	}
	joinsLeft := i > 0 && (seq <= ranges[i-1][1] || seq == ranges[i-1][1]+1)
	joinsRight := i < len(ranges) && seq+1 == ranges[i][0]
	switch {
	case joinsLeft && joinsRight:
		ranges[i-1][1] = ranges[i][1]
		return append(ranges[:i], ranges[i+1:]...)
	case joinsLeft:
		ranges[i-1][1] = max(ranges[i-1][1], seq)
	case joinsRight:
		ranges[i][0] = seq
	default:
		ranges = append(ranges, Range{})
		copy(ranges[i+1:], ranges[i:])
		ranges[i] = Range{seq, seq}
	}
	return ranges
}

// Type implements Message.
func (*Result) Type() string { return "result" }

// Type implements Message.
func (*Drop) Type() string { return "drop" }

func (m *Drop) check() error {
	if len(m.Seqs) == 0 {
		return invalid(ErrValue, "seqs", "is empty: want at least one range")
	}
	for i, r := range m.Seqs {
		switch {
		case r[0] > r[1]:
			return invalid(ErrValue, fmt.Sprintf("seqs[%d]", i),
				fmt.Sprintf("is [%d,%d]: want the first seq of the range, then the last", r[0], r[1]))
		case i > 0 && r[0] <= m.Seqs[i-1][1]:
			return invalid(ErrValue, fmt.Sprintf("seqs[%d]", i),
				fmt.Sprintf("is [%d,%d] after [%d,%d]: want ascending ranges", r[0], r[1], m.Seqs[i-1][0],
					m.Seqs[i-1][1]))
		}
	}
	return nil
}

// AppendResultHead appends m without outputs, parameters and closing brace: the caller appends the other members,
// each after a comma, and the brace. AppendResultHead does not allocate if dst has enough capacity.
func AppendResultHead(dst []byte, m *Result) []byte {
	dst = appendUint(begin(dst, "result"), "sid", uint64(m.SID))
	dst = appendUint(dst, "seq", m.Seq)
	dst = appendUint(dst, "ack", m.Ack)
	dst = appendLimit(dst, m.Limit)
	dst = appendInt(dst, "capture_us", m.CaptureUS)
	if m.Model != "" {
		dst = oip.AppendString(append(dst, `,"model":`...), m.Model)
	}
	if m.Version != "" {
		dst = oip.AppendString(append(dst, `,"version":`...), m.Version)
	}
	dst = appendInt(dst, "batch", int64(m.Batch))
	dst = appendInt(dst, "width", int64(m.Width))
	dst = appendInt(dst, "height", int64(m.Height))
	if m.Partial {
		dst = append(dst, `,"partial":true`...)
	}
	dst = appendTrace(dst, m.Trace)
	if t := &m.Timing; *t != (Timing{}) {
		dst = append(dst, `,"timing":{`...)
		at := len(dst)
		dst = appendInt(dst, "received_us", t.ReceivedUS)
		dst = appendInt(dst, "queue_us", t.QueueUS)
		dst = appendInt(dst, "prepare_us", t.PrepareUS)
		dst = appendInt(dst, "run_us", t.RunUS)
		dst = appendInt(dst, "total_us", t.TotalUS)
		copy(dst[at:], dst[at+1:]) // the first comma
		dst[len(dst)-1] = '}'
	}
	return dst
}

// AppendResult appends m. It does not allocate if dst has enough capacity.
func AppendResult(dst []byte, m *Result) []byte {
	dst = AppendResultHead(dst, m)
	if m.Outputs != nil {
		dst = append(append(dst, `,"outputs":`...), m.Outputs...)
	}
	if m.Params != nil {
		dst = append(append(dst, `,"parameters":`...), m.Params...)
	}
	return append(dst, '}')
}

// AppendDrop appends m. It does not allocate if dst has enough capacity.
func AppendDrop(dst []byte, m *Drop) []byte {
	dst = appendUint(begin(dst, "drop"), "sid", uint64(m.SID))
	dst = append(dst, `,"seqs":[`...)
	for i, r := range m.Seqs {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(append(dst, '['), r[0], 10)
		dst = strconv.AppendUint(append(dst, ','), r[1], 10)
		dst = append(dst, ']')
	}
	dst = oip.AppendString(append(dst, `],"reason":`...), m.Reason)
	return append(appendCounts(dst, m.Ack, m.Limit), '}')
}

// AppendCredit appends m. It does not allocate if dst has enough capacity.
func AppendCredit(dst []byte, m *Credit) []byte {
	dst = appendUint(begin(dst, "credit"), "sid", uint64(m.SID))
	dst = appendUint(dst, "credit_limit", m.CreditLimit)
	if m.Ack != 0 {
		dst = appendUint(dst, "ack", m.Ack)
	}
	return append(dst, '}')
}

// AppendError appends m. It does not allocate if dst has enough capacity.
func AppendError(dst []byte, m *ErrorMessage) []byte {
	dst = oip.AppendString(append(begin(dst, "error"), `,"code":`...), m.Code)
	dst = oip.AppendString(append(dst, `,"message":`...), m.Message)
	if m.Retryable {
		dst = append(dst, `,"retryable":true`...)
	}
	dst = appendInt(dst, "retry_after_ms", int64(m.RetryAfterMS))
	if m.SID != nil {
		dst = appendUint(dst, "sid", uint64(*m.SID))
	}
	if m.Seq != nil {
		dst = appendUint(dst, "seq", *m.Seq)
	}
	dst = appendTrace(appendCounts(dst, m.Ack, m.Limit), m.Trace)
	if m.Fatal {
		dst = append(dst, `,"fatal":true`...)
	}
	return append(dst, '}')
}

func appendKey(dst []byte, key string) []byte {
	return append(append(append(dst, ',', '"'), key...), '"', ':')
}

func appendUint(dst []byte, key string, n uint64) []byte {
	return strconv.AppendUint(appendKey(dst, key), n, 10)
}

// appendCounts appends the fields of a drop or an error about the whole stream.
func appendCounts(dst []byte, ack, limit uint64) []byte {
	if ack != 0 {
		dst = appendUint(dst, "ack", ack)
	}
	return appendLimit(dst, limit)
}

func appendLimit(dst []byte, limit uint64) []byte {
	if limit == 0 {
		return dst
	}
	return appendUint(dst, "credit_limit", limit)
}

func appendTrace(dst []byte, trace string) []byte {
	if trace == "" {
		return dst
	}
	return append(append(append(dst, `,"traceresponse":"`...), trace...), '"')
}

// appendInt appends an optional member.
func appendInt(dst []byte, key string, n int64) []byte {
	if n == 0 {
		return dst
	}
	return strconv.AppendInt(appendKey(dst, key), n, 10)
}
