package repository

import (
	"errors"
	"testing"

	"millrace/stream"
	"millrace/stream/coded"
	"millrace/workers"
	_ "millrace/workers/graph"
	_ "millrace/workers/identity"
	_ "millrace/workers/onnx"
)

// A configuration, as the text of a config.pbtxt or as the JSON of a load request, is refused
// with a client's error or gives a valid configuration.
func FuzzModelConfig(f *testing.F) {
	for _, s := range []string{
		"", `name: "m" backend: "onnxruntime" max_batch_size: 8 input [{name: "x" data_type: TYPE_FP32 dims: [-1, ` +
			`3]}] output [{name: "y" data_type: TYPE_STRING dims: [1]}]`,
		`platform: "ensemble" output [{name: "y"}] ensemble_scheduling {step [{model_name: "a" input_map {key: "x" ` +
			`value: "x"} output_map {key: "y" value: "y"}}]}`,
		`dynamic_batching {max_queue_delay_microseconds: 18446744073709551615 default_queue_policy {max_queue_size: ` +
			`4294967295 default_timeout_microseconds: 1 timeout_action: DELAY allow_timeout_override: true}}`,
		`sequence_batching {max_sequence_idle_microseconds: 5 control_input [{name: "START" control [{kind: ` +
			`CONTROL_SEQUENCE_START fp32_false_true: [0, 1]}]}] state [{input_name: "h" output_name: "h2" ` +
			`initial_state {zero_data: true}}]}`,
		`instance_group [{count: 2 kind: KIND_CPU}, {count: 2147483647}] version_policy {specific {versions: [1, ` +
			`-3]}} parameters {key: "intra_op_thread_count" value {string_value: "2"}} response_cache {enable: true}`,
		`{"max_batch_size": 3, "input": [{"name": "x", "dims": ["2"]}], "instance_group": [{"count": -1}]}`,
		`{"version_policy": {"latest": {"num_versions": 0}}}`,
	} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	check := func(t *testing.T, err error) bool {
		t.Helper()
		var e *coded.Error
		if err != nil && (!errors.As(err, &e) || e.Code != coded.InvalidArgument && e.Code != coded.Unsupported &&
			e.Code != coded.TooLarge) {
			t.Errorf("%v has the code %s", err, coded.CodeOf(err))
		}
		return err == nil
	}
	f.Fuzz(func(t *testing.T, text []byte, request bool) {
		pb, err := parseText(text, "config.pbtxt")
		if request {
			pb, err = parseJSON(text)
		}
		if !check(t, err) {
			return
		}
		cfg := workers.Config{Name: "m"}
		if !check(t, applyVersions(&cfg, pb)) {
			return
		}
		if cfg.Kind, err = kindOf(pb); !check(t, err) {
			return
		}
		if cfg.Kind == "" {
			cfg.Kind = "onnx"
		}
		cfg.Source = "model.onnx"
		if _, err := apply(&cfg, pb, request); !check(t, err) {
			return
		}
		if request && cfg.Instances > 64 {
			t.Errorf("%d instances by a request", cfg.Instances)
		}
		for _, specs := range [][]workers.Tensor{cfg.Declared.Inputs, cfg.Declared.Outputs} {
			for _, s := range specs {
				if s.Name == "" || len(s.Shape) > 0 && stream.Elements(s.Shape) == 0 {
					t.Errorf("%+v is declared", s)
				}
			}
		}
		if kind, ok := workers.Lookup(cfg.Kind); ok {
			if _, err := kind.Decode(cfg.Params); !check(t, err) {
				return
			}
		}
		check(t, cfg.Validate())
	})
}
