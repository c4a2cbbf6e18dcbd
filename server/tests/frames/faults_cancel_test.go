package frames_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/batching"
	"millrace/config"
	pb "millrace/internal/inferencepb"
	"millrace/internal/servertest"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

// company is a worker with batches that end on the test's command.
type company struct {
	workers.Base
	*gates
}

// gates control a model of the kind company.
type gates struct {
	ran  chan string // the payloads of a started batch, in order
	pass chan struct{}
}

var companies sync.Map // gates by the model's name

func init() {
	workers.Register(workers.Kind{Name: "company", New: func() workers.Worker { return &company{} }})
}

func (w *company) Init(_ context.Context, env *workers.Env) (*stream.Model, error) {
	found, _ := companies.Load(env.Name)
	w.gates = found.(*gates)
	return &stream.Model{AcceptsAnyInput: true, Ragged: true, MaxBatch: 3}, nil
}

func (w *company) Run(_ context.Context, b *batching.Batch) error {
	var who []string
	for _, r := range b.Requests {
		if len(r.Inputs) > 0 {
			r.Payload = r.Inputs[0].Data
		}
		who = append(who, string(r.Payload))
	}
	slices.Sort(who)
	w.ran <- strings.Join(who, " ")
	<-w.pass
	for i := range b.Requests {
		b.Finish(i, []stream.Tensor{{Name: "y", Datatype: stream.Uint8, Shape: []int{1}, Data: []byte{1}}})
	}
	return nil
}

