package ws

import (
	"encoding/json"
	"errors"
	"testing"

	"millrace/stream"
)

// Each message that answers a call has its id, whatever it says.
func TestReplyHasCallID(t *testing.T) {
	dropped, failed := sample(scores()), sample(scores())
	dropped.Outcome, dropped.Reason = stream.Dropped, stream.Stale
	failed.Outcome, failed.Err = stream.Failed, errors.New("no")
	for name, r := range map[string]*stream.Result{"result": sample(scores()), "drop": dropped, "error": failed} {
		var e encoder
		for _, id := range []string{`a "7"`, ""} {
			text, _ := e.encode(r, asReply, source{id: id}, nil)
			var m struct{ ID *string }
			if err := json.Unmarshal(text, &m); err != nil || (m.ID == nil) != (id == "") || m.ID != nil && *m.ID != id {
				t.Errorf("%s, id %q: %s %v", name, id, text, err)
			}
		}
	}
}

func FuzzCall(f *testing.F) {
	for _, s := range []string{
		`{"model":"m","id":"7","inputs":[{"name":"url","datatype":"BYTES","shape":[1],"data":["http://x"]}]}`,
		`{"model":"m","id":12345678,"inputs":[{"data":["a","b"]}]}`, `{"id":{}}`, `{"id":null,"model":1}`, `[]`, `{`, "\x00",
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
		if id := appendID([]byte{'{'}, o.id); !json.Valid(append(id, `"x":0}`...)) {
			t.Errorf("%q makes %s", text, id)
		}
	})
}
