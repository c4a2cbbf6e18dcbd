package grpc_test

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"millrace/batching"
	pb "millrace/internal/inferencepb"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

// accumulating answers with the sum of the inputs of a stream.
type accumulating struct{ workers.Base }

func init() {
	workers.Register(workers.Kind{Name: "accumulating", New: func() workers.Worker { return &accumulating{} }})
}

func (*accumulating) Init(context.Context, *workers.Env) (*stream.Model, error) {
	return &stream.Model{
		MaxBatch: 8, Stateful: true,
		Inputs:  []stream.TensorSpec{{Name: "INPUT", Datatype: stream.Int32, Shape: []int{1}}},
		Outputs: []stream.TensorSpec{{Name: "OUTPUT", Datatype: stream.Int32, Shape: []int{1}}},
	}, nil
}

func (*accumulating) Run(_ context.Context, b *batching.Batch) error {
	for i, r := range b.Requests {
		sum, _ := r.State().(uint32)
		sum += binary.LittleEndian.Uint32(r.Inputs[0].Data)
		r.SetState(sum, func(any) {})
		b.Finish(i, []stream.Tensor{{Name: "OUTPUT", Datatype: stream.Int32, Shape: []int{1, 1},
			Data: binary.LittleEndian.AppendUint32(nil, sum)}})
	}
	return nil
}

func accumulate(idle time.Duration) workers.Config {
	return workers.Config{Name: "sum", Kind: "accumulating", Sequences: stream.Sequences{Idle: idle}}
}

// inSequence returns a request of a sequence. id is an int64, a uint64 or a string.
func inSequence(id any, start, end bool, value int) *pb.ModelInferRequest {
	choice := &pb.InferParameter{}
	switch id := id.(type) {
	case int:
		choice.ParameterChoice = &pb.InferParameter_Int64Param{Int64Param: int64(id)}
	case uint64:
		choice.ParameterChoice = &pb.InferParameter_Uint64Param{Uint64Param: id}
	case string:
		choice.ParameterChoice = &pb.InferParameter_StringParam{StringParam: id}
	}
	flag := func(v bool) *pb.InferParameter {
		return &pb.InferParameter{ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: v}}
	}
	return &pb.ModelInferRequest{
		ModelName: "sum",
		Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "INPUT", Datatype: "INT32",
			Shape: []int64{1, 1}}},
		RawInputContents: [][]byte{binary.LittleEndian.AppendUint32(nil, uint32(value))},
		Parameters: map[string]*pb.InferParameter{"sequence_id": choice, "sequence_start": flag(start),
			"sequence_end": flag(end)},
	}
}

// sum returns the number in the answer, or the error.
func sum(out *pb.ModelInferResponse, err error) string {
	if err != nil {
		return status.Code(err).String() + " " + err.Error()
	}
	return fmt.Sprint(binary.LittleEndian.Uint32(out.RawOutputContents[0]))
}

func (r *running) want(got, want string) {
	r.Helper()
	if !strings.HasPrefix(got, want) {
		r.Errorf("got %s, want %s", got, want)
	}
}

// post sends a request of a sequence by REST.
func (r *running) post(params string, value int) string {
	r.Helper()
	resp, err := http.Post(r.s.URL("http")+"/v2/models/sum/infer", "application/json",
		strings.NewReader(fmt.Sprintf(`{"parameters":{%s},"inputs":[{"name":"INPUT","datatype":"INT32","shape":[1,`+
			`1],"data":[%d]}]}`, params, value)))
	if err != nil {
		r.Fatal(err)
	}
	defer resp.Body.Close()
	var out struct {
		Error   string
		Outputs []struct{ Data []int }
	}
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		r.Fatal(err)
	}
	if resp.StatusCode != 200 {
		return fmt.Sprint(resp.StatusCode, " ", out.Error)
	}
	return fmt.Sprint(out.Outputs[0].Data[0])
}

