package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "millrace/internal/inferencepb"
)

func wordsCall(rng *rand.Rand) *pb.ModelInferRequest {
	t := text(rng)
	return oneTensor("text", "BYTES", []int64{1}, append(binary.LittleEndian.AppendUint32(nil, uint32(len(t))), t...))
}

// bytesCall makes requests of so many bytes.
func bytesCall(n int) func(*rand.Rand) *pb.ModelInferRequest {
	return func(*rand.Rand) *pb.ModelInferRequest {
		return oneTensor("x", "UINT8", []int64{1, int64(n)}, make([]byte, n))
	}
}

func mlpCall(*rand.Rand) *pb.ModelInferRequest {
	return oneTensor("x", "FP32", []int64{1, mlpWidth}, make([]byte, 4*mlpWidth))
}

func oneTensor(name, datatype string, shape []int64, data []byte) *pb.ModelInferRequest {
	return &pb.ModelInferRequest{Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: name, Datatype: datatype,
		Shape: shape}}, RawInputContents: [][]byte{data}}
}

func (v *visitor) connect() (*grpc.ClientConn, error) {
	return grpc.NewClient(v.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// callRounds makes rounds of calls over gRPC.
func callRounds(next func(*rand.Rand) *pb.ModelInferRequest) func(context.Context, *visitor, *rand.Rand) error {
	return func(ctx context.Context, v *visitor, rng *rand.Rand) error {
		conn, err := v.connect()
		if err != nil {
			return err
		}
		defer conn.Close()
		c := pb.NewGRPCInferenceServiceClient(conn)
		for range frames(rng) {
			pace(ctx, rng)
			req := next(rng)
			req.ModelName = v.account.model
			v.account.send()
			_, err := c.ModelInfer(ctx, req)
			switch code := status.Code(err); {
			case err == nil:
				v.account.answer()
			case v.account.cut && code == codes.Unavailable || code == codes.Canceled || code == codes.Unknown:
				v.account.lose(1) // the connection was broken
				return err
			default:
				v.account.fail(code.String())
			}
		}
		return nil
	}
}

// streamCallRound is a call of ModelStreamInfer as a stream of frames.
func streamCallRound(ctx context.Context, v *visitor, rng *rand.Rand) error {
	conn, err := v.connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	policy := []string{"latest", "every"}[rng.IntN(2)]
	call, err := pb.NewGRPCInferenceServiceClient(conn).ModelStreamInfer(metadata.AppendToOutgoingContext(ctx,
		"millrace-stream-policy", policy))
	if err != nil {
		return err
	}
	told, sent := 0, 0
	read := make(chan error, 1)
	go func() { // ends with the call
		var err error
		told, err = v.responses(call)
		read <- err
	}()
	for range frames(rng) {
		pace(ctx, rng)
		req := wordsCall(rng)
		req.ModelName, req.Id = v.account.model, fmt.Sprint(sent)
		v.account.send()
		sent++
		if call.Send(req) != nil {
			break // the reader has the reason
		}
	}
	_ = call.CloseSend()
	err = <-read
	v.account.lose(sent - told)
	return err
}

// responses counts endings until the call ends, and returns their number.
func (v *visitor) responses(call grpc.BidiStreamingClient[pb.ModelInferRequest,
	pb.ModelStreamInferResponse]) (told int, err error) {
	for ; ; told++ {
		r, err := call.Recv()
		if err == io.EOF {
			return told, nil
		}
		if err != nil {
			return told, err
		}
		dropped := r.GetInferResponse().GetParameters()["dropped"].GetStringParam()
		switch {
		case r.GetErrorMessage() != "":
			v.account.fail("error")
		case dropped != "":
			v.account.drop(dropped)
		default:
			v.account.answer()
		}
	}
}
