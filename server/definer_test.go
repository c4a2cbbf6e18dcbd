package server

import (
	"strings"
	"testing"

	"millrace/stream"
)

// Models that clients define have no address as the source.
func TestDefineRefusesAddresses(t *testing.T) {
	s, err := New(Config{HTTP: "127.0.0.1:0", GRPC: Off})
	if err != nil {
		t.Fatal(err)
	}
	defer s.abandon()
	for _, source := range []string{"git+file:///srv/m#m.onnx", "s3://bucket/m.onnx", "oci://r.example.org/m#m.onnx",
		"https://h.example.org/m.onnx#sha256=" + strings.Repeat("a", 64)} {
		if err := (definer{s}).Define("new", source, ""); stream.CodeOf(err) != stream.PermissionDenied {
			t.Errorf("%s: %v", source, err)
		}
	}
}
