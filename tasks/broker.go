package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Broker is a connection to JetStream: of a server inside this process, or of servers elsewhere.
type Broker struct {
	embedded *server.Server // nil = servers elsewhere
	conn     *nats.Conn
	js       jetstream.JetStream
	closing  sync.Once
	closed   chan struct{} // closed by Close

	// of the embedded server
	folder string
	always bool // each change is on the disk before the acknowledgement
	log    *slog.Logger
	errs   *brokerLog
}

// startTimeout bounds the start of the embedded server, with the reading of the server's files.
const startTimeout = 30 * time.Second

// Embed starts a JetStream server in this process, which has no port and keeps its files in folder. With always, each
// write is on the disk before it is acknowledged; otherwise once a minute at the latest.
func Embed(folder string, always bool, log *slog.Logger) (*Broker, error) {
	b := &Broker{folder: folder, always: always, log: log, closed: make(chan struct{})}
	if err := b.start(); err != nil {
		return nil, err
	}
	return b, nil
}

// start starts the embedded server and connects to the server. When the start fails, the server has ended.
func (b *Broker) start() error {
	o := &server.Options{
		ServerName: "millrace", DontListen: true, NoSigs: true, NoSystemAccount: true,
		JetStream: true, StoreDir: b.folder, SyncAlways: b.always, SyncInterval: time.Minute,
	}
	s, err := server.NewServer(o)
	if err != nil {
		return fmt.Errorf("the task store in %s cannot be opened: %w", b.folder, err)
	}
	b.errs = &brokerLog{log: b.log}
	s.SetLogger(b.errs, false, false)
	s.Start()
	if !ready(s) || !s.JetStreamEnabled() {
		s.Shutdown()
		why := cmp.Or(b.errs.newest(), "the log has the reason")
		return diskError(b.folder, "the task store cannot be opened: "+why)
	}
	conn, err := nats.Connect("", nats.InProcessServer(s), nats.MaxReconnects(-1), nats.Timeout(startTimeout))
	if err != nil {
		s.Shutdown()
		return fmt.Errorf("the task store in %s does not answer: %w", b.folder, err)
	}
	connected, err := newBroker(conn)
	if err != nil {
		s.Shutdown()
		return err
	}
	b.embedded, b.conn, b.js = s, connected.conn, connected.js
	return nil
}

// ready waits until the server has started, or has ended because the start has failed.
func ready(s *server.Server) bool {
	for end := time.Now().Add(startTimeout); time.Now().Before(end) && s.Running(); {
		if s.ReadyForConnections(100 * time.Millisecond) {
			return true
		}
	}
	return false
}

// newBroker returns the broker of a connection.
func newBroker(conn *nats.Conn) (*Broker, error) {
	js, err := jetstream.New(conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &Broker{conn: conn, js: js, closed: make(chan struct{})}, nil
}

// Close ends the connection, and the embedded server after its files are complete.
func (b *Broker) Close() {
	b.closing.Do(func() { close(b.closed) })
	b.end()
}

func (b *Broker) end() {
	b.conn.Close()
	if b.embedded != nil {
		b.embedded.Shutdown()
		b.embedded.WaitForShutdown()
	}
}

// bucket opens the bucket of the records, which is made when missing.
func (b *Broker) bucket(ctx context.Context) (jetstream.KeyValue, error) {
	c := jetstream.KeyValueConfig{
		Bucket: bucketName, Description: "tasks of Millrace", History: 1, Storage: jetstream.FileStorage,
		Replicas: b.replicas(), LimitMarkerTTL: markerTTL,
	}
	kv, err := b.js.KeyValue(ctx, bucketName)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		kv, err = b.js.CreateOrUpdateKeyValue(ctx, c)
		if err != nil && b.embedded != nil {
			return nil, diskError(b.folder, fmt.Sprintf("%v: %s", err, b.errs.newest()))
		}
		if err != nil || b.embedded == nil {
			return kv, err
		}
	}
	if err == nil && b.embedded != nil {
		return newOwnBucket(b, kv)
	}
	if err != nil {
		return nil, err
	}
	if status, err := kv.Status(ctx); err != nil || status.Config().Replicas >= c.Replicas {
		return kv, err
	}
	return b.js.UpdateKeyValue(ctx, c) // servers were added
}

