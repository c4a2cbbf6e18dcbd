package grpc_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/batching"
	"millrace/ingest/shm"
	pb "millrace/internal/inferencepb"
	"millrace/stream"
	"millrace/workers"
)

// gated answers each request with its input, when the test allows.
type gated struct{ workers.Base }

var (
	inRun = make(chan struct{}, 64)
	pass  = make(chan struct{}, 64)
)

func init() {
	workers.Register(workers.Kind{Name: "gated", New: func() workers.Worker { return &gated{} }})
}

func (*gated) Init(context.Context, *workers.Env) (*stream.Model, error) {
	x := []stream.TensorSpec{{Name: "x", Datatype: stream.Uint8, Shape: []int{1}}}
	return &stream.Model{Inputs: x, Outputs: x, MaxBatch: 1}, nil
}

func (*gated) Run(_ context.Context, b *batching.Batch) error {
	inRun <- struct{}{}
	<-pass
	b.Finish(0, []stream.Tensor{{Name: "x", Datatype: stream.Uint8, Shape: []int{1, 1},
		Data: bytes.Clone(b.Inputs[0].Data)}})
	return nil
}

// The drop of a waiting request comes before the result of an older running request. Each request gets its own
// answer, in the order of the requests. The call's metadata or the first request set the policy.
func TestStreamAnswersTheirRequest(t *testing.T) {
	r := serve(t, nil, workers.Config{Name: "gated", Kind: "gated", Instances: 1})
	for i, md := range [][]string{{"millrace-stream-policy", "latest"}, nil} {
		s := r.open(md...)
		first := raw("gated", "0", []byte{10})
		if md == nil {
			first.Parameters = text("millrace_stream_policy", "latest")
		}
		s.send(first)
		<-inRun
		s.send(raw("gated", "1", []byte{11}), raw("gated", "2", []byte{12}))
		r.until(func() bool { return r.group().Frames.Drops[stream.Superseded] == uint64(i+1) })
		pass <- struct{}{}
		pass <- struct{}{}
		for i, want := range []string{"\x0a", "", "\x0c"} {
			out := s.next().InferResponse
			if want == "" {
				if why := out.Parameters["dropped"].GetStringParam(); why != string(stream.Superseded) {
					t.Errorf("%d: %v", i, out)
				}
			} else if len(out.RawOutputContents) != 1 || string(out.RawOutputContents[0]) != want {
				t.Errorf("%d: %v", i, out)
			}
		}
		<-inRun
		s.end()
	}
}

// text is a parameter.
func text(key, value string) map[string]*pb.InferParameter {
	return map[string]*pb.InferParameter{key: {ParameterChoice: &pb.InferParameter_StringParam{StringParam: value}}}
}

// The first request sets the options of the stream; wrong options refuse all requests of the call.
func TestStreamOptionsInRequests(t *testing.T) {
	r := serve(t, nil, identity)
	with := func(params map[string]*pb.InferParameter) *pb.ModelInferRequest {
		in := raw("identity", "", []byte{1})
		in.Parameters = params
		return in
	}
	number := func(n int64) map[string]*pb.InferParameter {
		return map[string]*pb.InferParameter{
			"millrace_stream_window": {ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: n}}}
	}
	for _, c := range []struct {
		md       []string
		requests []*pb.ModelInferRequest
		want     []string // of each answer its error, or ""
	}{
		{nil, []*pb.ModelInferRequest{with(number(3)), with(nil)}, []string{"", ""}},
		{nil, []*pb.ModelInferRequest{with(nil), with(number(3)), with(nil)},
			[]string{"", "parameters.millrace_stream_window: is not supported", ""}},
		{nil, []*pb.ModelInferRequest{with(number(0)), with(nil)}, []string{"parameters.millrace_stream_window",
			"parameters.millrace_stream_window"}},
		{nil, []*pb.ModelInferRequest{with(text("millrace_stream_colour", "red")), with(nil)},
			[]string{"parameters.millrace_stream_colour", "parameters.millrace_stream_colour"}},
		{nil, []*pb.ModelInferRequest{with(text("millrace_stream_policy", "newest"))},
			[]string{"parameters.millrace_stream_policy"}},
		{[]string{"millrace-stream-policy", "every"}, []*pb.ModelInferRequest{with(number(3))},
			[]string{"parameters.millrace_stream_window: the metadata millrace-stream-*"}},
	} {
		s := r.open(c.md...)
		for i, in := range c.requests {
			s.send(in)
			if out := s.next(); (out.ErrorMessage == "") != (c.want[i] == "") ||
				!strings.HasPrefix(out.ErrorMessage, c.want[i]) {
				t.Errorf("%v: %q, want %q", in.Parameters, out.ErrorMessage, c.want[i])
			}
		}
		s.end()
	}
	if _, err := r.ModelInfer(r.ctx, with(number(3))); err == nil ||
		!strings.Contains(err.Error(), "millrace_stream_window") {
		t.Error(err)
	}
}

