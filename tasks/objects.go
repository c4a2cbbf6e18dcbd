package tasks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"millrace/internal/ctxio"
	"millrace/stream/coded"
	"millrace/tasks/blob"
)

// objects keep inputs, results and records of finished tasks in S3, and logs, which grow, in the data folder.
type objects struct {
	*blob.S3
	files *blob.Files
}

var (
	_ Blobs        = (*objects)(nil)
	_ Adopter      = (*objects)(nil)
	_ blob.Fetcher = (*objects)(nil)
)

// Append implements blob.Appender. The first line of a log makes the folder of a task whose input is in S3.
func (o *objects) Append(ctx context.Context, key string, b []byte) error {
	err := o.files.Append(ctx, key, b)
	if coded.CodeOf(err) != coded.NotFound {
		return err
	}
	if there, failed := o.Has(ctx, path.Dir(key)+"/"+inputName); failed != nil || !there {
		return errors.Join(failed, err)
	}
	if err := o.files.MakeFolder(key); err != nil {
		return err
	}
	return o.files.Append(ctx, key, b)
}

// Open implements blob.Store.
func (o *objects) Open(ctx context.Context, key string) (blob.Reader, error) {
	if isLog(path.Base(key)) {
		return o.files.Open(ctx, key)
	}
	return o.S3.Open(ctx, key)
}

// List implements blob.Appender.
func (o *objects) List(ctx context.Context, folder string) ([]blob.Entry, error) {
	return o.files.List(ctx, folder)
}

// Delete implements blob.Store.
func (o *objects) Delete(ctx context.Context, prefix string) error {
	if isLog(path.Base(prefix)) {
		return o.files.Delete(ctx, prefix)
	}
	return errors.Join(o.files.Delete(ctx, prefix), o.S3.Delete(ctx, prefix))
}

// isTaskFolder reports whether a key is of the folder of a task.
func isTaskFolder(key string) bool {
	id := path.Base(key)
	return CheckID(id) == nil && key == folder(id)
}

// Folders implements blob.Lister. Objects that are of no task are left out: others may use the bucket, too.
func (o *objects) Folders(ctx context.Context) ([]blob.Folder, error) {
	found, err := o.S3.Folders(ctx)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(f blob.Folder) bool { return !isTaskFolder(f.Key) })
	places := make(map[string]int, len(found))
	for i, f := range found {
		places[f.Key] = i
	}
	logs, err := o.files.Folders(ctx)
	for _, f := range logs {
		if i, ok := places[f.Key]; ok {
			found[i].Blobs = append(found[i].Blobs, f.Blobs...)
		} else {
			found = append(found, f)
		}
	}
	return found, err
}

// Free implements blob.Room: the disk has logs, blobs that are being sent, and the records.
func (o *objects) Free() int64 { return o.files.Free() }

// Full implements blob.Room.
func (o *objects) Full(why error) error { return o.files.Full(why) }

const (
	// objectsFile is the file of a data folder with the id that the prefix of the bucket has, too. Only folders with
	// blobs in S3 have the file.
	objectsFile = "s3"
	// objectsKey is the key of the object with the id.
	objectsKey = "folder"
)

// blobsOptions say how openBlobs opens the files of a data folder.
type blobsOptions struct {
	files blob.FilesOptions
	s3    *blob.S3Options // nil = the data folder has all blobs
	log   *slog.Logger
}

