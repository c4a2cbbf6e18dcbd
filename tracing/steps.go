//go:build !nometrics

package tracing

import (
	"maps"
	"slices"
	"sync/atomic"

	"millrace/stream"
)

// stepOutcomes are the values of the label outcome, by stream.Outcome.
var stepOutcomes = [...]string{stream.Pending: "skipped", stream.Answered: "result", stream.Dropped: "drop",
	stream.Failed: "error"}

// stepSeries has the counts of one step of a graph. The steps' names come from the configuration, and are thus
// bounded.
type stepSeries struct {
	took     *distribution // nanoseconds
	outcomes [len(stepOutcomes)]atomic.Uint64
}

// maxStepSeries bounds the names that reloads of a graph can create.
const maxStepSeries = 256

// step counts an ended step.
func (s *series) step(st *stream.Step) {
	s.stepsMu.Lock()
	of := s.steps[st.Name]
	if of == nil {
		if len(s.steps) == maxStepSeries {
			s.stepsMu.Unlock()
			return
		}
		if s.steps == nil {
			s.steps = map[string]*stepSeries{}
		}
		of = &stepSeries{took: newDistribution(stageBuckets, 1e-9)}
		s.steps[st.Name] = of
	}
	s.stepsMu.Unlock()
	of.outcomes[st.Outcome].Add(1)
	if st.Outcome == stream.Answered {
		of.took.add(uint64(max(st.To.Sub(st.From), 0)), "")
	}
}

// eachStep calls f for the executed steps, sorted by name.
func (s *series) eachStep(f func(name string, st *stepSeries)) {
	s.stepsMu.Lock()
	steps := maps.Clone(s.steps)
	s.stepsMu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(steps)) {
		f(name, steps[name])
	}
}