// A request that waits too long in the queue ends with the error of the queue's time limit, not with a deadline.
func TestStreamQueueTimeout(t *testing.T) {
	r := serve(t, nil, workers.Config{Name: "gated", Kind: "gated", Instances: 1})
	s := r.open()
	s.send(raw("gated", "0", []byte{10}))
	<-inRun
	in := raw("gated", "1", []byte{11})
	in.Parameters = map[string]*pb.InferParameter{
		"timeout": {ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: 20000}}}
	s.send(in)
	r.until(func() bool { return r.group().Frames.Drops[stream.Stale] == 1 })
	pass <- struct{}{}
	if out := s.next(); out.ErrorMessage != "" {
		t.Error(out)
	}
	if out := s.next(); out.InferResponse.Id != "1" ||
		!strings.Contains(out.ErrorMessage, "timeout: model gated had no worker") {
		t.Error(out)
	}
	s.end()
}

// Requests without a version are spread by the weights of the versions.
func TestStreamVersions(t *testing.T) {
	r := serve(t, nil, identity)
	split := workers.Versions{All: true, Weights: []string{"1=1", "2=1"}}
	err := r.s.Models().Define(
		workers.Config{Name: "m", Kind: "gated", Version: "1", Versions: split},
		workers.Config{Name: "m", Kind: "gated", Version: "2", Versions: split})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.s.Models().Load(r.ctx, "m", workers.Load{}); err != nil {
		t.Fatal(err)
	}
	s := r.open()
	got := map[string]int{}
	for range 4 {
		s.send(raw("m", "", []byte{1}))
		<-inRun
		pass <- struct{}{}
		got[s.next().InferResponse.ModelVersion]++
	}
	if got["1"] != 2 || got["2"] != 2 {
		t.Errorf("%v", got)
	}
	s.end()
}

// The requests of a call return to the highest version after a gap in which the call's stream used another version.
func TestStreamVersionsThatComeBack(t *testing.T) {
	r := serve(t, nil, identity)
	serves := func(versions ...string) {
		t.Helper()
		var all []workers.Config
		for _, v := range versions {
			all = append(all, workers.Config{Name: "m", Kind: "identity", Version: v,
				Versions: workers.Versions{All: true}})
		}
		if err := r.s.Models().Define(all...); err != nil {
			t.Fatal(err)
		}
		if _, err := r.s.Models().Load(r.ctx, "m", workers.Load{}); err != nil {
			t.Fatal(err)
		}
	}
	s := r.open()
	ask := func(want string) {
		t.Helper()
		s.send(raw("m", "", []byte{1}))
		if got := s.next().GetInferResponse().GetModelVersion(); got != want {
			t.Errorf("version %q has answered, want %s", got, want)
		}
	}
	for range 3 {
		serves("1", "2")
		ask("2")
		serves("1")
		ask("1")
	}
	s.end()
}

// burst answers a request with 100 partial results, when the test allows.
type burst struct{ workers.Base }

func init() {
	workers.Register(workers.Kind{Name: "burst", New: func() workers.Worker { return &burst{} }})
}

func (*burst) Init(context.Context, *workers.Env) (*stream.Model, error) {
	return &stream.Model{AcceptsAnyInput: true, Ragged: true, MaxBatch: 1, Decoupled: true}, nil
}

func (*burst) Run(_ context.Context, b *batching.Batch) error {
	inRun <- struct{}{}
	<-pass
	for range 100 {
		if !b.Emit(0, []stream.Tensor{{Name: "y", Datatype: stream.Uint8, Shape: []int{1}, Data: []byte{1}}}) {
			return nil
		}
	}
	b.Finish(0, nil)
	return nil
}

