package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "millrace/internal/inferencepb"
	"millrace/server"
	"millrace/workers"
)

// grpcConns is the number of connections, each with one call at a time.
const grpcConns = 16

// bareGRPC is the bare loop: bareGRPC answers a request with the request's tensors, using the generated messages.
type bareGRPC struct {
	pb.UnimplementedGRPCInferenceServiceServer
}

func echo(in *pb.ModelInferRequest) *pb.ModelInferResponse {
	out := &pb.ModelInferResponse{ModelName: in.ModelName, ModelVersion: "1", Id: in.Id,
		RawOutputContents: in.RawInputContents}
	for _, t := range in.Inputs {
		out.Outputs = append(out.Outputs, &pb.ModelInferResponse_InferOutputTensor{Name: t.Name, Datatype: t.Datatype,
			Shape: t.Shape})
	}
	return out
}

func (bareGRPC) ModelInfer(_ context.Context, in *pb.ModelInferRequest) (*pb.ModelInferResponse, error) {
	return echo(in), nil
}

func (bareGRPC) ModelStreamInfer(s grpc.BidiStreamingServer[pb.ModelInferRequest, pb.ModelStreamInferResponse]) error {
	for {
		in, err := s.Recv()
		if err == io.EOF {
			return nil
		}
		if err == nil {
			out := echo(in)
			// as in every answer of a stream
			out.Parameters = map[string]*pb.InferParameter{
				"triton_final_response": {ParameterChoice: &pb.InferParameter_BoolParam{BoolParam: true}}}
			err = s.Send(&pb.ModelStreamInferResponse{InferResponse: out})
		}
		if err != nil {
			return err
		}
	}
}

// grpcClients are connections to one server.
type grpcClients struct {
	conns []*grpc.ClientConn
	in    *pb.ModelInferRequest
}

func dialGRPC(addr string, size int) (*grpcClients, error) {
	c := &grpcClients{in: &pb.ModelInferRequest{ModelName: "identity",
		Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "UINT8",
			Shape: []int64{1, int64(size)}}},
		RawInputContents: [][]byte{make([]byte, size)},
	}}
	for range grpcConns {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			c.close()
			return nil, err
		}
		c.conns = append(c.conns, conn)
	}
	return c, nil
}

func (c *grpcClients) close() {
	for _, conn := range c.conns {
		_ = conn.Close()
	}
}

// each runs one loop for each connection.
func (c *grpcClients) each(d time.Duration, one func(conn *grpc.ClientConn, more func() bool,
	done func(int)) error) (float64, error) {
	conns := make(chan *grpc.ClientConn, len(c.conns))
	for _, conn := range c.conns {
		conns <- conn
	}
	return throughputOf(len(c.conns), d, func(more func() bool, done func(int)) error {
		return one(<-conns, more, done)
	})
}

// unary returns replies a second.
func (c *grpcClients) unary(d time.Duration) (float64, error) {
	return c.each(d, func(conn *grpc.ClientConn, more func() bool, done func(int)) error {
		client := pb.NewGRPCInferenceServiceClient(conn)
		for more() {
			out, err := client.ModelInfer(context.Background(), c.in)
			if err == nil && (len(out.RawOutputContents) != 1 ||
				len(out.RawOutputContents[0]) != len(c.in.RawInputContents[0])) {
				err = fmt.Errorf("an answer of another size: %.200v", out)
			}
			if err != nil {
				return err
			}
			done(1)
		}
		return nil
	})
}

// grpcWindow is how many requests of a stream are unanswered at once.
const grpcWindow = 8

// streamed returns replies per second, of one stream for each connection.
func (c *grpcClients) streamed(d time.Duration) (float64, error) {
	return c.each(d, func(conn *grpc.ClientConn, more func() bool, done func(int)) error {
		s, err := pb.NewGRPCInferenceServiceClient(conn).ModelStreamInfer(context.Background())
		if err != nil {
			return err
		}
		for sent, got := 0, 0; ; {
			for ; sent < got+grpcWindow && more(); sent++ {
				if err := s.Send(c.in); err != nil {
					return err
				}
			}
			if got == sent {
				break
			}
			out, err := s.Recv()
			if err == nil && out.ErrorMessage != "" {
				err = fmt.Errorf("%s", out.ErrorMessage)
			}
			if err != nil {
				return err
			}
			got++
			done(1)
		}
		if err := s.CloseSend(); err != nil {
			return err
		}
		if _, err := s.Recv(); err != io.EOF {
			return fmt.Errorf("the stream ended with %v", err)
		}
		return nil
	})
}

// grpcCalls compares ModelInfer and ModelStreamInfer with a bare handler of the generated
// messages.
func grpcCalls(b *bench) error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	bare := grpc.NewServer()
	pb.RegisterGRPCInferenceServiceServer(bare, bareGRPC{})
	go bare.Serve(ln) // ends with Stop
	defer bare.Stop()
	ours, err := serve(func(c *server.Config) {
		c.HTTP, c.GRPC = server.Off, "127.0.0.1:0"
	}, workers.Config{Name: "identity", Source: "identity", Instances: 2})
	if err != nil {
		return err
	}
	for _, c := range []struct {
		name  string
		size  int
		limit float64
		rate  func(*grpcClients, time.Duration) (float64, error)
	}{
		{"gRPC ModelInfer, 1 KB", 1 << 10, 0.80, (*grpcClients).unary},
		{"gRPC ModelInfer, 30 KB", 30 << 10, 0.80, (*grpcClients).unary},
		{"gRPC ModelStreamInfer, 1 KB", 1 << 10, 0.85, (*grpcClients).streamed},
		{"gRPC ModelStreamInfer, 30 KB", 30 << 10, 0.85, (*grpcClients).streamed},
	} {
		row, err := b.grpcPair(c.name, ln.Addr().String(), ours.Addr("grpc"), c.size, c.rate)
		if err != nil {
			return err
		}
		b.add(row.atLeast(c.limit))
	}
	return ours.end()
}

func (b *bench) grpcPair(name, bare, ours string, size int, rate func(*grpcClients, time.Duration) (float64,
	error)) (Row, error) {
	x, err := dialGRPC(bare, size)
	if err != nil {
		return Row{}, err
	}
	defer x.close()
	y, err := dialGRPC(ours, size)
	if err != nil {
		return Row{}, err
	}
	defer y.close()
	return b.pair(name, "requests/s", func(d time.Duration) (float64, error) {
		return rate(x, d)
	}, func(d time.Duration) (float64, error) { return rate(y, d) })
}
