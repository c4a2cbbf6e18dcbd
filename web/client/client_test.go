// Package client has the tests of the JavaScript client: they build and pack the client, and run test/*.mjs.
package client

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/internal/testbuild"
	"millrace/internal/testneeds"
)

// maxSize bounds the total size of the client's files loaded by a page, each gzipped.
const maxSize = 15_000

// TestClient builds the client, packs the client as for a registry, and runs its tests in Node and in Chromium
// against a real server.
func TestClient(t *testing.T) {
	if testing.Short() {
		t.Skip("runs npm and a browser")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "millrace")
	run(t, "../..", nil, "go", "build", "-tags", testbuild.Tags(), "-o", program, "./cmd/millrace")

	// The workspace is copied, since npm writes into the workspace.
	workspace := filepath.Join(dir, "web")
	// npm ci compares the manifests with the lock file
	for _, name := range []string{"package.json", "package-lock.json", "tsconfig.json", "console/package.json"} {
		copyFile(t, filepath.Join("..", name), filepath.Join(workspace, name))
	}
	copyFile(t, "../../LICENSE", filepath.Join(dir, "LICENSE"))
	copyTree(t, ".", filepath.Join(workspace, "client"))
	run(t, workspace, nil, "npm", "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund",
		"--workspace", "client", "--include-workspace-root")

	// npm pack builds.
	run(t, workspace, nil, "npm", "pack", "--workspace", "client", "--pack-destination", dir)
	tarballs, err := filepath.Glob(filepath.Join(dir, "millrace-client-*.tgz"))
	if err != nil || len(tarballs) != 1 {
		t.Fatalf("packed %v: %v", tarballs, err)
	}
	installed := filepath.Join(dir, "installed")
	write(t, filepath.Join(installed, "package.json"), []byte(`{"private": true}`))
	run(t, installed, nil, "npm", "install", "--offline", "--no-audit", "--no-fund", tarballs[0])
	module := filepath.Join(installed, "node_modules/@millrace/client")
	checkPackage(t, module)

	env := []string{"MILLRACE=" + program, "INSTALLED=" + filepath.Join(module, "dist"), "TMPDIR=" + dir, "HOME=" + dir}
	for _, name := range []string{"node", "browser"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, filepath.Join(workspace, "client"), env, "node", "--test", "--test-timeout=300000",
				"test/"+name+".test.mjs")
		})
	}
}

// checkPackage checks an installed package: the files, the size, and the absence of dependencies.
func checkPackage(t *testing.T, module string) {
	var files []string
	size := 0
	err := fs.WalkDir(os.DirFS(module), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		if strings.HasSuffix(path, ".d.ts") {
			return nil
		}
		files = append(files, path)
		if filepath.Ext(path) == ".js" {
			size += gzipped(t, filepath.Join(module, path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"LICENSE", "README.md", "dist/codecs.js", "dist/index.js", "dist/pcm.js", "dist/worker.js",
		"package.json"}; !slices.Equal(files, want) {
		t.Errorf("the package has %v\nwant %v", files, want)
	}
	if _, err := os.Stat(filepath.Join(module, "dist/index.d.ts")); err != nil {
		t.Error(err)
	}
	if size > maxSize {
		t.Errorf("the client takes %d bytes gzipped, and may take %d", size, maxSize)
	}
	t.Logf("%d bytes gzipped", size)
	var manifest map[string]any
	if err := json.Unmarshal(read(t, filepath.Join(module, "package.json")), &manifest); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"dependencies", "peerDependencies", "optionalDependencies"} {
		if manifest[key] != nil {
			t.Errorf("package.json has %s", key)
		}
	}
}

func gzipped(t *testing.T, file string) int {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = z.Write(read(t, file))
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Len()
}

func run(t *testing.T, dir string, env []string, program string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, testneeds.Program(t, program), args...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", c.Args, err, out)
	}
}

// copyTree copies the sources of a folder.
func copyTree(t *testing.T, from, to string) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(from), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains([]string{"dist", "node_modules"}, path):
			return fs.SkipDir
		case !d.IsDir():
			copyFile(t, filepath.Join(from, path), filepath.Join(to, path))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	write(t, to, read(t, from))
}

func write(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
