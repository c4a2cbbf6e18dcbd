package access

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"millrace/internal/filelock"
	"millrace/internal/textfile"
	"millrace/internal/yamltext"
)

// Bounds of a file.
const (
	maxFile    = 16 << 20 // bytes
	maxEntries = 100000
)

// checkInterval is the time between two looks at a file.
const checkInterval = time.Second

// parse decodes YAML. Errors quote no text, which contains digests.
func parse(text []byte, v any) error {
	return yamltext.Decode(text, yamltext.Limit{Bytes: maxFile, Tokens: maxFile}, v, true)
}

// writeFile replaces a file. Only the owner may read a new file; when root creates the file, the owner of the folder
// becomes the owner of the file. A replaced file keeps owner and mode, so that the server can still read the file.
// For a link, writeFile replaces the target of the link.
func writeFile(path string, v any) error {
	text, err := yamltext.Encode(v)
	if err != nil {
		return err
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".auth-") // with mode 0600
	if err != nil {
		return err
	}
	_, err = tmp.Write(text)
	old, none := os.Stat(path)
	if none == nil {
		err = errors.Join(err, tmp.Chmod(old.Mode().Perm()))
	} else if os.Geteuid() == 0 {
		old, none = os.Stat(filepath.Dir(path))
	}
	if none == nil {
		if st, ok := old.Sys().(*syscall.Stat_t); ok {
			err = errors.Join(err, tmp.Chown(int(st.Uid), int(st.Gid)))
		}
	}
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return err
}

// Lock excludes other callers of Lock, in any program, from changing the files of a folder until unlock is called.
func Lock(path string) (unlock func(), err error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	if err := filelock.Lock(dir); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return func() { _ = filelock.Close(dir) }, nil
}

// watch reads a file, and reads the file again after each change. When reading again fails, watch keeps the previous
// content and calls failed with the error; when reading succeeds again, watch calls failed with nil.
func watch[T any](path string, parse func(text []byte, path string) (T, error),
	failed func(error)) (*textfile.Watched[T], error) {
	return textfile.Open(textfile.Options[T]{
		Paths: []string{path}, MaxSize: maxFile, Every: checkInterval, Failed: failed,
		Parse: func(texts [][]byte) (T, error) { return parse(texts[0], path) },
	})
}
