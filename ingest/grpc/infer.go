package grpc

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"millrace/ingest"
	"millrace/ingest/frames"
	"millrace/ingest/inference"
	"millrace/internal/inferencepb"
	"millrace/stream"
)

// serviceDesc is the generated description of the service, except for the two methods whose messages the codec reads
// and writes.
var serviceDesc = func() grpc.ServiceDesc {
	d := inferencepb.GRPCInferenceService_ServiceDesc
	d.Methods = append([]grpc.MethodDesc(nil), d.Methods...)
	for i := range d.Methods {
		if d.Methods[i].MethodName == "ModelInfer" {
			d.Methods[i].Handler = modelInfer
		}
	}
	d.Streams = append([]grpc.StreamDesc(nil), d.Streams...)
	for i := range d.Streams {
		if d.Streams[i].StreamName == "ModelStreamInfer" {
			d.Streams[i].Handler = modelStreamInfer
		}
	}
	return d
}()

// modelInfer is the handler of ModelInfer.
func modelInfer(srv any, ctx context.Context, decode func(any) error,
	_ grpc.UnaryServerInterceptor) (out any, err error) {
	s := srv.(*service)
	k := newCall()
	app, style := s.app()
	k.app = app
	begun := time.Now()
	size := 0
	defer func() {
		if k == nil { // the application's method has counted the call
			return
		}
		if v := recover(); v != nil {
			err = s.panicked(inferencepb.GRPCInferenceService_ModelInfer_FullMethodName, v)
			out = nil
		} else {
			defer k.free()
		}
		s.called(inferencepb.GRPCInferenceService_ModelInfer_FullMethodName, versionOf(k, err), err, begun, k.in, size)
	}()
	if err := decode(k); err != nil {
		return nil, err
	}
	if k.forApp != nil {
		in := k.forApp
		k.free()
		k = nil
		return s.inferApp(ctx, app, style, in, begun)
	}
	r, err := s.infer(ctx, k)
	if err != nil {
		return nil, s.statusError(err)
	}
	size = r.size
	return r, nil
}

// versionOf returns the version named by an answered request. Only existing versions count, so clients cannot make
// labels of metrics.
func versionOf(k *call, err error) string {
	if err != nil {
		return ""
	}
	return k.Request.ModelVersion
}

func (s *service) infer(ctx context.Context, k *call) (*reply, error) {
	traced, f, err := s.context(ctx)
	m, err := s.frame(ctx, k, &f, err)
	if err != nil {
		r := s.oneShot.Refuse(client(ctx), k.Request.ModelName, k.Request.ModelVersion, &f, err)
		s.traceresponse(ctx, traced, r)
		return nil, err
	}
	k.Result, err = s.oneShot.InferIn(ctx, client(ctx), k.Sequence, m.Name, k.Request.ModelVersion, f)
	s.traceresponse(ctx, traced, k.Result)
	if err != nil {
		return nil, inference.InRequest(err, k.Request.Inputs)
	}
	if err = k.Reply(); err == nil {
		var r *reply
		if r, err = newReply(k, k.Result, false); err == nil {
			k.Result = nil // the reply owns the result
			return r, nil
		}
	}
	k.Result.CountUnsendable(err)
	return nil, err
}

// frame fills f from the request read by k, unless err is set. f keeps its trace context.
func (s *service) frame(ctx context.Context, k *call, f *stream.Frame, err error) (*stream.Model, error) {
	if err != nil {
		return nil, err
	}
	if k.err != nil {
		return nil, k.err
	}
	if k.Request.ModelName == "" {
		return nil, stream.Errorf(stream.InvalidArgument, "model_name",
			"is missing: set it to the name of a model (RepositoryIndex lists them)")
	}
	if err := mayInfer(ctx, k.Request.ModelName); err != nil {
		return nil, err
	}
	m, _, err := inference.Find(s.models(ctx), k.Request.ModelName, k.Request.ModelVersion)
	if err != nil {
		return nil, err
	}
	if k.Shares() {
		k.Share(s.SharedMemory, s.sharing(ctx))
	}
	trace := f.TraceContext
	*f, err = k.Frame(m)
	f.TraceContext = trace
	if err != nil {
		f.Lease.Release()
		f.Lease = nil
		return m, err
	}
	if until, ok := ctx.Deadline(); ok {
		left := max(time.Until(until), time.Nanosecond)
		if f.Deadline == 0 || left < f.Deadline {
			f.Deadline = left
		}
	}
	return m, nil
}

// headersKey is the context key of a call's trace headers.
type headersKey struct{}

// traceHeaders are the names of the headers with a request's trace context.
var traceHeaders = []string{"traceparent", "tracestate", "baggage", "b3", "x-b3-traceid", "x-b3-spanid",
	"x-b3-sampled", "x-b3-flags", "uber-trace-id"}

// withTrace stores the trace context from a call's metadata in its context.
func (s *service) withTrace(ctx context.Context, md metadata.MD) context.Context {
	var h frames.TraceHeaders
	found := false
	for _, name := range traceHeaders {
		for _, v := range md[name] {
			h.Add([]byte(name), []byte(v))
			found = true
		}
	}
	if !found {
		return ctx
	}
	return context.WithValue(ctx, headersKey{}, s.contexts.Request(&h))
}

// context returns a frame with the call's trace context, and whether the call has a trace context. The error says
// that the server is starting or ending.
func (s *service) context(ctx context.Context) (traced bool, f stream.Frame, err error) {
	f.TraceContext, traced = ctx.Value(headersKey{}).(stream.TraceContext)
	if s.closing.Load() {
		err = ingest.ErrDraining
	}
	return traced, f, err
}

// traceresponse tells a client that sent a trace context the trace of its request.
func (s *service) traceresponse(ctx context.Context, traced bool, r *stream.Result) {
	if traced && r != nil {
		_ = grpc.SetTrailer(ctx, metadata.Pairs("traceresponse", string(frames.AppendTraceresponse(nil, r))))
	}
}
