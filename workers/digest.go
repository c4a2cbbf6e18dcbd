package workers

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"millrace/stream"
)

// maxFiles is the largest number of files of one model.
const maxFiles = 4096

// modelFiles is the state of a model's files. An equal stamp means an equal digest, which then need not be computed.
type modelFiles struct {
	stamp  string // name, place, size and times of each file
	digest string // SHA-256 of their names and contents
}

// filesOf returns the files of a model: all files of its folder, or the source and each file beside the source whose
// name begins with the source's name, such as x.onnx.data.
func filesOf(cfg Config) (files []string, err error) {
	root := cfg.Folder
	if root == "" {
		if cfg.Source == "" {
			return nil, nil
		}
		if root = SourceFile(cfg.Source); root == "" {
			return nil, nil
		}
		st, err := os.Stat(root)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", root, unwrapPath(err))
		}
		if !st.IsDir() {
			files = []string{root}
			beside, err := os.ReadDir(filepath.Dir(root))
			if err != nil {
				return files, nil // the folder may be searched, not listed
			}
			for _, f := range beside {
				if name, base := f.Name(), filepath.Base(root); f.Type().IsRegular() && name != base &&
					strings.HasPrefix(name, base) {
					files = append(files, filepath.Join(filepath.Dir(root), name))
				}
			}
			return files, nil
		}
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir():
			return nil
		case len(files) >= maxFiles:
			return fmt.Errorf("has more than %d files", maxFiles)
		}
		files = append(files, path)
		return nil
	})
	return files, err
}

// unwrapPath returns the error of the system without the operation and the path.
func unwrapPath(err error) error {
	if e, ok := err.(*fs.PathError); ok {
		return e.Err
	}
	return err
}

// readFiles returns the state of a model's files. before is an earlier state; an equal stamp reuses the digest of
// before.
func readFiles(cfg Config, before modelFiles) (modelFiles, error) {
	files, err := filesOf(cfg)
	if err != nil {
		return modelFiles{}, stream.Errorf(stream.NotFound, "source", "%w", err)
	}
	if len(files) == 0 {
		return modelFiles{}, nil
	}
	var stamp strings.Builder
	for _, path := range files {
		st, err := os.Stat(path)
		if err != nil {
			return modelFiles{}, stream.Errorf(stream.NotFound, "source", "%s: %w", path, unwrapPath(err))
		}
		sys := st.Sys().(*syscall.Stat_t)
		written, entry := changed(sys)
		fmt.Fprintf(&stamp, "%q %d %d %d %v %v\n", path, sys.Dev, sys.Ino, sys.Size, written, entry)
	}
	now := modelFiles{stamp: stamp.String(), digest: before.digest}
	if now.stamp == before.stamp {
		return now, nil
	}
	all := sha256.New()
	for _, path := range files {
		name := filepath.Base(path)
		if cfg.Folder != "" {
			name, _ = filepath.Rel(cfg.Folder, path)
		}
		sum, err := digestFile(path)
		if err != nil {
			return modelFiles{}, stream.Errorf(stream.NotFound, "source", "%s: %w", path, unwrapPath(err))
		}
		fmt.Fprintf(all, "%q %x\n", name, sum)
	}
	now.digest = hex.EncodeToString(all.Sum(nil))
	return now, nil
}

func digestFile(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil || !st.Mode().IsRegular() { // opening a pipe would wait
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return h.Sum(nil), err
}
