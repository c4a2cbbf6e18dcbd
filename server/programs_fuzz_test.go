package server

import (
	"strings"
	"testing"

	"millrace/workers"
)

// FuzzPartsOf: a description makes configurations below the program's name, or is refused by
// name.
func FuzzPartsOf(f *testing.F) {
	_, parts, _ := strings.Cut(twoStages, "\n")
	for _, text := range []string{parts, `{}`, `[]`,
		`{"stages":[{"name":"a","wait_ms":-1,"timeout_ms":1e300,"instances":-4,"max_batch":9e9}]}`,
		`{"graphs":[{"name":"g","steps":[{"stage":"a","when":"count(x) > 0","crop":{"boxes":"b"}}]}]}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		cfgs, err := PartsOf(workers.Config{Name: "svc", Source: "x.staged", Kind: "staged"}, text)
		if err != nil {
			if !strings.Contains(err.Error(), "source: the description of program svc ") {
				t.Errorf("%v", err)
			}
			return
		}
		seen := map[string]bool{}
		for _, c := range cfgs {
			if !strings.HasPrefix(c.Name, "svc.") || seen[c.Name] {
				t.Errorf("a configuration is called %q", c.Name)
			}
			seen[c.Name] = true
			_ = c.Validate() // Define calls Validate
		}
	})
}
