package ws_test

import (
	"strings"
	"testing"

	"millrace/ingest/ws"
	"millrace/workers"
)

// TestTextFrames: a text message is a frame: JSON for a model of tensors, text for a model of BYTES, and JSON other
// than an order for a model of any content. Each frame has its seq and one reply.
func TestTextFrames(t *testing.T) {
	r := start(t, ws.Options{})
	tensors := func(name string, inputs ...string) {
		t.Helper()
		cfg := workers.Config{Name: name, Kind: "identity", Batching: workers.Batching{MaxSize: 4}}
		cfg.Tensors.Inputs = inputs
		for _, in := range inputs {
			cfg.Tensors.Outputs = append(cfg.Tensors.Outputs, "y"+in)
		}
		if _, err := r.models.LoadConfig(t.Context(), cfg, true); err != nil {
			t.Fatal(err)
		}
	}
	tensors("class", "text BYTES -1 1", "n INT64 -1 1")
	tensors("words", "text BYTES -1 1")
	long := strings.Repeat("x", 100_000)
	for _, c := range []struct {
		model, text, code string
		want              any
	}{
		{"class", `{"text":"a b","n":2}`, "", "a b"},
		{"class", ` {"n":[2],"text":["` + long + `"]}`, "", long},
		{"class", `{"text":"a b"}`, "invalid_argument", nil},
		{"class", `{"text":"a b","n":"two"}`, "invalid_argument", nil},
		{"class", `{"text":"a b","n":2,"id":"7"}`, "invalid_argument", nil},
		{"class", `hello`, "invalid_argument", nil},
		{"class", `{"url":"http://example.com/"}`, "invalid_argument", nil},
		{"class", ``, "invalid_argument", nil},
		{"words", `hello`, "", "hello"},
		{"words", `{"text":"hello"}`, "", "hello"},
		{"words", `{"text":{"a":1}}`, "", `{"text":{"a":1}}`},
		{"words", `{"url":"http://example.com/"}`, "", `{"url":"http://example.com/"}`},
		{"echo", `{"a":1}`, "", `{"a":1}`},
		{"echo", `[1,2]`, "", `[1,2]`},
	} {
		conn := r.dial("/v2/models/" + c.model + "/stream")
		conn.say(c.text)
		if c.code != "" {
			conn.nextError(c.code, 0)
		} else if m := conn.next(); m.Error != nil || m.Seq == nil || *m.Seq != 0 || m.Outputs[0].Data[0] != c.want {
			t.Errorf("%s %.80s: %+v, %v", c.model, c.text, m.Outputs, m.Error)
		}
		conn.say(c.text)
		if m := conn.next(); m.Seq == nil || *m.Seq != 1 {
			t.Errorf("%s %.80s: the second message: %+v", c.model, c.text, m)
		}
	}
}
