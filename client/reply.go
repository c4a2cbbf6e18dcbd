package client

import (
	"encoding/binary"
	"encoding/json"
	"time"

	"millrace/internal/oip"
	"millrace/stream"
)

// Reply is the ending of one frame, or with Partial a part of its result: it
// is dropped, failed (Err), or answered. Its memory is the receiver's.
type Reply struct {
	Seq           uint64 // as Send returned it
	Model         string
	Partial       bool          // more of this frame's result follows
	Dropped       stream.Reason // "" when it was not dropped
	Err           error         // *stream.Error with the server's code
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

type wireTiming struct {
	Received int64 `json:"received_us"`
	Queue    int64 `json:"queue_us"`
	Prepare  int64 `json:"prepare_us"`
	Run      int64 `json:"run_us"`
	Total    int64 `json:"total_us"`
}

func (t wireTiming) timing() Timing {
	us := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	out := Timing{Queue: us(t.Queue), Prepare: us(t.Prepare), Run: us(t.Run), Total: us(t.Total)}
	if t.Received != 0 {
		out.Received = time.UnixMicro(t.Received)
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
		Timing  wireTiming      `json:"timing"`
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
	r.Width, r.Height, r.Batch, r.Timing = m.Width, m.Height, m.Batch, m.Timing.timing()
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

// The binary header, see docs/protocol.
const (
	headerLen     = 32
	headerVersion = 1
	kindResult    = 3
)

// parseBinary reads a result in binary form. It keeps msg.
func parseBinary(msg []byte) (r Reply, err error) {
	bad := func(what string) (Reply, error) {
		return r, stream.Errorf(stream.Internal, "", "the server's binary message is not understood: %s", what)
	}
	le := binary.LittleEndian
	switch {
	case len(msg) < headerLen+4:
		return bad("it is shorter than its header")
	case msg[0] != headerVersion:
		return bad("it is of another version")
	case msg[1] != kindResult:
		return bad("it is no result")
	}
	r.Seq = le.Uint64(msg[8:])
	r.Width, r.Height = int(le.Uint16(msg[24:])), int(le.Uint16(msg[26:]))
	body := msg[headerLen:]
	if ext := int(le.Uint16(msg[28:])); ext+4 <= len(body) {
		body = body[ext:]
	} else {
		return bad("its extensions are longer than it is")
	}
	length := le.Uint32(body)
	body = body[4:]
	if uint64(length) > uint64(len(body)) {
		return bad("its JSON is longer than it is")
	}
	var m oip.InferResponse
	if err := oip.DecodeResponse(&m, body, int(length), func(n int) []byte { return make([]byte, n) }, oip.Limits{}); err != nil {
		return r, notOurs(err)
	}
	r.Model, r.Outputs, r.Params = m.ModelName, tensors(m.Outputs), plain(m.Params)
	if p, ok := r.Params["partial"].(bool); ok {
		r.Partial = p
		delete(r.Params, "partial")
	}
	r.Batch = takeInt(r.Params, "batch")
	r.Timing = wireTiming{
		Received: int64(takeInt(r.Params, "received_us")), Queue: int64(takeInt(r.Params, "queue_us")),
		Prepare: int64(takeInt(r.Params, "prepare_us")), Run: int64(takeInt(r.Params, "run_us")), Total: int64(takeInt(r.Params, "total_us")),
	}.timing()
	if len(r.Params) == 0 {
		r.Params = nil
	}
	return r, nil
}
