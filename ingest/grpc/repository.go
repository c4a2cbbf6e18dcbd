package grpc

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"millrace/ingest"
	"millrace/ingest/inference"
	"millrace/internal/inferencepb"
	"millrace/stream"
)

// endpointHeader is the metadata entry, in the reply to a load, with the name that serves the model.
const endpointHeader = "millrace-endpoint"

// checkRepository refuses names of repositories, since the only repository has no name.
func checkRepository(name string) error {
	if name != "" {
		return statusError(stream.Errorf(stream.InvalidArgument, "repository_name",
			"%.64q is not known: leave it out, there is one repository", name))
	}
	return nil
}

// models returns the models with the rights of a call's client.
func (s *service) models(ctx context.Context) ingest.Repository {
	return client(ctx).Models()
}

// RepositoryIndex implements the service.
func (s *service) RepositoryIndex(ctx context.Context,
	in *inferencepb.RepositoryIndexRequest) (*inferencepb.RepositoryIndexResponse, error) {
	if err := checkRepository(in.RepositoryName); err != nil {
		return nil, err
	}
	out := &inferencepb.RepositoryIndexResponse{}
	for _, row := range inference.Index(s.models(ctx), in.Ready) {
		out.Models = append(out.Models, &inferencepb.RepositoryIndexResponse_ModelIndex{Name: row.Name,
			Version: row.Version, State: row.State, Reason: row.Reason})
	}
	return out, nil
}

// RepositoryModelLoad implements the service. The protocol's reply has no field for the endpoint's name, which
// differs from the model's name when the model is loaded again with other parameters. The call's header has the
// endpoint's name.
func (s *service) RepositoryModelLoad(ctx context.Context,
	in *inferencepb.RepositoryModelLoadRequest) (*inferencepb.RepositoryModelLoadResponse, error) {
	if err := checkRepository(in.RepositoryName); err != nil {
		return nil, err
	}
	params, err := paramsOf(in.Parameters)
	if err != nil {
		return nil, s.statusError(err)
	}
	loaded, err := inference.Load(ctx, s.models(ctx), in.ModelName, "", params)
	if err != nil {
		return nil, s.statusError(err)
	}
	_ = grpc.SetHeader(ctx, metadata.Pairs(endpointHeader, loaded.Endpoint))
	return &inferencepb.RepositoryModelLoadResponse{}, nil
}

// paramsOf returns the values of parameters of a load or an unload.
func paramsOf(from map[string]*inferencepb.ModelRepositoryParameter) (map[string]any, error) {
	out := make(map[string]any, len(from))
	for key, p := range from {
		switch v := p.GetParameterChoice().(type) {
		case *inferencepb.ModelRepositoryParameter_BoolParam:
			out[key] = v.BoolParam
		case *inferencepb.ModelRepositoryParameter_Int64Param:
			out[key] = v.Int64Param
		case *inferencepb.ModelRepositoryParameter_StringParam:
			out[key] = v.StringParam
		case *inferencepb.ModelRepositoryParameter_BytesParam:
			if !strings.HasPrefix(key, "file:") {
				return nil, stream.Errorf(stream.InvalidArgument, "parameters."+key,
					"is bytes, which only file:PATH takes: send a string, a number or a bool")
			}
			out[key] = v.BytesParam
		default:
			return nil, stream.Errorf(stream.InvalidArgument, "parameters."+key,
				"has no value: set bool_param, int64_param, string_param or bytes_param")
		}
	}
	return out, nil
}

// RepositoryModelUnload implements the service.
func (s *service) RepositoryModelUnload(ctx context.Context,
	in *inferencepb.RepositoryModelUnloadRequest) (*inferencepb.RepositoryModelUnloadResponse, error) {
	if err := checkRepository(in.RepositoryName); err != nil {
		return nil, err
	}
	params, err := paramsOf(in.Parameters)
	if err == nil {
		err = inference.Unload(ctx, s.models(ctx), in.ModelName, "", params)
	}
	if err != nil {
		return nil, s.statusError(err)
	}
	return &inferencepb.RepositoryModelUnloadResponse{}, nil
}
