package server

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityTable: each test named in docs/attacks.md exists in the named package, or in server without a package.
func TestSecurityTable(t *testing.T) {
	text, err := os.ReadFile("../docs/attacks.md")
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile("(`Test\\w+`)\n(-|#|\n|$)").ReplaceAll(text, []byte("$1 in `server`\n$2"))
	test := regexp.MustCompile("`(Test\\w+)`")
	checked := 0
	for _, list := range regexp.MustCompile("((?:`Test\\w+`(?:,\\s+)?)+)\\s+in\\s+`([\\w/]+)`").FindAllStringSubmatch(
		string(text), -1) {
		files, err := filepath.Glob(filepath.Join("..", list[2], "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		var sources strings.Builder
		for _, file := range files {
			source, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			sources.Write(source)
		}
		for _, name := range test.FindAllStringSubmatch(list[1], -1) {
			checked++
			if !strings.Contains(sources.String(), "\nfunc "+name[1]+"(t *testing.T)") {
				t.Errorf("there is no %s in %s", name[1], list[2])
			}
		}
	}
	if named := len(test.FindAllString(string(text), -1)); checked != named || checked < 100 {
		t.Errorf("%d tests are named, and %d are checked", named, checked)
	}
}
