package repository

import (
	"fmt"
	"strconv"

	"millrace/internal/inferencepb"
	"millrace/stream/coded"
	"millrace/workers"
)

// ensembleOf reads the ensemble of a model configuration. Errors name the fields of the configuration.
func ensembleOf(c *inferencepb.ModelConfig) (e workers.Ensemble, err error) {
	steps := c.GetEnsembleScheduling().GetStep()
	if len(steps) == 0 {
		return e, coded.Errorf(coded.InvalidArgument, "ensemble_scheduling.step",
			"is missing: an ensemble needs at least one step")
	}
	for i, of := range steps {
		field := func(name string) string { return fmt.Sprintf("ensemble_scheduling.step[%d].%s", i, name) }
		if of.GetModelNamespace() != "" {
			return e, coded.Errorf(coded.Unsupported, field("model_namespace"),
				"is set, but models have no namespaces: leave it out")
		}
		if of.GetModelName() == "" {
			return e, coded.Errorf(coded.InvalidArgument, field("model_name"), "is missing")
		}
		for name, m := range map[string]map[string]string{"input_map": of.GetInputMap(),
			"output_map": of.GetOutputMap()} {
			if len(m) == 0 {
				return e, coded.Errorf(coded.InvalidArgument, field(name), "is missing")
			}
		}
		st := workers.EnsembleStep{Model: of.GetModelName(), Input: of.GetInputMap(), Output: of.GetOutputMap()}
		if v := of.GetModelVersion(); v > 0 { // -1 is the latest
			st.Version = strconv.FormatInt(v, 10)
		}
		e.Steps = append(e.Steps, st)
	}
	for _, o := range c.GetOutput() {
		e.Outputs = append(e.Outputs, o.GetName())
	}
	return e, nil
}

// ensembling returns an ensemble in the form of a model configuration.
func ensembling(e workers.Ensemble) *inferencepb.ModelEnsembling {
	out := &inferencepb.ModelEnsembling{}
	for _, st := range e.Steps {
		version, err := strconv.ParseInt(st.Version, 10, 64)
		if err != nil {
			version = -1 // the latest
		}
		out.Step = append(out.Step, &inferencepb.ModelEnsembling_Step{ModelName: st.Model, ModelVersion: version,
			InputMap: st.Input, OutputMap: st.Output})
	}
	return out
}
