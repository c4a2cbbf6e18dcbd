// Package python carries the files of the Python package millrace, and in the folder compat the modules of other
// systems. Child processes of the kind python run them.
//
// It owns where the files are unpacked. It must not know who starts the processes.
package python

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"millrace/internal/cachedir"
)

//go:embed all:millrace all:compat
var files embed.FS

// Child is the path, in the folder that Unpack returns, of the file that a child process
// runs.
const Child = "millrace/_child.py"

// Compat is the path, in the folder that Unpack returns, of the folder with the modules of other systems.
const Compat = "compat"

// Unpack writes the files below dir, into a folder named after their digest, unless they are
// there already, and returns the folder. dir "" is cachedir.Dir: what is there is run, so that
// others must not be able to put it there. Processes may call it at the same time.
func Unpack(dir string) (string, error) {
	if dir == "" {
		var err error
		if dir, err = cachedir.Dir(); err != nil {
			return "", fmt.Errorf("the Python package cannot be unpacked: %w", err)
		}
	}
	target := filepath.Join(dir, "python-"+digest())
	if _, err := os.Stat(target); err == nil {
		return target, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("the Python package cannot be unpacked: %w", err)
	}
	temp, err := os.MkdirTemp(dir, "python-*.new")
	if err != nil {
		return "", fmt.Errorf("the Python package cannot be unpacked: %w", err)
	}
	err = write(temp)
	if err == nil {
		err = os.Chmod(temp, 0o755)
	}
	if err == nil {
		if err = os.Rename(temp, target); err == nil {
			return target, nil
		}
		if _, there := os.Stat(target); there == nil {
			err = nil // another process was faster
		}
	}
	os.RemoveAll(temp)
	if err != nil {
		return "", fmt.Errorf("the Python package cannot be unpacked: %w", err)
	}
	return target, nil
}

func write(dir string) error {
	return walk(func(path string, data []byte) error {
		name := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		return os.WriteFile(name, data, 0o644)
	})
}

// digest returns the digest of the files' names and contents.
var digest = sync.OnceValue(func() string {
	h := sha256.New()
	if err := walk(func(path string, data []byte) error {
		_, err := fmt.Fprintf(h, "%s\x00%d\x00%s", path, len(data), data)
		return err
	}); err != nil {
		panic(err) // the files are in the program
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
})

// walk calls f for each file in the order of their names, without compiled ones.
func walk(f func(path string, data []byte) error) error {
	return fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".py") && !strings.HasSuffix(path, ".typed") {
			return err
		}
		data, err := files.ReadFile(path)
		if err != nil {
			return err
		}
		return f(path, data)
	})
}
