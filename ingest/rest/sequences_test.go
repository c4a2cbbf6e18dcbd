package rest_test

import (
	"strings"
	"testing"

	"millrace/stream"
	"millrace/workers"
)

// Requests whose sequence cannot work are refused.
func TestSequencesAreRefused(t *testing.T) {
	r := start(t, nil, "identity")
	if _, err := r.Models().LoadConfig(t.Context(), workers.Config{Name: "kept", Kind: "delay",
		Params: stream.Params{"stateful": true}}, true); err != nil {
		t.Fatal(err)
	}
	body := []byte(`{"parameters":{"sequence_id":7,"sequence_start":true},"inputs":[{"name":"x","datatype":"UINT8",` +
		`"shape":[1],"data":[1]}]}`)
	for path, want := range map[string]string{"identity/infer": "keeps no state",
		"kept/infer_stream": "several answers", "kept/infer": ""} {
		a := r.ask("POST", "/v2/models/"+path, body, isJSON)
		if (a.StatusCode == 200) != (want == "") || !strings.Contains(a.String(), want) ||
			want != "" && !strings.Contains(a.String(), "parameters.sequence_id") {
			t.Errorf("%s: %v, want %q", path, a, want)
		}
	}
	r.NoLeases()
}
