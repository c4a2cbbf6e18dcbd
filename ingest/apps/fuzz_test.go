package apps

import (
	"encoding/json"
	"strings"
	"testing"

	"millrace/stream"
)

// FuzzElement: the body of an answer is one element, as it stands in the outputs, or an error.
func FuzzElement(f *testing.F) {
	f.Add([]byte{1, 0, 0, 0, 'x'})
	f.Add([]byte{255, 255, 255, 255})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := element(&stream.Result{Outputs: []stream.Tensor{{Name: "body", Datatype: stream.Bytes,
			Shape: []int{1}, Data: data}}})
		if err == nil && len(got) != len(data)-4 {
			t.Errorf("%d bytes of %d", len(got), len(data))
		}
	})
}

// FuzzDeadline: a deadline is more than 0 and at most an hour, or an error that names the
// header.
func FuzzDeadline(f *testing.F) {
	for _, text := range []string{"", "1", "0.5", "NaN", "1e400", "-1", "3600000", "0x10"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := deadline(text)
		if err == nil && (d < 0 || d > maxDeadline || d == 0 && text != "") {
			t.Errorf("%q is %v", text, d)
		}
		if err != nil && !strings.Contains(err.Error(), deadlineHeader) {
			t.Errorf("%q: %v does not name the header", text, err)
		}
	})
}

// FuzzDocument: a document is that of the program with the place where it is served, or an
// error. Without one of the program's it is that of its routes at this place.
func FuzzDocument(f *testing.F) {
	for _, text := range []string{`{"openapi":"3.1.0","paths":{}}`, `{"Servers":1,"servers":2}`, `[]`, `null`, ``} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		p := &Program{Name: "p", App: &stream.App{OpenAPI: text, Routes: []stream.Route{{Method: "POST", Path: "/x"}}},
			Model: &stream.Model{}}
		doc, err := Document(p, "../../apps/p")
		if err != nil {
			if len(text) == 0 {
				t.Error(err)
			}
			return
		}
		var of map[string]json.RawMessage
		if err := json.Unmarshal(doc, &of); err != nil {
			t.Fatalf("%.200s: %v", doc, err)
		}
		if want := `[{"url":"../../apps/p"}]`; string(of["servers"]) != want {
			t.Errorf("%.200s: %s, want %s", doc, of["servers"], want)
		}
		if paths := string(of["paths"]); len(text) == 0 && !strings.HasPrefix(paths, `{"/x":`) {
			t.Errorf("the paths are %s", paths)
		}
	})
}
