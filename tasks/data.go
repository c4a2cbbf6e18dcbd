package tasks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"millrace/internal/filelock"
	"millrace/tasks/blob"
)

// Data is an opened data folder: the task store with its files, for one process.
type Data struct {
	*Store
	lock   *os.File
	broker *Broker
	files  Blobs

	uploads *uploads

	importing bool // open makes a new folder for Import
	began     bool // open has found the folder empty
}

// Versions of the form of a data folder. A folder with a later version is refused. A folder gets formatSmall before its
// first record with contents, which programs of formatFiles would drop.
const (
	formatFiles   = 1 // all inputs and results are blobs
	formatSmall   = 2 // small inputs and results may be in the record
	formatVersion = formatSmall
)

// OpenData opens the data folder, which is created when missing, and locks the folder until Close. With always, every
// change is on the disk before it is acknowledged; with Options.NATS, the NATS servers decide when records are on the
// disk, and processes with the same NATS servers share the folder. Errors: another process has the folder, a later
// version of Millrace has written the folder, or the records of the folder are elsewhere.
func OpenData(ctx context.Context, folder string, always bool, o Options) (*Data, error) {
	d := &Data{}
	if err := d.open(ctx, folder, always, o.filled()); err != nil {
		d.Close()
		return nil, fullError(folder, err)
	}
	return d, nil
}

// fullError returns err, and blob.FullError for an error about a disk without room.
func fullError(folder string, err error) error {
	if errors.Is(err, syscall.ENOSPC) && !errors.Is(err, blob.ErrFull) {
		return blob.FullError(folder, err)
	}
	return err
}

func (d *Data) open(ctx context.Context, folder string, always bool, o Options) (err error) {
	if err := makeFolder(folder); err != nil {
		return fmt.Errorf("the data folder cannot be made: %w", err)
	}
	shared := o.NATS != nil
	if d.lock, err = lockFolder(folder, shared); err != nil {
		return err
	}
	if d.importing {
		err = beginImport(folder)
		d.began = err == nil
	} else {
		err = checkImported(folder)
	}
	if err != nil {
		return err
	}
	o.alone = !shared
	o.small = !shared && o.S3 == nil && !o.blobs
	version, err := checkVersion(folder)
	if err != nil {
		return err
	}
	if err := checkRecords(folder, shared); err != nil {
		return err
	}
	want := formatFiles
	if o.small {
		want = formatSmall
	}
	if version < want {
		if err := writeFile(filepath.Join(folder, versionFile), fmt.Appendln(nil, want), true); err != nil {
			return err
		}
	}
	at := blobsOptions{blob.FilesOptions{Sync: always, Shared: shared}, o.S3, o.Log}
	if d.files, err = openBlobs(ctx, folder, at); err != nil {
		return err
	}
	folders, err := d.files.Folders(ctx)
	if err != nil {
		return err
	}
	if shared {
		d.broker, err = Connect(ctx, *o.NATS, o.Log)
	} else if err = makeFolder(storeFolder(folder)); err == nil {
		d.broker, err = Embed(storeFolder(folder), always && !d.importing, o.Log)
	}
	if err != nil {
		return err
	}
	if err := blob.SyncFolder(folder); err != nil { // the folders above were made here, or by a process that was killed
		return err
	}
	if d.Store, err = Open(ctx, d.broker, d.files, o); err != nil {
		return err
	}
	if shared { // NATS servers have copies of the records: restore is for embedded records
		err = bindFolder(ctx, d.kv, folder, len(folders) > 0)
	} else {
		err = d.restore(ctx, folders, o.Log)
	}
	if err != nil {
		return err
	}
	if !shared {
		if err = d.recoverBegun(ctx, folder); err != nil {
			return err
		}
		if !always {
			d.begun.name = filepath.Join(folder, begunName)
		}
	}
	if d.uploads, err = openUploads(folder, d.Store, always, time.Now()); err != nil {
		return err
	}
	return d.sweep(ctx, folders, o)
}

// checkRecords refuses a data folder whose records are in NATS servers if shared is false, and a folder with embedded
// records if shared is true: sweep would delete the files.
func checkRecords(folder string, shared bool) error {
	name, advice := folderIDFile, "NATS servers keep the records of the data folder %s: name the servers (nats)"
	if shared {
		name, advice = filepath.Base(storeFolder(folder)), "the data folder %s has the records of its tasks itself: "+
			"name another folder (data), or no NATS servers (nats)"
	}
	_, err := os.Stat(filepath.Join(folder, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return errors.Join(err, fmt.Errorf(advice, folder))
}

// Close closes the folder, and unlocks it last. The caller must have ended all calls.
func (d *Data) Close() {
	if d.broker != nil {
		d.broker.Close()
	}
	if d.Store != nil {
		d.Store.finished.close()
		d.Store.begun.mu.Lock()
		d.Store.begun.close()
		d.Store.begun.mu.Unlock()
	}
	if d.lock != nil {
		_ = filelock.Close(d.lock)
	}
}

// lockFolder takes the lock of a data folder, alone or shared.
func lockFolder(folder string, shared bool) (*os.File, error) {
	lock := filelock.TryLock
	if shared {
		lock = filelock.TryShare
	}
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	if err := lock(f); err != nil {
		return nil, errors.Join(f.Close(), fmt.Errorf(
			"another process uses the data folder %s: end that process, or name another folder (data)", folder))
	}
	return f, nil
}

// versionFile is the file of a data folder with the version.
const versionFile = "version"

// unknownFormat is the version of a folder without a version: the folder is new, or a power failure has left an empty
// file.
const unknownFormat = 0

// checkVersion returns the version of the folder, which is formatVersion at most.
func checkVersion(folder string) (version int, err error) {
	name := filepath.Join(folder, versionFile)
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(b) == 0 {
		return unknownFormat, nil
	}
	if err != nil {
		return 0, err
	}
	switch n, err := strconv.Atoi(strings.TrimSpace(string(b))); {
	case err != nil:
		return 0, fmt.Errorf("%s has no version number: is %s the data folder of a server?", name, folder)
	case n > formatVersion:
		return 0, fmt.Errorf("the data folder %s has the form %d of a later version of Millrace; this version "+
			"reads form %d: install the later version", folder, n, formatVersion)
	default:
		return n, nil
	}
}

// orphanAge is the age from which a task without a record in NATS servers has no submission in progress.
const orphanAge = 24 * time.Hour

// sweep deletes files of tasks without a record: the submission or the deletion of the task was interrupted. In a
// shared folder, another process may be submitting a young task. The files of finished tasks get the file with the
// record where that file is missing.
func (d *Data) sweep(ctx context.Context, folders []blob.Folder, o Options) error {
	n := 0
	for _, f := range folders {
		id := path.Base(f.Key)
		t, err := d.Get(id)
		isLine := d.Store.files != nil && t.resultInRecord()
		if err == nil && o.NATS == nil && t.State == Finished && !isLine && f.Size(recordName) == 0 {
			d.rewriteFinished(ctx, id)
		}
		if err == nil || o.NATS != nil && time.Since(submitted(id)) < orphanAge || d.uploads.has(id) {
			continue
		}
		if err := d.files.Delete(ctx, f.Key); err != nil {
			return err
		}
		n++
	}
	if n > 0 {
		o.Log.Info("files of interrupted submissions and deletions were removed", "tasks", n)
	}
	if d.Store.files == nil {
		return nil
	}
	return d.matchFinished(ctx)
}
