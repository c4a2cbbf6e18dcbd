package server

import (
	"time"

	"millrace/ingest"
	"millrace/workers"
)

// Statistics implements ingest.Repository.
func (r repositoryOf) Statistics(name, version string) ([]ingest.Statistics, error) {
	if name != "" {
		if _, err := r.s.group(name, version); err != nil {
			return nil, err
		}
	}
	out := []ingest.Statistics{}
	for _, st := range r.s.models.Stats() {
		m := st.Model
		if st.State != workers.StateUnloaded && (name == "" || name == m.Name) &&
			(version == "" || version == m.Version) {
			out = append(out, statistics(&st))
		}
	}
	return out, nil
}

// statistics returns the counts of a model's version.
func statistics(st *workers.GroupStats) ingest.Statistics {
	spent := func(n uint64, d time.Duration) ingest.DurationTotal {
		return ingest.DurationTotal{Count: n, Time: max(d, 0)}
	}
	f, ran := &st.Frames, &st.RunTotals
	out := ingest.Statistics{
		Model: st.Model.Name, Version: st.Model.Version, Rows: ran.Rows, Runs: ran.Runs,
		Success: spent(f.Succeeded(), f.Answering), Fail: spent(f.Failed(), f.Failing),
		Queue: spent(ran.Frames+f.CacheHits, ran.Queue), ComputeInput: spent(ran.Frames, ran.Input),
		ComputeInfer: spent(ran.Frames, ran.Infer), ComputeOutput: spent(ran.Frames, ran.Output),
		CacheHit: spent(f.CacheHits, f.CacheHitTime), CacheMiss: spent(f.CacheMisses, f.CacheMissTime),
	}
	if f.Last != 0 {
		out.Last = f.Last.Wall()
	}
	for _, s := range ran.Sizes {
		out.Batches = append(out.Batches, ingest.BatchStatistics{
			Rows: uint64(s.Rows), ComputeInput: spent(s.Runs, s.Input), ComputeInfer: spent(s.Runs, s.Infer),
			ComputeOutput: spent(s.Runs, s.Output),
		})
	}
	return out
}
