package inference

import (
	"context"
	"encoding/base64"
	"errors"
	"strings"

	"millrace/ingest"
	"millrace/internal/setting"
	"millrace/stream"
	"millrace/stream/coded"
)

// Load loads a model with the parameters of a load request, and returns the endpoint and the effect of the load.
// version is the version in the request's path, or "". The parameter config is a model configuration in JSON; a
// parameter file:PATH is the content of a file of the model's folder: bytes, or a string in base64.
func Load(ctx context.Context, models ingest.Repository, name, version string,
	params map[string]any) (ingest.Loaded, error) {
	if err := checkName(name); err != nil {
		return ingest.Loaded{}, err
	}
	how := ingest.Load{Version: version}
	for key, v := range params {
		path, isFile := strings.CutPrefix(key, "file:")
		switch {
		case key == "config":
			text, ok := v.(string)
			if !ok {
				return ingest.Loaded{}, stream.Errorf(stream.InvalidArgument, "parameters.config",
					"is not a string: want a model configuration in JSON, as a string")
			}
			how.Config = []byte(text)
		case isFile:
			content, ok := v.([]byte)
			if text, is := v.(string); is {
				var err error
				content, err = base64.StdEncoding.DecodeString(text)
				ok = err == nil
			}
			if !ok || path == "" {
				return ingest.Loaded{}, stream.Errorf(stream.InvalidArgument, "parameters."+key,
					"is not the content of a file: want file:PATH, such as file:1/model.onnx, with the content in "+
						"base64")
			}
			if how.Files == nil {
				how.Files = make(map[string][]byte)
			}
			how.Files[path] = content
		default:
			if how.Params == nil {
				how.Params = make(stream.Params, len(params))
			}
			how.Params[key] = v
		}
	}
	loaded, err := models.Load(ctx, name, how)
	return loaded, inMessage(err, params)
}

// maxName is the longest name of a model in a load request. The server keeps the name after a failed load.
const maxName = 256

// checkName refuses invalid names of models, with the error texts of other servers of the protocol.
func checkName(name string) error {
	switch part := strings.TrimSpace(name); {
	case len(name) > maxName:
		return stream.Errorf(stream.InvalidArgument, "model", "%.64q...: the name has %d bytes: want %d at most", name,
			len(name), maxName)
	case part == "":
		return stream.Errorf(stream.InvalidArgument, "model",
			"Model name cannot be empty. Please enter a valid name to deploy.")
	case part == ".", part == "..", strings.ContainsAny(name, "/\\"):
		return stream.Errorf(stream.InvalidArgument, "model",
			"%.64q: model name must not contain path traversal characters", name)
	}
	return nil
}

// Unload undoes one load of an endpoint, according to the parameters of an unload request.
func Unload(ctx context.Context, models ingest.Repository, endpoint, version string, params map[string]any) error {
	how := ingest.Unload{Version: version}
	for key, v := range params {
		is, ok := v.(bool)
		switch {
		case key != "unload_dependents":
			return stream.Errorf(stream.InvalidArgument, "parameters."+key,
				"is not a parameter of an unload: want unload_dependents, or none")
		case !ok:
			return stream.Errorf(stream.InvalidArgument, "parameters."+key, "is not true or false")
		}
		how.Dependents = is
	}
	return inMessage(models.Unload(ctx, endpoint, how), params)
}

// inMessage returns err with the names of parameters as in load and unload requests.
func inMessage(err error, params map[string]any) error {
	if all, before := coded.Joined(err); all != nil {
		named := make([]error, len(all))
		for i, err := range all {
			named[i] = inMessage(err, params)
		}
		return &coded.Error{Code: coded.CodeOf(err), Msg: before + setting.Join(named...).Error(), Err: err}
	}
	var e *coded.Error
	if !errors.As(err, &e) {
		return err
	}
	if _, ok := params[e.Field]; !ok {
		return err
	}
	before, _ := strings.CutSuffix(err.Error(), e.Error()) // the failed operation
	return &coded.Error{Code: e.Code, Msg: before + "parameters." + e.Error(), Err: err}
}
