package ingest_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"millrace/batching"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

// counter answers with the number of frames of a stream, if a state is kept.
type counter struct {
	workers.Base
	stateful bool
}

func (c *counter) Init(context.Context, *workers.Env) (*stream.Model, error) {
	return &stream.Model{AcceptsAnyInput: true, Ragged: true, Stateful: c.stateful, MaxBatch: 4}, nil
}

func (c *counter) Run(_ context.Context, b *batching.Batch) error {
	for i, r := range b.Requests {
		n := 1
		if c.stateful {
			seen, _ := r.State().(int)
			n += seen
			r.SetState(n, nil)
		}
		b.Finish(i, []stream.Tensor{{Name: "n", Datatype: stream.Uint8, Shape: []int{1}, Data: []byte{byte(n)}}})
	}
	return nil
}

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	workers.Register(workers.Kind{Name: "plain", New: func() workers.Worker { return &counter{} }})
	workers.Register(workers.Kind{Name: "stateful", New: func() workers.Worker { return &counter{stateful: true} }})
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"), // one per process
		// The worker pool checks for the end of its server every ten seconds.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"))
}

func start(t *testing.T) (context.Context, *server.Server) {
	t.Helper()
	s, err := server.New(server.Config{HTTP: "127.0.0.1:0", GRPC: "off"})
	if err != nil {
		t.Fatal(err)
	}
	// The time-out ends a hanging test.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	running, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Run(running); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		wg.Wait()
		cancel()
	})
	<-s.Ready()
	return ctx, s
}

func call(ctx context.Context, t *testing.T, s *server.Server) byte {
	t.Helper()
	r, err := s.Native().InferBytes(ctx, "m", stream.Opaque, []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	return r.Outputs[0].Data[0]
}

// A caller never gets the state of an earlier caller, even when only a swap made the model stateful.
func TestCallsShareNoState(t *testing.T) {
	ctx, s := start(t)
	if _, err := s.Models().LoadConfig(ctx, workers.Config{Name: "m", Kind: "plain"}, true); err != nil {
		t.Fatal(err)
	}
	call(ctx, t, s)
	if err := s.Models().Swap(ctx, "m", workers.Config{Kind: "stateful"}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if n := call(ctx, t, s); n != 1 {
			t.Fatalf("the model has seen %d frames of the caller's one", n)
		}
	}
}

// Swaps lose no call, even of a stateful model, for which each call opens a stream.
func TestCallsDuringSwaps(t *testing.T) {
	ctx, s := start(t)
	if _, err := s.Models().LoadConfig(ctx, workers.Config{Name: "m", Kind: "stateful"}, true); err != nil {
		t.Fatal(err)
	}
	var answered atomic.Int64
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for !stop.Load() {
				r, err := s.Native().InferBytes(ctx, "m", stream.Opaque, []byte("x"))
				if err != nil {
					t.Errorf("after %d answers: %v", answered.Load(), err)
					return
				}
				r.Release()
				answered.Add(1)
			}
		})
	}
	for i := range 40 {
		if err := s.Models().Swap(ctx, "m", workers.Config{Kind: "stateful",
			Version: fmt.Sprint(1 + i%2)}); err != nil {
			t.Error(err)
		}
		for seen := answered.Load(); answered.Load() == seen && !t.Failed(); { // calls between any two swaps
			runtime.Gosched()
		}
	}
	stop.Store(true)
	wg.Wait()
}

// The rate limit of a model's streams does not apply to one-shot requests.
func TestCallsHaveNoRate(t *testing.T) {
	ctx, s := start(t)
	if _, err := s.Models().LoadConfig(ctx, workers.Config{Name: "m", Kind: "plain",
		Policy: stream.Policy{MaxFPS: 0.1}}, true); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		call(ctx, t, s)
	}
}
