package client

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"millrace/internal/oip"
	"millrace/stream"
)

// Request is one inference request. Set Inputs or Picture.
type Request struct {
	Version  string
	ID       string // repeated in the answer
	Inputs   []stream.Tensor
	Params   stream.Params
	Outputs  []string      // names of the outputs to return; none = all
	Deadline time.Duration // 0 = the model's

	// JSON encodes tensors as numbers in JSON, in both directions, for debugging. Otherwise tensors are raw bytes.
	JSON bool

	// Picture is a JPEG, PNG or WebP picture, for a model with a picture input, or the bytes of the element, for a
	// model with one BYTES element.
	Picture []byte
}

// Answer is the result of an inference. The caller owns its memory.
type Answer struct {
	Model, Version, ID string
	Outputs            []stream.Tensor
	Params             stream.Params
	Width, Height      int // of the picture as sent, upright; 0 otherwise
	Timing             Timing
}

const headerLength = "Inference-Header-Content-Length"

// Infer runs one inference. Infer does not change the data of req.
func (c *Client) Infer(ctx context.Context, model string, req Request) (*Answer, error) {
	if model == "" {
		return nil, errNoModel()
	}
	if req.Deadline < 0 {
		return nil, stream.Errorf(stream.InvalidArgument, "deadline_ms", "%v is negative", req.Deadline)
	}
	query := url.Values{}
	if req.Deadline > 0 {
		query.Set("deadline_ms", strconv.FormatFloat(float64(req.Deadline)/float64(time.Millisecond), 'f', -1, 64))
	}
	body, header, err := encode(&req)
	if err != nil {
		return nil, err
	}
	if req.Picture != nil && !req.JSON {
		query.Set("outputs", "binary")
	}
	r, err := c.do(ctx, http.MethodPost, c.url(query, modelPath(model, req.Version, "infer")...), header, body)
	if err != nil {
		return nil, err
	}
	return answer(r.body, r.header)
}

func encode(req *Request) (body []byte, header http.Header, err error) {
	header = http.Header{"Content-Type": {"application/octet-stream"}}
	if req.Picture != nil {
		if len(req.Inputs) > 0 || len(req.Params) > 0 || len(req.Outputs) > 0 || req.ID != "" {
			return nil, nil, stream.Errorf(stream.InvalidArgument, "Picture",
				"goes without Inputs, Params, Outputs and ID")
		}
		return req.Picture, header, nil
	}
	if req.JSON {
		header.Set("Content-Type", "application/json")
	}
	msg := oip.InferRequest{ID: req.ID, BinaryOutput: !req.JSON, Params: params(req.Params)}
	for _, t := range req.Inputs {
		msg.Inputs = append(msg.Inputs, oip.Tensor{Name: t.Name, Datatype: string(t.Datatype), Shape: t.Shape,
			Data: t.Data})
	}
	for _, name := range req.Outputs {
		msg.Outputs = append(msg.Outputs, oip.RequestedOutput{Name: name, Binary: !req.JSON})
	}
	isBinary := oip.AlwaysBinary
	if req.JSON {
		isBinary = oip.NeverBinary
	}
	if body, err = oip.AppendRequest(nil, &msg, isBinary); err != nil {
		return nil, nil, stream.Errorf(stream.InvalidArgument, "", "the request cannot be sent: %w", err)
	}
	if !req.JSON {
		header.Set(headerLength, strconv.Itoa(len(body)))
		for i := range req.Inputs {
			body = append(body, req.Inputs[i].Data...)
		}
	}
	return body, header, nil
}

func answer(body []byte, h http.Header) (*Answer, error) {
	length := -1
	if v := h.Get(headerLength); v != "" {
		n, err := strconv.ParseUint(v, 10, 31)
		if err != nil || int(n) > len(body) {
			return nil, stream.Errorf(stream.Internal, headerLength, "%q is not a length", v)
		}
		length = int(n)
	}
	var msg oip.InferResponse
	if err := oip.DecodeResponse(&msg, body, length, newMemory, oip.Limits{}); err != nil {
		return nil, badReply(err)
	}
	a := &Answer{Model: msg.ModelName, Version: msg.ModelVersion, ID: msg.ID, Outputs: tensorsOf(msg.Outputs),
		Timing: serverTiming(h.Get("Server-Timing"))}
	a.Params = paramsOf(msg.Params)
	a.Width, a.Height = takeInt(a.Params, "width"), takeInt(a.Params, "height")
	return a, nil
}

// serverTiming reads "queue;dur=0.1, prepare;dur=0.2, run;dur=3", milliseconds.
func serverTiming(s string) (t Timing) {
	for part := range strings.SplitSeq(s, ",") {
		name, dur, _ := strings.Cut(strings.TrimSpace(part), ";dur=")
		ms, err := strconv.ParseFloat(dur, 64)
		if err != nil {
			continue
		}
		d := time.Duration(ms * float64(time.Millisecond))
		switch name {
		case "queue":
			t.Queue = d
		case "prepare":
			t.Prepare = d
		case "run":
			t.Run = d
		}
		t.Total += d
	}
	return t
}

// params returns parameters in the order of their names. A value with an unsupported type
// makes the encoding of the message fail.
func params(from stream.Params) oip.Params {
	var out oip.Params
	for k, v := range from {
		p, _ := oip.ParamOf(k, v)
		out = append(out, p)
	}
	slices.SortFunc(out, func(a, b oip.Param) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// takeInt removes a number added by the server from the model's parameters.
func takeInt(p stream.Params, key string) int {
	n, ok := p[key].(int64)
	if ok {
		delete(p, key)
	}
	return int(n)
}
