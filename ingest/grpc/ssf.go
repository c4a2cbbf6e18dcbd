package grpc

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"millrace/internal/inferencepb"
	"millrace/stream"
)

// ssfApp returns the application of Simple Server Framework that the server serves alone, or nil.
func (s *service) ssfApp() *stream.Model {
	if s.Root == "" {
		return nil
	}
	m, _, err := s.gate.Owner().Models().Model(s.Root, "")
	if err != nil || m.App == nil || m.App.Style != "ssf" {
		return nil
	}
	return m
}

// ssfInput is an input of a request as the program reads it.
type ssfInput struct {
	Contents string `json:"contents"` // int, fp64, bool or bytes
	Values   any    `json:"values"`
	FileName string `json:"file_name,omitempty"`
}

type ssfRequest struct {
	Endpoint string              `json:"endpoint"`
	Version  string              `json:"version"`
	Inputs   map[string]ssfInput `json:"inputs"`
}

// ssfAnswer is the program's answer: outputs, or what is wrong with the request.
type ssfAnswer struct {
	Detail  json.RawMessage `json:"detail"`
	Outputs []struct {
		Name, Datatype, Contents, Description string
		Values                                json.RawMessage
	} `json:"outputs"`
}

// isForApp reports whether a ModelInferRequest names no model, as clients of Simple Server
// Framework do, or the application.
func isForApp(message []byte, app string) bool {
	const field = 1 // model_name
	name := ""
	for len(message) > 0 {
		n, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			break
		}
		if n == field && kind == protowire.BytesType {
			value, size := protowire.ConsumeBytes(message[size:])
			if size < 0 {
				break
			}
			name = string(value)
		}
		value := protowire.ConsumeFieldValue(n, kind, message[size:])
		if value < 0 {
			break
		}
		message = message[size+value:]
	}
	return name == "" || name == app
}

// ssfInfer is the method ModelInfer for an application of Simple Server Framework, of a message
// whose call has begun. Its tensors need no datatype, and parameters name the endpoint.
func (s *service) ssfInfer(ctx context.Context, m *stream.Model, in *inferencepb.ModelInferRequest, begun time.Time) (out *inferencepb.ModelInferResponse, err error) {
	called := Called{Method: inferencepb.GRPCInferenceService_ModelInfer_FullMethodName, Route: "ModelInfer"}
	defer func() {
		if v := recover(); v != nil {
			out, err = nil, s.panicked(called.Method, v)
		}
		if s.Called != nil {
			called.Code, called.Took, called.In, called.Out = int(status.Code(err)), time.Since(begun), proto.Size(in), proto.Size(out)
			s.Called(called)
		}
	}()
	traced, f, err := s.context(ctx)
	if err == nil {
		err = mayInfer(ctx, m.Name)
	}
	if err == nil {
		called.Route = ssfRoute(m, in)
		f.Codec, f.Arrived = stream.Opaque, stream.InstantOf(begun)
		f.Call = &stream.Call{Method: "GRPC", Path: called.Method, User: client(ctx).Name(), Header: map[string]string{}}
		if until, ok := ctx.Deadline(); ok {
			f.Deadline = max(time.Until(until), time.Nanosecond)
		}
		err = s.ssfBody(in, &f)
	}
	if err != nil {
		s.traceresponse(ctx, traced, s.oneShot.Refuse(client(ctx), m.Name, "", &f, err))
		return nil, s.statusError(err)
	}
	r, err := s.oneShot.Infer(ctx, client(ctx), m.Name, "", f)
	s.traceresponse(ctx, traced, r)
	if err != nil {
		return nil, s.statusError(err)
	}
	defer r.Release()
	if out, err = ssfReply(m, r); err != nil {
		if status.Code(err) != codes.InvalidArgument {
			r.CountUnsendable(err)
			err = s.statusError(err)
		}
		return nil, err
	}
	if took := r.Reply.Header["metrics-dispatch-latency"]; took != "" {
		seconds, _ := strconv.ParseFloat(took, 64)
		called.InApp = time.Duration(seconds * float64(time.Second))
		out.Parameters = map[string]*inferencepb.InferParameter{
			"metrics-dispatch-latency": text(took),
			"metrics-request-latency":  text(strconv.FormatFloat(time.Since(begun).Seconds(), 'f', 6, 64)),
		}
	}
	return out, nil
}

