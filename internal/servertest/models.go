package servertest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/config"
	"millrace/internal/onnxfile"
	"millrace/workers"
)

// WriteRepository writes the files of a model repository, by their paths.
func WriteRepository(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for path, text := range files {
		at := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Mirror is a model that returns its input: FP32 [N, 4], sound, and UINT8 [N, 3, 1, 2, 2], pictures.
func Mirror(t *testing.T, settings string) workers.Config {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mirror.onnx")
	model := onnxfile.Identity(onnxfile.Float32, "N", 4)
	if strings.Contains(settings, "input.image") {
		model = onnxfile.Identity(onnxfile.Uint8, "N", 3, 1, 2, 2)
	}
	if err := os.WriteFile(path, model, 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := config.ParseModel("mirror=" + path + "," + settings)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
