package tasks

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"millrace/stream/coded"
	"millrace/tasks/blob"
)

// ownBucket is the bucket of an embedded server.
//
// The server syncs the bytes of records, but not the name of the file that the server begins for further records:
// ownBucket syncs the folder before a change is acknowledged. After an error of the disk the server refuses all further
// changes: ownBucket starts the server again.
type ownBucket struct {
	jetstream.KeyValue // as opened
	broker             *Broker
	folder             string        // of the files with records
	reread             chan struct{} // gets a value when the records may differ from the known changes

	mu      sync.RWMutex // held while a call runs, and alone for a start
	kv      jetstream.KeyValue
	broken  atomic.Bool
	tried   time.Time // the newest start that has failed
	failure error     // of that start

	naming sync.Mutex
	names  map[string]struct{} // of files, that are durable
}

// restartPause is the wait after a start of the server that has failed.
const restartPause = time.Second

func newOwnBucket(b *Broker, kv jetstream.KeyValue) (*ownBucket, error) {
	store := b.embedded.JetStreamConfig().StoreDir
	o := &ownBucket{KeyValue: kv, broker: b, kv: kv, reread: make(chan struct{}, 1),
		folder: filepath.Join(store, b.embedded.GlobalAccount().Name, "streams", "KV_"+bucketName, "msgs")}
	if !b.always {
		return o, nil
	}
	return o, syncFolders(filepath.Dir(store))
}

// do calls the bucket, after another start of the server when the server has refused a change because of the disk.
func (o *ownBucket) do(ctx context.Context, change bool, f func(jetstream.KeyValue) error) error {
	if o.broken.Load() {
		if err := o.reopen(ctx); err != nil {
			return err
		}
	}
	o.mu.RLock()
	defer o.mu.RUnlock()
	err := f(o.kv)
	if err == nil && change && o.broker.always {
		err = o.syncNames()
	}
	var api *jetstream.APIError
	why := ""
	switch {
	case errors.As(err, &api) && api.ErrorCode == storeFailed:
		why = api.Description
	case errors.Is(err, context.DeadlineExceeded): // the server does not answer changes that the disk has refused
		why = o.broker.errs.newest()
	}
	if why == "" && change && ctx.Err() != nil && api == nil { // the server may have made the change
		o.signalReread()
	}
	if why == "" {
		return err
	}
	o.broken.Store(true)
	return diskError(o.broker.folder, why)
}

// storeFailed is the code of the server for a record that the disk has not taken.
const storeFailed = jetstream.ErrorCode(server.JSStreamStoreFailedF)

// noSpace is the text of ENOSPC.
const noSpace = "no space left"

// diskError is the error of a change of records that the disk has not taken.
func diskError(folder, why string) error {
	if strings.Contains(why, noSpace) || strings.Contains(why, "quota") {
		return blob.FullError(folder, errors.New(why))
	}
	return coded.Errorf(coded.Unavailable, "",
		"the disk of %s refuses records of tasks: see that the disk has room and can be written: %s", folder, why)
}

// reopen starts the server again, whose records are the ones on the disk then.
func (o *ownBucket) reopen(ctx context.Context) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.broken.Load() {
		return nil
	}
	if time.Since(o.tried) < restartPause {
		return o.failure
	}
	if err := o.restart(ctx); err != nil {
		o.tried, o.failure = time.Now(), err
		return err
	}
	o.broken.Store(false)
	o.signalReread()
	o.broker.log.Info("the disk takes records of tasks again")
	return nil
}

func (o *ownBucket) signalReread() {
	select {
	case o.reread <- struct{}{}:
	default:
	}
}

func (o *ownBucket) restart(ctx context.Context) error {
	if err := tryDisk(o.broker.folder); err != nil {
		return diskError(o.broker.folder, err.Error())
	}
	o.broker.end()
	if err := o.broker.start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	kv, err := o.broker.js.KeyValue(ctx, bucketName)
	if err == nil {
		o.kv = kv
	}
	return err
}

