package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func Example() {
	main()
	// Output:
	// x [1.5 -2]
	// ended: <nil>
}

// The program is a first look at the Go API and must stay short.
func TestLength(t *testing.T) {
	text, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	lines := slices.DeleteFunc(strings.Split(string(text), "\n"), func(s string) bool { return s == "" })
	if n := len(lines); n >= 32 {
		t.Errorf("the program has %d lines, want fewer than 32", n)
	}
}
