package grpc

import (
	"context"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"millrace/internal/inferencepb"
	"millrace/stream"
	"millrace/stream/buf"
)

// Style is how ModelInfer is answered for the program at the root, when the program has a style (stream.App.Style)
// with other messages: clients need not name the model. The functions are called concurrently.
type Style struct {
	Name string
	// Route returns the label of a request in the metrics. Clients must not be able to make labels.
	Route func(m *stream.Model, in *inferencepb.ModelInferRequest) string
	// Body returns the body of the call that the program gets, in memory of the pool.
	Body func(in *inferencepb.ModelInferRequest, memory *buf.Pool) ([]byte, *buf.Buf, error)
	// Reply makes the message of a result, and returns the time for which the program has run the request, 0 = not
	// known. An error that is a gRPC status is the program's, and is sent as it is.
	Reply func(m *stream.Model, r *stream.Result, begun time.Time) (*inferencepb.ModelInferResponse, time.Duration,
		error)
	// AnswersLive: ServerLive reports only that the server answers, also when the program has failed for good.
	AnswersLive bool
}

// app returns the program at the root and its style, if that has messages of its own, or nil.
func (s *service) app() (*stream.Model, *Style) {
	if s.Root == "" {
		return nil, nil
	}
	m, _, err := s.gate.Owner().Models().Model(s.Root, "")
	if err != nil || m.App == nil {
		return nil, nil
	}
	for _, style := range s.Styles {
		if style.Name == m.App.Style {
			return m, style
		}
	}
	return nil, nil
}

// isForApp reports whether a ModelInferRequest names no model, or the program app.
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

// inferApp is the method ModelInfer for a program whose style has messages of its own. The call has begun at begun.
func (s *service) inferApp(ctx context.Context, m *stream.Model, style *Style, in *inferencepb.ModelInferRequest,
	begun time.Time) (out *inferencepb.ModelInferResponse, err error) {
	called := CallSummary{Method: inferencepb.GRPCInferenceService_ModelInfer_FullMethodName, Route: "ModelInfer"}
	defer func() {
		if v := recover(); v != nil {
			out, err = nil, s.panicked(called.Method, v)
		}
		if s.OnCall != nil {
			called.Code, called.Took, called.In, called.Out = int(status.Code(err)), time.Since(begun), proto.Size(in),
				proto.Size(out)
			s.OnCall(called)
		}
	}()
	traced, f, err := s.context(ctx)
	if err == nil {
		err = mayInfer(ctx, m.Name)
	}
	if err == nil {
		called.Route = style.Route(m, in)
		f.Codec, f.Arrived = stream.Opaque, stream.InstantOf(begun)
		f.Call = &stream.Call{Method: "GRPC", Path: called.Method, User: client(ctx).Name(),
			Header: map[string]string{}}
		if until, ok := ctx.Deadline(); ok {
			f.Deadline = max(time.Until(until), time.Nanosecond)
		}
		f.Payload, f.Lease, err = style.Body(in, s.gate.Memory())
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
	if out, called.InApp, err = style.Reply(m, r, begun); err != nil {
		if _, own := status.FromError(err); !own {
			r.CountUnsendable(err)
			err = s.statusError(err)
		}
		return nil, err
	}
	return out, nil
}
