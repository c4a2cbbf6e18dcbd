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
	"millrace/stream/coded"
)

// endpointHeader is the metadata of the reply to a load with the name under which the model is
// served.
const endpointHeader = "millrace-endpoint"

// checkRepository refuses the name of a repository: there is one, without a name.
func checkRepository(name string) error {
	if name != "" {
		return statusError(stream.Errorf(stream.InvalidArgument, "repository_name", "%.64q is not known: leave it out, there is one repository", name))
	}
	return nil
}

// RepositoryIndex implements the service.
func (s *service) RepositoryIndex(_ context.Context, in *inferencepb.RepositoryIndexRequest) (*inferencepb.RepositoryIndexResponse, error) {
	if err := checkRepository(in.RepositoryName); err != nil {
		return nil, err
	}
	out := &inferencepb.RepositoryIndexResponse{}
	for _, row := range inference.Index(s.backend.Models(), in.Ready) {
		out.Models = append(out.Models, &inferencepb.RepositoryIndexResponse_ModelIndex{Name: row.Name, Version: row.Version, State: row.State, Reason: row.Reason})
	}
	return out, nil
}

// RepositoryModelLoad implements the service. The reply of the protocol has no room for the
// name of the endpoint, which differs from the model's when it is loaded with other
// parameters again; it is in the call's header.
func (s *service) RepositoryModelLoad(ctx context.Context, in *inferencepb.RepositoryModelLoadRequest) (*inferencepb.RepositoryModelLoadResponse, error) {
	if err := checkRepository(in.RepositoryName); err != nil {
		return nil, err
	}
	how, err := loadOf(in.Parameters)
	if err != nil {
		return nil, statusError(err)
	}
	endpoint, err := s.backend.Models().Load(ctx, in.ModelName, how)
	if err != nil {
		return nil, statusError(coded.RenameFunc(err, func(field string) string {
			if _, ok := in.Parameters[field]; ok {
				return "parameters." + field
			}
			return field
		}))
	}
	_ = grpc.SetHeader(ctx, metadata.Pairs(endpointHeader, endpoint))
	return &inferencepb.RepositoryModelLoadResponse{}, nil
}

// loadOf reads the parameters of a load: config and file:PATH, and settings of the model.
func loadOf(from map[string]*inferencepb.ModelRepositoryParameter) (ingest.Load, error) {
	var how ingest.Load
	for key, p := range from {
		path, isFile := strings.CutPrefix(key, "file:")
		var value any
		switch v := p.GetParameterChoice().(type) {
		case *inferencepb.ModelRepositoryParameter_BoolParam:
			value = v.BoolParam
		case *inferencepb.ModelRepositoryParameter_Int64Param:
			value = v.Int64Param
		case *inferencepb.ModelRepositoryParameter_StringParam:
			value = v.StringParam
		case *inferencepb.ModelRepositoryParameter_BytesParam:
			if !isFile {
				return how, stream.Errorf(stream.InvalidArgument, "parameters."+key, "is bytes, which only file:PATH takes: send a string, a number or a bool")
			}
			if how.Files == nil {
				how.Files = map[string][]byte{}
			}
			how.Files[path] = v.BytesParam
			continue
		default:
			return how, stream.Errorf(stream.InvalidArgument, "parameters."+key, "has no value: set bool_param, int64_param, string_param or bytes_param")
		}
		switch text, isText := value.(string); {
		case isFile:
			return how, stream.Errorf(stream.InvalidArgument, "parameters."+key, "is not bytes: send the file's content in bytes_param")
		case key == "config" && !isText:
			return how, stream.Errorf(stream.InvalidArgument, "parameters.config", "is not a string: send the model's configuration as JSON in string_param")
		case key == "config":
			how.Config = []byte(text)
		default:
			if how.Params == nil {
				how.Params = stream.Params{}
			}
			how.Params[key] = value
		}
	}
	return how, nil
}

// RepositoryModelUnload implements the service.
func (s *service) RepositoryModelUnload(ctx context.Context, in *inferencepb.RepositoryModelUnloadRequest) (*inferencepb.RepositoryModelUnloadResponse, error) {
	if err := checkRepository(in.RepositoryName); err != nil {
		return nil, err
	}
	var how ingest.Unload
	for key, p := range in.Parameters {
		v, isBool := p.GetParameterChoice().(*inferencepb.ModelRepositoryParameter_BoolParam)
		switch {
		case key != "unload_dependents":
			return nil, statusError(stream.Errorf(stream.InvalidArgument, "parameters."+key, "is not known: an unload takes unload_dependents"))
		case !isBool:
			return nil, statusError(stream.Errorf(stream.InvalidArgument, "parameters."+key, "is not a bool: set bool_param"))
		}
		how.Dependents = v.BoolParam
	}
	if err := s.backend.Models().Unload(ctx, in.ModelName, how); err != nil {
		return nil, statusError(err)
	}
	return &inferencepb.RepositoryModelUnloadResponse{}, nil
}
