package remote

import (
	"context"
	"net"
	"strings"
	"time"

	"millrace/stream"
	"millrace/stream/coded"
	"millrace/workers"
)

// Server is a server started by another kind of workers, for Connect.
type Server struct {
	Address    string // grpc://HOST:PORT or http://HOST:PORT
	Model      string // name of the model at the server; "" = the same name
	MaxMessage int64  // as upstream.max_message
	Health     time.Duration
	Dial       func(ctx context.Context, network, address string) (net.Conn, error)
	Section    string // of the settings with the names of upstream, for errors
	// Unready is called in place of Env.Unready.
	Unready func(reason error)
	// Gone is called when the connection broke during a request. Gone returns the error for the client, or nil.
	Gone func(ctx context.Context) error
}

type dialer = func(ctx context.Context, network, address string) (net.Conn, error)

// names are the names of settings in error messages.
type names struct {
	section string // of the settings of type upstream
	connect string // the limit of the wait for a server that is not ready
}

// protocolLimit bounds the question for the protocol of a server.
const protocolLimit = time.Second

// Connect waits until the model of a server is ready, or until ctx ends, and returns a worker that sends to the server.
// The caller calls Destroy of the worker.
func Connect(ctx context.Context, env *workers.Env, s Server) (workers.Worker, *stream.Model, error) {
	set := upstream{Model: s.Model, Health: &s.Health, MaxMessage: s.MaxMessage, Connect: questionLimit}
	if end, ok := ctx.Deadline(); ok {
		set.Connect = time.Until(end).Round(time.Millisecond)
	}
	l := &link{name: env.Name, model: s.Model, set: set, log: env.Log, unready: s.Unready, dialer: s.Dial, gone: s.Gone,
		names: names{section: s.Section, connect: "limits.start"}, poke: make(chan struct{}, 1),
		busy: env.Limit + questionLimit}
	if l.model == "" {
		l.model = env.Name
	}
	w := &worker{}
	var m *stream.Model
	var err error
	if l.at, err = parseAddress("upstream.address", s.Address); err == nil {
		m, err = w.start(ctx, env, l)
	}
	if err != nil {
		return nil, nil, coded.RenameFunc(err, func(field string) string {
			if rest, is := strings.CutPrefix(field, "upstream"); is {
				return s.Section + rest
			}
			return field
		})
	}
	return w, m, nil
}
