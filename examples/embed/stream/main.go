// Command stream embeds the server: it loads models, sends tensors, a picture and a stream of frames, and shuts the
// server down.
package main

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/jpeg"
	"log"
	"time"

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
	// config.Load("millrace.yaml") reads a file
	cfg := server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off}
	if err := cfg.AddModels("echo=identity,batching.max_size=4", "find=motion"); err != nil { // as in serve --model
		return err
	}
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
	// a kind of worker, or a model of the configuration
	loaded, err := c.Load(ctx, "delay", stream.Params{"fixed": "1ms"})
	if err != nil {
		return err
	}
	fmt.Println(loaded.Result, loaded.Endpoint)

	r, err := c.Infer(ctx, "echo", []stream.Tensor{
		numbers(1.5, -2),
		{Name: "ids", Datatype: stream.Int64, Shape: []int{2}, Data: stream.AppendInt64(nil, 7, 8)},
		{Name: "labels", Datatype: stream.Bytes, Shape: []int{2}, Data: stream.AppendStrings(nil, "cat", "dog")},
	})
	if err := show(r, err); err != nil {
		return err
	}
	var picture bytes.Buffer // or a file, as os.ReadFile returns it
	if err := jpeg.Encode(&picture, image.NewGray(image.Rect(0, 0, 64, 48)), nil); err != nil {
		return err
	}
	r, err = c.InferBytes(ctx, "find", stream.JPEG, picture.Bytes())
	if err := show(r, err); err != nil {
		return err
	}
	if err := frames(ctx, c, loaded.Endpoint); err != nil {
		return err
	}
	return c.Unload(ctx, loaded.Endpoint)
}

// show prints the outputs of a result, and releases it.
func show(r *stream.Result, err error) error {
	if err != nil {
		return err
	}
	defer r.Release()
	for i := range r.Outputs {
		t := &r.Outputs[i]
		var values any
		switch t.Datatype {
		case stream.Float32:
			values = t.Float32s()
		case stream.Int64:
			values, err = t.Int64s()
		case stream.Bytes:
			values, err = t.Strings()
		}
		if err != nil {
			return err
		}
		fmt.Println(t.Name, t.Datatype, t.Shape, values)
	}
	return nil
}

// frames sends more frames than the window of the stream has places for.
func frames(ctx context.Context, c *native.Client, model string) error {
	const window = 16
	places, count := make(chan struct{}, window), 0
	st, err := c.Stream(model, stream.Options{Policy: stream.Policy{Mode: stream.Every, Window: window}},
		func(r *stream.Result) {
			if r.Outcome == stream.Answered && !r.Partial { // else r.Err, or a drop for r.Reason
				count++
			}
			if !r.Partial {
				<-places // each accepted frame has one ending, also when the stream is closed
			}
		}, nil)
	if err != nil {
		return err
	}
	for seq := range uint64(40) {
		places <- struct{}{} // waits for the ending of an earlier frame
		if err := st.Submit(stream.Frame{Seq: seq, Inputs: []stream.Tensor{numbers(float32(seq))}}); err != nil {
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
	return nil
}

func numbers(values ...float32) stream.Tensor {
	return stream.Tensor{Name: "x", Datatype: stream.Float32, Shape: []int{len(values)},
		Data: stream.AppendFloat32(nil, values...)}
}
