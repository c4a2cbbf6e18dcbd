package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The programs are built outside of the repository as docs/embed.md says, and run.
func TestOutside(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	found := regexp.MustCompile(`(?s)    (module mine\n.*?replace millrace => )\.\./millrace\n\nand .cp ` +
		`\.\./millrace/go\.sum \. && go build -mod=mod.`).FindStringSubmatch(read("docs/embed.md"))
	if found == nil {
		t.Fatal("docs/embed.md has no go.mod of a program outside of the repository")
	}
	for file, want := range map[string]string{
		"examples/embed/main.go": "x [1.5 -2]\nended: <nil>\n",
		"examples/embed/stream/main.go": "loaded delay\nx FP32 [2] [1.5 -2]\nids INT64 [2] [7 8]\nlabels BYTES [2] " +
			"[cat dog]\nboxes FP32 [1 0 4] []\nscores FP32 [1 0] []\nthe stream has 40 results\n",
	} {
		outside(t, map[string]string{"go.mod": strings.ReplaceAll(found[1], "\n    ", "\n") + root + "\n",
			"go.sum": read("go.sum"), "main.go": read(file)}, want)
	}
}

// outside builds a program from the given files, runs the program, and compares the output.
func outside(t *testing.T, files map[string]string, want string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.Command("go", "build", "-mod=mod", "-o", "mine")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOPROXY=off") // all dependencies are present: the tests are built with them
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.Command(filepath.Join(dir, "mine")).Output()
	if err != nil || string(out) != want {
		t.Errorf("%v: %q, want %q", err, out, want)
	}
}
