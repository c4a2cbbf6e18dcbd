package inference

import (
	"fmt"
	"math"
	"strings"
	"time"

	"millrace/ingest"
	"millrace/ingest/frames"
	"millrace/internal/oip"
	"millrace/stream"
)

// maxSequenceID is the most bytes of the name of a sequence.
const maxSequenceID = 128

// emptyFinal is the parameter by which a client of Triton asks for an empty response after the last of several
// responses. Triton's C++ client sends emptyFinal with every request.
const emptyFinal = "triton_enable_empty_final_response"

// StreamOption is the prefix of the parameters that, in the first request of a ModelStreamInfer call, make the call
// one stream of frames.
const StreamOption = "millrace_stream_"

// takeParams applies the protocol's own parameters of the request, and passes the other parameters to the model.
// Protocol parameters without an implementation are refused. readShared reads the parameters of shared memory.
func (c *Call) takeParams(f *stream.Frame, m *stream.Model) error {
	if len(c.Request.Params) > 0 {
		if err := c.requestParams(f, m); err != nil {
			return err
		}
	}
	for i := range c.Request.Inputs {
		if t := &c.Request.Inputs[i]; len(t.Params) > 0 {
			if err := inputParams(t, i); err != nil {
				return err
			}
		}
	}
	for i := range c.Request.Outputs {
		if o := &c.Request.Outputs[i]; len(o.Params) > 0 {
			if err := outputParams(o, i); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Call) requestParams(f *stream.Frame, m *stream.Model) error {
	own := 0
	for i := range c.Request.Params {
		p := &c.Request.Params[i]
		switch p.Key {
		case "priority", "timeout":
			if p.Kind != oip.Uint && (p.Kind != oip.Int || p.Int < 0) {
				return badParam("", p, "a whole number, 0 or more")
			}
			if n := uint64(p.Int); p.Key == "priority" {
				f.Priority = stream.PriorityOf(n)
			} else { // as long as the clock can tell
				f.QueueTimeout = time.Duration(min(n, math.MaxInt64/1000)) * time.Microsecond
			}
		case "sequence_id":
			switch {
			case p.Kind == oip.Int && p.Int >= 0, p.Kind == oip.Uint:
				c.Sequence.ID.Number = uint64(p.Int)
			case p.Kind == oip.String && len(p.Str) <= maxSequenceID:
				c.Sequence.ID.Text = p.Str
			default:
				return badParam("", p, "a string of at most 128 bytes, or a whole number, 0 or more")
			}
		case "sequence_start", "sequence_end":
			if p.Kind != oip.Boolean {
				return badParam("", p, "true or false")
			}
			if p.Key == "sequence_start" {
				c.Sequence.Start = p.Bool
			} else {
				c.Sequence.End = p.Bool
			}
		case "binary_data_output", emptyFinal: // a call with one answer has no empty final response
			if p.Kind != oip.Boolean { // messages other than JSON; the JSON decoder has taken booleans
				is := fmt.Sprint(p.Value())
				if p.Kind == oip.String {
					is = "a string"
				}
				return stream.Errorf(stream.InvalidArgument, "parameters."+p.Key, "is %s; expected true or false", is)
			}
		default:
			if strings.HasPrefix(p.Key, "triton_") {
				return unsupported("", p, "names with triton_ are reserved")
			}
			if strings.HasPrefix(p.Key, StreamOption) {
				return unsupported("", p, "only the first request of a call of ModelStreamInfer has options of the "+
					"call's stream")
			}
			continue
		}
		own++
	}
	inSequence := c.Sequence.ID != (ingest.SequenceID{})
	switch {
	case !inSequence && (c.Sequence.Start || c.Sequence.End):
		return stream.Errorf(stream.InvalidArgument, "parameters.sequence_id",
			"is missing: sequence_start and sequence_end are of a sequence, so name it")
	case inSequence && !m.KeepsState():
		return stream.Errorf(stream.InvalidArgument, "parameters.sequence_id",
			"model %s keeps no state, so that it has no sequences: leave sequence_id out", m.Name)
	}
	if own == 0 {
		f.Params = frames.Params(c.Request.Params)
		return nil
	}
	if own < len(c.Request.Params) || inSequence {
		f.Params = make(stream.Params, len(c.Request.Params))
		for _, p := range c.Request.Params {
			if !reserved(p.Key) || inSequence && strings.HasPrefix(p.Key, "sequence_") {
				f.Params[p.Key] = p.Value()
			}
		}
	}
	return nil
}

// reserved reports whether the protocol defines a parameter of a request, so that the model does not get the
// parameter. A request in a sequence still passes the sequence parameters, because the worker may have inputs for
// these parameters.
func reserved(key string) bool {
	switch key {
	case "priority", "timeout", "sequence_id", "sequence_start", "sequence_end", "binary_data_output", emptyFinal:
		return true
	}
	return false
}

func inputParams(t *oip.Tensor, i int) error {
	for j := range t.Params {
		p := &t.Params[j]
		at := fmt.Sprintf("inputs[%d].", i)
		switch {
		case isShared(p.Key): // see readShared
		case p.Key == "content_type" && p.Kind == oip.String &&
			(p.Str == "np" || p.Str == "str" && t.Datatype == oip.Bytes):
			// A hint of MLServer's clients that repeats the datatype.
		default:
			return stream.Errorf(stream.InvalidArgument, at+"parameters."+p.Key,
				"is not a parameter of an input: leave it out")
		}
	}
	return nil
}

func outputParams(o *oip.RequestedOutput, i int) error {
	for j := range o.Params {
		p := &o.Params[j]
		at := fmt.Sprintf("outputs[%d].", i)
		switch {
		case p.Key == classification:
			if p.Kind != oip.Int || p.Int < 1 {
				return badParam(at, p, "a whole number, 1 or more")
			}
		case isShared(p.Key):
		case p.Key == "content_type" && p.Kind == oip.String && (p.Str == "np" || p.Str == "str"):
		default:
			return stream.Errorf(stream.InvalidArgument, at+"parameters."+p.Key,
				"is not a parameter of an output: leave it out")
		}
	}
	return nil
}

func isShared(key string) bool {
	return key == oip.SharedRegion || key == oip.SharedOffset || key == oip.SharedSize
}

func badParam(at string, p *oip.Param, want string) error {
	return stream.Errorf(stream.InvalidArgument, at+"parameters."+p.Key, "%.64q is not %s", fmt.Sprint(p.Value()), want)
}

func unsupported(at string, p *oip.Param, advice string) error {
	return stream.Errorf(stream.Unsupported, at+"parameters."+p.Key, "is not supported: %s", advice)
}
