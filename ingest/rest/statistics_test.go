package rest_test

import "testing"

// Statistics of one model, of one version and of all models, with the names of Triton.
func TestStatistics(t *testing.T) {
	r := start(t, nil, "pair")
	for _, path := range []string{"/v2/models/pair/stats", "/v2/models/pair/versions/1/stats", "/v2/models/stats"} {
		a := r.ask("GET", path, nil)
		found := false
		all, _ := a.get("model_stats").([]any)
		for _, st := range all {
			m := st.(map[string]any)
			x, _ := m["inference_stats"].(map[string]any)
			found = found || m["name"] == "pair" && m["version"] == "1" && x["success"] != nil &&
				m["batch_stats"] != nil && m["last_inference"] != nil
		}
		if a.StatusCode != 200 || !found || path != "/v2/models/stats" && len(all) != 1 {
			t.Errorf("%s: %d %s", path, a.StatusCode, a.body)
		}
	}
	for _, path := range []string{"/v2/models/nobody/stats", "/v2/models/pair/versions/9/stats"} {
		if a := r.ask("GET", path, nil); a.StatusCode != 404 {
			t.Errorf("%s: %d %s", path, a.StatusCode, a.body)
		}
	}
}
