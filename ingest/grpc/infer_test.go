package grpc_test

import (
	"bytes"
	"fmt"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/protobuf/proto"

	millracegrpc "millrace/ingest/grpc"
	"millrace/internal/inferencepb"
)

// An identity model returns the input, whether the output is copied or sent from the model's memory, in one HTTP/2
// frame or in many, and with compression.
func TestInferSizes(t *testing.T) {
	millracegrpc.BothWays(t, func(t *testing.T, exported bool) {
		r := serve(t, nil, identity)
		for _, n := range []int{0, 1, 1000, 4 << 10, 8<<10 - 1, 8 << 10, 8<<10 + 1, 16 << 10, 30 << 10, 100 << 10,
			1 << 20, 3 << 20} {
			for _, opts := range [][]grpc.CallOption{nil, {grpc.UseCompressor(gzip.Name)},
				{grpc.UseCompressor("deflate")}} {
				in := raw("identity", fmt.Sprint("id", n), pattern(n))
				out, err := r.ModelInfer(r.ctx, in, opts...)
				if err != nil {
					t.Fatalf("%d: %v", n, err)
				}
				want := &inferencepb.ModelInferResponse{ModelName: "identity", ModelVersion: "1", Id: in.Id,
					Outputs: []*inferencepb.ModelInferResponse_InferOutputTensor{{Name: "x", Datatype: "UINT8",
						Shape: in.Inputs[0].Shape}},
					RawOutputContents: in.RawInputContents,
				}
				if !proto.Equal(out, want) {
					t.Errorf("%d: got %.300v", n, out)
				}
			}
		}
	})
}

// Large and small outputs, in any order, arrive in their places.
func TestInferSeveralTensors(t *testing.T) {
	r := serve(t, nil, identity)
	in := &inferencepb.ModelInferRequest{ModelName: "identity"}
	for i, n := range []int{20 << 10, 5, 0, 9 << 10, 9 << 10, 100} {
		in.Inputs = append(in.Inputs, &inferencepb.ModelInferRequest_InferInputTensor{Name: fmt.Sprint("t", i),
			Datatype: "INT8", Shape: []int64{int64(n)}})
		in.RawInputContents = append(in.RawInputContents, pattern(n))
	}
	out, err := r.ModelInfer(r.ctx, in)
	if err != nil {
		t.Fatal(err)
	}
	for i, o := range out.Outputs {
		if o.Name != in.Inputs[i].Name || !bytes.Equal(out.RawOutputContents[i], in.RawInputContents[i]) {
			t.Errorf("output %d is %s with %d bytes", i, o.Name, len(out.RawOutputContents[i]))
		}
	}
	if len(out.Outputs) != 6 || len(out.RawOutputContents) != 6 {
		t.Errorf("%d outputs, %d contents", len(out.Outputs), len(out.RawOutputContents))
	}
}
