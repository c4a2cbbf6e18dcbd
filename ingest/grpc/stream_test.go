package grpc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	millracegrpc "millrace/ingest/grpc"
	pb "millrace/internal/inferencepb"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

var repeat = workers.Config{Name: "repeat", Source: "repeat"}

// slow takes a second for a run of one request, longer than any test that does not wait for slow.
func slow(run string) workers.Config {
	return workers.Config{Name: "slow", Source: "delay", Batching: workers.Batching{MaxSize: 1},
		Params: stream.Params{"fixed": run, "per_item": "0s"}}
}

type session struct {
	grpc.BidiStreamingClient[pb.ModelInferRequest, pb.ModelStreamInferResponse]
	r      *running
	cancel context.CancelFunc
}

// open begins a call of ModelStreamInfer with pairs of metadata.
func (r *running) open(md ...string) *session {
	r.Helper()
	ctx, cancel := context.WithCancel(metadata.AppendToOutgoingContext(r.ctx, md...))
	r.Cleanup(cancel)
	s, err := r.ModelStreamInfer(ctx)
	if err != nil {
		r.Fatal(err)
	}
	return &session{s, r, cancel}
}

func (s *session) send(requests ...*pb.ModelInferRequest) {
	s.r.Helper()
	for _, in := range requests {
		if err := s.Send(in); err != nil {
			s.r.Fatal(err)
		}
	}
}

func (s *session) next() *pb.ModelStreamInferResponse {
	s.r.Helper()
	out, err := s.Recv()
	if err != nil {
		s.r.Fatal(err)
	}
	return out
}

// end closes the sending side and expects no further response.
func (s *session) end() {
	s.r.Helper()
	if err := s.CloseSend(); err != nil {
		s.r.Fatal(err)
	}
	if out, err := s.Recv(); err != io.EOF {
		s.r.Fatalf("got %v, %v, want the end", out, err)
	}
}

func final(m *pb.ModelStreamInferResponse) bool {
	return m.InferResponse.GetParameters()["triton_final_response"].GetBoolParam()
}

// TestStreamOrder: requests to several models, right and wrong, are answered in their order.
func TestStreamOrder(t *testing.T) {
	millracegrpc.BothWays(t, func(t *testing.T, exported bool) {
		r := serve(t, nil, identity, slow("20ms"))
		s := r.open()
		var want []string
		for i := range 40 {
			in, text := raw("identity", fmt.Sprint(i), pattern(10+i*1000)), ""
			switch i % 5 {
			case 1:
				in.ModelName = "slow"
			case 2:
				in.ModelName, text = "nobody", "nobody"
			case 3:
				in.RawInputContents, text = nil, "inputs[0].contents"
			case 4:
				in.Inputs[0].Datatype, in.Inputs[0].Shape, text = "BYTES", []int64{1}, "inputs[0].data"
			}
			want = append(want, text)
			s.send(in)
		}
		for i, text := range want {
			out := s.next()
			if out.InferResponse.GetId() != fmt.Sprint(i) || (out.ErrorMessage == "") != (text == "") ||
				!strings.Contains(out.ErrorMessage, text) || !final(out) {
				t.Fatalf("answer %d: %.300v", i, out)
			}
			if i%5 == 0 && !bytes.Equal(out.InferResponse.RawOutputContents[0], pattern(10+i*1000)) {
				t.Errorf("answer %d has other data", i)
			}
		}
		s.end()
	})
}

func repeated(id string, n int, wantLast bool) *pb.ModelInferRequest {
	numbers := make([]byte, 0, 4*n)
	for i := range n {
		numbers = binary.LittleEndian.AppendUint32(numbers, uint32(100+i))
	}
	in := &pb.ModelInferRequest{ModelName: "repeat", Id: id,
		Inputs: []*pb.ModelInferRequest_InferInputTensor{
			{Name: "IN", Datatype: "INT32", Shape: []int64{int64(n)}},
			{Name: "DELAY", Datatype: "UINT32", Shape: []int64{int64(n)}},
			{Name: "WAIT", Datatype: "UINT32", Shape: []int64{1}},
		},
		RawInputContents: [][]byte{numbers, make([]byte, 4*n), make([]byte, 4)},
	}
	if wantLast { // also with named outputs, which the ending lacks
		in.Outputs = []*pb.ModelInferRequest_InferRequestedOutputTensor{{Name: "OUT"}, {Name: "IDX"}}
		in.Parameters = map[string]*pb.InferParameter{
			"triton_enable_empty_final_response": {ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: true}}}
	}
	return in
}

