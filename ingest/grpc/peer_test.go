package grpc_test

import (
	"os/exec"
	"strings"
	"testing"

	"millrace/internal/testneeds"
)

// TestPythonClient runs testdata/peer.py, with messages that protoc makes of our files.
func TestPythonClient(t *testing.T) {
	python, protoc := testneeds.Python(t, "grpc"), testneeds.Program(t, "protoc")
	const files = "../../internal/inferencepb"
	dir := t.TempDir()
	if out, err := exec.Command(protoc, "-I", files, "--python_out="+dir, "grpc_service.proto", "model_config.proto").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := serve(t, nil, identity, repeat)
	out, err := exec.CommandContext(r.ctx, python, "testdata/peer.py", r.s.Addr("grpc"), dir).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "done") {
		t.Errorf("%v\n%s", err, out)
	}
}
