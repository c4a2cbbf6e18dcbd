package inference

import (
	"context"

	"millrace/ingest"
	"millrace/stream"
	"millrace/stream/coded"
)

// Load loads a model with the parameters of a load request and returns the name of its
// endpoint. version is that of the request's path, or "".
func Load(ctx context.Context, models ingest.Repository, name, version string, params stream.Params) (string, error) {
	if version != "" && !known(models, name, version) {
		return "", stream.Errorf(stream.NotFound, "version", "model %s has no version %q: see /v2/repository/index", name, version)
	}
	endpoint, err := models.Load(ctx, name, ingest.Load{Params: params})
	return endpoint, coded.Rename(err, inMessage(params))
}

// Unload undoes one load of an endpoint.
func Unload(ctx context.Context, models ingest.Repository, endpoint, version string) error {
	if version != "" {
		if _, _, err := models.Model(endpoint, version); err != nil {
			return err
		}
	}
	return models.Unload(ctx, endpoint, ingest.Unload{})
}

// inMessage maps the names of load parameters to their names in a load request.
func inMessage(params stream.Params) map[string]string {
	names := make(map[string]string, len(params))
	for key := range params {
		names[key] = "parameters." + key
	}
	return names
}

func known(models ingest.Repository, name, version string) bool {
	for _, e := range models.Index() {
		if e.Name == name && e.Version == version {
			return true
		}
	}
	return false
}
