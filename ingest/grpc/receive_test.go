package grpc_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"

	millracegrpc "millrace/ingest/grpc"
	pb "millrace/internal/inferencepb"
	"millrace/server"
)

// unfinished is a message of size bytes without its last bytes.
type unfinished struct {
	ctx  context.Context
	size int
	at   int // bytes read, including the 5 bytes before the message
}

func (u *unfinished) Read(b []byte) (n int, err error) {
	if u.at == 0 {
		n = copy(b, binary.BigEndian.AppendUint32([]byte{0}, uint32(u.size)))
	} else if n = min(len(b), u.size-5-u.at); n == 0 {
		<-u.ctx.Done()
		return 0, u.ctx.Err()
	} else {
		clear(b[:n])
	}
	u.at += n
	return n, nil
}

// Incomplete messages take memory of the budget, in every method. Without memory a message is refused, and other
// messages go on.
func TestUnfinishedMessages(t *testing.T) {
	millracegrpc.BothWays(t, func(t *testing.T, exported bool) {
		for _, method := range []string{
			pb.GRPCInferenceService_ModelInfer_FullMethodName, pb.GRPCInferenceService_ModelStreamInfer_FullMethodName,
			pb.GRPCInferenceService_RepositoryModelLoad_FullMethodName, grpc_health_v1.Health_Watch_FullMethodName,
		} {
			t.Run(method[strings.LastIndex(method, "/")+1:], func(t *testing.T) {
				const calls, size = 32, 8<<20 - 1
				r := serve(t, func(c *server.Config) { c.Memory.Budget, c.Memory.ClientShare = 36<<20, 100 }, identity)
				var protocols http.Protocols
				protocols.SetUnencryptedHTTP2(true)
				one := &http.Transport{Protocols: &protocols, DisableCompression: true}
				defer one.CloseIdleConnections()
				ctx, cancel := context.WithCancel(r.ctx)
				defer cancel()
				before := liveHeap()
				statuses := make(chan string, calls)
				for range calls {
					go func() {
						req, _ := http.NewRequestWithContext(ctx, "POST", "http://"+r.s.Addr("grpc")+method,
							&unfinished{ctx: ctx, size: size})
						req.Header.Set("Content-Type", "application/grpc")
						req.Header.Set("Te", "trailers")
						resp, err := one.RoundTrip(req)
						if err != nil {
							statuses <- err.Error()
							return
						}
						_, _ = io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
						for _, h := range []http.Header{resp.Header, resp.Trailer} {
							if s := h.Get("Grpc-Status"); s != "" {
								statuses <- s + " " + h.Get("Grpc-Message")
								return
							}
						}
						statuses <- resp.Status
					}()
				}
				// in parts, ModelStreamInfer skips refused messages
				if exported || method != pb.GRPCInferenceService_ModelStreamInfer_FullMethodName {
					for range calls - 4 {
						select {
						case s := <-statuses:
							if !strings.HasPrefix(s, "14 ") || !strings.Contains(s, "memory.budget") {
								t.Errorf("%q", s)
							}
						case <-r.ctx.Done():
							t.Fatal("calls for which there is no memory wait")
						}
					}
				} else {
					r.until(func() bool { return r.s.Memory().Stats().Denied >= calls-4 })
				}
				r.until(func() bool { return r.s.Memory().Stats().Leased >= 16<<20 }) // calls with memory go on
				if m := r.s.Memory().Stats(); m.Leases == 0 && !exported || m.Leased > m.Budget {
					t.Errorf("%+v", m)
				}
				if more := liveHeap() - before; more > 100<<20 {
					t.Errorf("%d MiB of heap are live", more>>20)
				}
				// with exported functions only, each message needs memory for the largest message
				if _, err := r.ModelInfer(r.ctx, raw("identity", "", []byte{1})); err != nil && !exported {
					t.Error(err)
				}
				cancel()
				if exported {
					r.until(func() bool {
						_, err := r.ModelInfer(r.ctx, raw("identity", "", []byte{1}))
						return err == nil
					})
				}
				r.noLeases()
			})
		}
	})
}

// Barely begun messages hold little of the budget, and other calls are served.
func TestAnnouncedMessages(t *testing.T) {
	const calls, size, sent = 64, 8<<20 - 1, 5 << 10
	r := serve(t, func(c *server.Config) { c.Memory.Budget = 36 << 20 }, identity)
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	one := &http.Transport{Protocols: &protocols, DisableCompression: true}
	defer one.CloseIdleConnections()
	ctx, cancel := context.WithCancel(r.ctx)
	defer cancel()
	var done sync.WaitGroup
	for range calls {
		done.Go(func() {
			body := io.MultiReader(bytes.NewReader(append(binary.BigEndian.AppendUint32([]byte{0}, size),
				make([]byte, sent)...)), &unfinished{ctx: ctx, at: 5, size: 10})
			req, _ := http.NewRequestWithContext(ctx, "POST", "http://"+r.s.Addr("grpc")+
				pb.GRPCInferenceService_ModelInfer_FullMethodName, body)
			req.Header.Set("Content-Type", "application/grpc")
			req.Header.Set("Te", "trailers")
			if resp, err := one.RoundTrip(req); err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
	r.until(func() bool { return r.s.Memory().Stats().Leases >= calls })
	if m := r.s.Memory().Stats(); m.Leased > calls*64<<10 || m.Denied > 0 {
		t.Errorf("%+v", m)
	}
	if _, err := r.ModelInfer(r.ctx, raw("identity", "", make([]byte, 3<<20))); err != nil {
		t.Error(err)
	}
	cancel()
	done.Wait()
	r.noLeases()
}

// liveHeap returns the number of heap bytes in use.
func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A unary call has exactly one message.
func TestOneMessage(t *testing.T) {
	millracegrpc.BothWays(t, func(t *testing.T, exported bool) {
		r := serve(t, nil, identity)
		for _, n := range []int{0, 2} {
			s, err := r.conn.NewStream(r.ctx, &grpc.StreamDesc{ClientStreams: true},
				pb.GRPCInferenceService_ServerLive_FullMethodName)
			if err != nil {
				t.Fatal(err)
			}
			for range n {
				_ = s.SendMsg(&pb.ServerLiveRequest{})
			}
			_ = s.CloseSend()
			isStatus(t, s.RecvMsg(&pb.ServerLiveResponse{}), codes.Internal, "message")
		}
	})
}
