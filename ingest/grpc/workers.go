package grpc

import (
	"context"
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"millrace/ingest/inference"
	"millrace/internal/inferencepb"
	"millrace/stream"
)

// This file has the calls of AMD Inference Server, in the form used by its clients: see docs/migrating.md.

// ModelList implements the service.
func (s *service) ModelList(ctx context.Context,
	_ *inferencepb.ModelListRequest) (*inferencepb.ModelListResponse, error) {
	return &inferencepb.ModelListResponse{Models: inference.ReadyNames(s.models(ctx))}, nil
}

// ModelLoad implements the service.
func (s *service) ModelLoad(ctx context.Context,
	in *inferencepb.ModelLoadRequest) (*inferencepb.ModelLoadResponse, error) {
	if _, err := s.loadWorker(ctx, in.Name, in.Version, in.Parameters); err != nil {
		return nil, err
	}
	return &inferencepb.ModelLoadResponse{}, nil
}

// WorkerLoad implements the service.
func (s *service) WorkerLoad(ctx context.Context,
	in *inferencepb.WorkerLoadRequest) (*inferencepb.WorkerLoadResponse, error) {
	endpoint, err := s.loadWorker(ctx, in.Name, "", in.Parameters)
	if err != nil {
		return nil, err
	}
	return &inferencepb.WorkerLoadResponse{Endpoint: endpoint}, nil
}

func (s *service) loadWorker(ctx context.Context, name, version string,
	from map[string]*inferencepb.InferParameter) (string, error) {
	params := make(map[string]any, len(from))
	for key, p := range from {
		switch v := p.GetParameterChoice().(type) {
		case *inferencepb.InferParameter_BoolParam:
			params[key] = v.BoolParam
		case *inferencepb.InferParameter_Int64Param:
			params[key] = v.Int64Param
		case *inferencepb.InferParameter_StringParam:
			params[key] = v.StringParam
		case *inferencepb.InferParameter_DoubleParam:
			if math.IsNaN(v.DoubleParam) || math.IsInf(v.DoubleParam, 0) {
				return "", s.statusError(stream.Errorf(stream.InvalidArgument, "parameters."+key,
					"is %v: want a finite number", v.DoubleParam))
			}
			params[key] = v.DoubleParam
		default:
			return "", s.statusError(stream.Errorf(stream.InvalidArgument, "parameters."+key,
				"has no value: set bool_param, int64_param, string_param or double_param"))
		}
	}
	loaded, err := inference.LoadWorker(ctx, client(ctx), name, version, params)
	if err != nil {
		return "", s.statusError(err)
	}
	_ = grpc.SetHeader(ctx, metadata.Pairs(endpointHeader, loaded.Endpoint))
	return loaded.Endpoint, nil
}

// ModelUnload implements the service.
func (s *service) ModelUnload(ctx context.Context,
	in *inferencepb.ModelUnloadRequest) (*inferencepb.ModelUnloadResponse, error) {
	if err := inference.UnloadWorker(ctx, client(ctx), in.Name, in.Version, nil); err != nil {
		return nil, s.statusError(err)
	}
	return &inferencepb.ModelUnloadResponse{}, nil
}

// WorkerUnload implements the service.
func (s *service) WorkerUnload(ctx context.Context,
	in *inferencepb.WorkerUnloadRequest) (*inferencepb.WorkerUnloadResponse, error) {
	if err := inference.UnloadWorker(ctx, client(ctx), in.Name, "", nil); err != nil {
		return nil, s.statusError(err)
	}
	return &inferencepb.WorkerUnloadResponse{}, nil
}

// HasHardware implements the service.
func (s *service) HasHardware(_ context.Context,
	in *inferencepb.HasHardwareRequest) (*inferencepb.HasHardwareResponse, error) {
	return &inferencepb.HasHardwareResponse{Found: inference.Devices(in.Name) >= max(int(in.Num), 1)}, nil
}
