// Package docs consists of tests: the code and commands on the pages build and run.
package docs

import (
	"bytes"
	"encoding/json"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"millrace/internal/testbuild"
)

// TestLinks: links between pages, and from pages to code, lead to files, and to headings of pages.
func TestLinks(t *testing.T) {
	pages := []string{"../web/client/README.md"}
	for _, pattern := range []string{"../*.md", "*.md", "adr/*.md", "../examples/*/*.md"} {
		more, _ := filepath.Glob(pattern)
		pages = append(pages, more...)
	}
	texts := map[string]string{}
	read := func(page string) string {
		if _, ok := texts[page]; !ok {
			text, err := os.ReadFile(page)
			if err != nil {
				t.Errorf("a page or link leads to %s: %v", page, err)
			}
			texts[page] = regexp.MustCompile("(?ms)^```.*?^```$").ReplaceAllString(string(text), "")
		}
		return texts[page]
	}
	for _, page := range pages {
		for _, link := range regexp.MustCompile(`\]\(([^()#: ]*)(?:#([^() ]+))?\)`).FindAllStringSubmatch(read(page), -1) {
			target := page
			if link[1] != "" {
				target = filepath.Join(filepath.Dir(page), link[1])
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s: %v", page, err)
			} else if link[2] != "" && !slices.Contains(anchors(read(target)), link[2]) {
				t.Errorf("%s links to the heading #%s of %s: no such heading", page, link[2], target)
			}
		}
	}
}

// anchors returns the names of the headings of a page in links.
func anchors(text string) []string {
	var found []string
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`).ReplaceAllString(strings.ToLower(heading[1]), "$1")
		name = strings.ReplaceAll(regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(name, ""), " ", "-")
		found = append(found, name)
	}
	return found
}

// maxDecisions is the most files of decisions, so that a reader finds the file about a subject in the index.
const maxDecisions = 40

// TestDecisions: the index of the decisions lists the files in the order of their numbers, with their titles, and the
// numbers of the decisions in each file.
func TestDecisions(t *testing.T) {
	index, err := os.ReadFile("adr/README.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("adr/[0-9]*.md")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files of decisions: %v", err)
	}
	if len(files) > maxDecisions {
		t.Errorf("adr has %d files, the limit is %d: write a decision as a section of the file about the same subject, "+
			"or merge files", len(files), maxDecisions)
	}
	rows := regexp.MustCompile(`(?m)^- \[([^]]+)\]\(([^)]+)\)(.*)$`).FindAllStringSubmatch(string(index), -1)
	if len(rows) != len(files) {
		t.Errorf("adr/README.md lists %d files, there are %d", len(rows), len(files))
	}
	number := regexp.MustCompile(`(?m)\(([0-9]{3})[,)]|^## ([0-9]{3}):`)
	for i, f := range files[:min(len(files), len(rows))] {
		name := filepath.Base(f)
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		title, body, _ := strings.Cut(string(text), "\n")
		if rows[i][2] != name || "# "+rows[i][1] != title {
			t.Errorf("line %d of adr/README.md is [%s](%s), want [%s](%s)", i+1, rows[i][1], rows[i][2],
				strings.TrimPrefix(title, "# "), name)
		}
		for _, n := range number.FindAllStringSubmatch(body, -1) {
			if n := n[1] + n[2]; !strings.Contains(" "+name[:3]+rows[i][3]+" ", " "+n+" ") {
				t.Errorf("the line of adr/README.md for %s has no %s", name, n)
			}
		}
	}
}

// TestExtending adds the code of extending.md to the module, by an overlay of the go command, and runs
// testdata/extended_test.go and testdata/extended_command.txt in the extended module, and the tests over all settings,
// workers, stages, batchers, sources, sinks and commands.
func TestExtending(t *testing.T) {
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("extending.md")
	if err != nil {
		t.Fatal(err)
	}
	// A linked example is read as if the page had the text.
	for _, link := range regexp.MustCompile(`\]\((testdata/\w+\.go\.txt)\)`).FindAllSubmatch(page, -1) {
		text, err := os.ReadFile(string(link[1]))
		if err != nil {
			t.Fatal(err)
		}
		page = slices.Concat(page, []byte("\n```go\n"), text, []byte("```\n"))
	}
	replace := map[string]string{
		filepath.Join(root, "docs/extended_test.go"):         filepath.Join(root, "docs/testdata/extended_test.go"),
		filepath.Join(root, "cmd/millrace/extended_test.go"): filepath.Join(root, "docs/testdata/extended_command.txt"),
	}
	work := t.TempDir()
	for _, block := range regexp.MustCompile("(?ms)^```(go|diff)\n(?:// |--- )(\\S+)\n\n?(.*?)^```$").FindAllSubmatch(
		page, -1) {
		kind, name, text := string(block[1]), string(block[2]), block[3]
		path := filepath.Join(root, name)
		now := path
		if changed, ok := replace[path]; ok { // by an earlier block of the page
			now = changed
		}
		before, err := os.ReadFile(now)
		switch {
		case kind == "go" && err == nil:
			t.Fatalf("%s is there already", name)
		case kind == "diff" && err != nil:
			t.Fatal(err)
		case kind == "diff":
			text = insert(t, name, before, text)
		}
		if formatted, err := format.Source(text); err != nil || !bytes.Equal(formatted, text) {
			t.Fatalf("%s is not formatted (gofmt): %v", name, err)
		}
		replace[path] = filepath.Join(work, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(replace[path], text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if testing.Short() {
		t.Skip("compiles half of the module again")
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(work, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"-run", "^TestExtended", "./docs"},
		{"-run", "^Test(EveryBatcher|DecodingIsFairBetweenAccounts)$", "./batching", "-rapid.nofailfile"},
		{"-run", "^TestEvery|^TestSettingsOfASection", "./config"},
		{"-run", "^TestEvery(Worker|Stage)$", "./server/tests/service"},
		{"-run", "^TestEverySource$", "./ingest/sources"},
		{"-run", "^TestEverySink$", "./ingest/sinks"},
		{"-run", "^Test(ExtendedCommand|CommandsHaveExamples|SameFlags|AdvancedSettingsAreFolded)$", "./cmd/millrace"},
	} {
		cmd := exec.Command("go", append([]string{"test", "-overlay", file, "-tags", testbuild.Tags(), "-vet=off"},
			args...)...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil || bytes.Contains(out, []byte("no tests to run")) {
			t.Errorf("%v\n%s", err, out)
		}
	}
}

// insert inserts the lines of a diff that begin with + after the preceding lines of the diff; each preceding line
// must be unique in the file.
func insert(t *testing.T, name string, file, diff []byte) []byte {
	t.Helper()
	var at int // behind the line before
	for line := range strings.Lines(string(diff)) {
		mark, line := line[0], line[1:]
		if mark == '+' {
			file = append(append(append([]byte(nil), file[:at]...), line...), file[at:]...)
		} else if bytes.Count(file, []byte(line)) != 1 {
			t.Fatalf("%s has not once the line %q", name, line)
		} else {
			at = bytes.Index(file, []byte(line))
		}
		at += len(line)
	}
	return file
}
