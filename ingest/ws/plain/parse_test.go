package plain

import (
	"encoding/json"
	"testing"

	"millrace/stream"
)

func FuzzOrder(f *testing.F) {
	for _, s := range []string{`{"url":"rtsp://x/y","model":"m"}`, `{"stop":true}`, `{`, `[]`, `{"url":1}`, "\x00",
		`{"url":"a"}{}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		o, err := parseOrder(text)
		switch {
		case err != nil && stream.CodeOf(err) != stream.InvalidArgument:
			t.Errorf("%v", err)
		case err == nil && o.Stop == (o.URL != ""):
			t.Errorf("%+v", o)
		}
		if err != nil && !json.Valid(errorText(callID{}, err)) {
			t.Errorf("%q makes %s", text, errorText(callID{}, err))
		}
	})
}
