package load

import (
	"errors"
	"strings"
	"testing"
	"time"

	"millrace/stream"
)

// Among errors with the same code, the report has the earliest message of all shards, of bounded length.
func TestFirstError(t *testing.T) {
	all := map[stream.Code]firstError{}
	for _, shardOf := range [][]struct {
		code stream.Code
		at   time.Duration
		text string
	}{
		{{"a", 5, "later"}, {"a", 6, "latest"}, {"b", 1, strings.Repeat("é", 2*maxMessage)}},
		{{"a", 4, "first"}, {"c", 9, "only \xff"}},
		{{"a", 7, "last"}, {"b", 2, "second"}},
	} {
		s := &shard{first: map[stream.Code]firstError{}}
		for _, e := range shardOf {
			s.keep(e.code, errors.New(e.text), e.at)
		}
		s.mergeFirst(all)
	}
	if all["a"].text != "first" || all["b"].text != strings.Repeat("é", maxMessage) || all["c"].text != "only \uFFFD" {
		t.Errorf("%v", all)
	}
	if got := printable("a\x1b[31mb\nc"); got != "a [31mb c" {
		t.Errorf("%q", got)
	}
}
