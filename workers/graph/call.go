package graph

import (
	"encoding/binary"

	"millrace/stream"
	"millrace/stream/buf"
)

// A request to a route of a program passes its body from step to step: the first steps get the request's body, each
// later step gets the body made by the step before, as one tensor of BYTES with one element. All steps get the Call.
// The result comes from the step that makes the graph's output, or from the first step with an error as reply.

// callOf returns the Call for a step.
func (n *run) callOf(s *step) *stream.Call {
	c := *n.r.Call
	if s.set.Endpoint != "" {
		c.Endpoint = s.set.Endpoint
	}
	return &c
}

// callFrame makes the frame of a request with a Call for a step. mu is held.
func (n *run) callFrame(s *step, f stream.Frame) (stream.Frame, error) {
	if len(s.in) > 1 {
		return f, s.errorf(stream.Unsupported, "input", "has %d inputs, but a request to a route has one body, "+
			"which goes from step to step: give the step one input", len(s.in))
	}
	f.Call = n.callOf(s)
	v := &n.values[s.in[0].tensor]
	if v.state == payload {
		n.setPayload(&f)
		f.Lease = retain(v.lease)
		return f, nil
	}
	body, ok := element1(&v.tensor)
	if !ok {
		return f, s.errorf(stream.Internal, "input."+s.in[0].name,
			"tensor %s is %s %v: a request to a route needs one element of BYTES", v.tensor.Name, v.tensor.Datatype,
			v.tensor.Shape)
	}
	f.Codec, f.Payload, f.Lease = stream.Opaque, body, retain(v.lease)
	return f, nil
}

// element1 returns the only element of a tensor of BYTES.
func element1(t *stream.Tensor) ([]byte, bool) {
	if t.Datatype != stream.Bytes || stream.Elements(t.Shape) != 1 || len(t.Data) < 4 ||
		int64(binary.LittleEndian.Uint32(t.Data)) != int64(len(t.Data)-4) {
		return nil, false
	}
	return t.Data[4:], true
}

// replied takes the reply of a step of a request with a Call. replied reports whether the reply is an error, which
// ends the run.
func (n *run) replied(s *step, res *stream.Result) bool {
	if res.Reply == nil || res.Reply.Status < 400 {
		if len(n.w.plan.outputs) > 0 && n.w.plan.tensors[n.w.plan.outputs[0]].maker == s.index {
			n.mu.Lock()
			n.reply = res.Reply
			n.mu.Unlock()
		}
		return false
	}
	n.mu.Lock()
	if n.failed || n.over {
		n.mu.Unlock()
		res.Release()
		return true
	}
	n.reply, n.body, n.bodyLease = res.Reply, res.Outputs, res.Lease
	res.Outputs, res.Lease = nil, nil
	n.mu.Unlock()
	res.Release()
	n.endWith(s.at, nil, "", true)
	return true
}

// finishEarly ends the request with the error reply of a step.
func (n *run) finishEarly() {
	n.r.SetReply(n.reply)
	n.r.Finish(n.body, n.bodyLease, false)
	n.bodyLease = nil
}

// partsOf are the parts of a result to pass on: for a request with a Call to the request's client, otherwise to the
// steps after a decoupled step.
type partsOf struct {
	call    *stream.Request // or nil
	to      *target
	outputs []stream.Tensor
	lease   *buf.Buf
}

var _ stream.Pacer = (*exchange)(nil)

// WaitForRoom implements stream.Pacer: there is room when the graph's own client has room, and the steps after a
// decoupled step have room.
func (x *exchange) WaitForRoom() error {
	if r := x.call.Load(); r != nil {
		return r.WaitForRoom()
	}
	if to := x.target.Load(); to != nil {
		return to.run.waitForRoom()
	}
	return nil
}

// keepPart keeps a part of the result of a request until the stream's lock is released.
func (x *exchange) keepPart(call *stream.Request, to *target, r *stream.Result) {
	x.mu.Lock()
	x.waiting = append(x.waiting, partsOf{call, to, r.Outputs, r.Lease})
	x.mu.Unlock()
	r.Lease = nil
	r.Release()
}

// passParts passes on the waiting parts.
func (x *exchange) passParts() {
	x.mu.Lock()
	waiting := x.waiting
	x.waiting = nil
	x.mu.Unlock()
	for _, p := range waiting {
		if p.call != nil {
			p.call.Pass(p.outputs, p.lease)
		} else {
			p.to.run.addPart(partial{p.to.step, p.outputs, p.lease})
		}
	}
}
