package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"millrace/internal/ctxio"
	"millrace/tasks/blob"
)

// uploads checks the unfinished uploads of the folder: sizes against the descriptions, and what was left over.
func (k *check) uploads(ctx context.Context, dir string) error {
	entries, err := os.ReadDir(filepath.Join(dir, uploadsFolder))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		id, kind, _ := strings.Cut(e.Name(), ".")
		switch {
		case CheckID(id) == nil && kind == "json":
			k.report.Uploads++
			if err := k.upload(ctx, dir, id); err != nil {
				return err
			}
		case CheckID(id) == nil && kind == "part":
			if _, err := os.Stat(filepath.Join(dir, uploadsFolder, id+".json")); errors.Is(err, fs.ErrNotExist) {
				k.addUpload(Task{ID: id}, e.Name(), "the bytes have no description", removesNext)
			}
		default:
			k.addUpload(Task{}, e.Name(), "the file belongs to no upload", removesNext)
		}
	}
	return nil
}

// The next steps of problems.
const (
	removesNext = "the next start of the server removes the file"
	againNext   = "the next start of the server removes the upload: upload again"
)

// addUpload adds a problem of a file of an upload.
func (k *check) addUpload(t Task, name, problem, next string) {
	k.report.Problems = append(k.report.Problems, Problem{Task: t.ID, Model: t.Model,
		File: path.Join(uploadsFolder, name), Problem: problem, Next: next})
}

// upload checks one upload.
func (k *check) upload(ctx context.Context, dir, id string) error {
	const again = "remove both files of the upload, and upload again"
	text, err := os.ReadFile(filepath.Join(dir, uploadsFolder, id+".json"))
	if err != nil {
		return err
	}
	var u Upload
	if json.Unmarshal(text, &u) != nil || u.Task.ID != id || u.Length < 0 {
		k.addUpload(Task{ID: id}, id+".json", "the description is damaged",
			againNext)
		return nil
	}
	if _, err := k.d.Get(id); err == nil {
		return nil // the task was made, and the next start removes the description
	}
	part := id + ".part"
	f, err := os.Open(filepath.Join(dir, uploadsFolder, part))
	if errors.Is(err, fs.ErrNotExist) {
		in, err := k.d.files.Open(ctx, inputKey(id))
		if err != nil {
			k.addUpload(u.Task, part, "the bytes are missing", againNext)
			return nil
		}
		return k.complete(ctx, &u, in, part)
	}
	if err != nil {
		return err
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		return errors.Join(err, f.Close())
	case info.Size() > u.Length:
		k.addUpload(u.Task, part, fmt.Sprintf("the upload has %d bytes, more than the announced %d", info.Size(),
			u.Length), again)
	case info.Size() == u.Length:
		return k.complete(ctx, &u, blob.FileReader(f, info.Size()), part)
	}
	return f.Close()
}

// complete compares a complete upload with the announced size and SHA-256, and closes the file.
func (k *check) complete(ctx context.Context, u *Upload, r blob.Reader, name string) error {
	k.whole[u.Task.ID] = true
	var err error
	want := blob.Info{Size: u.Length, SHA256: u.SHA256}
	switch {
	case u.SHA256 != "":
		k.report.Files++
		k.report.Bytes += r.Size()
		err = want.Check(ctxio.Reader(ctx, r))
	case r.Size() != u.Length:
		err = fmt.Errorf("the upload has %d bytes, not the announced %d", r.Size(), u.Length)
	}
	failed := r.Close()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		k.addUpload(u.Task, name, err.Error(), "the server removes the upload: upload again")
	}
	return failed
}
