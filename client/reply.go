package client

import (
	"time"

	"millrace/internal/oip"
	"millrace/internal/wire"
	"millrace/stream"
)

// Reply is the ending of one frame, or with Partial a part of the result: the frame was dropped, failed (Err), or
// answered. The receiver owns the memory.
type Reply struct {
	Seq           uint64 // returned by Send
	CaptureUS     int64  // copied from the frame
	Model         string
	Version       string        // of the model, if sent by the server
	Partial       bool          // more of this frame's result follows
	Dropped       stream.Reason // "" if it was not dropped
	Err           error         // *stream.Error with the server's code
	Lost          bool          // the frame or its ending was lost with a connection; Err is set
	Outputs       []stream.Tensor
	Params        stream.Params
	Width, Height int // of the frame as sent, upright; 0 = not a picture
	Batch         int // rows of the frame's batch
	Timing        Timing

	Sent time.Time // when Send was called
	Got  time.Time // when the reply was received
}

// Answered reports whether the reply has a result, or a part of a result.
func (r *Reply) Answered() bool { return r.Dropped == "" && r.Err == nil }

// Timing divides the time of a frame into steps. A step not reached is 0.
type Timing struct {
	Received time.Time     // by the server's clock; zero if not sent by the server
	Queue    time.Duration // until put into a batch
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
		Seq: m.Seq, CaptureUS: m.CaptureUS, Model: m.Model, Version: m.Version, Partial: m.Partial, Width: m.Width,
		Height: m.Height,
		Batch:  m.Batch, Timing: timingOf(m.Timing),
	}
}

// textReply returns the reply of a result in JSON; text is the whole message.
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

// binaryReply reads a result in binary form. The reply keeps parts of msg.
func binaryReply(msg []byte) (Reply, progress, error) {
	var m wire.Result
	var reply oip.InferResponse
	if err := wire.ParseResult(msg, &m, &reply, newMemory); err != nil {
		return Reply{}, progress{}, badReply(err)
	}
	r := replyOf(&m)
	r.Outputs, r.Params = tensorsOf(reply.Outputs), paramsOf(reply.Params)
	return r, progress{m.SID, m.Ack, m.Limit}, nil
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
		out[p.Key] = p.Value()
	}
	return out
}
