package server

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityTable: each test named in docs/attacks.md exists in the named package.
func TestSecurityTable(t *testing.T) {
	text, err := os.ReadFile("../docs/attacks.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("`(Test\\w+)` in `([\\w/]+)`").FindAllStringSubmatch(string(text), -1)
	if len(rows) < 8 {
		t.Errorf("%d rows", len(rows))
	}
	for _, row := range rows {
		files, err := filepath.Glob(filepath.Join("..", row[2], "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(source), "\nfunc "+row[1]+"(t *testing.T)")
		}
		if !found {
			t.Errorf("there is no %s in %s", row[1], row[2])
		}
	}
}
