package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/testneeds"
)

// TestSwapKeepsTheInterpreter: a file that takes the place of SOURCE runs with the interpreter of --python.
func TestSwapKeepsTheInterpreter(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	interpreter := filepath.Join(dir, "given")
	testneeds.WriteProgram(t, interpreter, fmt.Sprintf("#!/bin/sh\nGIVEN=1 exec %s \"$@\"\n", testneeds.Python(t)))
	program := filepath.Join(dir, "red.py")
	write := func(answer string) {
		t.Helper()
		text := "import os\nassert os.environ.get('GIVEN'), 'another interpreter'\ndef infer(x: str) -> str:\n    return '" + answer + "'\n"
		if err := os.WriteFile(program, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	_, addr := serve(t, program, "--python", interpreter)
	write("second")
	if out, stderr, code := millrace(t, "models", "swap", program, "--addr", addr); code != 0 || out != "red\n" || !strings.Contains(stderr, "changed: the file; all parameters are the defaults") {
		t.Fatalf("exit status %d: %s%s", code, out, stderr)
	}
	if _, _, code := millrace(t, "models", "load", program, "--name", "blue", "--addr", addr); code == 0 {
		t.Error("a model of another name has the interpreter of SOURCE")
	}
}
