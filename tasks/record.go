package tasks

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path"
	"slices"

	"github.com/nats-io/nats.go/jetstream"

	"millrace/stream/coded"
	"millrace/tasks/blob"
)

// The record of a finished task is also a file next to the result, so that a bucket that was lost loses no result.
// The bucket alone counts as long as the bucket has restoredKey: files of an interrupted deletion restore no task.
const (
	recordName  = "task.json"
	restoredKey = "restored" // the key of the bucket after restore
	maxRecord   = 1 << 20    // bytes of a file with a record
)

func recordKey(id string) string { return folder(id) + "/" + recordName }

// writeFinished writes the record of a finished task beside the bucket: a line of a file of many tasks when the result
// is no file, else a file next to the result. The file is not synced: the next start writes a missing file again.
func (s *Store) writeFinished(ctx context.Context, t Task, text []byte) {
	if t.resultInRecord() && s.files != nil {
		s.logFinished(ctx, t.ID, text, 1)
		return
	}
	if err := s.blobs.Put(ctx, recordKey(t.ID), text); err != nil && coded.CodeOf(err) != coded.NotFound {
		s.opts.Log.Warn("the file with the record of a task cannot be written: the next start tries again", "task",
			t.ID, "error", err)
	}
}

// readRecordFile returns the finished task of a folder from the file. An empty file, as after a power failure, is no
// record. Errors: NotFound; Internal, for a file that is damaged or without the result.
func (s *Store) readRecordFile(ctx context.Context, f *blob.Folder) (t Task, c contents, err error) {
	id := path.Base(f.Key)
	r, err := s.blobs.Open(ctx, recordKey(id))
	if err != nil {
		return t, c, err
	}
	text, err := io.ReadAll(io.LimitReader(r, maxRecord))
	err = errors.Join(err, r.Close())
	if err == nil {
		t, c, err = decode(text)
	}
	if err != nil {
		return t, c, err
	}
	if t.ID != id || t.State != Finished || t.Result == nil {
		return t, c, coded.Errorf(coded.Internal, "", "%s is not the record of the finished task %s", recordName, id)
	}
	i := slices.IndexFunc(f.Blobs, func(e blob.Entry) bool { return e.Name == path.Base(resultKey(id, t.Attempt)) })
	if t.Result.Size > 0 && (i < 0 || f.Blobs[i].Size != t.Result.Size) {
		err = coded.Errorf(coded.Internal, "", "the result of %s is missing, or has not %d bytes", id, t.Result.Size)
	}
	return t, c, err
}

// restore makes the records of finished tasks from their files in a new bucket.
func (d *Data) restore(ctx context.Context, folders []blob.Folder, log *slog.Logger) error {
	if _, err := d.kv.Get(ctx, restoredKey); !errors.Is(err, jetstream.ErrKeyNotFound) {
		return unavailable(ctx, err)
	}
	d.setOpen(false) // a restored task was not submitted now: the bucket may report the record before Create returns
	defer d.setOpen(true)
	list, _ := d.List(Query{Limit: 1})
	restored, err := d.restoreFinished(ctx)
	if err != nil {
		return err
	}
	lost := 0
	for i := range folders {
		if _, err := d.Get(path.Base(folders[i].Key)); err == nil {
			continue
		}
		t, c, err := d.readRecordFile(ctx, &folders[i])
		if err != nil {
			if len(list) == 0 { // otherwise the bucket is there, of a version without these files
				lost++
			}
			continue
		}
		if err := d.restoreTask(ctx, t, c); err != nil {
			return err
		}
		restored++
	}
	if restored > 0 || lost > 0 {
		log.Warn("the records of tasks were lost: finished tasks were restored from their files, and all other tasks "+
			"are lost", "restored", restored, "lost", lost)
	}
	_, err = d.kv.Put(ctx, restoredKey, nil)
	return unavailable(ctx, err)
}

// setOpen says whether a new task counts as submitted.
func (s *Store) setOpen(open bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index.counts.open = open
}

// restoreTask makes the record of a finished task.
func (d *Data) restoreTask(ctx context.Context, t Task, c contents) error {
	revision, err := d.kv.Create(ctx, taskPrefix+t.ID, encode(t, c))
	if err != nil {
		return unavailable(ctx, err)
	}
	d.apply(t.ID, &t, revision)
	if t.Key == "" {
		return nil
	}
	if _, err = d.kv.Create(ctx, idempotencyKey(t.Owner, t.Key), []byte(t.ID)); errors.Is(err, jetstream.ErrKeyExists) {
		return nil
	}
	return unavailable(ctx, err)
}
