package tasks

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"millrace/internal/ctxio"
	"millrace/stream/coded"
	"millrace/tasks/blob"
)

// importingFile is the file of a data folder whose import has not ended.
const importingFile = "importing"

// Import makes a new data folder, and a new prefix of a bucket with Options.S3, of an archive. Each record and each
// blob is checked. After an error, nothing is left. Errors: the folder or the prefix is not empty; the archive is
// damaged, ends early, or has the form of a later version.
func Import(ctx context.Context, dir string, r io.Reader, o ArchiveOptions) (*ArchiveReport, error) {
	o.Options = o.filled()
	if o.NATS != nil {
		return nil, coded.Errorf(coded.InvalidArgument, "nats", "an import needs a data folder that has its records "+
			"itself: leave nats out")
	}
	m := &imports{d: &Data{importing: true}, from: tar.NewReader(ctxio.Reader(ctx, r)), o: &o}
	if err := m.manifest(); err != nil {
		return nil, err
	}
	err := m.d.open(ctx, dir, true, o.Options)
	if !m.d.began {
		m.d.Close()
		return nil, err
	}
	if err == nil {
		err = m.run(ctx)
	}
	if err != nil {
		ctx = context.WithoutCancel(ctx)
		return nil, errors.Join(fullError(dir, err), m.undo(ctx, dir))
	}
	m.d.Close()
	if err := syncFiles(storeFolder(dir)); err != nil {
		return nil, err
	}
	if err := os.Remove(filepath.Join(dir, importingFile)); err != nil {
		return nil, err
	}
	return &ArchiveReport{Manifest: m.all}, syncFolders(dir)
}

var errNotEmpty = errors.New("is not empty")

// beginImport checks that a locked folder is empty, and marks the folder.
func beginImport(dir string) error {
	list, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(list) > 0 {
		return fmt.Errorf("the data folder %s %w: import into a new folder", dir, errNotEmpty)
	}
	return writeFile(filepath.Join(dir, importingFile), nil, true)
}

// checkImported refuses a folder whose import has not ended.
func checkImported(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, importingFile)); err == nil {
		return fmt.Errorf("an import into the data folder %s has not ended: remove the folder, and the objects below "+
			"tasks.blobs if set, and import again", dir)
	}
	return nil
}

// imports is one run of Import.
type imports struct {
	d         *Data
	from      *tar.Reader
	o         *ArchiveOptions
	all, read Manifest // as announced, and as read
	ids       []string // of the tasks that have files
}

