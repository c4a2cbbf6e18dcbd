package graph

import (
	"fmt"
	"strconv"

	"millrace/internal/inferencepb"
	"millrace/stream/coded"
)

// FromEnsemble returns the settings of a graph that does what a model configuration says
// in ensemble_scheduling. Errors name the configuration's fields.
func FromEnsemble(c *inferencepb.ModelConfig) (*Settings, error) {
	steps := c.GetEnsembleScheduling().GetStep()
	if len(steps) == 0 {
		return nil, coded.Errorf(coded.InvalidArgument, "ensemble_scheduling.step", "is missing: an ensemble needs at least one step")
	}
	s := &Settings{}
	names := map[string]int{}
	for i, of := range steps {
		field := func(name string) string { return fmt.Sprintf("ensemble_scheduling.step[%d].%s", i, name) }
		if of.GetModelNamespace() != "" {
			return nil, coded.Errorf(coded.Unsupported, field("model_namespace"), "is set, but models have no namespaces: leave it out")
		}
		if of.GetModelName() == "" {
			return nil, coded.Errorf(coded.InvalidArgument, field("model_name"), "is missing")
		}
		for name, m := range map[string]map[string]string{"input_map": of.GetInputMap(), "output_map": of.GetOutputMap()} {
			if len(m) == 0 {
				return nil, coded.Errorf(coded.InvalidArgument, field(name), "is missing")
			}
		}
		st := Step{Name: of.GetModelName(), Model: of.GetModelName(), Input: of.GetInputMap(), Output: of.GetOutputMap()}
		if names[st.Model]++; names[st.Model] > 1 {
			st.Name = fmt.Sprintf("%s-%d", st.Model, names[st.Model])
		}
		if v := of.GetModelVersion(); v > 0 { // -1 is the latest
			st.Version = strconv.FormatInt(v, 10)
		}
		s.Steps = append(s.Steps, st)
	}
	for _, o := range c.GetOutput() {
		s.Outputs = append(s.Outputs, o.GetName())
	}
	return s, s.Validate()
}

// ensemble describes the steps in the form of the protocol, without what it has no form
// for: crops and conditions.
func (s *Settings) ensemble() *inferencepb.ModelEnsembling {
	e := &inferencepb.ModelEnsembling{}
	for i := range s.Steps {
		st := &s.Steps[i]
		version, err := strconv.ParseInt(st.Version, 10, 64)
		if err != nil {
			version = -1 // the latest
		}
		e.Step = append(e.Step, &inferencepb.ModelEnsembling_Step{ModelName: st.Model, ModelVersion: version, InputMap: st.Input, OutputMap: st.Output})
	}
	return e
}
