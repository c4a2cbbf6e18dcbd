package client_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"millrace/client"
	"millrace/server"
	"millrace/stream"
)

// exampleServer runs a server with one model, which returns its input.
func exampleServer() (addr string, stop func()) {
	cfg := server.Config{}
	cfg.HTTP, cfg.GRPC = "127.0.0.1:0", server.Off
	if err := cfg.AddModels("echo=identity"); err != nil {
		log.Fatal(err)
	}
	s, err := server.New(cfg)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	<-s.Ready()
	return s.Addr("http"), func() { cancel(); <-ended }
}

// Two streams over one connection. The session reconnects after a loss.
func ExampleClient_Session() {
	addr, stop := exampleServer()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	c, err := client.New(addr)
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	s, err := c.Session(ctx, client.SessionOptions{
		OnConnection: func(l client.ConnectionChange) { log.Printf("connection %s: %v", l.State, l.Err) },
	})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	// A file: every frame must be answered, and Send waits for credit.
	file, err := s.Open(ctx, "echo", client.StreamOptions{Codec: "opaque", Policy: stream.Policy{Mode: stream.Every}})
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		for i := range 3 {
			if _, err := file.Send(ctx, client.Frame{Data: fmt.Appendf(nil, "frame %d", i), Last: i == 2}); err != nil {
				log.Print(err)
			}
		}
	}()
	for r := range file.Replies() { // until the last frame has ended
		switch {
		case r.Lost:
			fmt.Println(r.Seq, "lost with a connection")
		case r.Err != nil:
			fmt.Println(r.Seq, r.Err)
		case r.Dropped != "":
			fmt.Println(r.Seq, "dropped:", r.Dropped)
		default:
			fmt.Printf("%d %s\n", r.Seq, r.Outputs[0].Data[4:])
		}
	}

	// A camera: only the newest frame matters, and a frame without credit is skipped.
	live, err := s.Open(ctx, "echo", client.StreamOptions{
		Codec: "opaque", OnReply: func(r client.Reply) { fmt.Println("live:", r.Answered()) },
		OnAdvice: func(a client.Advice) { log.Printf("send %v frames a second, key frame: %v", a.FPS, a.KeyFrame) },
	})
	if err != nil {
		log.Fatal(err)
	}
	if _, ok, err := live.TrySend(client.Frame{Data: []byte("now")}); err != nil || !ok {
		log.Print("not sent: ", err)
	}
	if err := live.Drain(ctx); err != nil {
		log.Fatal(err)
	}
	totals, err := live.Close(ctx)
	fmt.Println(totals.Received, totals.Results, err)

	// Output:
	// 0 frame 0
	// 1 frame 1
	// 2 frame 2
	// live: true
	// 1 1 <nil>
}