// openBlobs opens the inputs, results and logs of a data folder. Errors: the blobs are elsewhere.
func openBlobs(ctx context.Context, folder string, o blobsOptions) (Blobs, error) {
	id, err := os.ReadFile(filepath.Join(folder, objectsFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil && o.s3 == nil {
		return nil, fmt.Errorf("the inputs and results of the data folder %s are in S3: set tasks.blobs", folder)
	}
	files, err := blob.OpenFiles(filepath.Join(folder, "files"), o.files)
	if err != nil || o.s3 == nil {
		return files, err
	}
	p := *o.s3
	p.Temp = files
	s3, err := blob.NewS3(p)
	if err != nil {
		return nil, err
	}
	b := &binding{folder: folder, id: strings.TrimSpace(string(id)), s3: s3, files: files}
	if err := b.bind(ctx, o); err != nil {
		return nil, err
	}
	if o.files.ReadOnly {
		return &objects{s3, files}, nil
	}
	before := time.Now()
	if o.files.Shared {
		before = before.Add(-orphanAge)
	}
	return &objects{s3, files}, s3.AbortUnfinished(ctx, before, isTaskFolder)
}

// binding makes a data folder and a prefix of a bucket a pair, since blobs without a record in the folder are removed.
type binding struct {
	folder string
	id     string // of the folder; "" = none
	s3     *blob.S3
	files  *blob.Files
}

// bind waits until the S3 server answers, startTimeout at most, and checks the pair. A new folder and a prefix without
// blobs become a pair.
func (b *binding) bind(ctx context.Context, o blobsOptions) error {
	used, err := b.hasRecords()
	if err != nil {
		return err
	}
	theirs, err := b.await(ctx, o.log)
	switch {
	case err != nil:
		return err
	case b.id != "" && theirs == b.id:
		return nil
	case theirs != "" && b.id == "":
		return objectsError("%s has the inputs and results of another data folder than %s: name another prefix. If "+
			"that folder is lost, take its finished tasks over: write %s into the file %s", b.s3, b.folder, theirs,
			filepath.Join(b.folder, objectsFile))
	case theirs != "" || used && b.id != "" || o.files.ReadOnly:
		return objectsError("%s does not have the inputs and results of the data folder %s: name the bucket and the "+
			"prefix of the folder", b.s3, b.folder)
	}
	for _, of := range []blob.Lister{b.files, b.s3} {
		list, err := of.Folders(ctx)
		if err != nil {
			return err
		}
		if len(list) > 0 && of == blob.Lister(b.files) {
			return objectsError("the data folder %s has its inputs and results itself: move the tasks with millrace "+
				"data export and import, or name another folder (data)", b.folder)
		} else if len(list) > 0 {
			return objectsError("%s has objects of an unknown data folder: name an empty prefix", b.s3)
		}
	}
	id, err := folderID(filepath.Join(b.folder, objectsFile))
	if err != nil {
		return err
	}
	return b.s3.Put(ctx, objectsKey, []byte(id))
}

// hasRecords reports whether the folder had tasks before.
func (b *binding) hasRecords() (bool, error) {
	for _, name := range []string{filepath.Base(storeFolder(b.folder)), folderIDFile} {
		_, err := os.Stat(filepath.Join(b.folder, name))
		if !errors.Is(err, fs.ErrNotExist) {
			return err == nil, err
		}
	}
	return false, nil
}

func objectsError(format string, args ...any) error {
	return coded.Errorf(coded.Unavailable, "tasks.blobs", format, args...)
}

// await returns the id of the prefix, "" = none, when the S3 server answers.
func (b *binding) await(ctx context.Context, log *slog.Logger) (id string, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for try := 0; ; try++ {
		id, err = b.read(ctx)
		if !errors.Is(err, blob.ErrAway) || blob.IsRefused(err) {
			return id, err
		}
		if try == 0 {
			log.Warn("the S3 server does not answer yet: trying again", "store", b.s3.String(), "error", err)
		}
		if ctxio.Sleep(ctx, connectPause); ctx.Err() != nil {
			return "", err
		}
	}
}

// read reads the id of the prefix.
func (b *binding) read(ctx context.Context) (string, error) {
	r, err := b.s3.Open(ctx, objectsKey)
	if coded.CodeOf(err) == coded.NotFound {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	text, err := io.ReadAll(io.LimitReader(r, maxRecord))
	if err = errors.Join(err, r.Close()); err != nil {
		return "", err
	}
	if err := CheckID(string(text)); err != nil {
		return "", objectsError("the object %s of %s has no id", objectsKey, b.s3)
	}
	return string(text), nil
}
