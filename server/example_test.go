package server_test

import (
	"context"
	"fmt"

	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

func ExampleServer() {
	s, err := server.New(server.Config{HTTP: "127.0.0.1:0", GRPC: "off", Models: []workers.Config{
		{Name: "echo", Source: "identity"},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	<-s.Ready()

	input := stream.Tensor{Name: "x", Datatype: stream.Float32, Shape: []int{2},
		Data: stream.AppendFloat32(nil, 1, 2.5)}
	r, err := s.Native().Infer(ctx, "echo", []stream.Tensor{input})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Outputs[0].Name, r.Outputs[0].Shape, r.Outputs[0].Float32s())
	r.Release()

	stop()
	fmt.Println(<-ended)
	// Output:
	// x [2] [1 2.5]
	// <nil>
}