// A decoupled model answers a request several times, and only clients that ask get the empty ending.
func TestStreamDecoupled(t *testing.T) {
	r := serve(t, nil, repeat, identity)
	s := r.open()
	s.send(repeated("a", 3, false), repeated("b", 0, true), repeated("c", 200, true), repeated("d", 0, false),
		raw("identity", "e", []byte{1}))
	var got []string
	for other, last := false, false; !other || !last; { // the other model's answer does not wait for these answers
		out := s.next()
		if out.ErrorMessage != "" {
			t.Fatal(out.ErrorMessage)
		}
		x := out.InferResponse
		line := x.Id
		if x.ModelName == "repeat" && len(x.RawOutputContents) > 0 {
			line += fmt.Sprint(binary.LittleEndian.Uint32(x.RawOutputContents[0]))
		}
		if final(out) {
			line += "!"
		}
		if line == "e!" {
			other = true
			continue
		}
		got = append(got, line)
		last = line == "c!"
	}
	want := []string{"a100", "a101", "a102", "b!"}
	for i := range 200 {
		want = append(want, fmt.Sprint("c", 100+i))
	}
	want = append(want, "c!")
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v", got)
	}
	s.end()
	if _, err := r.ModelInfer(r.ctx, repeated("", 1, false)); status.Code(err) != codes.Unimplemented ||
		!strings.Contains(err.Error(), "ModelStreamInfer") {
		t.Error(err)
	}
}

// With triton_grpc_error the first error ends the call with its status.
func TestStreamError(t *testing.T) {
	r := serve(t, nil, identity)
	s := r.open("triton_grpc_error", "true")
	s.send(raw("identity", "1", []byte{1}), raw("nobody", "2", []byte{1}))
	// io.EOF: the call has ended already
	if err := s.Send(raw("identity", "3", []byte{1})); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	if out := s.next(); out.InferResponse.Id != "1" {
		t.Errorf("%v", out)
	}
	if out, err := s.Recv(); status.Code(err) != codes.NotFound {
		t.Errorf("%v, %v", out, err)
	}
}

// The requests of a leaving client free their places, while the run of the first request goes on.
func TestStreamCanceled(t *testing.T) {
	r := serve(t, nil, slow("1500ms"))
	for range 3 {
		s := r.open()
		for i := range 10 {
			s.send(raw("slow", fmt.Sprint(i), pattern(20<<10)))
		}
		r.until(func() bool { return r.waiting() > 0 })
		s.cancel()
		r.until(func() bool { return r.waiting() == 0 && r.places() == 0 })
	}
}

func (r *running) group() workers.GroupStats { return r.s.Models().Stats()[0] }
func (r *running) waiting() int              { return r.group().Waiting }
func (r *running) places() int               { return r.group().PlacesUsed }

// until waits for a condition invisible to clients.
func (r *running) until(is func() bool) {
	r.Helper()
	for !is() {
		select {
		case <-r.ctx.Done():
			r.Fatalf("it does not come: %+v", r.group())
		case <-time.After(time.Millisecond):
		}
	}
}

