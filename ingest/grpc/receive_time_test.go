package grpc

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/test/bufconn"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/stream/buf"
)

// memoryOnly is a backend used only for its memory.
type memoryOnly struct {
	ingest.Backend
	pool *buf.Pool
}

// everybody returns a gate to a backend without credentials.
func everybody(b ingest.Backend) *ingest.Gate {
	return ingest.NewGate(b, access.AllowEverybody(access.Quotas{}))
}

func (m memoryOnly) Memory() *buf.Pool { return m.pool }

// An incomplete message ends its call after the message's time limit and releases its memory. A message completed
// within the limit is answered. Announced bytes do not extend the limit; only arrived bytes do.
func TestTimeOfMessages(t *testing.T) {
	for _, c := range []struct {
		size  int
		lacks int           // bytes at the end, not sent at once
		after time.Duration // delay before sending the rest; 0 = never
		took  time.Duration
		code  string
	}{
		{10, 3, 0, 15 * time.Second, "4"},
		{1 << 20, 3, 0, 47 * time.Second, "4"},
		{8 << 20, 8<<20 - 10, 0, 47 * time.Second, "4"},
		{8 << 20, 6 << 20, 0, (15 + 96) * time.Second, "4"},
		{10, 10 + 5, 0, 15 * time.Second, "4"}, // nothing is sent
		{10, 10 + 2, 0, 15 * time.Second, "4"}, // the beginning of the header
		{10, 10 + 5, 14 * time.Second, 14 * time.Second, "13"},
		{10, 3, 14 * time.Second, 14 * time.Second, "13"}, // the message was read, and is none
		{1 << 20, 3, 46 * time.Second, 46 * time.Second, "13"},
		{4 << 20, 3, 142 * time.Second, 142 * time.Second, "13"},
	} {
		t.Run(fmt.Sprintf("%d bytes, the last %d after %v", c.size, c.lacks, c.after), func(t *testing.T) {
			// Reused calls keep their timers, and each timer belongs to one bubble.
			pool := calls.New
			calls = sync.Pool{New: pool}
			defer func() { calls = sync.Pool{New: pool} }()
			synctest.Test(t, func(t *testing.T) {
				svc := &service{gate: everybody(memoryOnly{pool: buf.NewPool(0)}),
					Options: &Options{Limits: ingest.Limits{MaxMessage: 8 << 20}}}
				s := grpc.NewServer(grpc.ForceServerCodecV2(newCodec()))
				grpc_health_v1.RegisterHealthServer(registrar{s, svc}, grpc_health_v1.UnimplementedHealthServer{})
				ln := bufconn.Listen(1 << 20)
				go func() { _ = s.Serve(ln) }()
				var protocols http.Protocols
				protocols.SetUnencryptedHTTP2(true)
				client := &http.Transport{Protocols: &protocols, DialContext: func(ctx context.Context, _,
					_ string) (net.Conn, error) {
					return ln.DialContext(ctx)
				}}
				body, send := io.Pipe()
				message := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(c.size)), make([]byte, c.size)...)
				go func() {
					_, _ = send.Write(message[:len(message)-c.lacks])
					if c.after > 0 {
						time.Sleep(c.after)
						_, _ = send.Write(message[len(message)-c.lacks:])
						send.Close()
					}
				}()
				begun := time.Now()
				req, _ := http.NewRequest("POST", "http://server"+grpc_health_v1.Health_Check_FullMethodName, body)
				req.Header.Set("Content-Type", "application/grpc")
				req.Header.Set("Te", "trailers")
				resp, err := client.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
				code := resp.Header.Get("Grpc-Status") + resp.Trailer.Get("Grpc-Status")
				if took := time.Since(begun); code != c.code || took != c.took {
					t.Errorf("status %s %s after %v, want %s after %v", code, resp.Header.Get("Grpc-Message"), took,
						c.code, c.took)
				}
				synctest.Wait()
				if n := svc.gate.Memory().Stats().Leases; n != 0 {
					t.Errorf("%d leases are left", n)
				}
				_ = send.Close()
				client.CloseIdleConnections()
				s.Stop()
			})
		})
	}
}
