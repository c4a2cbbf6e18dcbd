package sources

import (
	"slices"
	"testing"
)

// Names are in natural order, with either name first.
func TestNaturalOrder(t *testing.T) {
	want := []string{"", "01", "1", "2", "10", "A", "a", "a1", "a01b", "a1b", "a2", "a9", "a9b", "a10", "a10b2",
		"a10b10", "ab", "b"}
	slices.SortFunc(want, natural)
	for i, a := range want {
		for k, b := range want {
			c := natural(a, b)
			if (c < 0) != (i < k) || (c == 0) != (i == k) || (natural(b, a) < 0) != (c > 0) {
				t.Errorf("%q and %q: %d", a, b, c)
			}
		}
	}
	for _, less := range [][2]string{{"a9", "a10"}, {"a2b", "a10"}, {"1", "a"}, {"a", "a1"}, {"a1b2", "a1b10"},
		{"a1", "ab"}, {"7", "10x"}, {"01aa", "1b"}} {
		if natural(less[0], less[1]) >= 0 {
			t.Errorf("%q is not before %q", less[0], less[1])
		}
	}
	if digits("") != 0 || digits("0/9:") != 1 || digits("90a") != 2 || digits("/") != 0 || digits(":") != 0 {
		t.Error("digits")
	}
}

// A folder's path may be relative to the configuration file.
func TestRelativeFolders(t *testing.T) {
	k := &Kind{}
	for _, other := range Kinds() {
		if other.Name == schemeFolder {
			*k = other
		}
	}
	for address, want := range map[string]string{"folder:pictures": "folder:/etc/millrace/pictures",
		"folder:/srv/pictures": "folder:/srv/pictures", "folder:": "folder:"} {
		if got := k.Relative(address, "/etc/millrace"); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}
