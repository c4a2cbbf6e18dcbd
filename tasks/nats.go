package tasks

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"millrace/internal/ctxio"
	"millrace/stream/coded"
	"millrace/tasks/blob"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// NATS names NATS servers with JetStream, which keep the records of tasks for several processes.
type NATS struct {
	Servers     []string // addresses, such as nats://10.0.0.5:4222 or tls://nats.example.org
	User        string
	Password    string
	Credentials string // path of a credentials file; "" = none
	CA          string // path of a PEM file with the authorities of the servers; "" = the authorities of this machine
}

const (
	connectPause = time.Second // the wait before another try to reach NATS servers at the start
	infoTime     = time.Second // how long one try waits for the answer about JetStream
)

// Connect connects to NATS servers, and waits for them startTimeout at most. A connection that breaks later is made
// again, for as long as it takes; calls fail meanwhile.
func Connect(ctx context.Context, n NATS, log *slog.Logger) (*Broker, error) {
	o := []nats.Option{
		nats.Name("millrace"), nats.MaxReconnects(-1), nats.ReconnectWait(connectPause), nats.ReconnectBufSize(-1),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				log.Warn("the connection to the NATS servers is lost: connecting again", "error", err)
			}
		}),
		nats.ReconnectHandler(func(c *nats.Conn) {
			log.Info("connected to a NATS server again", "server", c.ConnectedUrlRedacted())
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { log.Warn("task store", "error", err) }),
	}
	if n.User != "" || n.Password != "" {
		o = append(o, nats.UserInfo(n.User, n.Password))
	}
	if n.Credentials != "" {
		o = append(o, nats.UserCredentials(n.Credentials))
	}
	if n.CA != "" {
		o = append(o, nats.RootCAs(n.CA))
	}
	addresses := strings.Join(n.Servers, ",")
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for try := 0; ; try++ {
		conn, err := nats.Connect(addresses, o...)
		if err == nil {
			return openJetStream(ctx, conn)
		}
		if isPermanent(err) {
			return nil, natsSettingError("the NATS servers %s refuse the connection: %w", addresses, err)
		}
		if try == 0 {
			log.Warn("no NATS server answers yet: trying again", "servers", addresses, "error", err)
		}
		if ctxio.Sleep(ctx, connectPause); ctx.Err() != nil {
			return nil, natsSettingError("no NATS server at %s answers: %w", addresses, err)
		}
	}
}

// natsSettingError returns an error about the setting nats.
func natsSettingError(format string, args ...any) error {
	return coded.Errorf(coded.Unavailable, "nats", format, args...)
}

// isPermanent reports whether another try would have the same error.
func isPermanent(err error) bool {
	return !errors.Is(err, nats.ErrNoServers) && !errors.Is(err, nats.ErrTimeout)
}

// openJetStream returns the broker of a connection whose servers have JetStream.
func openJetStream(ctx context.Context, conn *nats.Conn) (*Broker, error) {
	b, err := newBroker(conn)
	if err != nil {
		return nil, err
	}
	for { // servers of a cluster that has no leader yet do not answer
		try, cancel := context.WithTimeout(ctx, infoTime)
		_, err := b.js.AccountInfo(try)
		cancel()
		switch {
		case err == nil:
			return b, nil
		case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
			err = natsSettingError("the NATS server %s has no JetStream for this client: %w",
				conn.ConnectedUrlRedacted(), err)
			conn.Close()
			return nil, err
		}
	}
}

// replicas returns how many copies of each record the servers keep: 5 for five servers and more, 3 for three or four,
// else 1.
func (b *Broker) replicas() int {
	switch n := len(b.conn.Servers()); {
	case b.embedded != nil || n < 3:
		return 1
	case n < 5:
		return 3
	}
	return 5
}

// folderKey is the key of the bucket with the id of the folder whose files belong to the records.
const folderKey = "folder"

// folderIDFile is the file of a data folder with the same id. Only folders with records in NATS servers have the file.
const folderIDFile = "nats"

// bindFolder checks that the records of the broker belong to the files of the data folder. A folder without files and a
// bucket without an id become a pair.
func bindFolder(ctx context.Context, kv jetstream.KeyValue, folder string, files bool) error {
	id, err := folderID(filepath.Join(folder, folderIDFile))
	if err != nil {
		return err
	}
	e, err := kv.Get(ctx, folderKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		if files {
			return natsSettingError("the NATS servers have no records of the files in the data folder %s: name the "+
				"NATS servers of the folder, or an empty folder", folder)
		}
		if _, err = kv.Create(ctx, folderKey, []byte(id)); err == nil {
			return nil
		}
		e, err = kv.Get(ctx, folderKey) // another process may have been faster
	}
	if err != nil {
		return natsSettingError("the NATS servers do not answer: %w", err)
	}
	if string(e.Value()) != id {
		return natsSettingError("the NATS servers have the records of another data folder than %s: all servers and "+
			"consumers of one NATS share one folder", folder)
	}
	return nil
}

// folderID returns the id in the file, which is made when missing. Of processes that make the file at once, all get one
// id, and a power failure leaves the whole file or none.
func folderID(name string) (string, error) {
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		if err := writeFolderID(name, newID(time.Now())); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		b, err = os.ReadFile(name)
	}
	if id := strings.TrimSpace(string(b)); err != nil || CheckID(id) == nil {
		return id, err
	}
	return "", fmt.Errorf("%s has no id: copy the file from a backup", name)
}

// writeFolderID writes a new file with an id. Errors: fs.ErrExist, when another process was faster.
func writeFolderID(name, id string) error {
	next := name + "." + id
	if err := writeFile(next, []byte(id+"\n"), true); err != nil {
		return err
	}
	if err := errors.Join(os.Link(next, name), os.Remove(next)); err != nil {
		return err
	}
	return blob.SyncFolder(filepath.Dir(name))
}
