package inference

import (
	"millrace/ingest"
	"millrace/internal/oip"
	"millrace/stream"
)

// ModelMetadata describes m in the form of the protocol.
func ModelMetadata(m *stream.Model) oip.ModelMetadata {
	meta := oip.ModelMetadata{
		Name: m.Name, Platform: m.Platform,
		Inputs: tensorMetadata(m, m.Inputs), Outputs: tensorMetadata(m, m.Outputs),
	}
	if m.Version != "" {
		meta.Versions = []string{m.Version}
	}
	return meta
}

func tensorMetadata(m *stream.Model, specs []stream.TensorSpec) []oip.TensorMetadata {
	out := make([]oip.TensorMetadata, len(specs))
	for i, spec := range specs {
		out[i] = oip.TensorMetadata{Name: spec.Name, Datatype: string(spec.Datatype), Shape: m.Shape(&spec)}
	}
	return out
}

// Index returns the rows of the repository's index; with ready, only those of models
// that are ready.
func Index(models ingest.Repository, ready bool) []oip.IndexRow {
	var rows []oip.IndexRow
	for _, e := range models.Index() {
		if !ready || e.State == "READY" {
			rows = append(rows, oip.IndexRow{Name: e.Name, Version: e.Version, State: e.State, Reason: e.Reason})
		}
	}
	return rows
}
