package streams_test

import (
	"fmt"
	"testing"

	"millrace/ingest/streams"
)

// A stream reports the pictures that its setting decode skips, also of a source that a change has replaced.
func TestDecodeOfStream(t *testing.T) {
	r := start(t, streams.Options{AllowPrivate: true})
	url := served(t, clip(t, 3, "-g", "10", "-bf", "0"))
	r.want(201, "POST", "/v2/streams", fmt.Sprintf(
		`{"name":"door","source":%q,"model":"eyes","policy":"every","decode":"key"}`, url))
	if s := r.over("door", "ended"); s.Frames != 3 || s.Results != 3 || s.Skipped != 27 {
		t.Errorf("%+v", s)
	}
	r.want(200, "PATCH", "/v2/streams/door", `{"decode":"all"}`)
	if s := r.until("door", "30 frames", func(s shown) bool { return s.Frames == 30 }); s.Skipped != 0 {
		t.Errorf("with new counters: %+v", s)
	}
	r.want(201, "POST", "/v2/streams", fmt.Sprintf(
		`{"name":"yard","source":%q,"model":"eyes","policy":"every","decode":"key","loop":true}`, url))
	r.until("yard", "skipped pictures of a source of its own", func(s shown) bool { return s.Skipped > 0 })
	r.want(400, "PATCH", "/v2/streams/door", `{"decode":"most"}`)
}
