// Command embed runs a model inside a Go program, without a port. An ONNX model is
// config.ParseModel("find=find.onnx,output=boxes"), written as in --model. For frames, s.Native().Stream opens a
// stream: Finish waits for the results of all frames and closes the stream, Close drops waiting frames.
package main

import (
	"context"
	"fmt"
	"log"

	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

func main() {
	ctx, drain := context.WithCancel(context.Background())
	s, err := server.New(server.Config{HTTP: "off", GRPC: "off",
		Models: []workers.Config{{Name: "echo", Source: "identity"}}})
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		<-s.Ready()
		x := stream.Tensor{Name: "x", Datatype: stream.Float32, Shape: []int{2},
			Data: stream.AppendFloat32(nil, 1.5, -2)}
		if r, err := s.Native().Infer(ctx, "echo", []stream.Tensor{x}); err == nil {
			fmt.Println(r.Outputs[0].Name, r.Outputs[0].Float32s())
			r.Release()
		}
		drain()
	}()
	fmt.Println("ended:", s.Run(ctx))
}
