package testbuild

import (
	"os/exec"
	"strings"
	"testing"
)

// TestTags: Tags returns the build tags of the test program, except invariants.
func TestTags(t *testing.T) {
	const path = "millrace/internal/testbuild"
	out, err := exec.Command("go", "test", "-tags", "one,invariants,two", "-run", "TestTagsOfTheChild", "-v",
		path).CombinedOutput()
	if err != nil || !strings.Contains(string(out), `tags: "one,two"`) {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestTagsOfTheChild logs the tags, for TestTags.
func TestTagsOfTheChild(t *testing.T) { t.Logf("tags: %q", Tags()) }
