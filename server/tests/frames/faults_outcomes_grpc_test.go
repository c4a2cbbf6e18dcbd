package frames_test

import (
	"context"
	"io"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "millrace/internal/inferencepb"
	"millrace/stream"
	"millrace/workers"
)

func init() { toldCases = append(toldCases, grpcCases...) }

// grpcCases are endings over gRPC, seen as the error of a call.
var grpcCases = []toldCase{
	{protocol: "grpc", ending: "runs", oneShot: true, want: eachWant, run: func(c *scene) {
		for _, what := range each {
			c.grpc(context.Background(), request(c.model, what))
		}
	}},
	{protocol: "grpc", ending: "requests that are wrong", oneShot: true,
		want: "accepted 4, error invalid_argument 3, refused invalid_argument 3, result 1, unsendable " +
			"invalid_argument 1", run: func(c *scene) {
			wrong := request(c.model, "ok")
			wrong.RawInputContents = nil
			c.grpc(context.Background(), wrong)
			wrong = request(c.model, "ok")
			wrong.Inputs[0].Shape = []int64{-1}
			c.grpc(context.Background(), wrong)
			wrong = request(c.model, "ok")
			wrong.Parameters = map[string]*pb.InferParameter{"k": {}}
			c.grpc(context.Background(), wrong)
			wrong = request(c.model, "ok")
			wrong.Outputs = []*pb.ModelInferRequest_InferRequestedOutputTensor{{Name: "z"}}
			c.grpc(context.Background(), wrong)
		}},
	{protocol: "grpc", ending: "no memory", oneShot: true, want: "accepted 2, drop memory 2, refused memory 2",
		run: func(c *scene) {
			defer c.exhaust()()
			c.grpc(context.Background(), request(c.model, "ok"))
			c.grpc(context.Background(), request(c.model, "ok"))
		}},
	{protocol: "grpc", ending: "queue full", oneShot: true,
		model: workers.Config{Queue: stream.QueuePolicy{MaxSize: 2}},
		want:  "accepted 5, error overloaded 2, result 3", run: func(c *scene) {
			c.queueFull(func(what string) { c.grpc(context.Background(), request(c.model, what)) })
		}},
	{protocol: "grpc", ending: "queue time-outs", oneShot: true, queued: true,
		model: workers.Config{Queue: stream.QueuePolicy{Timeout: time.Hour}},
		want:  "accepted 4, drop stale 1, error invalid_argument 1, refused invalid_argument 1, result 2",
		run: func(c *scene) {
			c.queueTimes(func(what string, priority, timeout int) {
				in := request(c.model, what)
				in.Parameters = map[string]*pb.InferParameter{
					"priority": {ParameterChoice: &pb.InferParameter_Uint64Param{Uint64Param: uint64(priority)}},
					"timeout":  {ParameterChoice: &pb.InferParameter_Int64Param{Int64Param: int64(timeout)}},
				}
				c.grpc(context.Background(), in)
			})
		}},
	{protocol: "grpc", ending: "given up", oneShot: true, want: "accepted 2, error canceled 2", run: func(c *scene) {
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { c.grpc(ctx, request(c.model, "hold")) })
		c.held()
		wg.Go(func() { c.grpc(ctx, request(c.model, "hold")) })
		c.until("it waits", func() bool { return c.stats().Waiting == 1 })
		c.inFlight(2)
		cancel()
		wg.Wait()
		c.until("the server has heard of it", func() bool { return c.counted()["in_flight"] == 0 })
		close(c.gate)
	}},
	{protocol: "grpc stream", ending: "runs", want: eachWant, oneShot: true, run: func(c *scene) {
		s := c.grpcStream()
		for _, what := range each {
			s.send(what)
		}
		s.end()
	}},
	{protocol: "grpc stream", ending: "latest", want: "accepted 4, drop superseded 2, result 2", run: func(c *scene) {
		s := c.grpcStream("millrace-stream-policy", "latest")
		s.send("hold")
		c.held()
		for range 3 {
			s.send("ok")
		}
		c.until("they have come", func() bool { return c.counted()["accepted"] == 4 })
		close(c.gate)
		s.end()
	}},
	{protocol: "grpc stream", ending: "unloaded", oneShot: true, want: "accepted 4, error unloaded 3, result 1",
		run: func(c *scene) {
			s := c.grpcStream()
			s.send("hold")
			c.held()
			for range 3 {
				s.send("ok")
			}
			c.until("they wait", func() bool { return c.stats().Waiting == 3 })
			c.unload(func() bool { return c.stats().Waiting == 0 })
			s.end()
		}},
	{protocol: "grpc stream", ending: "no memory", oneShot: true, model: workers.Config{},
		want: "accepted 2, drop memory 1, refused memory 1, result 1", run: func(c *scene) {
			s := c.grpcStream()
			c.until("the call has begun, which takes memory", func() bool { return c.s.Memory().Stats().Leased > 0 })
			free := c.exhaust()
			s.send("ok")
			c.until("it has come", func() bool { return c.counted()["accepted"] == 1 })
			free()
			s.send("ok")
			s.end()
		}},
	{protocol: "grpc stream", ending: "the client leaves", left: true, want: "accepted 3, error canceled 3",
		run: func(c *scene) {
			s := c.grpcStream()
			s.send("hold")
			c.held()
			s.send("ok")
			s.send("ok")
			c.until("they wait", func() bool { return c.stats().Waiting == 2 })
			s.cancel()
			c.until("the server has heard of it", func() bool { return c.counted()["in_flight"] == 0 })
			close(c.gate)
		}},
}

