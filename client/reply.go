package client

import (
	"encoding/json"
	"time"

	"millrace/internal/oip"
	"millrace/internal/wire"
	"millrace/stream"
)

// Reply is the ending of one frame, or with Partial a part of its result: it
// is dropped, failed (Err), or answered. Its memory is the receiver's.
type Reply struct {
	Seq           uint64 // as Send returned it
	CaptureUS     int64  // of a Channel: as the frame had it
	Model         string
	Version       string        // of the model, where it was told
	Partial       bool          // more of this frame's result follows
	Dropped       stream.Reason // "" when it was not dropped
	Err           error         // *stream.Error with the server's code
	Lost          bool          // of a Channel: it, or its ending, went down with a connection; Err says so
	Outputs       []stream.Tensor
	Params        stream.Params
	Width, Height int // of the frame as sent, upright; 0 when it is no picture
	Batch         int // rows of the batch it ran in
	Timing        Timing

	Sent time.Time // when Send was called
	Got  time.Time // when the reply was here
}

// Answered says that there is a result, or a part of it.
func (r *Reply) Answered() bool { return r.Dropped == "" && r.Err == nil }

// wireError is an error as the server words it.
type wireError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (e *wireError) err() error {
	if e.Code == "" {
		e.Code = string(stream.Internal)
	}
	return &stream.Error{Code: stream.Code(e.Code), Msg: e.Message}
}

func timing(t wire.Timing) Timing {
	us := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	out := Timing{Queue: us(t.QueueUS), Prepare: us(t.PrepareUS), Run: us(t.RunUS), Total: us(t.TotalUS)}
	if t.ReceivedUS != 0 {
		out.Received = time.UnixMicro(t.ReceivedUS)
	}
	return out
}

// parseText reads a text reply. ofFrame is false for an error of the whole
// session, which is then in Err.
func parseText(text []byte) (r Reply, ofFrame bool, err error) {
	var m struct {
		Seq     *uint64         `json:"seq"`
		Model   string          `json:"model"`
		Partial bool            `json:"partial"`
		Dropped stream.Reason   `json:"dropped"`
		Error   *wireError      `json:"error"`
		Outputs json.RawMessage `json:"outputs"`
		Timing  wire.Timing     `json:"timing"`
		Width   int             `json:"width"`
		Height  int             `json:"height"`
		Batch   int             `json:"batch"`
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return r, false, notOurs(err)
	}
	if m.Error != nil {
		r.Err = m.Error.err()
	}
	if m.Seq == nil {
		if r.Err == nil {
			return r, false, stream.Errorf(stream.Internal, "", "the server's message is not understood: it has no seq")
		}
		return r, false, nil
	}
	r.Seq, r.Model, r.Partial, r.Dropped = *m.Seq, m.Model, m.Partial, m.Dropped
	r.Width, r.Height, r.Batch, r.Timing = m.Width, m.Height, m.Batch, timing(m.Timing)
	if m.Outputs == nil || !r.Answered() {
		return r, true, nil
	}
	var msg oip.InferResponse
	if err := oip.DecodeResponse(&msg, text, -1, func(n int) []byte { return make([]byte, n) }, oip.Limits{}); err != nil {
		return r, true, notOurs(err)
	}
	r.Outputs, r.Params = tensors(msg.Outputs), plain(msg.Params)
	return r, true, nil
}

// parseBinary reads a result in binary form. It keeps msg.
func parseBinary(msg []byte) (r Reply, of standing, err error) {
	h, payload, err := wire.ParseHeader(msg, wire.Server)
	if err != nil {
		return r, of, notOurs(err)
	}
	text, _, err := wire.SplitTensors(payload)
	if err != nil {
		return r, of, notOurs(err)
	}
	r.Seq, r.CaptureUS, r.Width, r.Height = h.Seq, h.CaptureUS, int(h.Width), int(h.Height)
	var m oip.InferResponse
	if err := oip.DecodeResponse(&m, payload[wire.TensorsPrefixLen:], len(text), func(n int) []byte { return make([]byte, n) }, oip.Limits{}); err != nil {
		return r, of, notOurs(err)
	}
	r.Model, r.Version, r.Outputs, r.Params = m.ModelName, m.ModelVersion, tensors(m.Outputs), plain(m.Params)
	if p, ok := r.Params["partial"].(bool); ok {
		r.Partial = p
		delete(r.Params, "partial")
	}
	of = standing{sid: h.SID, ack: uint64(takeInt(r.Params, "ack")), limit: uint64(takeInt(r.Params, "credit_limit"))}
	r.Batch = takeInt(r.Params, "batch")
	t := wire.Timing{
		ReceivedUS: int64(takeInt(r.Params, "received_us")), QueueUS: int64(takeInt(r.Params, "queue_us")),
		PrepareUS: int64(takeInt(r.Params, "prepare_us")), RunUS: int64(takeInt(r.Params, "run_us")), TotalUS: int64(takeInt(r.Params, "total_us")),
	}
	r.Timing = timing(t)
	if len(r.Params) == 0 {
		r.Params = nil
	}
	return r, of, nil
}