// undo removes what an import has made.
func (m *imports) undo(ctx context.Context, dir string) error {
	var errs []error
	if to, ok := m.d.files.(*objects); ok {
		for _, id := range m.ids {
			errs = append(errs, to.S3.Delete(ctx, folder(id)))
		}
		errs = append(errs, to.S3.Delete(ctx, objectsKey))
	}
	if err := errors.Join(errs...); err != nil {
		m.d.Close()
		return fmt.Errorf("the imported objects cannot be removed: %w", err)
	}
	if m.d.broker != nil {
		m.d.broker.Close()
		m.d.broker = nil
	}
	list, err := os.ReadDir(dir)
	for _, e := range list { // the folder was empty, and is locked
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	m.d.Close()
	return err
}

// damaged returns the error about an archive.
func damaged(format string, args ...any) error {
	return coded.Errorf(coded.InvalidArgument, "", "the archive cannot be imported: "+format, args...)
}

// next returns the next file of the archive. Errors: io.EOF.
func (m *imports) next() (*tar.Header, error) {
	h, err := m.from.Next()
	switch {
	case errors.Is(err, io.EOF):
		return nil, io.EOF
	case errors.Is(err, tar.ErrHeader) || errors.Is(err, io.ErrUnexpectedEOF):
		return nil, damaged("it is no tar archive, or ends early: %w", err)
	case err != nil:
		return nil, err
	case h.Typeflag != tar.TypeReg || len(h.PAXRecords) > 0 && !onlyLarge(h.PAXRecords):
		return nil, damaged("%.80q is no regular file", h.Name)
	}
	return h, nil
}

// onlyLarge reports whether the records of a file are only those for which the fixed header has no room.
func onlyLarge(records map[string]string) bool {
	for name := range records {
		if name != "size" && name != "path" && name != "mtime" {
			return false
		}
	}
	return true
}

// json reads the value of a file.
func (m *imports) json(h *tar.Header, to any) error {
	if h.Size > maxRecord {
		return damaged("%.80q has %d bytes, and at most %d are allowed", h.Name, h.Size, maxRecord)
	}
	text, err := io.ReadAll(m.from)
	if err != nil {
		return damaged("%.80q cannot be read: %w", h.Name, err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	err = d.Decode(to)
	if err == nil && d.More() {
		err = errors.New("more than one value")
	}
	if err != nil {
		return damaged("%.80q is not the JSON of this version: %w", h.Name, err)
	}
	return nil
}

// manifest reads the manifest.
func (m *imports) manifest() error {
	h, err := m.next()
	if errors.Is(err, io.EOF) {
		return damaged("it is empty")
	}
	if err != nil {
		return err
	}
	if h.Name != manifestName {
		return damaged("it begins with %.80q, not with %s of millrace data export", h.Name, manifestName)
	}
	var form struct {
		Format, Data int
	}
	text, err := io.ReadAll(io.LimitReader(m.from, maxRecord))
	if err != nil {
		return damaged("%s cannot be read: %w", manifestName, err)
	}
	if err = json.Unmarshal(text, &form); err == nil && (form.Format > archiveFormat || form.Data > formatFiles) {
		return damaged("a later version of Millrace has written it: install that version")
	}
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		err = d.Decode(&m.all)
	}
	if err != nil || form.Format < 1 || form.Data < 1 {
		return damaged("%s is not a manifest: %v", manifestName, err)
	}
	m.read = m.all
	m.read.Tasks, m.read.Blobs, m.read.Bytes = map[State]int{}, 0, 0
	return nil
}

// run reads the tasks.
func (m *imports) run(ctx context.Context) error {
	if free := m.d.files.Free(); m.o.S3 == nil && free-inputReserve < m.all.Bytes {
		return m.d.files.Full(fmt.Errorf("%d MiB are free, and the archive has %d MiB", free>>20, m.all.Bytes>>20))
	}
	m.d.setOpen(false) // imported tasks were not submitted now
	for {
		h, err := m.next()
		if errors.Is(err, io.EOF) {
			return m.complete()
		}
		if err != nil {
			return err
		}
		var a archivedTask
		if err := m.json(h, &a); err != nil {
			return err
		}
		if err := m.check(h.Name, &a); err != nil {
			return err
		}
		if err := m.task(ctx, &a); err != nil {
			return err
		}
		if m.o.Progress != nil {
			m.o.Progress(m.read.Total(), m.read.Bytes, &m.all)
		}
	}
}

// complete checks that the archive has what the manifest announces.
func (m *imports) complete() error {
	for _, s := range States {
		if m.read.Tasks[s] != m.all.Tasks[s] {
			return damaged("it ends early: it has %d tasks that are %s, and the manifest says %d", m.read.Tasks[s], s,
				m.all.Tasks[s])
		}
	}
	if m.read.Blobs != m.all.Blobs || m.read.Bytes != m.all.Bytes {
		return damaged("it has %d files with %d bytes, and the manifest says %d with %d", m.read.Blobs, m.read.Bytes,
			m.all.Blobs, m.all.Bytes)
	}
	return nil
}

// check refuses a record that no export writes.
func (m *imports) check(name string, a *archivedTask) error {
	t := &a.Task
	wrong := func(why string) error { return damaged("%.80q %s", name, why) }
	known := false
	for _, s := range States {
		known = known || s == t.State
	}
	switch {
	case CheckID(t.ID) != nil || name != t.ID+"/"+recordName:
		return wrong("is not the record of a task at this place")
	case !known || t.Model == "" || t.Attempt < 0 || t.Input.Size < 0:
		return wrong("is not the record of a task")
	case t.State == Finished && (t.Result == nil || t.Result.Size < 0 || t.Attempt < 1):
		return wrong("is finished without a result")
	}
	if _, err := m.d.Get(t.ID); err == nil {
		return wrong("is there twice")
	}
	want := blobsOf(t)
	if len(a.Blobs) < len(want) {
		return wrong("does not list its input and result")
	}
	seen := map[string]bool{}
	for i, b := range a.Blobs {
		var p segment
		n, _ := fmt.Sscanf(b.Name, logPrefix+"%d.%d", &p.attempt, &p.number)
		isSegment := n == 2 && b.Name == path.Base(p.key(t.ID)) && p.attempt > 0 && p.attempt <= t.Attempt &&
			p.number >= 0 && p.number < maxSegments && b.Size >= 0 && b.Size <= segmentSize
		if i < len(want) && (b.Name != want[i].Name || b.Info != want[i].Info) || i >= len(want) && !isSegment ||
			seen[b.Name] || len(b.SHA256) != 2*sha256.Size || strings.Trim(b.SHA256, "0123456789abcdef") != "" {
			return wrong(fmt.Sprintf("lists the file %.80q, which an export does not write", b.Name))
		}
		seen[b.Name] = true
	}
	return nil
}

// task reads the blobs of a task, and makes the task.
func (m *imports) task(ctx context.Context, a *archivedTask) error {
	t := &a.Task
	m.ids = append(m.ids, t.ID)
	for _, b := range a.Blobs {
		name := t.ID + "/" + b.Name
		h, err := m.next()
		if errors.Is(err, io.EOF) {
			return damaged("it ends before %q", name)
		}
		if err != nil {
			return err
		}
		if h.Name != name || h.Size != b.Size {
			return damaged("it has %.80q with %d bytes in place of %q with %d", h.Name, h.Size, name, b.Size)
		}
		if m.read.Bytes += b.Size; m.read.Bytes > m.all.Bytes {
			return damaged("it has more bytes than its manifest says")
		}
		m.read.Blobs++
		got, err := m.blob(ctx, folder(t.ID)+"/"+b.Name, b.Name)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return damaged("it ends in %q", name)
		}
		if err != nil {
			return err
		}
		if got != b.Info {
			return damaged("%q has the SHA-256 %s, not %s", name, got.SHA256, b.SHA256)
		}
	}
	if err := m.d.restoreTask(ctx, *t, contents{}); err != nil {
		return err
	}
	if t.State == Finished {
		m.d.writeFinished(ctx, *t, encode(*t, contents{}))
	}
	m.read.Tasks[t.State]++
	return nil
}

// blob reads and stores one blob.
func (m *imports) blob(ctx context.Context, key, name string) (blob.Info, error) {
	if isLog(name) {
		b, err := io.ReadAll(io.LimitReader(m.from, segmentSize))
		if err == nil {
			err = m.d.files.Append(ctx, key, b)
		}
		return infoOf(b), err
	}
	w, err := m.d.files.Create(ctx, key)
	if err != nil {
		return blob.Info{}, err
	}
	defer w.Discard()
	if _, err := io.Copy(&reserving{Writer: w, blobs: m.d.files, keep: inputReserve}, m.from); err != nil {
		return blob.Info{}, err
	}
	return w.Commit()
}
