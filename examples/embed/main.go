// Command embed runs a model inside a program of its own, without a port.
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
	s, err := server.New(server.Config{HTTP: server.Off, GRPC: server.Off, Models: []workers.Config{{Name: "echo", Source: "identity"}}})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	select {
	case <-s.Ready():
	case err := <-ended:
		log.Fatal(err)
	}

	x := stream.Tensor{Name: "x", Datatype: stream.Float32, Shape: []int{1, 2}, Data: stream.AppendFloat32(nil, 1.5, -2)}
	if r, err := s.Native().Infer(ctx, "echo", []stream.Tensor{x}); err == nil {
		fmt.Println(r.Outputs[0].Name, r.Outputs[0].Float32s())
		r.Release()
	}
	stop()
	fmt.Println("ended:", <-ended)
}
