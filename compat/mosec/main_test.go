package mosec_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"millrace/batching"
	"millrace/config"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	workers.Register(workers.Kind{Name: "program", New: func() workers.Worker { return &program{} }})
	workers.Register(workers.Kind{Name: "stages", New: func() workers.Worker { return &stages{} }})
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"), // one for the process
		// the function looks every ten seconds whether the server has ended
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
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

// running is a whole server.
type running struct {
	*server.Server
	t    *testing.T
	base string
	stop func() error
}

// start runs a server.
func start(t *testing.T, change func(*server.Config)) *running {
	t.Helper()
	cfg := server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off, Log: config.Log{Level: "error"}}
	change(&cfg)
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	select {
	case <-s.Ready():
	case err := <-done:
		cancel()
		t.Fatal(err)
	}
	ended := false
	r := &running{Server: s, t: t, base: s.URL("http")}
	var result error
	r.stop = func() error {
		if !ended {
			ended = true
			cancel()
			result = <-done
		}
		return result
	}
	t.Cleanup(func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		if err := r.stop(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// answer is a reply, read to its end.
type answer struct {
	*http.Response
	body string
}

func (a *answer) String() string { return a.Status + " " + a.body }

// ask sends a request.
func (r *running) ask(method, path, body string) *answer {
	r.t.Helper()
	req, err := http.NewRequest(method, r.base+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	resp, err := http.DefaultTransport.RoundTrip(req) // follows no redirects
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return &answer{resp, string(b)}
}

// noLeases waits until all memory is released: a reply's memory is released just after its last byte was sent.
func (r *running) noLeases() {
	r.t.Helper()
	until := time.Now().Add(30 * time.Second)
	for r.Memory().Stats().Leases != 0 {
		if time.Now().After(until) {
			r.t.Fatalf("memory is still leased: %+v", r.Memory().Stats())
		}
		time.Sleep(time.Millisecond)
	}
}
