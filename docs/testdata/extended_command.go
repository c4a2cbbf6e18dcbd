package main

import (
	"slices"
	"strings"
	"testing"
)

// The command asks the server, prints text or JSON, completes the model, and refuses wrong usage.
func TestExtendedCommand(t *testing.T) {
	_, addr := serve(t, "--model", "light=brightness,alarm.above=100")
	for _, c := range []struct {
		args, want string
		code       int
	}{
		{"light --addr " + addr, "2\n", 0},
		{"light --json --addr " + addr, `"name": "alarm"`, 0},
		{"missing --addr " + addr, "", 1},
		{"", "", 2},
		{"--help", "millrace outputs light", 0},
	} {
		out, stderr, code := millrace(t, append([]string{"outputs"}, strings.Fields(c.args)...)...)
		if code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("%s: exit status %d, %s%s", c.args, code, out, stderr)
		}
	}
	if words := complete(t, "outputs", "--addr", addr, ""); !slices.Contains(words, "light") {
		t.Errorf("completed with %q", words)
	}
}