// leavers are clients that send a frame x to a model, over each protocol, and disconnect when the context ends.
var leavers = map[string]func(ctx context.Context, t *testing.T, s *server.Server, model string){
	"REST": func(ctx context.Context, t *testing.T, s *server.Server, model string) {
		leavesHTTP(ctx, t, s, model, "infer")
	},
	"infer_stream": func(ctx context.Context, t *testing.T, s *server.Server, model string) {
		leavesHTTP(ctx, t, s, model, "infer_stream")
	},
	"gRPC": func(ctx context.Context, t *testing.T, s *server.Server, model string) {
		if _, err := servertest.GRPC(t, s).ModelInfer(ctx, request(model, "x")); err == nil {
			t.Error("answered")
		}
	},
	"ModelStreamInfer": func(ctx context.Context, t *testing.T, s *server.Server, model string) {
		c, err := servertest.GRPC(t, s).ModelStreamInfer(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		if err := c.Send(request(model, "x")); err != nil {
			t.Error(err)
		}
		if _, err := c.Recv(); err == nil {
			t.Error("answered")
		}
	},
	"native": func(ctx context.Context, t *testing.T, s *server.Server, model string) {
		if _, err := s.Native().InferBytes(ctx, model, stream.Opaque,
			[]byte("x")); stream.CodeOf(err) != stream.Canceled {
			t.Error(err)
		}
	},
	"native, a future": func(ctx context.Context, t *testing.T, s *server.Server, model string) {
		in := []stream.Tensor{{Name: "x", Datatype: stream.Uint8, Shape: []int{1}, Data: []byte("x")}}
		if _, err := s.Native().Go(ctx, model, in).Wait(); stream.CodeOf(err) != stream.Canceled {
			t.Error(err)
		}
	},
	"WebSocket, close": func(ctx context.Context, t *testing.T, s *server.Server, model string) {
		leavesSocket(ctx, t, s, model, false)
	},
	"WebSocket, reset": func(ctx context.Context, t *testing.T, s *server.Server, model string) {
		leavesSocket(ctx, t, s, model, true)
	},
}

func leavesHTTP(ctx context.Context, t *testing.T, s *server.Server, model, call string) {
	body := `{"inputs":[{"name":"x","datatype":"UINT8","shape":[1],"data":[120]}]}`
	in, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Addr("http")+"/v2/models/"+model+"/"+call,
		strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	in.Header.Set("Content-Type", "application/json")
	r, err := http.DefaultClient.Do(in)
	if err != nil {
		return
	}
	defer r.Body.Close()
	if text, err := io.ReadAll(r.Body); err == nil {
		t.Errorf("answered: %s", text)
	}
}

func leavesSocket(ctx context.Context, t *testing.T, s *server.Server, model string, reset bool) {
	c := servertest.Dial(t, s, "/v2/models/"+model+"/stream?codec=opaque&policy=every")
	defer c.Close()
	if err := c.WriteMessage(2, []byte("x")); err != nil {
		t.Error(err)
	}
	<-ctx.Done()
	if reset {
		_ = c.NetConn().(*net.TCPConn).SetLinger(0)
	}
}

// A client that disconnects while its request waits frees its place at once, although no batch runs, and the batch is
// formed without the request.
func TestClientsThatLeaveABatchThatIsFormed(t *testing.T) {
	for how, leave := range leavers {
		t.Run(how, func(t *testing.T) {
			c := newCompany(t)
			c.companion("a")
			c.until("a waits", func(st workers.GroupStats) bool { return st.Waiting == 1 && st.PlacesUsed == 1 })
			ctx, cancel := context.WithCancel(t.Context())
			var left sync.WaitGroup
			left.Go(func() { leave(ctx, t, c.s, c.model) })
			c.until("x waits", func(st workers.GroupStats) bool { return st.Waiting == 2 })
			cancel()
			c.until("x has no place", func(st workers.GroupStats) bool { return st.Waiting == 1 && st.PlacesUsed == 1 })
			left.Wait()
			c.companion("b")
			c.until("b waits", func(st workers.GroupStats) bool { return st.Waiting == 2 })
			c.companion("c")
			c.runs("a b c")
			close(c.pass)
			c.answered.Wait()
		})
	}
}

// The other clients in a batch are answered when a client disconnects while the batch runs.
func TestClientsThatLeaveABatchThatRuns(t *testing.T) {
	for how, leave := range leavers {
		t.Run(how, func(t *testing.T) {
			c := newCompany(t)
			c.companion("a")
			c.companion("b")
			c.until("they wait", func(st workers.GroupStats) bool { return st.Waiting == 2 })
			ctx, cancel := context.WithCancel(t.Context())
			var left sync.WaitGroup
			left.Go(func() { leave(ctx, t, c.s, c.model) })
			who := <-c.ran
			if who != "a b x" {
				t.Errorf("%q run", who)
			}
			cancel()
			left.Wait()
			if !strings.HasPrefix(how, "WebSocket") { // the server counts the results of frames in flight
				c.until("x has no place", func(st workers.GroupStats) bool { return st.PlacesUsed == 2 })
			}
			close(c.pass)
			c.answered.Wait()
			c.until("x has no place", func(st workers.GroupStats) bool { return st.PlacesUsed == 2 })
		})
	}
}

// companyTest is a server with a model of the kind company that runs only full batches.
type companyTest struct {
	*testing.T
	*gates
	s        *server.Server
	model    string
	answered sync.WaitGroup // the companions
}

func newCompany(t *testing.T) *companyTest {
	model := strings.NewReplacer("/", "-", " ", "-", ",", "").Replace(t.Name())
	g := &gates{make(chan string, 16), make(chan struct{})}
	companies.Store(model, g)
	t.Cleanup(func() { companies.Delete(model) })
	s, stop := servertest.RunWith(t, server.Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0",
		Log: config.Log{Level: "error"},
		Models: []workers.Config{
			{Name: model, Kind: "company", Batching: workers.Batching{Kind: batching.Hard, MaxSize: 3}},
		}})
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
		if m := s.Memory().Stats(); m.Leases != 0 {
			t.Errorf("%d leases are left", m.Leases)
		}
	})
	return &companyTest{T: t, gates: g, s: s, model: model}
}

// companion sends a request and waits for the answer.
func (c *companyTest) companion(name string) {
	c.answered.Go(func() {
		r, err := servertest.GRPC(c.T, c.s).ModelInfer(c.Context(), &pb.ModelInferRequest{ModelName: c.model,
			RawInputContents: [][]byte{[]byte(name)},
			Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "UINT8",
				Shape: []int64{1}}}})
		if err != nil || !bytes.Equal(r.RawOutputContents[0], []byte{1}) {
			c.Errorf("%s: %v %v", name, r, err)
		}
	})
}

// runs checks the members of the starting batch.
func (c *companyTest) runs(want string) {
	c.Helper()
	if who := <-c.ran; who != want {
		c.Errorf("%q run, want %q", who, want)
	}
}

func (c *companyTest) until(what string, ok func(workers.GroupStats) bool) {
	c.Helper()
	for limit := time.Now().Add(time.Minute); !ok(c.s.Models().Stats()[0]); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			c.Fatalf("not within a minute: %s: %+v", what, c.s.Models().Stats()[0])
		}
	}
}
