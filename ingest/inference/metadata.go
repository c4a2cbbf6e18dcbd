package inference

import (
	"fmt"

	"millrace/ingest"
	"millrace/internal/inferencepb"
	"millrace/internal/oip"
	"millrace/stream"
)

// Extensions lists the extensions of the protocol in REST and gRPC, as named in a server's metadata. shared says that
// clients may use shared memory.
func Extensions(shared bool) []string {
	out := []string{"classification", "model_configuration", "model_repository", "model_repository(unload_dependents)",
		"parameters", "sequence", "statistics", "trace", "logging"}
	if shared {
		out = append(out, "system_shared_memory")
	}
	return out
}

// Find returns a loaded model, and whether the model is ready. The error for an unloaded model begins with the words
// expected by clients of Triton.
func Find(models ingest.Repository, name, version string) (*stream.Model, bool, error) {
	m, ready, err := models.Model(name, version)
	if err != nil && stream.CodeOf(err) == stream.NotFound {
		what := ""
		if version != "" {
			what = fmt.Sprintf(" version %.64s", version)
		}
		err = &stream.Error{Code: stream.NotFound,
			Msg: fmt.Sprintf("Request for unknown model: '%.256s'%s is not found (%v)", name, what, err), Err: err}
	}
	return m, ready, err
}

// Statistics returns the statistics of a model or of one version; name "" means all models.
func Statistics(models ingest.Repository, name, version string) (*inferencepb.ModelStatisticsResponse, error) {
	if name != "" {
		if _, _, err := Find(models, name, version); err != nil {
			return nil, err
		}
	} else if version != "" {
		return nil, stream.Errorf(stream.InvalidArgument, "version", "is given without a model: name the model too")
	}
	all, err := models.Statistics(name, version)
	out := &inferencepb.ModelStatisticsResponse{ModelStats: make([]*inferencepb.ModelStatistics, len(all))}
	for i := range all {
		out.ModelStats[i] = statisticsOf(&all[i])
	}
	return out, err
}

// statisticsOf returns statistics in the form of the protocol.
func statisticsOf(s *ingest.Statistics) *inferencepb.ModelStatistics {
	spent := func(s ingest.DurationTotal) *inferencepb.StatisticDuration {
		return &inferencepb.StatisticDuration{Count: s.Count, Ns: uint64(s.Time)}
	}
	out := &inferencepb.ModelStatistics{
		Name: s.Model, Version: s.Version, InferenceCount: s.Rows, ExecutionCount: s.Runs,
		InferenceStats: &inferencepb.InferStatistics{
			Success: spent(s.Success), Fail: spent(s.Fail), Queue: spent(s.Queue),
			ComputeInput: spent(s.ComputeInput), ComputeInfer: spent(s.ComputeInfer),
			ComputeOutput: spent(s.ComputeOutput),
			CacheHit:      spent(s.CacheHit), CacheMiss: spent(s.CacheMiss),
		},
	}
	if !s.Last.IsZero() {
		out.LastInference = uint64(s.Last.UnixMilli())
	}
	for _, b := range s.Batches {
		out.BatchStats = append(out.BatchStats, &inferencepb.InferBatchStatistics{
			BatchSize: b.Rows, ComputeInput: spent(b.ComputeInput), ComputeInfer: spent(b.ComputeInfer),
			ComputeOutput: spent(b.ComputeOutput),
		})
	}
	return out
}

// Metadata describes a model, or one version of a model, in the form of the protocol.
func Metadata(models ingest.Repository, name, version string) (meta oip.ModelMetadata, err error) {
	m, _, err := Find(models, name, version)
	if err != nil {
		return meta, err
	}
	meta = ModelMetadata(m)
	meta.Versions = models.Versions(m.Name)
	return meta, nil
}

// ModelMetadata describes one version of a model in the form of the protocol.
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

// Index returns the rows of the repository's index; with ready, only the rows of ready models.
func Index(models ingest.Repository, ready bool) []oip.IndexRow {
	var rows []oip.IndexRow
	for _, e := range models.Index() {
		if !ready || e.State == "READY" {
			rows = append(rows, oip.IndexRow{Name: e.Name, Version: e.Version, State: e.State, Reason: e.Reason})
		}
	}
	return rows
}
