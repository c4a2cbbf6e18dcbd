package grpc_test

import (
	"os/exec"
	"strings"
	"testing"
)

// TestPythonClient runs testdata/peer.py, with messages that protoc makes of our files.
func TestPythonClient(t *testing.T) {
	const python = "/usr/bin/python3" // the one for which apt installs
	if err := exec.Command(python, "-c", "import grpc, google.protobuf").Run(); err != nil {
		t.Skip("needs python3-grpcio and python3-protobuf: ", err)
	}
	protoc, err := exec.LookPath("protoc")
	if err != nil {
		t.Skip("needs protobuf-compiler: ", err)
	}
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
