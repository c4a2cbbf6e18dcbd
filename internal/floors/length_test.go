package floors

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxWords is the most words of all pages together, as wc -w counts, so that a reader can find what a page says. Pages
// that a generator writes do not count: their words are help texts and descriptions of metrics and alerts in the code.
const maxWords = 60_000

var generatedPage = regexp.MustCompile(`(?m)^<!-- Written by go generate `)

// tooLong describes the excess of all pages over a limit, with the longest pages; "" = none.
func tooLong(pages map[string]string, limit int) string {
	type page struct {
		name  string
		words int
	}
	var all []page
	sum := 0
	for name, text := range pages {
		if generatedPage.MatchString(text) {
			continue
		}
		n := len(strings.Fields(text))
		all = append(all, page{name, n})
		sum += n
	}
	if sum <= limit {
		return ""
	}
	slices.SortFunc(all, func(a, b page) int { return b.words - a.words })
	var longest []string
	for _, p := range all[:min(5, len(all))] {
		longest = append(longest, fmt.Sprintf("%s has %d", p.name, p.words))
	}
	return fmt.Sprintf("all Markdown pages have %d words together, %d above the limit: shorten a page that you change, "+
		"link to a description in place of a second, and leave details to --help and comments (%s)",
		sum, sum-limit, strings.Join(longest, ", "))
}

// TestWords holds the length of all pages together.
func TestWords(t *testing.T) {
	pages, err := texts("../..", ".md")
	if err != nil {
		t.Fatal(err)
	}
	if len(pages) < 50 {
		t.Fatalf("only %d pages found", len(pages))
	}
	if text := tooLong(pages, maxWords); text != "" {
		t.Error(text)
	}
}

// TestWordsAreCounted counts the words of small pages.
func TestWordsAreCounted(t *testing.T) {
	pages := map[string]string{"a.md": "# A\n| b |\n", "b.md": "one two\nthree\n",
		"c.md": "# C\n<!-- Written by go generate ./c. -->\nnine\n"}
	if text := tooLong(pages, 8); text != "" {
		t.Error(text)
	}
	if text := tooLong(pages, 7); !strings.Contains(text, "8 words together, 1 above") ||
		!strings.Contains(text, "(a.md has 5, b.md has 3)") {
		t.Error(text)
	}
}
