package server

import (
	"time"

	"millrace/internal/inferencepb"
	"millrace/workers"
)

// Statistics implements ingest.Repository.
func (r repositoryOf) Statistics(name, version string) ([]*inferencepb.ModelStatistics, error) {
	if name != "" {
		if _, err := r.s.group(name, version); err != nil {
			return nil, err
		}
	}
	out := []*inferencepb.ModelStatistics{}
	for _, st := range r.s.models.Stats() {
		m := st.Model
		if st.State != workers.StateUnloaded && (name == "" || name == m.Name) && (version == "" || version == m.Version) {
			out = append(out, statistics(&st))
		}
	}
	return out, nil
}

// statistics returns what was counted for a model and version, in the form of the
// protocol. What a cache answered was not run.
func statistics(st *workers.GroupStats) *inferencepb.ModelStatistics {
	f, ran := &st.Frames, &st.Ran
	out := &inferencepb.ModelStatistics{
		Name: st.Model.Name, Version: st.Model.Version, InferenceCount: ran.Rows, ExecutionCount: ran.Runs,
		InferenceStats: &inferencepb.InferStatistics{
			Success: duration(f.Succeeded(), f.Answering), Fail: duration(f.Failed(), f.Failing),
			Queue: duration(ran.Frames+f.CacheHits, ran.Queue), ComputeInput: duration(ran.Frames, ran.Input),
			ComputeInfer: duration(ran.Frames, ran.Infer), ComputeOutput: duration(ran.Frames, ran.Output),
			CacheHit: duration(f.CacheHits, f.CacheHitTime), CacheMiss: duration(f.CacheMisses, f.CacheMissTime),
		},
	}
	if f.Last != 0 {
		out.LastInference = uint64(f.Last.Wall().UnixMilli())
	}
	for _, s := range ran.Sizes {
		out.BatchStats = append(out.BatchStats, &inferencepb.InferBatchStatistics{
			BatchSize: uint64(s.Rows), ComputeInput: duration(s.Runs, s.Input), ComputeInfer: duration(s.Runs, s.Infer), ComputeOutput: duration(s.Runs, s.Output),
		})
	}
	return out
}

func duration(n uint64, d time.Duration) *inferencepb.StatisticDuration {
	return &inferencepb.StatisticDuration{Count: n, Ns: uint64(max(d, 0))}
}
