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

// This file has the common part of the calls of AMD Inference Server's clients over REST and gRPC: see
// docs/migrating.md.

// ReadyNames returns the names of all ready models; without a ready model, an empty list.
func ReadyNames(models ingest.Repository) []string {
	names := []string{}
	for _, row := range Index(models, true) {
		if !slices.Contains(names, row.Name) { // a model has a row for each version
			names = append(names, row.Name)
		}
	}
	return names
}

// LoadWorker is Load for names in upper or lower case: an unknown name with capitals is tried in lower case, the case
// of AMD Inference Server's endpoints.
func LoadWorker(ctx context.Context, client *ingest.Client, name, version string,
	params map[string]any) (ingest.Loaded, error) {
	loaded, err := Load(ctx, client.Models(), name, version, params)
	if lower, ok := lowerCaseName(client, name, err); ok {
		if there, again := Load(ctx, client.Models(), lower, version, params); stream.CodeOf(again) != stream.NotFound {
			return there, again
		}
	}
	return loaded, err
}

// UnloadWorker is Unload for names in upper or lower case. Unloading a missing endpoint succeeds, since clients undo
// each of their loads, and the last unload has removed the endpoint.
func UnloadWorker(ctx context.Context, client *ingest.Client, name, version string, params map[string]any) error {
	err := Unload(ctx, client.Models(), name, version, params)
	if lower, ok := lowerCaseName(client, name, err); ok {
		err = Unload(ctx, client.Models(), lower, version, params)
	}
	if stream.CodeOf(err) == stream.NotFound {
		return nil
	}
	return err
}

// lowerCaseName returns name in lower case, and whether to try the lower case: name itself is unknown, and the client
// may use the lower case name.
func lowerCaseName(client *ingest.Client, name string, err error) (string, bool) {
	lower := strings.ToLower(name)
	return lower, lower != name && stream.CodeOf(err) == stream.NotFound && client.Principal().AllowsModel(lower) == nil
}

// Devices returns how many devices named cpu or gpu the server may use; 0 for other names.
func Devices(name string) int {
	switch strings.ToLower(name) {
	case "cpu":
		return runtime.GOMAXPROCS(0)
	case "gpu": // NVIDIA GPUs have a device file each; other GPUs have a render node
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
