package tasks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"millrace/internal/ctxio"
	"millrace/stream/coded"
	"millrace/tasks/blob"
)

// Problem is a fault of a data folder.
type Problem struct {
	Task    string `json:"task,omitempty"` // id
	Model   string `json:"model,omitempty"`
	State   State  `json:"state,omitempty"`
	File    string `json:"file,omitempty"` // below the folder, or below the prefix of the bucket
	Problem string `json:"problem"`
	Next    string `json:"next"` // what to do
}

// CheckReport is the result of CheckData.
type CheckReport struct {
	Tasks    int       `json:"tasks"`
	Files    int       `json:"files"`   // whose SHA-256 was computed
	Bytes    int64     `json:"bytes"`   // of these files
	Uploads  int       `json:"uploads"` // unfinished
	Problems []Problem `json:"problems"`
}

// CheckData reads the data folder of a stopped server: the records, each input and result, and unfinished uploads.
// CheckData changes no file of the folder, except that JetStream, which reads the records, may write its own files
// below jetstream. Errors: the folder is none of a server, is of a later version, another process uses the folder, or
// NATS servers keep the records.
func CheckData(ctx context.Context, dir string, o Options) (*CheckReport, error) {
	o = o.filled()
	d, err := openStopped(ctx, dir, o)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	k := &check{d: d, local: o.S3 == nil, report: &CheckReport{Problems: []Problem{}}, whole: map[string]bool{}}
	if _, err := os.Stat(storeFolder(dir)); errors.Is(err, fs.ErrNotExist) {
		k.report.Problems = append(k.report.Problems, Problem{File: "jetstream", Problem: "the records are missing",
			Next: "restore the folder from a copy, or start the server, which restores finished tasks only"})
		d.Store = &Store{opts: o, blobs: d.files, index: newIndex(Options{})}
	} else if err := d.openRecords(ctx, dir, o); err != nil {
		return nil, err
	}
	return k.report, errors.Join(k.tasks(ctx), k.uploads(ctx, dir), k.folders(ctx))
}

// check is one check of a data folder.
type check struct {
	d      *Data
	report *CheckReport
	local  bool            // the blobs are in the folder
	whole  map[string]bool // complete uploads that are no task yet, by id
}

func (k *check) add(t Task, key, problem, next string) {
	p := Problem{Task: t.ID, Model: t.Model, State: t.State, Problem: problem, Next: next}
	if key != "" {
		p.File = key
		if k.local {
			p.File = path.Join("files", key)
		}
	}
	k.report.Problems = append(k.report.Problems, p)
}

// tasks checks the files of each record.
func (k *check) tasks(ctx context.Context) error {
	q := Query{Limit: 1000}
	for {
		list, next := k.d.List(q)
		for _, t := range list {
			k.report.Tasks++
			again := "the task will fail: submit the task again"
			if t.State.Ended() {
				again = "the task cannot be queued again: submit the task again if needed"
			}
			if err := k.file(ctx, t, false, again); err != nil {
				return err
			}
			if t.State == Finished && t.Result != nil {
				if err := k.file(ctx, t, true, "delete the task, and submit the task again"); err != nil {
					return err
				}
			}
		}
		if q.After = next; next == "" {
			return nil
		}
	}
}

// file compares the input or the result of a task with the record.
func (k *check) file(ctx context.Context, t Task, result bool, next string) error {
	key, info := inputKey(t.ID), t.Input.Info
	if result {
		key, info = resultKey(t.ID, t.Attempt), t.Result.Info
	}
	r, err := k.d.openStored(ctx, &t, result)
	if coded.CodeOf(err) == coded.NotFound {
		k.add(t, key, "the file is missing", next)
		return nil
	}
	if err != nil {
		return err
	}
	k.report.Files++
	k.report.Bytes += r.Size()
	err = errors.Join(info.Check(ctxio.Reader(ctx, r)), r.Close())
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		k.add(t, key, err.Error(), next)
	}
	return nil
}

// folders looks for files without a record.
func (k *check) folders(ctx context.Context) error {
	all, err := k.d.files.Folders(ctx)
	if err != nil {
		return err
	}
	for _, f := range all {
		id := path.Base(f.Key)
		if _, err := k.d.Get(id); err == nil || k.whole[id] {
			continue
		}
		next := "the next start of the server removes the files"
		if _, _, err := k.d.readRecordFile(ctx, &f); err == nil && k.d.broker == nil {
			next = "the next start of the server restores the finished task"
		}
		k.add(Task{ID: id}, f.Key, "the files have no record", next)
	}
	if files, ok := k.d.files.(*blob.Files); ok && k.d.broker == nil {
		return k.finished(ctx, files)
	}
	return nil
}

// finished lists the finished tasks in files of many tasks, whose records are missing.
func (k *check) finished(ctx context.Context, files *blob.Files) error {
	for _, digits := range finishedFolders() {
		found, _, err := readFinished(ctx, files, finishedKey(digits))
		if err != nil {
			return err
		}
		for id := range found {
			k.add(Task{ID: id}, finishedKey(digits), "the task has no record",
				"the next start of the server restores the finished task")
		}
	}
	return nil
}

// openStopped opens the data folder of a stopped server without a change. Errors: as of CheckData.
func openStopped(ctx context.Context, dir string, o Options) (d *Data, err error) {
	if _, err := os.Stat(filepath.Join(dir, versionFile)); err != nil {
		return nil, fmt.Errorf("%s is not the data folder of a server: %w", dir, err)
	}
	d = &Data{}
	defer func() {
		if err != nil {
			d.Close()
			d = nil
		}
	}()
	if d.lock, err = lockFolder(dir, false); err != nil {
		return d, err
	}
	if _, err := checkVersion(dir); err != nil {
		return d, err
	}
	if err := errors.Join(checkImported(dir), checkRecords(dir, false)); err != nil {
		return d, err
	}
	d.files, err = openBlobs(ctx, dir, blobsOptions{blob.FilesOptions{ReadOnly: true}, o.S3, o.Log})
	return d, err
}

// openRecords opens the records of a folder that openStopped has opened.
func (d *Data) openRecords(ctx context.Context, dir string, o Options) (err error) {
	if d.broker, err = Embed(storeFolder(dir), false, o.Log); err != nil {
		return err
	}
	if d.Store, err = Open(ctx, d.broker, d.files, o); err != nil {
		return err
	}
	begun, err := d.begunAttempts(dir)
	d.indexBegun(begun)
	return err
}
