package native_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"millrace/ingest/native"
	"millrace/server"
	"millrace/stream"
	"millrace/stream/coded"
	"millrace/workers"
)

// start runs a server inside this program, without listeners.
func start(models ...workers.Config) (s *server.Server, stop func()) {
	return startWith(server.Config{Models: models})
}

func startWith(cfg server.Config) (s *server.Server, stop func()) {
	cfg.HTTP, cfg.GRPC = "127.0.0.1:0", server.Off
	s, err := server.New(cfg)
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	<-s.Ready()
	return s, func() {
		cancel()
		if err := <-ended; err != nil {
			panic(err)
		}
	}
}

// A call waits for its result. The result shares memory with the server until released.
func ExampleClient_Infer() {
	s, stop := start(workers.Config{Name: "echo", Source: "identity"})
	defer stop()

	input := stream.Tensor{Name: "x", Datatype: stream.Float32, Shape: []int{1, 2},
		Data: stream.AppendFloat32(nil, 1.5, -2)}
	r, err := s.Native().Infer(context.Background(), "echo", []stream.Tensor{input})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Release()
	fmt.Println(r.Outputs[0].Name, r.Outputs[0].Shape, r.Outputs[0].Float32s())
	// Output: x [1 2] [1.5 -2]
}

// Errors describe the mistake in the request, and have a code.
func ExampleClient_Infer_errors() {
	s, stop := start(workers.Config{Name: "echo", Source: "identity"})
	defer stop()

	short := stream.Tensor{Name: "x", Datatype: stream.Int32, Shape: []int{3}, Data: make([]byte, 8)}
	_, err := s.Native().Infer(context.Background(), "echo", []stream.Tensor{short})
	fmt.Println(stream.CodeOf(err), err)
	_, err = s.Native().Infer(context.Background(), "nobody", []stream.Tensor{short})
	fmt.Println(stream.CodeOf(err))
	// Output:
	// invalid_argument inputs.x.data: 8 bytes for shape [3] of INT32: want 12
	// invalid_argument
}

// Go returns a future.
func ExampleClient_Go() {
	s, stop := start(workers.Config{Name: "echo", Source: "identity"})
	defer stop()

	input := stream.Tensor{Name: "x", Datatype: stream.Uint8, Shape: []int{3}, Data: []byte{1, 2, 3}}
	future := s.Native().Go(context.Background(), "echo", []stream.Tensor{input})
	r, err := future.Wait()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Outputs[0].Data)
	r.Release()
	// Output: [1 2 3]
}

// A stream of frames: in every, each frame is answered, in order.
func ExampleClient_Stream() {
	s, stop := start(workers.Config{Name: "echo", Source: "identity"})
	defer stop()

	in, err := s.Native().Stream("echo", stream.Options{Policy: stream.Policy{Mode: stream.Every}},
		func(r *stream.Result) { fmt.Println(r.Seq, r.Outcome) },
		func(why stream.CloseReason) { fmt.Println(why) })
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range 3 {
		if err := in.Send(uint64(i), stream.Opaque, []byte("frame")); err != nil {
			fmt.Println(err)
		}
	}
	fmt.Println("finished:", in.Finish(context.Background())) // Close would drop waiting frames
	// Output:
	// 0 result
	// 1 result
	// 2 result
	// client
	// finished: <nil>
}

// A program with several users acts for each user: users have quotas, and their names appear in logs, traces and
// metrics. The program's own requests have no quotas.
func ExampleClient_As() {
	s, stop := start(workers.Config{Name: "echo", Source: "identity"}, workers.Config{Name: "door", Source: "identity"})
	defer stop()

	eva, err := s.Native().As(native.User{Name: "eva", Models: []string{"echo"},
		Quotas: map[string]float64{"requests": 1}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, model := range []string{"door", "echo", "echo"} {
		r, err := eva.InferBytes(context.Background(), model, stream.Opaque, []byte("frame"))
		if err != nil {
			fmt.Println(model, stream.CodeOf(err), coded.RetryAfter(err) > 0)
			continue
		}
		fmt.Println(model, r.Outcome)
		r.Release()
	}
	// Output:
	// door permission_denied false
	// echo result
	// echo flow_control true
}

// The server checks credentials given to the program, as over the protocols.
func ExampleClient_Authenticate() {
	s, stop := startWith(server.Config{APIKey: "the key of the server",
		Models: []workers.Config{{Name: "echo", Source: "identity"}}})
	defer stop()

	for _, header := range []string{"Bearer nobody's", "Bearer the key of the server"} {
		client, err := s.Native().Authenticate(context.Background(), native.Credentials{Key: header})
		if err != nil {
			fmt.Println(stream.CodeOf(err))
			continue
		}
		r, err := client.InferBytes(context.Background(), "echo", stream.Opaque, []byte("frame"))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(r.Outcome)
		r.Release()
	}
	// Output:
	// unauthenticated
	// result
}

// Models are loaded and unloaded while the server runs.
func ExampleClient_Load() {
	s, stop := start()
	defer stop()
	ctx := context.Background()
	var call *native.Client = s.Native()

	first, _ := call.Load(ctx, "delay", nil)
	other, _ := call.Load(ctx, "delay", stream.Params{"fixed": "1ms"})
	again, _ := call.Load(ctx, "delay", stream.Params{"fixed": "1ms"})
	fmt.Println(first, other, again)

	fmt.Println(call.Unload(ctx, other.Endpoint))
	_, _, err := call.Model(other.Endpoint)
	fmt.Println(stream.CodeOf(err))
	// Output:
	// {delay loaded} {delay-0 loaded} {delay-0 unchanged}
	// <nil>
	// not_found
}

func TestInferGivesUpWithItsContext(t *testing.T) {
	s, stop := start(workers.Config{Name: "slow", Source: "delay", Params: stream.Params{"fixed": "200ms"}})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := s.Native().InferBytes(ctx, "slow", stream.Opaque, []byte("x"))
	if stream.CodeOf(err) != stream.Canceled {
		t.Errorf("%v", err)
	}
	stop()
	if m := s.Memory().Stats(); m.Leases != 0 {
		t.Errorf("%d leases left", m.Leases)
	}
}

func TestMain(m *testing.M) {
	code := m.Run()
	if err := goleak.Find(goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2")); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