// Partial results of a request behind an unfinished request arrive without waiting, in order and in a limited number.
func TestStreamPartialResultsBehindOthers(t *testing.T) {
	r := serve(t, nil, workers.Config{Name: "burst", Kind: "burst", Instances: 1}, repeat)
	s := r.open()
	s.send(raw("burst", "front", []byte{1}))
	<-inRun
	const n = 300
	s.send(repeated("behind", n, false))
	for i := range n + 100 {
		want := "behind"
		if i >= n {
			want = "front"
		}
		if i == n {
			pass <- struct{}{}
		}
		if out := s.next(); out.ErrorMessage != "" || out.InferResponse.Id != want || final(out) {
			t.Fatalf("answer %d: %v, want one of %s", i, out, want)
		}
		if held := r.s.Memory().Stats().Leases; held > 64+64+8 {
			t.Errorf("%d leases", held)
		}
	}
	s.end()
}

// A partial result that cannot be sent is the last answer of its request, and the request counts once. Later requests
// of the call are answered.
func TestStreamUnsendablePart(t *testing.T) {
	f, err := os.CreateTemp(shm.Folder, "millrace-test-")
	if err != nil {
		t.Skip(err)
	}
	defer os.Remove(f.Name())
	if err := f.Truncate(64); err != nil {
		t.Fatal(err)
	}
	f.Close()
	r := serve(t, nil, repeat)
	if _, err := r.SystemSharedMemoryRegister(r.ctx, &pb.SystemSharedMemoryRegisterRequest{Name: "r",
		Key: "/" + filepath.Base(f.Name()), ByteSize: 64}); err != nil {
		t.Fatal(err)
	}
	in := repeated("1", 3, true)
	params := text("shared_memory_region", "r")
	params["shared_memory_byte_size"] = &pb.InferParameter{ParameterChoice: &pb.InferParameter_Int64Param{
		Int64Param: 1}}
	in.Outputs = []*pb.ModelInferRequest_InferRequestedOutputTensor{{Name: "OUT", Parameters: params}}
	s := r.open()
	s.send(in, repeated("2", 1, false))
	for _, want := range []struct {
		id            string
		failed, final bool
	}{{"1", true, true}, {"2", false, false}} {
		if out := s.next(); out.InferResponse.Id != want.id || (out.ErrorMessage != "") != want.failed ||
			final(out) != want.final {
			t.Errorf("%v, want %+v", out, want)
		}
	}
	s.end()
	r.until(func() bool { return r.group().Frames.Results == 2 })
	sum := uint64(0)
	for _, n := range r.group().Frames.Unsendable {
		sum += n
	}
	if sum != 1 {
		t.Errorf("counted %+v", r.group().Frames)
	}
}

// Answers of a decoupled model do not wait for a slower earlier request. Answers of other models do not wait for the
// decoupled model, and keep the order of their requests.
func TestStreamAsAnswersCome(t *testing.T) {
	r := serve(t, nil, workers.Config{Name: "count", Kind: "repeat", Instances: 2},
		workers.Config{Name: "gated", Kind: "gated"})
	s := r.open()
	ask := func(id string, wait uint32) *pb.ModelInferRequest {
		return &pb.ModelInferRequest{ModelName: "count", Id: id, Inputs: []*pb.ModelInferRequest_InferInputTensor{
			{Name: "IN", Datatype: "INT32", Shape: []int64{1},
				Contents: &pb.InferTensorContents{IntContents: []int32{7}}},
			{Name: "DELAY", Datatype: "UINT32", Shape: []int64{1},
				Contents: &pb.InferTensorContents{UintContents: []uint32{wait}}},
			{Name: "WAIT", Datatype: "UINT32", Shape: []int64{1},
				Contents: &pb.InferTensorContents{UintContents: []uint32{0}}},
		}}
	}
	s.send(ask("slow", 3_600_000), ask("fast", 0), raw("gated", "a", []byte{1}), raw("gated", "b", []byte{2}),
		ask("faster", 0))
	<-inRun
	got := map[string]bool{}
	for range 2 {
		got[s.next().InferResponse.Id] = true
	}
	if !got["fast"] || !got["faster"] {
		t.Errorf("answered before the slow ones: %v", got)
	}
	pass <- struct{}{}
	pass <- struct{}{}
	for _, want := range []string{"a", "b"} {
		if id := s.next().InferResponse.Id; id != want {
			t.Errorf("got the answer to %s, want that to %s", id, want)
		}
	}
	<-inRun
	s.cancel()
}
