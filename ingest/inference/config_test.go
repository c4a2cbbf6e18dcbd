package inference

import (
	"encoding/json"
	"testing"

	"millrace/internal/inferencepb"
)

// Names of fields, 64-bit numbers and empty fields are as in Triton.
func TestAppendMessage(t *testing.T) {
	m := &inferencepb.ModelConfig{
		Name: "m\"", MaxBatchSize: 8, Input: []*inferencepb.ModelInput{{Name: "x",
			DataType: inferencepb.DataType_TYPE_FP32, Dims: []int64{-1, 3}}},
		Parameters: map[string]*inferencepb.ModelParameter{"b": {StringValue: "2"}, "a": {StringValue: "1"}},
	}
	var got struct {
		Name   string
		Max    int `json:"max_batch_size"`
		Output []any
		Input  []struct {
			Type string `json:"data_type"`
			Dims []int64
		}
		Parameters map[string]struct {
			Value string `json:"string_value"`
		}
	}
	text := AppendMessage(nil, m.ProtoReflect())
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if got.Name != "m\"" || got.Max != 8 || got.Output == nil || len(got.Input) != 1 ||
		got.Input[0].Type != "TYPE_FP32" || len(got.Input[0].Dims) != 2 || got.Input[0].Dims[0] != -1 ||
		got.Parameters["b"].Value != "2" {
		t.Errorf("%s", text)
	}
}
