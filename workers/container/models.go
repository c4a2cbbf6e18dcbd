package container

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"millrace/internal/ziptree"
	"millrace/stream"
)

// models has the extracted zip files of container.model. Workers of the same zip file share one folder.
type models struct {
	mu    sync.Mutex
	byKey map[modelKey]*modelFiles
}

// modelKey names the contents of a zip file, and the limits of their extraction.
type modelKey struct {
	file    string
	size    int64
	changed time.Time
	bytes   int64
	files   int
}

// modelFiles are the files that containers read as /model.
type modelFiles struct {
	folder string
	remove func() // nil for a folder of the administrator

	refs      int        // under models.mu
	mu        sync.Mutex // held during the extraction
	extracted bool
}

// modelFiles returns the folder of container.model: a folder as it is, or the files of a zip file. Each call needs a
// call of releaseModel.
func (e *Engine) modelFiles(ctx context.Context, p *parameters) (*modelFiles, error) {
	name, err := filepath.Abs(p.Model)
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, stream.Errorf(stream.NotFound, "container.model", "%s does not exist", name)
	case err != nil:
		return nil, err
	case st.IsDir():
		return &modelFiles{folder: name, extracted: true}, nil
	case !st.Mode().IsRegular():
		return nil, stream.Errorf(stream.InvalidArgument, "container.model", "%s is no folder and no zip file", name)
	}
	m := e.acquireModel(modelKey{name, st.Size(), st.ModTime(), p.Input, p.Files})
	m.mu.Lock() // another worker of the model may extract the files
	defer m.mu.Unlock()
	if !m.extracted {
		if err := e.extractModel(ctx, name, m.folder, p); err != nil {
			e.releaseModel(m)
			return nil, err
		}
		m.extracted = true
	}
	return m, nil
}

// acquireModel returns the files of a key for one more user.
func (e *Engine) acquireModel(k modelKey) *modelFiles {
	e.models.mu.Lock()
	defer e.models.mu.Unlock()
	m := e.models.byKey[k]
	if m == nil {
		m = &modelFiles{folder: filepath.Join(e.folder, "models", rand.Text())}
		m.remove = func() {
			delete(e.models.byKey, k)
			_ = os.RemoveAll(m.folder)
		}
		if e.models.byKey == nil {
			e.models.byKey = map[modelKey]*modelFiles{}
		}
		e.models.byKey[k] = m
	}
	m.refs++
	return m
}

// retainModel adds a user: a run, which may take longer than the worker of the run.
func (e *Engine) retainModel(m *modelFiles) {
	e.models.mu.Lock()
	defer e.models.mu.Unlock()
	m.refs++
}

// releaseModel removes the files after their last user.
func (e *Engine) releaseModel(m *modelFiles) {
	e.models.mu.Lock()
	defer e.models.mu.Unlock()
	if m.refs--; m.refs == 0 && m.remove != nil {
		m.remove()
	}
}

// extractModel extracts a zip file into a new folder.
func (e *Engine) extractModel(ctx context.Context, file, folder string, p *parameters) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if err := os.RemoveAll(folder); err != nil { // the part of an earlier attempt
		return err
	}
	err = os.Mkdir(folder, 0o755)
	if err == nil {
		err = os.Chmod(folder, 0o755) // whatever the umask is
	}
	if err != nil {
		return fmt.Errorf("the folder of container.model cannot be made: %w", err)
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	err = ziptree.Extract(ctx, root, f, st.Size(), ziptree.Limits{Bytes: p.Input, Files: p.Files, Ratio: maxRatio})
	return zipError(err, stream.InvalidArgument, "container.model", "the zip file")
}
