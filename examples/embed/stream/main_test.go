package main

import (
	"os"
	"strings"
	"testing"
)

func Example() {
	main()
	// Output:
	// loaded delay
	// x [1.5 -2]
	// the stream has 3 results
}

// The page has this program, and what it prints.
func TestPage(t *testing.T) {
	code, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../../docs/embed.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), "\n```go\n"+string(code)+"```\n") {
		t.Error("docs/embed.md has not the code of main.go")
	}
	if !strings.Contains(string(page), "    loaded delay\n    x [1.5 -2]\n    the stream has 3 results\n") {
		t.Error("docs/embed.md does not have what main.go prints")
	}
}
