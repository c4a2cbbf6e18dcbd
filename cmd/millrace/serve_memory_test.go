//go:build !nometrics

package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// The memory limit of Go's runtime follows from the budget: 1.25 times 64 MiB, and 256 MiB.
func TestMemoryLimit(t *testing.T) {
	p := begin(t, command(t, "serve", "delay", "--http", "127.0.0.1:0", "--grpc", "off", "--memory-budget", "64MiB"))
	line, err := p.lines.ReadString('\n')
	if err != nil {
		t.Fatalf("%v\n%s", err, &p.stderr)
	}
	r, err := http.Get(httpAddr.FindString(line) + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || !strings.Contains(string(text), "\ngo_gc_gomemlimit_bytes 3.5232153") {
		t.Errorf("%v, %s", err, text)
	}
}
