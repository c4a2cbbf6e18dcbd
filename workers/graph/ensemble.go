package graph

import (
	"fmt"

	"millrace/workers"
)

// FromEnsemble returns the settings of the graph for an ensemble.
func FromEnsemble(e workers.Ensemble) (*Settings, error) {
	s := &Settings{Outputs: e.Outputs}
	names := map[string]int{}
	for _, of := range e.Steps {
		st := Step{Name: of.Model, Model: of.Model, Version: of.Version, Input: of.Input, Output: of.Output}
		if names[st.Model]++; names[st.Model] > 1 {
			st.Name = fmt.Sprintf("%s-%d", st.Model, names[st.Model])
		}
		s.Steps = append(s.Steps, st)
	}
	return s, s.Validate()
}

// ensemble returns the steps of the graph as an ensemble, without crops and conditions.
func (s *Settings) ensemble() (e workers.Ensemble) {
	for i := range s.Steps {
		st := &s.Steps[i]
		e.Steps = append(e.Steps, workers.EnsembleStep{Model: st.Model, Version: st.Version, Input: st.Input,
			Output: st.Output})
	}
	e.Outputs = s.Outputs
	return e
}