// request builds a request to a scene's model; what selects the ending.
func request(model, what string) *pb.ModelInferRequest {
	return &pb.ModelInferRequest{ModelName: model, RawInputContents: [][]byte{[]byte(what)},
		Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "UINT8",
			Shape: []int64{int64(len(what))}}},
	}
}

// codeOf is how a status is counted, where a status can come of several.
var codeOf = map[codes.Code]string{
	codes.InvalidArgument: "invalid_argument", codes.Unimplemented: "unsupported", codes.NotFound: "not_found",
	codes.ResourceExhausted: "flow_control",
	codes.Unavailable:       "overloaded", codes.DeadlineExceeded: "timeout", codes.Canceled: "canceled",
	codes.Internal: "internal",
}

func (c *scene) grpcClient() pb.GRPCInferenceServiceClient {
	conn, err := grpc.NewClient(c.s.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = conn.Close() })
	return pb.NewGRPCInferenceServiceClient(conn)
}

// grpc sends a request by ModelInfer.
func (c *scene) grpc(ctx context.Context, in *pb.ModelInferRequest) {
	if _, err := c.grpcClient().ModelInfer(ctx, in); err != nil {
		c.tell(1, "error", codeOf[status.Code(err)])
		return
	}
	c.tell(1, "result")
}

// grpcStream is a call of ModelStreamInfer.
type grpcStream struct {
	grpc.BidiStreamingClient[pb.ModelInferRequest, pb.ModelStreamInferResponse]
	c      *scene
	cancel context.CancelFunc
}

func (c *scene) grpcStream(md ...string) *grpcStream {
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), md...), time.Minute)
	c.Cleanup(cancel)
	s, err := c.grpcClient().ModelStreamInfer(ctx)
	if err != nil {
		c.Fatal(err)
	}
	return &grpcStream{s, c, cancel}
}

func (s *grpcStream) send(what string) {
	if err := s.Send(request(s.c.model, what)); err != nil {
		s.c.Fatal(err)
	}
}

// end ends the requests and records the ending of each.
func (s *grpcStream) end() {
	if err := s.CloseSend(); err != nil {
		s.c.Fatal(err)
	}
	for {
		out, err := s.Recv()
		if err == io.EOF {
			return
		}
		if err != nil {
			s.c.Fatal(err)
		}
		x := out.InferResponse
		switch why := x.Parameters["dropped"].GetStringParam(); {
		case !x.Parameters["triton_final_response"].GetBoolParam():
		case out.ErrorMessage != "":
			s.c.tell(1, "error", byText(out.ErrorMessage))
		case why != "":
			s.c.tell(1, "drop", why)
		default:
			s.c.tell(1, "result")
		}
	}
}

// byText is the code of an error in a response with text only.
func byText(text string) string {
	for part, code := range map[string]string{"unloaded": "unloaded", "memory.budget": "overloaded",
		"panicked": "internal", "is not what": "unsupported"} {
		if strings.Contains(text, part) {
			return code
		}
	}
	return text
}
