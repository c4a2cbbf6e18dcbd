package load

import (
	"encoding/binary"
	"encoding/json"
	"testing"

	"millrace/stream"
)

func TestParseText(t *testing.T) {
	for _, c := range []struct {
		text string
		want Ending
		ok   bool
	}{
		{`{"seq":7,"model":"a\"}b","outputs":[{"name":"x","data":[1,2,[3,{"a":"]"}]]}],"timing":{"run_us":3},"batch":5}`, Ending{Seq: 7, Outcome: stream.Answered, Batch: 5}, true},
		{`{"seq":8,"dropped":"stale"}`, Ending{Seq: 8, Outcome: stream.Dropped, Reason: stream.Stale}, true},
		{` { "seq" : 9 , "error" : { "message":"no, \"so\"", "code" : "too_large" } } `, Ending{Seq: 9, Outcome: stream.Failed, Code: stream.TooLarge}, true},
		{`{"seq":0,"partial":true,"outputs":[]}`, Ending{Outcome: stream.Answered, Partial: true}, true},
		{`{"error":{"code":"draining","message":"m"}}`, Ending{Outcome: stream.Failed, Code: stream.Draining}, false},
		{`{}`, Ending{Outcome: stream.Answered}, false},
	} {
		e, ok, err := parseText([]byte(c.text))
		if err != nil || ok != c.ok || e != c.want {
			t.Errorf("%s: %+v %v %v", c.text, e, ok, err)
		}
	}
	for _, bad := range []string{``, `7`, `{`, `{"seq"`, `{"seq":`, `{"seq":}`, `{"seq":-1}`, `{"seq":1`, `{"seq":1,`, `{"seq":"1}`, `{seq:1}`, `{"seq":1 "b":2}`, `{"a":[1}`} {
		if e, ok, err := parseText([]byte(bad)); err == nil && ok {
			t.Errorf("%q was read as %+v", bad, e)
		}
	}
}

// result makes a binary result as a server sends it.
func result(seq uint64, text string, tensors int) []byte {
	b := make([]byte, headerLen)
	b[0], b[1], b[2] = 1, kindResult, 12
	binary.LittleEndian.PutUint64(b[8:], seq)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(text)))
	return append(append(b, text...), make([]byte, tensors)...)
}

func TestParseBinary(t *testing.T) {
	good := result(5, `{"model_name":"m","parameters":{"run_us":4,"batch":3},"outputs":[{"name":"o"}]}`, 100)
	if e, err := parseBinary(good); err != nil || e != (Ending{Seq: 5, Outcome: stream.Answered, Batch: 3}) {
		t.Errorf("%+v %v", e, err)
	}
	for n := range len(good) - 100 {
		if _, err := parseBinary(good[:n]); err == nil {
			t.Errorf("the first %d bytes are taken for a result", n)
		}
	}
}

// FuzzMembers holds the reader of objects against encoding/json: what that takes,
// it takes, with the same members.
func FuzzMembers(f *testing.F) {
	for _, s := range []string{`{}`, `{"a":1}`, ` {"a" : [1,{"b":"]}"}] , "c\n":"\\\"" , "d":-1.5e3,"e":null} `, `{"a":{}}`, `{"a":1]`, `{"a"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got := map[string]string{}
		err := members(b, func(k, v []byte) error {
			got[string(k)] = string(v)
			return nil
		})
		var want map[string]json.RawMessage
		if json.Unmarshal(b, &want) != nil || want == nil {
			return // it need not see what is wrong
		}
		if err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		for k, v := range got {
			var name string
			if json.Unmarshal([]byte(`"`+k+`"`), &name) != nil {
				t.Fatalf("the name %q is not one", k)
			}
			if !json.Valid([]byte(v)) {
				t.Fatalf("the value %q is not one", v)
			}
			if _, ok := want[name]; !ok {
				t.Fatalf("there is no member %q", k)
			}
		}
		if len(got) < len(want) {
			t.Fatalf("%d members of %d", len(got), len(want))
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`{"seq":1,"error":{"code":"x"}}`))
	f.Add(result(1, `{"parameters":{"batch":2}}`, 3))
	f.Fuzz(func(_ *testing.T, b []byte) { // must not panic
		_, _, _ = parseText(b)
		_, _ = parseBinary(b)
	})
}