// A sequence continues across REST, ModelInfer and ModelStreamInfer, whatever the type of its id.
func TestSequenceByAllProtocols(t *testing.T) {
	r := serve(t, func(c *server.Config) { c.HTTP = "127.0.0.1:0" }, accumulate(time.Hour))
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	for _, id := range []struct {
		grpc any
		rest string
	}{{7, `"sequence_id":7`}, {"7", `"sequence_id":"7"`}, {uint64(1<<64 - 1), `"sequence_id":18446744073709551615`}} {
		x := r.open()
		r.want(sum(r.ModelInfer(r.ctx, inSequence(id.grpc, false, false, 1))), "InvalidArgument")
		r.want(sum(r.ModelInfer(r.ctx, inSequence(id.grpc, true, false, 1))), "1")
		r.want(r.post(id.rest, 10), "11")
		x.send(inSequence(id.grpc, false, false, 100), inSequence(id.grpc, false, false, 1000))
		r.want(sum(x.next().InferResponse, nil), "111")
		r.want(sum(x.next().InferResponse, nil), "1111")
		r.want(r.post(id.rest+`,"sequence_start":true`, 5), "5")
		x.send(inSequence(id.grpc, false, true, 5), inSequence(id.grpc, false, false, 5))
		r.want(sum(x.next().InferResponse, nil), "10")
		r.want(x.next().ErrorMessage, "inference request for sequence ")
		r.want(r.post(id.rest, 10), "400 inference request for sequence ")
		x.end()
	}
	r.want(r.post(`"sequence_start":true`, 1), "400 parameters.sequence_id")
	r.want(r.post(`"sequence_id":0,"sequence_end":false`, 3), "3") // alone
}

// Requests of several sequences are answered in the order of the call, each with the state of its own sequence.
func TestManySequencesOfACall(t *testing.T) {
	r := serve(t, nil, accumulate(time.Hour))
	x := r.open()
	const sequences, rounds = 5, 12
	go func() {
		for n := range rounds {
			for i := range sequences {
				_ = x.Send(inSequence(i+1, n == 0, n == rounds-1, i+1))
			}
		}
	}()
	for n := range rounds {
		for i := range sequences {
			out := x.next()
			r.want(sum(out.InferResponse, nil), fmt.Sprint((n+1)*(i+1)))
			if !final(out) {
				t.Error("is not the last one of its request")
			}
		}
	}
	x.end()
	r.until(func() bool { return r.places() == 0 })
}

// After a call has ended early, the state includes only answered requests, or is gone.
func TestSequenceOfACallThatEnds(t *testing.T) {
	r := serve(t, nil, accumulate(time.Hour))
	x := r.open()
	x.send(inSequence(1, true, false, 1))
	r.want(sum(x.next().InferResponse, nil), "1")
	x.cancel()
	r.want(sum(r.ModelInfer(r.ctx, inSequence(1, false, true, 1))), "2")
	for range 20 { // end the call at any moment
		x := r.open()
		for i := range 10 {
			_ = x.Send(inSequence(2, i == 0, false, 1))
		}
		x.cancel()
	}
	r.until(func() bool { // requests of ended calls may arrive after the next request
		r.want(sum(r.ModelInfer(r.ctx, inSequence(2, true, true, 1))), "1")
		return r.places() == 0
	})
}

// Requests whose sequence cannot work are refused.
func TestSequencesAreRefused(t *testing.T) {
	r := serve(t, nil, accumulate(time.Hour), identity)
	in := inSequence(1, true, false, 1)
	in.ModelName = "identity"
	_, err := r.ModelInfer(r.ctx, in)
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "keeps no state") {
		t.Error(err)
	}
	x := r.open("millrace-stream-policy", "every")
	x.send(inSequence(1, true, false, 1))
	r.want(x.next().ErrorMessage, "parameters.sequence_id")
}

// Requests of one call without a sequence share no state, however many wait. Requests of a call that is one stream of
// frames do share state.
func TestStreamWithoutSequence(t *testing.T) {
	r := serve(t, nil, accumulate(time.Minute))
	one := inSequence(1, true, false, 1)
	one.Parameters = nil
	for _, c := range []struct {
		md   []string
		each uint32
	}{{nil, 0}, {[]string{"millrace-stream-policy", "every"}, 1}} {
		s := r.open(c.md...)
		const n = 40
		for range n {
			s.send(one)
		}
		for i := range uint32(n) {
			out := s.next()
			if got := binary.LittleEndian.Uint32(out.InferResponse.RawOutputContents[0]); out.ErrorMessage != "" ||
				got != 1+i*c.each {
				t.Fatalf("%v, request %d: got %d, %s", c.md, i, got, out.ErrorMessage)
			}
		}
		s.end()
	}
	r.until(func() bool { return r.places() == 0 })
}
