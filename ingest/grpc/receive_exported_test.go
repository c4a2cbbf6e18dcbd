package grpc

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/tap"
	"google.golang.org/grpc/test/bufconn"

	"millrace/ingest"
	"millrace/internal/httpd"
	"millrace/stream/buf"
)

// BothWays runs a test with both ways to read messages: in parts, and by the exported functions of package grpc.
func BothWays(t *testing.T, test func(t *testing.T, exported bool)) {
	t.Run("in parts", func(t *testing.T) { test(t, false) })
	t.Run("exported", func(t *testing.T) {
		ExportedOnly(t)
		test(t, true)
	})
}

// ExportedOnly makes the servers of a test read messages by the exported functions of package grpc.
func ExportedOnly(t testing.TB) {
	exportedOnly.Store(true)
	t.Cleanup(func() { exportedOnly.Store(false) })
}

// By the exported functions, an incomplete message ends its call after the time of the largest message, and the
// reserved memory is refunded.
func TestTimeOfExportedMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := buf.NewPool(64 << 20)
		svc := &service{gate: everybody(memoryOnly{pool: pool}),
			Options: &Options{Limits: ingest.Limits{MaxMessage: 8 << 20}}}
		svc.exported.Store(true)
		s := grpc.NewServer(grpc.ForceServerCodecV2(newCodec()), grpc.InTapHandle(func(ctx context.Context,
			_ *tap.Info) (context.Context, error) {
			return svc.endable(ctx), nil
		}))
		grpc_health_v1.RegisterHealthServer(registrar{s, svc}, grpc_health_v1.UnimplementedHealthServer{})
		ln := bufconn.Listen(1 << 20)
		go func() { _ = s.Serve(ln) }()
		defer s.Stop()
		var protocols http.Protocols
		protocols.SetUnencryptedHTTP2(true)
		client := &http.Transport{Protocols: &protocols, DialContext: func(ctx context.Context, _,
			_ string) (net.Conn, error) {
			return ln.DialContext(ctx)
		}}
		defer client.CloseIdleConnections()
		body, send := io.Pipe()
		defer send.Close()
		go func() { _, _ = send.Write(append(binary.BigEndian.AppendUint32([]byte{0}, 10), make([]byte, 7)...)) }()
		started := time.Now()
		req, _ := http.NewRequest("POST", "http://server"+grpc_health_v1.Health_Check_FullMethodName, body)
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("Te", "trailers")
		go func() {
			synctest.Wait()
			if n := pool.Stats().Leased; n != 8<<20 {
				t.Errorf("%d bytes are reserved while the call waits", n)
			}
		}()
		resp, err := client.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		code := resp.Header.Get("Grpc-Status") + resp.Trailer.Get("Grpc-Status")
		if took, want := time.Since(started), httpd.ArrivalTime(8<<20); code != "4" || took != want {
			t.Errorf("status %s %s after %v, want 4 after %v", code, resp.Header.Get("Grpc-Message"), took, want)
		}
		synctest.Wait()
		if n := pool.Stats().Leased; n != 0 {
			t.Errorf("%d bytes are reserved after the call", n)
		}
	})
}
