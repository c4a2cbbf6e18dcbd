package ws_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"millrace/ingest/ws"
	"millrace/workers"
)

// A call names a model and the address of a video; each frame is answered.
func TestCalls(t *testing.T) {
	url := videos(t)
	r := start(t, ws.Options{AllowPrivateURLs: true}, workers.Config{Name: "eyes", Kind: "motion"})
	c := r.dial("/models/infer")
	call := `{"model":"eyes","id":"7","parameters":{"key":"x"},"inputs":[{"name":"input0","datatype":"BYTES",` +
		`"shape":[1],"data":["` + url + `/clip.mp4"]}]}`
	c.say(call)
	for i := range 20 {
		_, b, err := c.ReadMessage()
		if err != nil {
			t.Fatal(err)
		}
		var m struct {
			ModelName  string `json:"model_name"`
			ID         string
			Parameters map[string]any
			Outputs    []struct{ Name string }
		}
		if err := json.Unmarshal(b, &m); err != nil || m.ModelName != "eyes" || m.ID != "7" || len(m.Outputs) != 2 ||
			m.Parameters["seq"] != float64(i) {
			t.Fatalf("frame %d: %s %v", i, b, err)
		}
	}
	if m := c.next(); !m.Done || m.Frames != 20 || m.ID != "7" {
		t.Fatalf("%+v", m)
	}
	for _, bad := range []struct{ text, id, field string }{
		{`[]`, "", "cannot be read"},
		{`{"id":"a","inputs":[]}`, "a", "model"},
		{`{"id":"a","model":"eyes","inputs":7}`, "a", "inputs"},
		{`{"id":12345678,"model":"eyes"}`, "12345678", "inputs"},
		{`{"id":[1],"model":"eyes"}`, "", "id"},
		{`{"model":"eyes","inputs":[{"data":[1]}]}`, "", "inputs[0].data"},
		{`{"id":"b","model":"eyes","inputs":[{"data":["` + url + `/clip.mp4","` + url + `/clip.mp4"]}]}`, "b",
			"inputs[0].data"},
		{`{"id":"b","model":"eyes","inputs":[{"data":["` + url + `/clip.mp4"]},{"data":["x"]}]}`, "b", "inputs[1]"},
		{`{"id":"c","model":"nobody","inputs":[{"data":["` + url + `/clip.mp4"]}]}`, "c", "nobody"},
		{`{"id":"c","model":"eyes","inputs":[{"data":["file:///etc/passwd"]}]}`, "c", "configuration"},
		{`{"id":"d","model":"eyes","inputs":[{"data":["` + url + `/none.mp4"]}]}`, "d", "url"},
	} {
		r.until("the call before has ended", func() bool { return r.ws.Stats().Pulls == 0 })
		c.say(bad.text)
		if m := c.next(); m.Error == nil || !strings.Contains(m.Error.Message, bad.field) || m.ID != bad.id {
			t.Errorf("%s: %+v %+v", bad.text, m, m.Error)
		}
	}
	c.send([]byte("a frame"))
	if m := c.next(); m.Error == nil {
		t.Errorf("%+v", m)
	}
}

// A client of AMD Inference Server calls a model in any case, and gets its key with each reply and the requested
// number of frames.
func TestCallsOfAMD(t *testing.T) {
	url := videos(t)
	r := start(t, ws.Options{AllowPrivateURLs: true}, workers.Config{Name: "eyes", Kind: "motion"})
	c := r.dial("/models/infer")
	call := func(model, key, count string) string {
		return `{"id":"","model":"` + model + `","parameters":{"key":` + key +
			`},"outputs":[],"inputs":[{"name":"input0","datatype":"BYTES","shape":[9],"parameters":{"count":` + count +
			`},"data":["` + url + `/clip.mp4"]}]}`
	}
	for _, n := range []uint64{1, 5, 20, 99} {
		r.until("the call before has ended", func() bool { return r.ws.Stats().Pulls == 0 })
		c.say(call("Eyes", `"door 7"`, fmt.Sprint(n)))
		want := min(n, 20) // as long as the video is
		for i := range want + 1 {
			_, b, err := c.ReadMessage()
			if err != nil {
				t.Fatal(err)
			}
			var m struct {
				ModelName string `json:"model_name"`
				Key       string
				Done      bool
				Frames    uint64
			}
			if err := json.Unmarshal(b, &m); err != nil || m.Key != "door 7" || m.Done != (i == want) ||
				!m.Done && m.ModelName != "eyes" || m.Done && m.Frames != want {
				t.Fatalf("count %d, message %d: %s %v", n, i, b, err)
			}
		}
	}
	for _, bad := range []struct{ text, words string }{
		{call("eyes", `"a"`, "0"), "inputs[0].parameters.count"},
		{call("eyes", `"a"`, "-1"), "inputs[0].parameters.count"},
		{call("eyes", `"a"`, `"many"`), "inputs[0].parameters.count"},
		{call("eyes", `{}`, "1"), "parameters.key"},
		{call("Nobody", `"a"`, "1"), "Nobody"},
	} {
		c.say(bad.text)
		if m := c.next(); m.Error == nil || !strings.Contains(m.Error.Message, bad.words) {
			t.Errorf("%s: %+v %+v", bad.text, m, m.Error)
		}
	}
}
