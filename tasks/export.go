package tasks

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"

	"millrace/internal/ctxio"
	"millrace/tasks/blob"
)

// Export writes all tasks of the data folder of a stopped server to w: records, inputs, results and logs. The SHA-256
// of each input and result is checked. Errors: as of CheckData; a damaged or missing blob.
func Export(ctx context.Context, dir string, w io.Writer, o ArchiveOptions) (*ArchiveReport, error) {
	o.Options = o.filled()
	d, err := openStopped(ctx, dir, o.Options)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	if _, err := os.Stat(storeFolder(dir)); err != nil {
		return nil, fmt.Errorf("the data folder %s has no records: start the server, which restores finished tasks, "+
			"and export again: %w", dir, err)
	}
	if err := d.openRecords(ctx, dir, o.Options); err != nil {
		return nil, err
	}
	x := &export{d: d, to: tar.NewWriter(w), o: &o, now: time.Now().UTC()}
	x.all = ArchiveReport{Manifest: Manifest{Format: archiveFormat, Data: formatFiles, Version: o.Version,
		Created: x.now, Tasks: map[State]int{}}}
	if err := x.run(ctx); err != nil {
		return nil, err
	}
	uploads, err := filepath.Glob(filepath.Join(dir, uploadsFolder, "*.json"))
	x.all.Uploads = len(uploads)
	return &x.all, err
}

// export is one run of Export.
type export struct {
	d     *Data
	to    *tar.Writer
	o     *ArchiveOptions
	now   time.Time
	all   ArchiveReport
	tasks int
	bytes int64
}

func (x *export) run(ctx context.Context) error {
	err := x.each(ctx, func(t *Task) error { return x.count(ctx, t) })
	if err == nil {
		err = x.json(manifestName, x.all.Manifest)
	}
	if err == nil {
		err = x.each(ctx, func(t *Task) error { return x.task(ctx, t) })
	}
	if err != nil {
		return err
	}
	return x.to.Close()
}

// each calls f for all tasks.
func (x *export) each(ctx context.Context, f func(*Task) error) error {
	q := Query{Limit: 1000}
	for {
		list, next := x.d.List(q)
		for i := range list {
			if err := errors.Join(ctx.Err(), f(&list[i])); err != nil {
				return err
			}
		}
		if q.After = next; next == "" {
			return nil
		}
	}
}

// count counts a task in the manifest.
func (x *export) count(ctx context.Context, t *Task) error {
	x.all.Tasks[t.State]++
	for _, b := range blobsOf(t) {
		x.all.Blobs++
		x.all.Bytes += b.Size
	}
	logs, err := x.d.segments(ctx, t.ID)
	for _, p := range logs {
		x.all.Blobs++
		x.all.Bytes += p.size
	}
	return err
}

// task writes a task with its blobs.
func (x *export) task(ctx context.Context, t *Task) error {
	a := archivedTask{*t, blobsOf(t)}
	logs, err := x.d.segments(ctx, t.ID)
	if err != nil {
		return err
	}
	for _, p := range logs { // a few MiB at most
		b := make([]byte, p.size)
		n, err := x.d.readSegment(ctx, t.ID, p, 0, b)
		if err == nil && n < len(b) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return fmt.Errorf("the log of the task %s cannot be read: %w", t.ID, err)
		}
		a.Blobs = append(a.Blobs, archivedBlob{path.Base(p.key(t.ID)), infoOf(b), b})
	}
	if err := x.json(t.ID+"/"+recordName, a); err != nil {
		return err
	}
	for _, b := range a.Blobs {
		if err := x.header(t.ID+"/"+b.Name, b.Size); err != nil {
			return err
		}
		if err := x.blob(ctx, t, b); err != nil {
			return fmt.Errorf("the file %s of the task %s cannot be exported: %w: delete the task, and export again",
				b.Name, t.ID, err)
		}
		x.bytes += b.Size
	}
	x.tasks++
	if x.o.Progress != nil {
		x.o.Progress(x.tasks, x.bytes, &x.all.Manifest)
	}
	return nil
}

// blob writes the bytes of a blob.
func (x *export) blob(ctx context.Context, t *Task, b archivedBlob) error {
	if b.contents != nil {
		_, err := x.to.Write(b.contents)
		return err
	}
	r, err := x.d.openStored(ctx, t, b.Name != inputName)
	if err != nil {
		return err
	}
	if r.Size() != b.Size {
		err = fmt.Errorf("%w: %d bytes, not %d", blob.ErrDamaged, r.Size(), b.Size)
	} else {
		err = b.Check(ctxio.Reader(ctx, io.TeeReader(r, x.to)))
	}
	return errors.Join(err, r.Close())
}

// json writes a file with a value.
func (x *export) json(name string, v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		err = x.header(name, int64(len(b)))
	}
	if err == nil {
		_, err = x.to.Write(b)
	}
	return err
}

func (x *export) header(name string, size int64) error {
	return x.to.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: x.now})
}
