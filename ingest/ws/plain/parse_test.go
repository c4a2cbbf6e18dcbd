package plain

import (
	"encoding/json"
	"net/url"
	"testing"

	"millrace/ingest/ws/replies"
	"millrace/stream"
)

func FuzzOrder(f *testing.F) {
	for _, s := range []string{`{"url":"rtsp://x/y","model":"m"}`, `{"stop":true}`, `{`, `[]`, `{"url":1}`, "\x00", `{"url":"a"}{}`} {
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
		if err != nil && !json.Valid(replies.Error("", err)) {
			t.Errorf("%q makes %s", text, replies.Error("", err))
		}
	})
}

func FuzzQuery(f *testing.F) {
	for _, s := range []string{"codec=rgb24&width=4&height=4", "policy=every&window=3&max_age_ms=1", "max_fps=1e309", "outputs=json", "window=%00", "x=y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		values, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		q := Query{Codec: stream.Auto}
		for k, vs := range values {
			for _, v := range vs {
				if err == nil {
					err = q.Set(k, v)
				}
			}
		}
		if err == nil {
			err = q.Check()
		}
		if err == nil {
			err = q.Policy.Validate()
		}
		if c := stream.CodeOf(err); err != nil && c != stream.InvalidArgument && c != stream.Unsupported {
			t.Errorf("%v", err)
		}
	})
}
