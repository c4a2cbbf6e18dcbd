package tasks

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"github.com/nats-io/nats.go/jetstream"
)

// syncFolder makes the names in a folder durable.
func syncFolder(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// syncFolders makes the names in a folder and in all folders below durable. Folders may be removed meanwhile.
func syncFolders(name string) error {
	return filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			err = syncFolder(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
}

// makeFolder makes a folder and the missing folders above, whose names are durable then.
func makeFolder(name string) error {
	err := os.Mkdir(name, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeFolder(filepath.Dir(name)); err != nil {
			return err
		}
		err = os.Mkdir(name, 0o700)
	}
	switch {
	case err == nil:
		return syncFolder(filepath.Dir(name))
	case errors.Is(err, fs.ErrExist):
		return nil
	}
	return err
}

// writeFile writes a file that survives a power failure as a whole, or not at all.
func writeFile(name string, b []byte) error {
	next := name + ".new"
	f, err := os.OpenFile(next, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(next))
	}
	if err := os.Rename(next, name); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(name))
}

// blocksFolder returns the folder in which the embedded server keeps the messages of the bucket.
func (b *Broker) blocksFolder() string {
	return filepath.Join(b.embedded.JetStreamConfig().StoreDir, b.embedded.GlobalAccount().Name, "streams",
		"KV_"+bucketName, "msgs")
}

// durable is a bucket of an embedded server with SyncAlways. The server syncs the bytes of records, but not the name
// of the file that the server begins for further records: durable syncs the folder before a change is acknowledged.
type durable struct {
	jetstream.KeyValue
	folder string

	mu    sync.Mutex
	names map[string]struct{} // that are durable
}

// sync makes new names of files durable.
func (d *durable) sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	list, err := os.ReadDir(d.folder)
	if err != nil {
		return err
	}
	now := make(map[string]struct{}, len(list))
	for _, e := range list {
		now[e.Name()] = struct{}{}
	}
	if maps.Equal(now, d.names) {
		return nil
	}
	if err := syncFolder(d.folder); err != nil {
		return err
	}
	d.names = now
	return nil
}

func (d *durable) Create(ctx context.Context, key string, value []byte, o ...jetstream.KVCreateOpt) (uint64, error) {
	revision, err := d.KeyValue.Create(ctx, key, value, o...)
	if err == nil {
		err = d.sync()
	}
	return revision, err
}

func (d *durable) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	revision, err := d.KeyValue.Update(ctx, key, value, revision)
	if err == nil {
		err = d.sync()
	}
	return revision, err
}

func (d *durable) Purge(ctx context.Context, key string, o ...jetstream.KVDeleteOpt) error {
	if err := d.KeyValue.Purge(ctx, key, o...); err != nil {
		return err
	}
	return d.sync()
}
