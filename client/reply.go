package client

import (
	"time"

	"millrace/internal/oip"
	"millrace/internal/wire"
	"millrace/stream"
)

// Reply is the ending of one frame, or with Partial a part of its result: it
// is dropped, failed (Err), or answered. Its memory is the receiver's.
type Reply struct {
	Seq           uint64 // as Send returned it
	CaptureUS     int64  // as the frame had it
	Model         string
	Version       string        // of the model, where it was told
	Partial       bool          // more of this frame's result follows
	Dropped       stream.Reason // "" when it was not dropped
	Err           error         // *stream.Error with the server's code
	Lost          bool          // it, or its ending, was lost with a connection; Err says so
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

// Timing tells where the time of a frame went. A part that was not reached is 0.
type Timing struct {
	Received time.Time     // the server's clock; zero when it was not told
	Queue    time.Duration // until it was bound to a batch
	Prepare  time.Duration // until the batch's run began
	Run      time.Duration
	Total    time.Duration // from receipt to result
}

func timingOf(t wire.Timing) Timing {
	us := func(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
	out := Timing{Queue: us(t.QueueUS), Prepare: us(t.PrepareUS), Run: us(t.RunUS), Total: us(t.TotalUS)}
	if t.ReceivedUS != 0 {
		out.Received = time.UnixMicro(t.ReceivedUS)
	}
	return out
}

func replyOf(m *wire.Result) Reply {
	return Reply{
		Seq: m.Seq, CaptureUS: m.CaptureUS, Model: m.Model, Version: m.Version, Partial: m.Partial, Width: m.Width, Height: m.Height,
		Batch: m.Batch, Timing: timingOf(m.Timing),
	}
}

// textReply is the reply of a result in JSON, which text is.
func textReply(m *wire.Result, text []byte) (Reply, error) {
	r := replyOf(m)
	if m.Outputs == nil {
		return r, nil
	}
	var reply oip.InferResponse
	if err := oip.DecodeResponse(&reply, text, -1, newMemory, oip.Limits{}); err != nil {
		return r, badReply(err)
	}
	r.Outputs, r.Params = tensorsOf(reply.Outputs), paramsOf(reply.Params)
	return r, nil
}

// binaryReply reads a result in binary form. It keeps msg.
func binaryReply(msg []byte) (Reply, flow, error) {
	var m wire.Result
	var reply oip.InferResponse
	if err := wire.ParseResult(msg, &m, &reply, newMemory); err != nil {
		return Reply{}, flow{}, badReply(err)
	}
	r := replyOf(&m)
	r.Outputs, r.Params = tensorsOf(reply.Outputs), paramsOf(reply.Params)
	return r, flow{m.SID, m.Ack, m.Limit}, nil
}

func newMemory(n int) []byte { return make([]byte, n) }

func tensorsOf(from []oip.Tensor) []stream.Tensor {
	if len(from) == 0 {
		return nil
	}
	out := make([]stream.Tensor, len(from))
	for i, t := range from {
		out[i] = stream.Tensor{Name: t.Name, Datatype: stream.Datatype(t.Datatype), Shape: t.Shape, Data: t.Data}
	}
	return out
}

func paramsOf(from oip.Params) stream.Params {
	if len(from) == 0 {
		return nil
	}
	out := make(stream.Params, len(from))
	for _, p := range from {
		out[p.Key] = p.Any()
	}
	return out
}