// A call with a policy is one stream of frames and answers drops.
func TestStreamLatest(t *testing.T) {
	r := serve(t, nil, slow("100ms"))
	s := r.open("millrace-stream-policy", "latest", "millrace-stream-window", "2")
	const n = 50
	for i := range n {
		s.send(raw("slow", fmt.Sprint(i), []byte{1}))
	}
	answered, dropped := 0, 0
	for i := range n {
		out := s.next()
		if out.ErrorMessage != "" || out.InferResponse.Id != fmt.Sprint(i) || !final(out) {
			t.Fatalf("%d: %v", i, out)
		}
		switch why := out.InferResponse.Parameters["dropped"].GetStringParam(); why {
		case "":
			answered++
			if len(out.InferResponse.RawOutputContents) != 1 {
				t.Errorf("%v", out)
			}
		case string(stream.Superseded), string(stream.Overtaken):
			dropped++
			if len(out.InferResponse.Outputs) != 0 {
				t.Errorf("%v", out)
			}
		default:
			t.Errorf("dropped as %s", why)
		}
		if i == n-1 && len(out.InferResponse.Outputs) != 1 {
			t.Error("the newest frame has no result")
		}
	}
	if answered < 1 || dropped < n/2 {
		t.Errorf("%d answered, %d dropped", answered, dropped)
	}
	s.end()
}

func TestStreamOptionsAreRefused(t *testing.T) {
	r := serve(t, nil, identity)
	for _, md := range [][]string{
		{"millrace-stream-policy", "newest"}, {"millrace-stream-window", "0"}, {"millrace-stream-colour", "red"},
		{"millrace-stream-max-fps", "x"},
		{"millrace-stream-policy", "latest", "millrace-stream-policy", "every"}, {"triton_grpc_error", "yes"},
	} {
		s := r.open(md...)
		if _, err := s.Recv(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), md[0]) {
			t.Errorf("%v: %v", md, err)
		}
	}
}

// TestStreamWindow: the server reads no further requests while the window is full.
func TestStreamWindow(t *testing.T) {
	r := serve(t, nil, slow("50ms"))
	s := r.open("millrace-stream-policy", "every", "millrace-stream-window", "3")
	for i := range 12 {
		s.send(raw("slow", fmt.Sprint(i), []byte{1}))
	}
	for i := range 12 {
		if n := r.group().Waiting; n > 3 {
			t.Errorf("%d wait", n)
		}
		if out := s.next(); out.ErrorMessage != "" || out.InferResponse.Id != fmt.Sprint(i) {
			t.Fatal(out)
		}
	}
	s.end()
}

// At the end of the server a call ends after answers to all requests sent.
func TestStreamDrain(t *testing.T) {
	r := serve(t, func(c *server.Config) { c.Drain = 20 * time.Second }, slow("2s"))
	s := r.open()
	s.send(raw("slow", "0", []byte{1}), raw("slow", "1", []byte{1}))
	r.until(func() bool { return r.group().Busy == 1 && r.waiting() == 1 })
	stopped := make(chan error, 1)
	go func() { stopped <- r.stop() }()
	if out := s.next(); out.InferResponse.Id != "0" || out.ErrorMessage != "" {
		t.Error(out)
	}
	if out := s.next(); out.InferResponse.Id != "1" || out.ErrorMessage == "" {
		t.Error(out)
	}
	if _, err := s.Recv(); status.Code(err) != codes.Unavailable {
		t.Error(err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// Waiting requests end as unloaded, and the model may be loaded again.
func TestStreamUnload(t *testing.T) {
	r := serve(t, nil, identity)
	s := r.open()
	s.send(raw("identity", "0", []byte{1}))
	if out := s.next(); out.ErrorMessage != "" {
		t.Fatal(out)
	}
	if _, err := r.RepositoryModelUnload(r.ctx, &pb.RepositoryModelUnloadRequest{ModelName: "identity"}); err != nil {
		t.Fatal(err)
	}
	s.send(raw("identity", "1", []byte{1}))
	if out := s.next(); out.ErrorMessage == "" {
		t.Error(out)
	}
	if _, err := r.RepositoryModelLoad(r.ctx, &pb.RepositoryModelLoadRequest{ModelName: "identity"}); err != nil {
		t.Fatal(err)
	}
	s.send(raw("identity", "2", []byte{1}))
	if out := s.next(); out.ErrorMessage != "" || out.InferResponse.Id != "2" {
		t.Error(out)
	}
	s.end()
}
