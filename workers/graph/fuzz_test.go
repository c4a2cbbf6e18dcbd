package graph

import "testing"

// A condition that is read is written as a text of the same meaning.
func FuzzCondition(f *testing.F) {
	for _, s := range []string{"", "a > 0.5", "boxes.score>=1", "x == NaN", "x != -0", "a<b", "any(x) < 3", "x[1] > 2", "x > 1e999"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var c, again Condition
		if c.UnmarshalText([]byte(text)) != nil {
			return
		}
		out, err := c.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		if err := again.UnmarshalText(out); err != nil {
			t.Fatalf("%q is written as %q: %v", text, out, err)
		}
		if twice, err := again.MarshalText(); err != nil || string(twice) != string(out) {
			t.Errorf("%q is written as %q, then as %q, %v", text, out, twice, err)
		}
	})
}
