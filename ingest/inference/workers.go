package inference

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"millrace/ingest"
	"millrace/stream"
)

// This file has what the calls of AMD Inference Server's clients have in common over REST and gRPC: see docs/migrating.md.

// ReadyNames returns the name of each model that is ready; none is an empty list.
func ReadyNames(models ingest.Repository) []string {
	names := []string{}
	for _, row := range Index(models, true) {
		if !slices.Contains(names, row.Name) { // a model has a row for each version
			names = append(names, row.Name)
		}
	}
	return names
}

// LoadWorker is Load for a name in any case: one in capitals that is not known is taken in lower case, as endpoints of AMD
// Inference Server are.
func LoadWorker(ctx context.Context, client *ingest.Client, name, version string, params map[string]any) (ingest.Loaded, error) {
	loaded, err := Load(ctx, client.Models(), name, version, params)
	if lower, ok := lowered(client, name, err); ok {
		if there, again := Load(ctx, client.Models(), lower, version, params); stream.CodeOf(again) != stream.NotFound {
			return there, again
		}
	}
	return loaded, err
}

// UnloadWorker is Unload for a name in any case. An endpoint that is not there needs no unload: clients undo each of their loads,
// of which the last one has removed it.
func UnloadWorker(ctx context.Context, client *ingest.Client, name, version string, params map[string]any) error {
	err := Unload(ctx, client.Models(), name, version, params)
	if lower, ok := lowered(client, name, err); ok {
		err = Unload(ctx, client.Models(), lower, version, params)
	}
	if stream.CodeOf(err) == stream.NotFound {
		return nil
	}
	return err
}

// lowered returns a name in lower case if the name itself is not known and the client may use the other one.
func lowered(client *ingest.Client, name string, err error) (string, bool) {
	lower := strings.ToLower(name)
	return lower, lower != name && stream.CodeOf(err) == stream.NotFound && client.Principal().AllowsModel(lower) == nil
}

// Devices returns the number of devices of a name, cpu or gpu, that the server may use; 0 for other names.
func Devices(name string) int {
	switch strings.ToLower(name) {
	case "cpu":
		return runtime.GOMAXPROCS(0)
	case "gpu": // of NVIDIA, each with a file; of others, a file for computing
		nvidia, _ := filepath.Glob("/dev/nvidia[0-9]*") // the pattern is well-formed
		if len(nvidia) == 0 {
			nvidia, _ = filepath.Glob("/dev/dri/renderD*")
		}
		n := 0
		for _, f := range nvidia {
			if _, err := os.Stat(f); err == nil {
				n++
			}
		}
		return n
	}
	return 0
}