// replyTimeout bounds the wait for the answer to a change: servers without a leader do not answer.
const replyTimeout = 5 * time.Second

// boundedKV is a bucket whose calls take replyTimeout at most.
type boundedKV struct {
	jetstream.KeyValue
	shared *sharedTimeout
}

// bound returns a context that ends with ctx, or after replyTimeout.
func (b boundedKV) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Done() == nil {
		return b.shared.context(), func() {}
	}
	return context.WithTimeout(ctx, replyTimeout)
}

// sharedTimeout bounds many calls with one timer. A call has at least nine tenths of replyTimeout.
type sharedTimeout struct {
	mu   sync.Mutex
	ctx  context.Context
	made time.Time
}

func (s *sharedTimeout) context() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := time.Now(); s.ctx == nil || now.Sub(s.made) > replyTimeout/10 {
		ctx, cancel := context.WithTimeout(context.Background(), replyTimeout)
		context.AfterFunc(ctx, cancel) // other calls may use the context until then
		s.ctx, s.made = ctx, now
	}
	return s.ctx
}

func (b boundedKV) Create(ctx context.Context, key string, value []byte, o ...jetstream.KVCreateOpt) (uint64, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	return b.KeyValue.Create(ctx, key, value, o...)
}

func (b boundedKV) Update(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	return b.KeyValue.Update(ctx, key, value, revision)
}

func (b boundedKV) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	return b.KeyValue.Get(ctx, key)
}

func (b boundedKV) Purge(ctx context.Context, key string, o ...jetstream.KVDeleteOpt) error {
	ctx, cancel := b.bound(ctx)
	defer cancel()
	return b.KeyValue.Purge(ctx, key, o...)
}

// bucketName names the bucket of the records; its end is the version of their form.
const bucketName = "millrace-tasks-1"

// markerTTL is how long the bucket remembers a deleted key, for processes that follow the bucket.
const markerTTL = time.Hour

// brokerLog writes the log of the embedded server into a slog.Logger, and keeps the newest error of the disk.
type brokerLog struct {
	log *slog.Logger

	mu   sync.Mutex
	text string
}

// keep keeps an error of the disk.
func (l *brokerLog) keep(text string) string {
	for _, part := range []string{noSpace, "quota exceeded", "write error", "not writable", "failed to store"} {
		if strings.Contains(text, part) {
			l.mu.Lock()
			defer l.mu.Unlock()
			if !strings.Contains(l.text, noSpace) { // which is the cause of the others
				l.text = text
			}
			break
		}
	}
	return text
}

// newest returns the newest error of the disk; "" = none.
func (l *brokerLog) newest() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text
}

func (l *brokerLog) Noticef(format string, v ...any) {
	l.log.Debug("task store", "text", fmt.Sprintf(format, v...))
}
func (l *brokerLog) Warnf(format string, v ...any) {
	l.log.Warn("task store", "text", l.keep(fmt.Sprintf(format, v...)))
}
func (l *brokerLog) Fatalf(format string, v ...any) {
	l.log.Error("task store", "text", l.keep(fmt.Sprintf(format, v...)))
}
func (l *brokerLog) Errorf(format string, v ...any) {
	l.log.Error("task store", "text", l.keep(fmt.Sprintf(format, v...)))
}
func (l *brokerLog) Debugf(string, ...any) {}
func (l *brokerLog) Tracef(string, ...any) {}

// storeFolder returns the folder of JetStream's files below the data folder.
func storeFolder(data string) string { return filepath.Join(data, "jetstream") }