func text(s string) *inferencepb.InferParameter {
	return &inferencepb.InferParameter{ParameterChoice: &inferencepb.InferParameter_StringParam{StringParam: s}}
}

// ssfRoute returns the label of a request in the metrics: with the endpoint that it names if
// there is one, so that clients cannot make labels.
func ssfRoute(m *stream.Model, in *inferencepb.ModelInferRequest) string {
	path := "/v" + in.Parameters["version"].GetStringParam() + "/" + in.Parameters["endpoint"].GetStringParam()
	for i := range m.App.Routes {
		if m.App.Routes[i].Path == path {
			return "ModelInfer/" + m.Name + path
		}
	}
	return "ModelInfer"
}

// ssfBody makes the payload of f of a request.
func (s *service) ssfBody(in *inferencepb.ModelInferRequest, f *stream.Frame) error {
	switch {
	case len(in.RawInputContents) > 0:
		return stream.Errorf(stream.InvalidArgument, "raw_input_contents", "are not read for this application: set the contents of each input")
	case len(in.Inputs) == 0:
		return stream.Errorf(stream.InvalidArgument, "inputs", "are missing: Inputs not set in request.")
	}
	req := ssfRequest{in.Parameters["endpoint"].GetStringParam(), in.Parameters["version"].GetStringParam(), make(map[string]ssfInput, len(in.Inputs))}
	for _, t := range in.Inputs {
		if _, twice := req.Inputs[t.Name]; twice {
			return stream.Errorf(stream.InvalidArgument, "inputs", "has %.64q twice", t.Name)
		}
		i := ssfInput{FileName: t.Parameters["file_name"].GetStringParam()}
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
			return stream.Errorf(stream.InvalidArgument, "inputs", "%.64q has no contents that can be read: set int_contents, fp64_contents, bool_contents or bytes_contents", t.Name)
		}
		req.Inputs[t.Name] = i
	}
	lease, err := s.gate.Memory().Lease(2 * proto.Size(in)) // also for the text while it is made
	if err != nil {
		return err
	}
	body, err := json.Marshal(req)
	if err != nil {
		lease.Release()
		return stream.Errorf(stream.InvalidArgument, "inputs", "cannot be read: %w", err)
	}
	f.Payload, f.Lease = body, lease
	return nil
}

// ssfReply makes the message of an answer.
func ssfReply(m *stream.Model, r *stream.Result) (*inferencepb.ModelInferResponse, error) {
	if r.Reply == nil || len(r.Outputs) != 1 || len(r.Outputs[0].Data) < 4 {
		return nil, stream.Errorf(stream.Internal, "", "the answer of application %s has no body", m.Name)
	}
	var a ssfAnswer
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
		to := map[string]any{"int": &c.IntContents, "fp64": &c.Fp64Contents, "bool": &c.BoolContents, "bytes": &c.BytesContents}[o.Contents]
		if to == nil {
			return nil, stream.Errorf(stream.Internal, "", "output %s has contents %q", o.Name, o.Contents)
		}
		if err := json.Unmarshal(o.Values, to); err != nil {
			return nil, stream.Errorf(stream.Internal, "", "output %s cannot be sent as %s: %w", o.Name, o.Datatype, err)
		}
		n := len(c.IntContents) + len(c.Fp64Contents) + len(c.BoolContents) + len(c.BytesContents)
		out.Outputs = append(out.Outputs, &inferencepb.ModelInferResponse_InferOutputTensor{
			Name: o.Name, Datatype: o.Datatype, Shape: []int64{int64(n)}, Contents: c, Parameters: map[string]*inferencepb.InferParameter{"description": text(o.Description)},
		})
	}
	return out, nil
}
