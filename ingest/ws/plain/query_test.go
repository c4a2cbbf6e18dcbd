package plain

import (
	"testing"
	"time"

	"millrace/stream"
)

// TestQuery: what each option takes, up to its bounds.
func TestQuery(t *testing.T) {
	for text, want := range map[string]int{"1": 1, "3600000": 3600_000, "0": 0, "-1": 0, "3600001": 0, "1.5": 0, "": 0} {
		got, err := millis("max_age_ms", text)
		if got != time.Duration(want)*time.Millisecond || (err == nil) != (want != 0) || err != nil && stream.CodeOf(err) != stream.InvalidArgument {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for i, c := range []struct {
		q  Query
		ok bool
	}{
		{Query{Codec: stream.RGB24, Width: 1, Height: 1}, true}, {Query{Codec: stream.NV12, Width: 1, Height: 1}, true},
		{Query{Codec: stream.RGB24, Width: 1}, false}, {Query{Codec: stream.NV12, Height: 1}, false}, {Query{Codec: stream.RGB24}, false},
		{Query{Codec: stream.JPEG}, true}, {Query{Codec: stream.JPEG, Width: 1}, false}, {Query{Codec: stream.JPEG, Height: 1}, false}, {Query{Codec: stream.Auto}, true},
	} {
		if err := c.q.Check(); (err == nil) != c.ok {
			t.Errorf("%d: %v", i, err)
		}
	}
}
