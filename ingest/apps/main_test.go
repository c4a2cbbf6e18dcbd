package apps_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"testing"

	"millrace/batching"
	"millrace/internal/servertest"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	workers.Register(workers.Kind{Name: "program", New: func() workers.Worker { return &program{} }})
	servertest.CheckLeaks(m)
}

// program is a program with routes, for these tests.
type program struct{ workers.Base }

var (
	stuckRuns = make(chan struct{}, 16)
	stuckEnds = make(chan bool, 16) // whether somebody still wanted the result
)

func (*program) Init(context.Context, *workers.Env) (*stream.Model, error) {
	return &stream.Model{
		Inputs:  []stream.TensorSpec{{Name: "text", Datatype: stream.Bytes, Shape: []int{1}}},
		Outputs: []stream.TensorSpec{{Name: "body", Datatype: stream.Bytes, Shape: []int{1}}},
		Ragged:  true, MaxBatch: 4,
		App: &stream.App{Style: "test", Routes: []stream.Route{
			{Method: "POST", Path: "/echo", Endpoint: "echo", ContentType: "text/plain"},
			{Method: "GET", Path: "/call", Endpoint: "call", ContentType: "application/json"},
			{Method: "POST", Path: "/call", Endpoint: "call", ContentType: "application/json"},
			{Method: "POST", Path: "/refuse", Endpoint: "refuse"},
			{Method: "POST", Path: "/fail", Endpoint: "fail"},
			{Method: "POST", Path: "/count", Endpoint: "count", Events: true},
			{Method: "POST", Path: "/several", Endpoint: "count"},
			{Method: "POST", Path: "/stuck", Endpoint: "stuck"},
			{Method: "POST", Path: "/stuck_events", Endpoint: "stuck", Events: true},
			{Method: "POST", Path: "/tensor", Endpoint: "tensor"},
			{Method: "GET", Path: "/empty", Endpoint: "empty"},
			{Method: "GET", Path: "/v2", Endpoint: "echo"},
			{Method: "PUT", Path: "/call", Endpoint: "call"},
			{Method: "PATCH", Path: "/call", Endpoint: "call"},
			{Method: "DELETE", Path: "/call", Endpoint: "call"},
			{Method: "POST", Path: "/", Endpoint: "echo"},
			{Method: "POST", Path: "/console/run", Endpoint: "echo"},
			{Method: "GET", Path: "/docs/run", Endpoint: "call"},
			{Method: "POST", Path: "/reply", Endpoint: "reply"},
			{Method: "GET", Path: "/page", Endpoint: "page", ContentType: "text/html"},
			{Method: "POST", Path: "/reply_events", Endpoint: "reply", Events: true},
			{Method: "POST", Path: "/data_events", Endpoint: "data", Events: true},
		}},
	}, nil
}

// page writes into its title what it may do at the origin that it came from.
const page = `<!DOCTYPE html><title>waiting</title><script>
async function attempt(name, f) { try { return name + "=" + await f(); } catch (e) { return name + "=" + e.name; } }
(async () => {
	const out = [
		"origin=" + self.origin,
		await attempt("cookies", () => { document.cookie = "mine=1"; return document.cookie; }),
		await attempt("storage", () => { localStorage.x = 1; return "yes"; }),
		await attempt("models", async () => (await fetch("/v2/models")).status),
		await attempt("post", async () => (await fetch("echo", {method: "POST", body: "x"})).status),
	];
	document.title = out.join(" ");
})();
</script>`

func element(text []byte) []stream.Tensor {
	return []stream.Tensor{{Name: "body", Datatype: stream.Bytes, Shape: []int{1},
		Data: append(binary.LittleEndian.AppendUint32(nil, uint32(len(text))), text...)}}
}

func (*program) Run(ctx context.Context, b *batching.Batch) error {
	for i, r := range b.Requests {
		if r.Call == nil {
			b.Finish(i, element([]byte("no call")))
			continue
		}
		switch r.Call.Endpoint {
		case "echo":
			b.Finish(i, element(r.Payload))
		case "call":
			text, _ := json.Marshal(struct {
				*stream.Call
				Body     string
				Deadline bool
				Trace    string
			}{r.Call, string(r.Payload), r.Deadline != 0, fmt.Sprintf("%x", r.Trace[:])})
			r.SetReply(&stream.Reply{Header: map[string]string{"X-Own": "1", "Content-Length": "5",
				"Set-Cookie": "a=b"}})
			b.Finish(i, element(text))
		case "reply": // as the body says
			reply := new(stream.Reply)
			if err := json.Unmarshal(r.Payload, reply); err != nil {
				b.Fail(i, err)
				continue
			}
			r.SetReply(reply)
			b.Finish(i, element([]byte("the body")))
		case "page":
			r.SetReply(&stream.Reply{Header: map[string]string{"Set-Cookie": "sid=1; Path=/",
				"X-Cookies": r.Call.Header["cookie"]}})
			b.Finish(i, element([]byte(page)))
		case "data":
			b.Emit(i, element(r.Payload))
			b.Finish(i, nil)
		case "refuse":
			r.SetReply(&stream.Reply{Status: 422, ContentType: "application/json"})
			b.Finish(i, element([]byte(`{"detail":"no"}`)))
		case "fail":
			status, _ := strconv.Atoi(string(r.Payload))
			r.SetReply(&stream.Reply{Status: status})
			b.Fail(i, stream.Errorf(stream.Overloaded, "", "it failed"))
		case "count":
			n, _ := strconv.Atoi(string(r.Payload))
			if n < 0 {
				r.SetReply(&stream.Reply{Status: 422, ContentType: "application/json",
					Header: map[string]string{"X-Own": "1", "Connection": "keep-alive"}})
				b.Finish(i, element([]byte(`{"detail":"below 0"}`)))
				continue
			}
			if n == 0 {
				b.Finish(i, element(nil))
				continue
			}
			for k := range n {
				b.Emit(i, element(fmt.Appendf(nil, `{"n":%d}`, k)))
			}
			if n == 3 {
				b.Fail(i, stream.Errorf(stream.InvalidArgument, "", "three"))
				continue
			}
			b.Finish(i, nil)
		case "stuck":
			gone := make(chan struct{})
			if r.OnEnd(func() { close(gone) }) {
				stuckRuns <- struct{}{}
				<-gone
			}
			stuckEnds <- r.Wanted()
		case "tensor":
			b.Finish(i, []stream.Tensor{{Name: "x", Datatype: stream.Uint8, Shape: []int{1}, Data: []byte{1}}})
		case "empty":
			r.SetReply(&stream.Reply{Status: 204})
			b.Finish(i, nil)
		}
	}
	return nil
}

// start runs a server with a program of each name.
func start(t *testing.T, change func(*server.Config), names ...string) *servertest.Running {
	t.Helper()
	cfg := server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off}
	for _, name := range names {
		cfg.Models = append(cfg.Models, workers.Config{Name: name, Source: "program"})
	}
	if change != nil {
		change(&cfg)
	}
	return servertest.Start(t, cfg)
}
