package wire

import "millrace/internal/oip"

// ParseResult reads a result in binary form; the form is the same in plain mode and millrace.v1. The fields about the
// frame go into m, whose Outputs and Params stay nil, and the tensors and the model's parameters into reply. Raw
// tensors are views into msg; other tensors use memory from alloc. The error is an *Error or a *coded.Error.
func ParseResult(msg []byte, m *Result, reply *oip.InferResponse, alloc func(n int) []byte) error {
	h, payload, err := ParseHeader(msg, Server)
	if err != nil {
		return err
	}
	text, _, err := SplitTensors(payload)
	if err != nil {
		return err
	}
	if err := oip.DecodeResponse(reply, payload[TensorsPrefixLen:], len(text), alloc, oip.Limits{}); err != nil {
		return err
	}
	*m = Result{
		SID: h.SID, Seq: h.Seq, CaptureUS: h.CaptureUS, Width: int(h.Width), Height: int(h.Height),
		Model: reply.ModelName, Version: reply.ModelVersion,
	}
	own := reply.Params[:0]
	for i := range reply.Params {
		if !m.take(&reply.Params[i]) {
			own = append(own, reply.Params[i])
		}
	}
	reply.Params = own
	return nil
}

// take reads a parameter added by the server to the model's parameters. The result is false for parameters of the
// model.
func (m *Result) take(p *oip.Param) bool {
	if p.Key == "partial" && p.Kind == oip.Boolean {
		m.Partial = p.Bool
		return true
	}
	if p.Kind != oip.Int {
		return false
	}
	switch p.Key {
	case "ack":
		m.Ack = uint64(p.Int)
	case "credit_limit":
		m.Limit = uint64(p.Int)
	case "batch":
		m.Batch = int(p.Int)
	case "received_us":
		m.Timing.ReceivedUS = p.Int
	case "queue_us":
		m.Timing.QueueUS = p.Int
	case "prepare_us":
		m.Timing.PrepareUS = p.Int
	case "run_us":
		m.Timing.RunUS = p.Int
	case "total_us":
		m.Timing.TotalUS = p.Int
	default:
		return false
	}
	return true
}
