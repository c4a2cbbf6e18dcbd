package ssf

import (
	"encoding/json"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"millrace/ingest/grpc"
	"millrace/internal/inferencepb"
	"millrace/stream"
	"millrace/stream/buf"
)

// input is an input of a request as the program reads it.
type input struct {
	Contents string `json:"contents"` // int, fp64, bool or bytes
	Values   any    `json:"values"`
	FileName string `json:"file_name,omitempty"`
}

type request struct {
	Endpoint string           `json:"endpoint"`
	Version  string           `json:"version"`
	Inputs   map[string]input `json:"inputs"`
}

// programAnswer is the program's answer: outputs, or what is wrong with the request.
type programAnswer struct {
	Detail  json.RawMessage `json:"detail"`
	Outputs []struct {
		Name, Datatype, Contents, Description string
		Values                                json.RawMessage
	} `json:"outputs"`
}

var messages = grpc.Style{Name: name, Route: route, Body: body, Reply: reply, AnswersLive: true}

func text(s string) *inferencepb.InferParameter {
	return &inferencepb.InferParameter{ParameterChoice: &inferencepb.InferParameter_StringParam{StringParam: s}}
}

// route returns the label of a request in the metrics: the path of the named endpoint if the endpoint exists. Clients
// cannot make labels.
func route(m *stream.Model, in *inferencepb.ModelInferRequest) string {
	path := "/v" + in.Parameters["version"].GetStringParam() + "/" + in.Parameters["endpoint"].GetStringParam()
	for i := range m.App.Routes {
		if m.App.Routes[i].Path == path {
			return "ModelInfer/" + m.Name + path
		}
	}
	return "ModelInfer"
}

// body makes the payload of a request. Its tensors need no datatype, and parameters name the endpoint.
func body(in *inferencepb.ModelInferRequest, memory *buf.Pool) ([]byte, *buf.Buf, error) {
	switch {
	case len(in.RawInputContents) > 0:
		return nil, nil, stream.Errorf(stream.InvalidArgument, "raw_input_contents",
			"are not read for this application: set the contents of each input")
	case len(in.Inputs) == 0:
		return nil, nil, stream.Errorf(stream.InvalidArgument, "inputs", "are missing: Inputs not set in request.")
	}
	req := request{in.Parameters["endpoint"].GetStringParam(), in.Parameters["version"].GetStringParam(),
		make(map[string]input, len(in.Inputs))}
	for _, t := range in.Inputs {
		if _, twice := req.Inputs[t.Name]; twice {
			return nil, nil, stream.Errorf(stream.InvalidArgument, "inputs", "has %.64q twice", t.Name)
		}
		i := input{FileName: t.Parameters["file_name"].GetStringParam()}
		switch c := t.Contents; {
		case len(c.GetIntContents()) > 0:
			i.Contents, i.Values = "int", c.IntContents
		case len(c.GetInt64Contents()) > 0:
			i.Contents, i.Values = "int", c.Int64Contents
		case len(c.GetFp64Contents()) > 0:
			i.Contents, i.Values = "fp64", c.Fp64Contents
		case len(c.GetFp32Contents()) > 0:
			i.Contents, i.Values = "fp64", c.Fp32Contents
		case len(c.GetBoolContents()) > 0:
			i.Contents, i.Values = "bool", c.BoolContents
		case len(c.GetBytesContents()) > 0:
			i.Contents, i.Values = "bytes", c.BytesContents
		default:
			return nil, nil, stream.Errorf(stream.InvalidArgument, "inputs", "%.64q has no contents that can be "+
				"read: set int_contents, fp64_contents, bool_contents or bytes_contents", t.Name)
		}
		req.Inputs[t.Name] = i
	}
	lease, err := memory.Lease(2 * proto.Size(in)) // also for the text while it is made
	if err != nil {
		return nil, nil, err
	}
	text, err := json.Marshal(req)
	if err != nil {
		lease.Release()
		return nil, nil, stream.Errorf(stream.InvalidArgument, "inputs", "cannot be read: %w", err)
	}
	return text, lease, nil
}

// reply makes the message of an answer, with the time in the application.
func reply(m *stream.Model, r *stream.Result, begun time.Time) (*inferencepb.ModelInferResponse, time.Duration, error) {
	out, err := outputs(m, r)
	took := ""
	if err == nil {
		took = r.Reply.Header["metrics-dispatch-latency"]
	}
	if took == "" {
		return out, 0, err
	}
	seconds, _ := strconv.ParseFloat(took, 64)
	out.Parameters = map[string]*inferencepb.InferParameter{
		"metrics-dispatch-latency": text(took),
		"metrics-request-latency":  text(strconv.FormatFloat(time.Since(begun).Seconds(), 'f', 6, 64)),
	}
	return out, time.Duration(seconds * float64(time.Second)), nil
}

// outputs makes the message of an answer.
func outputs(m *stream.Model, r *stream.Result) (*inferencepb.ModelInferResponse, error) {
	if r.Reply == nil || len(r.Outputs) != 1 || len(r.Outputs[0].Data) < 4 {
		return nil, stream.Errorf(stream.Internal, "", "the answer of application %s has no body", m.Name)
	}
	var a programAnswer
	if err := json.Unmarshal(r.Outputs[0].Data[4:], &a); err != nil {
		return nil, stream.Errorf(stream.Internal, "", "the answer of application %s cannot be read: %w", m.Name, err)
	}
	if r.Reply.Status >= 400 {
		var detail string
		if json.Unmarshal(a.Detail, &detail) != nil {
			detail = string(a.Detail)
		}
		return nil, status.Error(codes.InvalidArgument, detail)
	}
	out := &inferencepb.ModelInferResponse{ModelName: m.Name}
	for _, o := range a.Outputs {
		c := new(inferencepb.InferTensorContents)
		to := map[string]any{"int": &c.IntContents, "fp64": &c.Fp64Contents, "bool": &c.BoolContents,
			"bytes": &c.BytesContents}[o.Contents]
		if to == nil {
			return nil, stream.Errorf(stream.Internal, "", "output %s has contents %q", o.Name, o.Contents)
		}
		if err := json.Unmarshal(o.Values, to); err != nil {
			return nil, stream.Errorf(stream.Internal, "", "output %s cannot be sent as %s: %w", o.Name, o.Datatype,
				err)
		}
		n := len(c.IntContents) + len(c.Fp64Contents) + len(c.BoolContents) + len(c.BytesContents)
		out.Outputs = append(out.Outputs, &inferencepb.ModelInferResponse_InferOutputTensor{
			Name: o.Name, Datatype: o.Datatype, Shape: []int64{int64(n)}, Contents: c,
			Parameters: map[string]*inferencepb.InferParameter{"description": text(o.Description)},
		})
	}
	return out, nil
}
