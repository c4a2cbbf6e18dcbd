package mosec_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"millrace/batching"
	"millrace/config"
	"millrace/internal/servertest"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	workers.Register(workers.Kind{Name: "program", New: func() workers.Worker { return &program{} }})
	workers.Register(workers.Kind{Name: "stages", New: func() workers.Worker { return &stages{} }})
	servertest.CheckLeaks(m)
}

var (
	limit     atomic.Int64 // longest time of a request, in milliseconds; 0 = a minute
	stuckRuns = make(chan struct{}, 16)
)

// program is a program written for mosec.
type program struct{ workers.Base }

func (*program) Init(context.Context, *workers.Env) (*stream.Model, error) {
	ms := limit.Load()
	if ms == 0 {
		ms = time.Minute.Milliseconds()
	}
	return &stream.Model{
		Inputs:  []stream.TensorSpec{{Name: "text", Datatype: stream.Bytes, Shape: []int{1}}},
		Outputs: []stream.TensorSpec{{Name: "body", Datatype: stream.Bytes, Shape: []int{1}}},
		Ragged:  true, MaxBatch: 1,
		App: &stream.App{
			Style: "mosec",
			Extra: stream.Params{"timeout_ms": ms, "capacity": int64(1), "max_request_size": int64(64),
				"namespace": "mine"},
			OpenAPI: []byte(`{"openapi":"3.1.0","paths":{}}`),
			Routes: []stream.Route{
				{Method: "POST", Path: "/echo", Endpoint: "echo", ContentType: "text/plain"},
				{Method: "POST", Path: "/refuse", Endpoint: "refuse"},
				{Method: "POST", Path: "/count", Endpoint: "count", Events: true},
				{Method: "POST", Path: "/stuck", Endpoint: "stuck"},
				{Method: "POST", Path: "/stuck_events", Endpoint: "stuck", Events: true},
				{Method: "POST", Path: "/tensor", Endpoint: "tensor"},
			},
		},
	}, nil
}

func element(text []byte) []stream.Tensor {
	return []stream.Tensor{{Name: "body", Datatype: stream.Bytes, Shape: []int{1},
		Data: append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...)}}
}

func (*program) Run(_ context.Context, b *batching.Batch) error {
	for i, r := range b.Requests {
		switch r.Call.Endpoint {
		case "echo":
			b.Finish(i, element(r.Payload))
		case "refuse":
			r.SetReply(&stream.Reply{Status: 422, ContentType: "application/json"})
			b.Finish(i, element([]byte(`{"detail":"no"}`)))
		case "count":
			n, err := strconv.Atoi(string(r.Payload))
			if err != nil || n < 0 {
				r.SetReply(&stream.Reply{Status: 422, ContentType: "application/json"})
				b.Finish(i, element([]byte(`{"detail":"below 0"}`)))
				continue
			}
			for k := range n {
				b.Emit(i, element(fmt.Appendf(nil, `{"n":%d}`, k)))
			}
			b.Finish(i, nil)
		case "stuck":
			gone := make(chan struct{})
			if r.OnEnd(func() { close(gone) }) {
				stuckRuns <- struct{}{}
				<-gone
			}
		case "tensor":
			b.Finish(i, []stream.Tensor{{Name: "x", Datatype: stream.Uint8, Shape: []int{1}, Data: []byte{1}}})
		}
	}
	return nil
}

// stages is a program with a route whose stage is never loaded.
type stages struct{ program }

func (p *stages) Init(ctx context.Context, env *workers.Env) (*stream.Model, error) {
	m, err := p.program.Init(ctx, env)
	m.App.Routes = append(m.App.Routes, stream.Route{Method: "POST", Path: "/later", Endpoint: "echo", Model: "later"})
	return m, err
}

// start runs a server.
func start(t *testing.T, change func(*server.Config)) *servertest.Running {
	t.Helper()
	cfg := server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off, Log: config.Log{Level: "error"}}
	change(&cfg)
	return servertest.Start(t, cfg)
}
