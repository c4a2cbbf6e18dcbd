package repository

import (
	"testing"

	"google.golang.org/protobuf/encoding/prototext"

	"millrace/internal/inferencepb"
)

// TestEnsembleOf: an ensemble without a required field of a step is refused, and the error names the field.
func TestEnsembleOf(t *testing.T) {
	for text, want := range map[string]string{
		``: "ensemble_scheduling.step: is missing: an ensemble needs at least one step",
		`ensemble_scheduling { step { input_map { key: "x" value: "a" } } }`:                 "ensemble_scheduling.step[0].model_name: is missing",
		`ensemble_scheduling { step { model_name: "m" input_map { key: "x" value: "a" } } }`: "ensemble_scheduling.step[0].output_map: is missing",
		`ensemble_scheduling { step { model_name: "m" model_namespace: "n" } }`:              "ensemble_scheduling.step[0].model_namespace: is set, but models have no namespaces: leave it out",
	} {
		var c inferencepb.ModelConfig
		if err := prototext.Unmarshal([]byte(text), &c); err != nil {
			t.Fatal(err)
		}
		if _, err := ensembleOf(&c); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	var c inferencepb.ModelConfig
	if err := prototext.Unmarshal([]byte(`
		output [{ name: "OUT" }]
		ensemble_scheduling { step [
			{ model_name: "a" model_version: -1 input_map { key: "x" value: "IN" } output_map { key: "y" value: "mid" } },
			{ model_name: "b" model_version: 3 input_map { key: "x" value: "mid" } output_map { key: "y" value: "OUT" } }
		] }`), &c); err != nil {
		t.Fatal(err)
	}
	e, err := ensembleOf(&c)
	if err != nil || len(e.Steps) != 2 || e.Steps[0].Version != "" || e.Steps[1].Version != "3" ||
		e.Steps[1].Input["x"] != "mid" || len(e.Outputs) != 1 || e.Outputs[0] != "OUT" {
		t.Fatalf("%+v, %v", e, err)
	}
	if back := ensembling(e); back.Step[0].ModelVersion != -1 || back.Step[1].ModelVersion != 3 ||
		back.Step[0].OutputMap["y"] != "mid" {
		t.Errorf("%v", back)
	}
}
