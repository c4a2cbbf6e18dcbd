package query

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"millrace/stream"
)

// TestQuery checks the values of each option, up to the bounds.
func TestQuery(t *testing.T) {
	for text, want := range map[string]int{"1": 1, "3600000": 3600_000, "0": 0, "-1": 0, "3600001": 0, "1.5": 0,
		"": 0} {
		var o Options
		err := o.Set("max_age_ms", text)
		if got := o.Policy.MaxAge; got != time.Duration(want)*time.Millisecond || (err == nil) != (want != 0) ||
			err != nil && stream.CodeOf(err) != stream.InvalidArgument {
			t.Errorf("%q: %v, %v", text, o.Policy.MaxAge, err)
		}
	}
	for text, want := range map[string]float64{"0.5": 0.5, "30": 30, "0": 0, "-1": 0, "NaN": 0, "x": 0, "": 0} {
		var o Options
		if err := o.Set("max_fps", text); (err == nil) != (want != 0) || o.Policy.MaxFPS != want ||
			err != nil && stream.CodeOf(err) != stream.InvalidArgument {
			t.Errorf("%q: %v, %v", text, o.Policy.MaxFPS, err)
		}
	}
	for _, bad := range [][2]string{{"policy", ""}, {"policy", "fast"}, {"window", "0"}, {"window", "1025"},
		{"window", "1.0"}, {"window", strings.Repeat("9", 500)}, {"priority", "high"}} {
		var o Options
		if err := o.Set(bad[0], bad[1]); stream.CodeOf(err) != stream.InvalidArgument ||
			!strings.Contains(err.Error(), bad[0]) || len(err.Error()) > 250 {
			t.Errorf("%s: %v", bad, err)
		}
	}
	for i, c := range []struct {
		o  Options
		ok bool
	}{
		{Options{Codec: stream.RGB24, Width: 1, Height: 1}, true}, {Options{Codec: stream.NV12, Width: 1, Height: 1},
			true},
		{Options{Codec: stream.RGB24, Width: 1}, false}, {Options{Codec: stream.NV12, Height: 1}, false},
		{Options{Codec: stream.RGB24}, false},
		{Options{Codec: stream.JPEG}, true}, {Options{Codec: stream.JPEG, Width: 1}, false},
		{Options{Codec: stream.JPEG, Height: 1}, false}, {Options{Codec: stream.Auto}, true},
	} {
		if err := c.o.Check(); (err == nil) != c.ok {
			t.Errorf("%d: %v", i, err)
		}
	}
}

func FuzzQuery(f *testing.F) {
	for _, s := range []string{"codec=rgb24&width=4&height=4", "policy=every&window=3&max_age_ms=1", "max_fps=1e309",
		"outputs=json", "window=%00", "x=y"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		values, err := url.ParseQuery(text)
		if err != nil {
			return
		}
		o := Options{Codec: stream.Auto}
		for k, vs := range values {
			for _, v := range vs {
				if err == nil {
					err = o.Set(k, v)
				}
			}
		}
		if err == nil {
			err = o.Check()
		}
		if err == nil {
			err = o.Policy.Validate()
		}
		if c := stream.CodeOf(err); err != nil && c != stream.InvalidArgument && c != stream.Unsupported {
			t.Errorf("%v", err)
		}
	})
}
