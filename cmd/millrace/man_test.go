package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/testneeds"
)

// Every command in the help has a page, and man finds no fault in any page.
func TestManualPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	if _, stderr, code := millrace(t, "man", dir); code != 0 {
		t.Fatalf("exit status %d\n%s", code, stderr)
	}
	for _, c := range commands(t) {
		path := filepath.Join(dir, pageName(c)+".1")
		if c.Hidden {
			if _, err := os.Stat(path); err == nil {
				t.Errorf("%s is hidden, and has a page", c.CommandPath())
			}
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Errorf("%s has no page: %v", c.CommandPath(), err)
			continue
		}
		if !strings.Contains(string(text), ".SH NAME\n"+pageName(c)+` \- `) ||
			!strings.Contains(string(text), ".SH EXAMPLES\n") {
			t.Errorf("%s:\n%s", path, text)
		}
		out, err := exec.Command(testneeds.Program(t, "groff"), "-man", "-ww", "-z", path).CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", path, err, out)
		}
	}
	if got, want := roff("a-b\n.c\\n\n'd"), "a\\-b\n\\&.c\\en\n\\&'d"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
