package auth

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"millrace/internal/yamltext"
)

// Bounds of a file.
const (
	maxFile    = 16 << 20 // bytes
	maxEntries = 100000
)

// checkInterval is the time between two looks at a file.
const checkInterval = time.Second

// readFile decodes a file of YAML into v. Errors have none of its text, which has digests.
func readFile(path string, v any) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return err
	case len(text) > maxFile:
		return fmt.Errorf("%s has more than %d bytes", path, maxFile)
	}
	if err := parse(text, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func parse(text []byte, v any) error {
	return yamltext.Decode(text, yamltext.Limit{Bytes: maxFile, Tokens: maxFile}, v, true)
}

// writeFile replaces a file. A new one may be read by its owner only, which is that of its folder when root makes it; another keeps its owner
// and its mode, so that a server that could read it still can. Behind a link, it is the file that is replaced.
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

// Lock keeps other programs that call it from changing the files of a folder, until unlock is called.
func Lock(path string) (unlock func(), err error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return func() { _ = dir.Close() }, nil // which ends the lock
}

// watched is what a file has, which is read again when the file changes. It is safe for concurrent use.
type watched[T any] struct {
	path   string
	read   func(path string) (T, error)
	failed func(error) // is called when the file cannot be read again, and what it had stays; with nil when it can be

	mu      sync.Mutex
	checked time.Time
	seen    os.FileInfo
	value   T
	fault   string // why it could not be read at the last look; "" = it could
}

// watch reads a file for the first time.
func watch[T any](path string, read func(string) (T, error), failed func(error)) (*watched[T], error) {
	w := &watched[T]{path: path, read: read, failed: failed, checked: time.Now()}
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if w.value, err = read(path); err != nil {
		return nil, err
	}
	w.seen = st
	return w, nil
}

// get returns what the file has, as of at most checkInterval ago.
func (w *watched[T]) get(now time.Time) T {
	w.mu.Lock()
	defer w.mu.Unlock()
	if d := now.Sub(w.checked); d >= 0 && d < checkInterval {
		return w.value
	}
	w.checked = now
	st, err := os.Stat(w.path)
	if err == nil && !(os.SameFile(st, w.seen) && st.ModTime().Equal(w.seen.ModTime()) && st.Size() == w.seen.Size()) {
		var v T
		if v, err = w.read(w.path); err == nil {
			w.value, w.seen = v, st
		}
	}
	fault := ""
	if err != nil {
		fault = err.Error()
	}
	if fault != w.fault { // once for each fault, and not at each look
		w.fault = fault
		w.failed(err)
	}
	return w.value
}

// recheck has the next get look at the file.
func (w *watched[T]) recheck() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checked = time.Time{}
}