// tryDisk reports whether the disk of a folder takes a file, which is removed again.
func tryDisk(folder string) error {
	name := filepath.Join(folder, "try")
	_, err := os.Stat(folder)
	if err == nil {
		err = os.WriteFile(name, make([]byte, 4096), 0o600)
	}
	if removed := os.Remove(name); err == nil {
		err = removed
	}
	return err
}

// syncNames makes new names of files durable.
func (o *ownBucket) syncNames() error {
	o.naming.Lock()
	defer o.naming.Unlock()
	list, err := os.ReadDir(o.folder)
	if err != nil {
		return err
	}
	now := make(map[string]struct{}, len(list))
	for _, e := range list {
		now[e.Name()] = struct{}{}
	}
	if maps.Equal(now, o.names) {
		return nil
	}
	if err := blob.SyncFolder(o.folder); err != nil {
		return err
	}
	o.names = now
	return nil
}

// replace replaces a revision of a key, as jetstream.KeyValue does, which compares each key with a regular expression
// and reads each answer by reflection. made = the server has answered with a revision: other answers change nothing.
func (o *ownBucket) replace(ctx context.Context, key string, value []byte, revision uint64) (next uint64, made bool,
	err error) {
	m := nats.Msg{Subject: "$KV." + bucketName + "." + key, Data: value,
		Header: nats.Header{jetstream.ExpectedLastSubjSeqHeader: {strconv.FormatUint(revision, 10)}}}
	reply, err := o.broker.conn.RequestMsgWithContext(ctx, &m)
	if errors.Is(err, nats.ErrNoResponders) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	number, made := strings.CutPrefix(string(reply.Data), `{"stream":"KV_`+bucketName+`","seq":`)
	next, wrong := strconv.ParseUint(strings.TrimSuffix(number, "}"), 10, 64)
	return next, made && wrong == nil, nil
}

// Create implements jetstream.KeyValue.
func (o *ownBucket) Create(ctx context.Context, key string, value []byte,
	with ...jetstream.KVCreateOpt) (revision uint64, err error) {
	err = o.do(ctx, true, func(kv jetstream.KeyValue) (err error) {
		if len(with) == 0 && strings.HasPrefix(key, taskPrefix) {
			made := false
			if revision, made, err = o.replace(ctx, key, value, 0); made || err != nil {
				return err
			}
		}
		revision, err = kv.Create(ctx, key, value, with...)
		return err
	})
	return revision, err
}

// Update implements jetstream.KeyValue.
func (o *ownBucket) Update(ctx context.Context, key string, value []byte, revision uint64) (next uint64, err error) {
	err = o.do(ctx, true, func(kv jetstream.KeyValue) (err error) {
		if strings.HasPrefix(key, taskPrefix) {
			made := false
			if next, made, err = o.replace(ctx, key, value, revision); made || err != nil {
				return err
			}
		}
		next, err = kv.Update(ctx, key, value, revision)
		return err
	})
	return next, err
}

// Put implements jetstream.KeyValue.
func (o *ownBucket) Put(ctx context.Context, key string, value []byte) (revision uint64, err error) {
	err = o.do(ctx, true, func(kv jetstream.KeyValue) (err error) {
		revision, err = kv.Put(ctx, key, value)
		return err
	})
	return revision, err
}

// Purge implements jetstream.KeyValue.
func (o *ownBucket) Purge(ctx context.Context, key string, with ...jetstream.KVDeleteOpt) error {
	return o.do(ctx, true, func(kv jetstream.KeyValue) error { return kv.Purge(ctx, key, with...) })
}

// Get implements jetstream.KeyValue.
func (o *ownBucket) Get(ctx context.Context, key string) (e jetstream.KeyValueEntry, err error) {
	err = o.do(ctx, false, func(kv jetstream.KeyValue) (err error) {
		e, err = kv.Get(ctx, key)
		return err
	})
	return e, err
}

// WatchAll implements jetstream.KeyValue.
func (o *ownBucket) WatchAll(ctx context.Context, with ...jetstream.WatchOpt) (w jetstream.KeyWatcher, err error) {
	err = o.do(ctx, false, func(kv jetstream.KeyValue) (err error) {
		w, err = kv.WatchAll(ctx, with...)
		return err
	})
	return w, err
}
