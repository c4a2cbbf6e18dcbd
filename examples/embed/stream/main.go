// Command stream embeds the server: it loads a model, sends one request and a stream of frames, and shuts the server down.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"millrace/config"
	"millrace/ingest/native"
	"millrace/server"
	"millrace/stream"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	echo, err := config.ParseModel("echo=identity,batching.max_size=4") // as in serve --model
	if err != nil {
		return err
	}
	cfg := server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off} // config.Load("millrace.yaml") reads a file
	cfg.Models = append(cfg.Models, echo)
	cfg.Log.Level = "warn"
	s, err := server.New(cfg)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	select {
	case <-s.Ready():
		err = use(ctx, s.Native())
	case err := <-ended: // a model could not be loaded, or an address is taken
		stop()
		return err
	}
	stop() // the server drains: it ends when all frames are answered, or the setting drain is over
	if ended := <-ended; err == nil {
		err = ended
	}
	return err
}

func use(ctx context.Context, c *native.Client) error {
	endpoint, err := c.Load(ctx, "delay", stream.Params{"fixed": "1ms"}) // a kind of worker, or a model of the configuration
	if err != nil {
		return err
	}
	fmt.Println("loaded", endpoint)

	r, err := c.Infer(ctx, "echo", numbers(1.5, -2))
	if err != nil {
		return err
	}
	fmt.Println(r.Outputs[0].Name, r.Outputs[0].Float32s())
	r.Release()

	count := 0
	st, err := c.Stream(endpoint, stream.Options{Policy: stream.Policy{Mode: stream.Every}}, func(r *stream.Result) {
		if r.Outcome == stream.Answered { // else r.Err, or a drop for r.Reason
			count++
		}
	}, nil)
	if err != nil {
		return err
	}
	for seq := range uint64(3) {
		if err := st.Submit(stream.Frame{Seq: seq, Inputs: numbers(float32(seq))}); err != nil {
			st.Close(stream.ByClient)
			return err
		}
	}
	wait, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := st.Finish(wait); err != nil { // waits for the results of all frames
		return err
	}
	fmt.Println("the stream has", count, "results")
	return c.Unload(ctx, endpoint)
}

func numbers(values ...float32) []stream.Tensor {
	return []stream.Tensor{{Name: "x", Datatype: stream.Float32, Shape: []int{len(values)}, Data: stream.AppendFloat32(nil, values...)}}
}
