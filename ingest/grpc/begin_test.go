package grpc

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"millrace/ingest"
	"millrace/internal/accept"
	"millrace/internal/inferencepb"
	"millrace/stream/buf"
)

// live is a backend with memory.
type live struct {
	ingest.Backend
	pool *buf.Pool
}

func (l live) Memory() *buf.Pool   { return l.pool }
func (l live) State() ingest.State { return ingest.State{Ready: true} }

// serveAlone serves clients of a gate until the end of the test, without a server around the adapter.
func serveAlone(t *testing.T, opts Options, gate *ingest.Gate) (*Adapter, string) {
	t.Helper()
	opts.Addr = "127.0.0.1:0"
	a := New(opts)
	a.grace = time.Hour // longer than any test
	at, err := a.Listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Serve(ctx, gate) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return a, at.String()
}

func connect(t *testing.T, at string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(at, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// begins begins a call without sending a message.
func begins(ctx context.Context, t *testing.T, conn *grpc.ClientConn, method string) grpc.ClientStream {
	t.Helper()
	call, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, method)
	if err != nil {
		t.Fatal(err)
	}
	return call
}

// ends takes the end of a call.
func ends(call grpc.ClientStream) error {
	err := call.RecvMsg(new(inferencepb.ServerLiveResponse))
	if err == io.EOF {
		return nil
	}
	return err
}

// Calls without credentials that wait for a message have a limit for each client and a limit for all clients; above
// the latter each client may have one call. An arriving message makes room at once.
func TestCallsThatWaitForTheirMessage(t *testing.T) {
	const method = inferencepb.GRPCInferenceService_ServerLive_FullMethodName
	_, at := serveAlone(t, Options{Limit: &accept.Limit{PerAddress: 8}}, everybody(live{pool: buf.NewPool(1 << 30)}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conns := []*grpc.ClientConn{connect(t, at), connect(t, at)} // of one address
	refused := make(chan error)
	answered := make(chan grpc.ClientStream)
	var all []grpc.ClientStream
	for i := range maxWaiting + 10 {
		all = append(all, begins(ctx, t, conns[i%2], method))
	}
	for _, call := range all {
		go func() {
			if err := ends(call); err != nil {
				refused <- err
				return
			}
			answered <- call
		}()
	}
	for range 10 {
		if err := <-refused; status.Code(err) != codes.ResourceExhausted ||
			!strings.Contains(err.Error(), "wait for their message") {
			t.Fatal(err)
		}
	}
	if _, err := inferencepb.NewGRPCInferenceServiceClient(conns[0]).ServerLive(ctx,
		&inferencepb.ServerLiveRequest{}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("one more: %v", err)
	}
	for _, call := range all {
		_ = call.SendMsg(&inferencepb.ServerLiveRequest{}) // io.EOF for refused calls
		_ = call.CloseSend()
	}
	for range maxWaiting {
		select {
		case <-answered:
		case err := <-refused:
			t.Error(err)
		}
	}
	for range maxWaiting + 1 {
		if _, err := inferencepb.NewGRPCInferenceServiceClient(conns[1]).ServerLive(ctx,
			&inferencepb.ServerLiveRequest{}); err != nil {
			t.Fatal(err)
		}
	}

	w := &waiting{}
	w.all.Store(maxAllWaiting)
	var of accept.Use
	if err := w.add(&of); err != nil {
		t.Errorf("the first of a client: %v", err)
	}
	if err := w.add(&of); err == nil {
		t.Error("more calls in all")
	}
	if n := of.Waiting.Load(); n != 1 {
		t.Errorf("%d wait", n)
	}
}

// Metadata count in the budget and in the client's share until the call ends. Calls without credentials may have
// little metadata.
func TestMemoryOfMetadata(t *testing.T) {
	pool := buf.NewPool(16 << 20)
	pool.LimitShares(4)
	_, at := serveAlone(t, Options{Limit: &accept.Limit{Max: 8}}, everybody(live{pool: pool}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn := connect(t, at)
	large := metadata.AppendToOutgoingContext(ctx, "x-large", strings.Repeat("a", 50<<10))
	if err := ends(begins(large, t, conn, inferencepb.GRPCInferenceService_ServerLive_FullMethodName)); status.Code(
		err) != codes.InvalidArgument || !strings.Contains(err.Error(), "metadata") {
		t.Errorf("a call that needs no credentials: %v", err)
	}
	methods := []string{inferencepb.GRPCInferenceService_ServerMetadata_FullMethodName,
		inferencepb.GRPCInferenceService_ModelInfer_FullMethodName}
	refused := make(chan error, 20)
	hold, release := context.WithCancel(large)
	defer release()
	for i := range 20 {
		call := begins(hold, t, conn, methods[i%2])
		go func() { refused <- ends(call) }()
	}
	const each = callSize + 50<<10 + 8*fieldSize // about
	const share = 16 << 20 * 4 / 100
	const fit = share / each
	for range 20 - fit {
		if err := <-refused; status.Code(err) != codes.Unavailable ||
			!strings.Contains(err.Error(), "memory.client_share") {
			t.Fatal(err)
		}
	}
	if n := pool.Stats().Leased; n < fit*(callSize+50<<10) || n > share {
		t.Errorf("%d bytes for %d calls", n, fit)
	}
	release()
	for range fit {
		if err := <-refused; status.Code(err) != codes.Canceled {
			t.Error(err)
		}
	}
	for pool.Stats().Leased > 0 { // the server learns of the end a little later
		time.Sleep(time.Millisecond)
	}
	if _, err := inferencepb.NewGRPCInferenceServiceClient(conn).ServerMetadata(large,
		&inferencepb.ServerMetadataRequest{}); err != nil {
		t.Error(err)
	}
}

// The window of a call with a stream of messages, filled by the client while the server reads nothing, counts in the
// budget and in the client's share until the call ends.
func TestMemoryOfWindows(t *testing.T) {
	pool := buf.NewPool(16 << 20)
	pool.LimitShares(10)
	_, at := serveAlone(t, Options{Limit: &accept.Limit{PerAddress: 8}}, everybody(live{pool: pool}))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conns := []*grpc.ClientConn{connect(t, at), connect(t, at)} // of one address
	const fit = 16 << 20 / 10 / (callSize + streamWindow)
	ended := make(chan error, 20)
	hold, release := context.WithCancel(ctx)
	defer release()
	for i := range 20 {
		call := begins(hold, t, conns[i%2], inferencepb.GRPCInferenceService_ModelStreamInfer_FullMethodName)
		go func() { ended <- ends(call) }()
	}
	for range 20 - fit {
		if err := <-ended; status.Code(err) != codes.Unavailable ||
			!strings.Contains(err.Error(), "memory.client_share") {
			t.Fatal(err)
		}
	}
	if n := pool.Stats().Leased; n != fit*(callSize+streamWindow) {
		t.Errorf("%d bytes for %d calls", n, fit)
	}
	release()
	for range fit {
		if err := <-ended; status.Code(err) != codes.Canceled {
			t.Error(err)
		}
	}
	for pool.Stats().Leased > 0 { // the server learns of the end a little later
		time.Sleep(time.Millisecond)
	}
}
