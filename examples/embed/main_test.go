package main

import (
	"os"
	"strings"
	"testing"
)

func Example() {
	main()
	// Output:
	// x [1.5 -2]
	// ended: <nil>
}

// It is a first look at the Go API: it has to stay short.
func TestLength(t *testing.T) {
	text, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(text), "func main() {\n")
	if n := strings.Count(body, "\n"); n >= 30 {
		t.Errorf("main has %d lines, want fewer than 30", n)
	}
}
