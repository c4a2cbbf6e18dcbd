package plain

import (
	"encoding/json"
	"testing"

	"millrace/ingest/ws/conn"
	"millrace/stream"
)

// A result is an Open Inference Protocol reply with the call's id, the frame's number and its time in the video.
func TestCallResult(t *testing.T) {
	r := &stream.Result{
		Outcome: stream.Answered, Seq: 7, CaptureUS: 12, Model: &stream.Model{Name: "spotter", Version: "1"},
		BatchSize: 4,
		Outputs:   []stream.Tensor{{Name: "n", Datatype: stream.Uint8, Shape: []int{1}, Data: []byte{9}}},
	}
	for _, id := range []string{`a "7"`, ""} {
		text, isBinary, err := callResult(&conn.Encoder{}, r, &videoInfo{Call: callID{ID: id, Key: id}})
		var m struct {
			ModelName string `json:"model_name"`
			ID, Key   *string
			Outputs   []struct{ Data []int }
			Params    map[string]int `json:"parameters"`
		}
		if err == nil {
			err = json.Unmarshal(text, &m)
		}
		if err != nil || isBinary || m.ModelName != "spotter" || (m.ID == nil) != (id == "") ||
			m.ID != nil && (*m.ID != id || m.Key == nil || *m.Key != id) ||
			m.Params["seq"] != 7 || m.Params["pts_us"] != 12 || m.Params["batch"] != 4 || len(m.Outputs) != 1 ||
			m.Outputs[0].Data[0] != 9 {
			t.Errorf("id %q: %s %v", id, text, err)
		}
	}
}

func FuzzCall(f *testing.F) {
	for _, s := range []string{
		`{"model":"m","id":"7","inputs":[{"name":"url","datatype":"BYTES","shape":[1],"data":["http://x"]}]}`,
		`{"model":"m","id":12345678,"inputs":[{"data":["a","b"]}]}`, `{"id":{}}`, `{"id":null,"model":1}`, `[]`, `{`,
		"\x00",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		o, err := parseCall(text)
		switch {
		case err != nil && stream.CodeOf(err) != stream.InvalidArgument:
			t.Errorf("%v", err)
		case err == nil && o.Model == "":
			t.Errorf("%+v", o)
		}
		if reply := doneText(o.Call, 0, 0); !json.Valid(reply) {
			t.Errorf("%q makes %s", text, reply)
		}
	})
}
