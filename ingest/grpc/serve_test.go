package grpc_test

import (
	"bytes"
	"context"
	"runtime"
	"runtime/pprof"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"millrace/internal/inferencepb"
	"millrace/server"
	"millrace/workers"
)

// running is a server with a client.
type running struct {
	testing.TB
	inferencepb.GRPCInferenceServiceClient
	ctx  context.Context
	s    *server.Server
	conn *grpc.ClientConn
	stop func() error
}

// serve runs a server with models until the end of the test, and then checks for leased memory.
func serve(t testing.TB, adjust func(*server.Config), models ...workers.Config) *running {
	t.Helper()
	cfg := server.Config{HTTP: "off", GRPC: "127.0.0.1:0", Models: models}
	cfg.Log.Level = "error"
	if adjust != nil {
		adjust(&cfg)
	}
	s, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	// Ends a hanging test.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	run, end := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- s.Run(run); close(done) }()
	r := &running{TB: t, ctx: ctx, s: s, stop: func() error { end(); return <-done }}
	t.Cleanup(func() {
		if err := r.stop(); err != nil {
			t.Error(err)
		}
		r.noLeases()
	})
	select {
	case <-s.Ready():
	case err := <-done:
		t.Fatal(err)
	}
	r.conn = r.dial()
	r.GRPCInferenceServiceClient = inferencepb.NewGRPCInferenceServiceClient(r.conn)
	return r
}

// noLeases waits until no memory is leased. The garbage collector finds the memory of replies dropped by the
// transport.
func (r *running) noLeases() {
	r.Helper()
	limit := time.Now().Add(time.Minute)
	for m := r.s.Memory().Stats(); m.Leases != 0; m = r.s.Memory().Stats() {
		if time.Now().After(limit) {
			var held bytes.Buffer
			_ = pprof.Lookup("goroutine").WriteTo(&held, 1)
			r.Fatalf("%d leases of %d bytes are left, and these goroutines:\n%s", m.Leases, m.Leased, &held)
		}
		runtime.GC()
		time.Sleep(time.Millisecond)
	}
}

func (r *running) dial(opts ...grpc.DialOption) *grpc.ClientConn {
	r.Helper()
	conn, err := grpc.NewClient(r.s.Addr("grpc"),
		append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { conn.Close() })
	return conn
}

var identity = workers.Config{Name: "identity", Source: "identity"}

// raw returns a request with one tensor of bytes.
func raw(model, id string, data []byte) *inferencepb.ModelInferRequest {
	return &inferencepb.ModelInferRequest{ModelName: model, Id: id,
		Inputs: []*inferencepb.ModelInferRequest_InferInputTensor{{Name: "x", Datatype: "UINT8",
			Shape: []int64{1, int64(len(data))}}},
		RawInputContents: [][]byte{data},
	}
}

// pattern returns n bytes without repeated pieces.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i*7 + i>>8*13 + i>>16)
	}
	return b
}
