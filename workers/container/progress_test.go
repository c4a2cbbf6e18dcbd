package container

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestProgressLines: lines of progress are reported, however the output is cut into pieces, and no other lines.
func TestProgressLines(t *testing.T) {
	const out = "starting\nprogress 1/4 pages\nprogress 2\r\n  progress 3/4\nprogress 5/4\nprogress -1\n" +
		"progress x/4\nprogress 1/0\nmy progress 3/4\nprogress 4/4 of pages\nprogress 99999999999999999999\n" +
		"progress\n\nprogress 9 frames"
	want := "[1/4 pages 2/0  3/4 ]"
	var got []string
	p := &progressLines{report: func(done, total int64, unit string) {
		got = append(got, fmt.Sprintf("%d/%d %s", done, total, unit))
	}}
	if _, err := io.Copy(struct{ io.Writer }{p}, iotest.OneByteReader(strings.NewReader(out))); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(got) != want {
		t.Errorf("in bytes: %q, want %s", got, want)
	}
	got = nil
	fmt.Fprintf(p, "\nprogress 1%s\n%s", strings.Repeat(" ", 1<<20), out)
	if want = "[9/0 frames 1/4 pages 2/0  3/4 ]"; fmt.Sprint(got) != want {
		t.Errorf("in one piece: %q, want %s", got, want)
	}
	if n := cap(p.line); n > 4*maxProgress {
		t.Errorf("%d bytes are kept of a line", n)
	}
}
