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
	// x FP32 [2] [1.5 -2]
	// ids INT64 [2] [7 8]
	// labels BYTES [2] [cat dog]
	// boxes FP32 [1 0 4] []
	// scores FP32 [1 0] []
	// the stream has 40 results
}

// The page shows this program and its output.
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
	if !strings.Contains(string(page), "    loaded delay\n    x FP32 [2] [1.5 -2]\n    ids INT64 [2] [7 8]\n    "+
		"labels BYTES [2] [cat dog]\n    boxes FP32 [1 0 4] []\n    scores FP32 [1 0] []\n    the stream has 40 "+
		"results\n") {
		t.Error("docs/embed.md does not have what main.go prints")
	}
}
