package grpc

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/internal/accept"
	"millrace/internal/inferencepb"
	"millrace/stream/buf"
)

// At the limit of connections, new connections displace connections whose calls were refused, needed no credentials,
// or never sent a message. Connections of clients with credentials stay.
func TestRefusedCallsKeepNoConnection(t *testing.T) {
	limit := &accept.Limit{}
	clients, err := access.New(access.Options{Key: "x"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(clients.Close)
	_, at := serveAlone(t, Options{Limit: limit}, ingest.NewGate(live{pool: buf.NewPool(1 << 30)}, clients))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	refused := inferencepb.NewGRPCInferenceServiceClient(connect(t, at))
	if _, err := refused.ServerMetadata(ctx, &inferencepb.ServerMetadataRequest{}); status.Code(
		err) != codes.Unauthenticated {
		t.Fatal(err)
	}
	if n := limit.Silent(); n != 1 {
		t.Errorf("after a refused call %d of 1 connection are silent", n)
	}
	waiting := begins(ctx, t, connect(t, at), inferencepb.GRPCInferenceService_ServerLive_FullMethodName)
	for limit.Stats()["grpc"].Open < 2 { // the server accepts the connection; the call may have begun
		time.Sleep(time.Millisecond)
	}
	if n := limit.Silent(); n != 2 {
		t.Errorf("after a call without a message %d of 2 connections are silent", n)
	}
	if err := waiting.SendMsg(&inferencepb.ServerLiveRequest{}); err != nil {
		t.Fatal(err)
	}
	if err := waiting.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := ends(waiting); err != nil {
		t.Fatal(err)
	}
	if n := limit.Silent(); n != 2 {
		t.Errorf("after its answer %d of 2 connections are silent", n)
	}
	if _, err := refused.ServerMetadata(metadata.AppendToOutgoingContext(ctx, "api_key", "x"),
		&inferencepb.ServerMetadataRequest{}); err != nil {
		t.Fatal(err)
	}
	if n := limit.Silent(); n != 1 {
		t.Errorf("after a call with a key %d of 2 connections are silent", n)
	}
}

// TestIdleConnectionsEnd: a connection without a call ends after limits.keep_alive.
func TestIdleConnectionsEnd(t *testing.T) {
	_, at := serveAlone(t, Options{Limits: ingest.Limits{KeepAlive: 10 * time.Millisecond}},
		everybody(live{pool: buf.NewPool(1 << 30)}))
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	_, _ = c.Write([]byte(http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
	frames := http2.NewFramer(c, c)
	for {
		f, err := frames.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if f, ok := f.(*http2.GoAwayFrame); ok {
			if string(f.DebugData()) != "max_idle" {
				t.Errorf("%v %s", f, f.DebugData())
			}
			return
		}
	}
}

// One client with the maximum number of watchers, over one or several connections, leaves room for other clients, and
// the total is limited.
func TestWatchersOfAClient(t *testing.T) {
	for _, perAddress := range []int{0, 8} { // connections; 0 = each counts for itself
		_, at := serveAlone(t, Options{Limit: &accept.Limit{PerAddress: perAddress},
			Limits: ingest.Limits{MaxWatchers: 2}}, everybody(live{pool: buf.NewPool(1 << 30)}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		watch := func(conn *grpc.ClientConn) error {
			w, err := grpc_health_v1.NewHealthClient(conn).Watch(ctx, &grpc_health_v1.HealthCheckRequest{})
			if err == nil {
				_, err = w.Recv()
			}
			return err
		}
		one, other := connect(t, at), connect(t, at)
		for range 2 {
			if err := watch(one); err != nil {
				t.Fatal(err)
			}
		}
		if err := watch(one); status.Code(err) != codes.Unavailable ||
			!strings.Contains(err.Error(), "limits.max_watchers: 2 calls of this address") {
			t.Error(err)
		}
		if err := watch(other); (err == nil) != (perAddress == 0) {
			t.Errorf("with a bound for addresses of %d, another connection: %v", perAddress, err)
		}
		if perAddress > 0 {
			continue
		}
		for range watchingClients - 2 {
			conn := connect(t, at)
			if err := errors.Join(watch(conn), watch(conn)); err != nil {
				t.Fatal(err)
			}
		}
		if err := watch(other); err != nil {
			t.Error(err)
		}
		if err := watch(connect(t, at)); status.Code(err) != codes.Unavailable ||
			!strings.Contains(err.Error(), "limits.max_watchers: 32 calls watch already") {
			t.Error(err)
		}
	}
}
