package grpc

import (
	"context"
	"crypto/x509"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"millrace/ingest"
	"millrace/internal/accept"
	"millrace/internal/inferencepb"
	"millrace/internal/role"
	"millrace/stream"
	"millrace/stream/buf"
)

// TestRefusedCallsKeepNoConnection: connections whose calls were refused, or never had a message, give way to others when there are
// as many as there may be, while those of clients with credentials, and of probes, do not.
func TestRefusedCallsKeepNoConnection(t *testing.T) {
	limit := &accept.Limit{}
	_, at := serveAlone(t, Options{Limit: limit, Auth: func(_ context.Context, md metadata.MD, _ []*x509.Certificate, _ role.Role) (*ingest.Principal, error) {
		if len(md["api_key"]) == 0 {
			return nil, stream.Errorf(stream.Unauthenticated, "", "the key is missing")
		}
		return &ingest.Principal{Name: "one", Roles: role.All}, nil
	}}, live{pool: buf.NewPool(1 << 30)})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	refused := inferencepb.NewGRPCInferenceServiceClient(connect(t, at))
	if _, err := refused.ServerMetadata(ctx, &inferencepb.ServerMetadataRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Fatal(err)
	}
	if n := limit.Silent(); n != 1 {
		t.Errorf("after a refused call %d of 1 connection are silent", n)
	}
	waiting := begins(ctx, t, connect(t, at), inferencepb.GRPCInferenceService_ServerLive_FullMethodName)
	for limit.Stats()["grpc"].Open < 2 { // it is accepted, and its call begins or not yet
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
	if n := limit.Silent(); n != 1 {
		t.Errorf("after its answer %d of 2 connections are silent", n)
	}
	if _, err := refused.ServerMetadata(metadata.AppendToOutgoingContext(ctx, "api_key", "x"), &inferencepb.ServerMetadataRequest{}); err != nil {
		t.Fatal(err)
	}
	if n := limit.Silent(); n != 0 {
		t.Errorf("after a call with a key %d of 2 connections are silent", n)
	}
}

// TestIdleConnectionsEnd: a connection without a call ends after limits.keep_alive.
func TestIdleConnectionsEnd(t *testing.T) {
	_, at := serveAlone(t, Options{Limits: ingest.Limits{KeepAlive: 10 * time.Millisecond}}, live{pool: buf.NewPool(1 << 30)})
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
