package server

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityTable: each test named in docs/attacks.md exists.
func TestSecurityTable(t *testing.T) {
	text, err := os.ReadFile("../docs/attacks.md")
	if err != nil {
		t.Fatal(err)
	}
	exists := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)
	err = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "node_modules" || d.Name() == "out" || strings.HasPrefix(d.Name(), ".git")):
			return fs.SkipDir
		case !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(source, -1) {
			exists[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Test\\w+)`").FindAllSubmatch(text, -1)
	for _, m := range named {
		if !exists[string(m[1])] {
			t.Errorf("there is no %s", m[1])
		}
	}
	if len(named) < 100 {
		t.Errorf("docs/attacks.md names %d tests", len(named))
	}
}
