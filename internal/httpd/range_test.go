package httpd

import "testing"

func TestByteRange(t *testing.T) {
	for _, c := range []struct {
		header   string
		from, to int64
		ok       bool
	}{
		{"", 0, 100, true},
		{"bytes=0-", 0, 100, true},
		{"bytes=10-19", 10, 20, true},
		{"bytes=90-200", 90, 100, true},
		{"bytes=-30", 70, 100, true},
		{"bytes=-300", 0, 100, true},
		{"bytes=100-", 0, 0, false},
		{"bytes=-0", 100, 100, false},
		{"bytes=20-10", 0, 100, true}, // no valid range: the whole
		{"bytes=1-2,4-5", 0, 100, true},
		{"bytes=a-b", 0, 100, true},
		{"lines=1-2", 0, 100, true},
	} {
		from, to, ok := ByteRange(c.header, 100)
		if from != c.from || to != c.to || ok != c.ok {
			t.Errorf("%q: got %d %d %v, want %d %d %v", c.header, from, to, ok, c.from, c.to, c.ok)
		}
	}
}
