// Package wheeltest writes Python packages for tests: folders of wheels in place of an index.
package wheeltest

import (
	"archive/zip"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Wheel is a package.
type Wheel struct {
	Name, Version string
	Files         map[string]string
	Requires      []string
}

// Write writes the wheel into a folder, and returns the path.
func (w Wheel) Write(t testing.TB, dir string) string {
	t.Helper()
	info := fmt.Sprintf("%s-%s.dist-info/", w.Name, w.Version)
	metadata := fmt.Sprintf("Metadata-Version: 2.1\nName: %s\nVersion: %s\n", w.Name, w.Version)
	for _, r := range w.Requires {
		metadata += "Requires-Dist: " + r + "\n"
	}
	files := map[string]string{info + "METADATA": metadata,
		info + "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
	maps.Copy(files, w.Files)
	names := slices.Sorted(maps.Keys(files))
	files[info+"RECORD"] = strings.Join(names, ",,\n") + ",,\n" + info + "RECORD,,\n"
	path := filepath.Join(dir, fmt.Sprintf("%s-%s-py3-none-any.whl", w.Name, w.Version))
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := zip.NewWriter(f)
	for _, name := range append(names, info+"RECORD") {
		part, err := z.Create(name)
		if err == nil {
			_, err = part.Write([]byte(files[name]))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(z.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}
