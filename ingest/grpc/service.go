package grpc

import (
	"context"
	"runtime/debug"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	"millrace/ingest"
	"millrace/ingest/frames"
	"millrace/ingest/inference"
	"millrace/internal/inferencepb"
	"millrace/internal/oip"
	"millrace/internal/routines"
	"millrace/stream"
)

// service serves the methods of GRPCInferenceService.
type service struct {
	*Options
	inferencepb.UnimplementedGRPCInferenceServiceServer
	gate     *ingest.Gate
	oneShot  *ingest.OneShot
	limits   oip.Limits
	contexts *frames.Contexts
	routines *routines.Group // readers of the requests of ModelStreamInfer
	waiting  waiting
	grace    time.Duration // until the only message of a call begins; 0 = httpd.ArrivalGrace
	closing  atomic.Bool
	// exported means that the transport's streams cannot be read as incoming
	exported atomic.Bool
	ended    chan struct{} // closed when calls of ModelStreamInfer must end
}

var _ inferencepb.GRPCInferenceServiceServer = (*service)(nil)

// called calls Options.OnCall.
func (s *service) called(method, version string, err error, begun time.Time, in, out int) {
	if s.OnCall != nil {
		s.OnCall(CallSummary{Method: method, Version: version, Code: int(status.Code(err)), Took: time.Since(begun),
			In:  in,
			Out: out})
	}
}

// panicked logs a panic in the handler of a method and returns the error of the call.
func (s *service) panicked(method string, v any) error {
	s.Log.Error("a panic ended a gRPC call", "method", method, "panic", v, "stack", string(debug.Stack()))
	return errFailed
}

// errFailed is the error of a call in which the server panicked.
var errFailed = status.Error(codes.Internal, "the server failed in this call; its log says where")

// ServerLive implements the service: an answering server is live, unless a worker has failed for good. With
// Options.AnswersLive an answering server is always live.
func (s *service) ServerLive(context.Context, *inferencepb.ServerLiveRequest) (*inferencepb.ServerLiveResponse, error) {
	return &inferencepb.ServerLiveResponse{Live: s.AnswersLive || !s.gate.State().Failed}, nil
}

// ServerReady implements the service.
func (s *service) ServerReady(context.Context,
	*inferencepb.ServerReadyRequest) (*inferencepb.ServerReadyResponse, error) {
	st := s.gate.State()
	return &inferencepb.ServerReadyResponse{Ready: st.Ready && !st.Draining && !s.closing.Load()}, nil
}

// ModelReady implements the service. An unloaded model is not ready.
func (s *service) ModelReady(ctx context.Context,
	in *inferencepb.ModelReadyRequest) (*inferencepb.ModelReadyResponse, error) {
	if app, _ := s.app(); app != nil && in.Name == "" {
		in.Name = app.Name
	}
	_, ready, err := s.models(ctx).Model(in.Name, in.Version)
	if err != nil && stream.CodeOf(err) != stream.NotFound {
		return nil, s.statusError(err)
	}
	return &inferencepb.ModelReadyResponse{Ready: err == nil && ready && !s.closing.Load()}, nil
}

// ServerMetadata implements the service.
func (s *service) ServerMetadata(context.Context,
	*inferencepb.ServerMetadataRequest) (*inferencepb.ServerMetadataResponse, error) {
	st := s.gate.State()
	return &inferencepb.ServerMetadataResponse{Name: st.Name, Version: st.Version,
		Extensions: inference.Extensions(s.SharedMemory != nil)}, nil
}

// ModelMetadata implements the service.
func (s *service) ModelMetadata(ctx context.Context,
	in *inferencepb.ModelMetadataRequest) (*inferencepb.ModelMetadataResponse, error) {
	meta, err := inference.Metadata(s.models(ctx), in.Name, in.Version)
	if err != nil {
		return nil, s.statusError(err)
	}
	return &inferencepb.ModelMetadataResponse{
		Name: meta.Name, Versions: meta.Versions, Platform: meta.Platform, Inputs: tensorMetadata(meta.Inputs),
		Outputs: tensorMetadata(meta.Outputs),
	}, nil
}

func tensorMetadata(from []oip.TensorMetadata) []*inferencepb.ModelMetadataResponse_TensorMetadata {
	out := make([]*inferencepb.ModelMetadataResponse_TensorMetadata, len(from))
	for i, t := range from {
		out[i] = &inferencepb.ModelMetadataResponse_TensorMetadata{Name: t.Name, Datatype: t.Datatype}
		for _, n := range t.Shape {
			out[i].Shape = append(out[i].Shape, int64(n))
		}
	}
	return out
}

// ModelStatistics implements the service.
func (s *service) ModelStatistics(ctx context.Context,
	in *inferencepb.ModelStatisticsRequest) (*inferencepb.ModelStatisticsResponse, error) {
	out, err := inference.Statistics(s.models(ctx), in.Name, in.Version)
	if err != nil {
		return nil, s.statusError(err)
	}
	return out, nil
}

// ModelConfig implements the service.
func (s *service) ModelConfig(ctx context.Context,
	in *inferencepb.ModelConfigRequest) (*inferencepb.ModelConfigResponse, error) {
	if _, _, err := inference.Find(s.models(ctx), in.Name, in.Version); err != nil {
		return nil, s.statusError(err)
	}
	text, err := s.models(ctx).Config(in.Name, in.Version)
	if err != nil {
		return nil, s.statusError(err)
	}
	out := &inferencepb.ModelConfigResponse{Config: &inferencepb.ModelConfig{}}
	if err := protojson.Unmarshal(text, out.Config); err != nil {
		return nil, s.statusError(err)
	}
	return out, nil
}
