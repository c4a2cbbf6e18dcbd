package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/metrics"
	"strings"
	"syscall"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/gorilla/websocket"
	"github.com/valyala/fasthttp"
	"google.golang.org/grpc"

	pb "millrace/internal/inferencepb"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

// pathSize is the size of each request of the rows of path.
const pathSize = 1 << 10

// costs are what a request costs this process, by costNames.
type costs [7]float64

var costNames = [len(costs{})]struct{ name, unit string }{{"time", "ns"}, {"processor time", "ns"},
	{"allocations", ""}, {"allocated", "bytes"}, {"switches of goroutines", ""}, {"reads and writes", ""},
	{"waits of threads", ""}}

// spent returns the costs of this process so far.
func spent() costs {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	s := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(s)
	var switches uint64
	for _, n := range s[0].Value.Float64Histogram().Counts {
		switches += n
	}
	const sampled = 8 // of its switches, Go counts every eighth of each goroutine
	calls := 0.0
	text, _ := os.ReadFile("/proc/self/io")
	for line := range strings.Lines(string(text)) {
		var name string
		var n float64
		if _, err := fmt.Sscan(line, &name, &n); err == nil && (name == "syscr:" || name == "syscw:") {
			calls += n
		}
	}
	return costs{float64(time.Now().UnixNano()), float64(cpu()), float64(m.Mallocs), float64(m.TotalAlloc),
		float64(sampled * switches), calls, float64(u.Nvcsw)}
}

// costOf returns the mean costs of f, repeated for d.
func costOf(d time.Duration, f func() error) (c costs, err error) {
	before, end := spent(), time.Now().Add(d)
	n := 0.0
	for ; n == 0 || int(n)%32 != 0 || time.Now().Before(end); n++ {
		if err := f(); err != nil {
			return c, err
		}
	}
	after := spent()
	for i := range c {
		c[i] = (after[i] - before[i]) / n
	}
	return c, nil
}

// requestPath measures the cost of a request for each protocol, with requests in sequence on a single connection.
// The costs are of client and server together: the cost of Millrace is the difference to the bare loop.
func requestPath(b *bench) error {
	for _, of := range []struct {
		name string
		open func(*bench) (bare, ours func() error, end func(), err error)
	}{{"native", nativePath}, {"REST", restPath}, {"gRPC", grpcPath}, {"WebSocket", webSocketPath}} {
		bare, ours, end, err := of.open(b)
		if err != nil {
			return fmt.Errorf("%s: %w", of.name, err)
		}
		err = b.addPath("path, "+of.name+", 1 KB: ", bare, ours)
		end()
		if err != nil {
			return fmt.Errorf("%s: %w", of.name, err)
		}
	}
	return b.addSteps()
}

// addPath adds the rows of one protocol, medians over the rounds.
func (b *bench) addPath(name string, bare, ours func() error) error {
	var all [2][len(costs{})][]float64
	for round := -1; round < b.rounds; round++ {
		for i, f := range [...]func() error{bare, ours} {
			c, err := costOf(b.round, f)
			if err != nil {
				return err
			}
			for k := range c {
				if round >= 0 { // after a warm-up
					all[i][k] = append(all[i][k], c[k])
				}
			}
		}
	}
	for k, of := range costNames {
		b.add(Row{Name: name + of.name, Unit: of.unit, Bare: median(all[0][k]), Millrace: median(all[1][k])})
	}
	return nil
}

// addSteps adds the median times of the steps of a native call.
func (b *bench) addSteps() error {
	names := [...]string{"gate, charge and stream", "queue and gathering", "preparing", "run and ending", "reply"}
	var took [len(names)][]float64
	call := nativeInfer(b)
	if _, err := costOf(b.round, func() error {
		at := stream.Now()
		r, err := call()
		if err != nil {
			return err
		}
		for i, to := range [...]stream.Instant{r.Timing.Received, r.Timing.Dequeued, r.Timing.Started, r.Timing.Done,
			stream.Now()} {
			took[i] = append(took[i], float64(to.Sub(at)))
			at = to
		}
		r.Release()
		return nil
	}); err != nil {
		return err
	}
	for i, name := range names {
		b.add(Row{Name: "path, native, 1 KB, step: " + name, Unit: "ns", Millrace: median(took[i])})
	}
	return nil
}

func nativeInfer(b *bench) func() (*stream.Result, error) {
	inputs := []stream.Tensor{{Name: "x", Datatype: stream.Uint8, Shape: []int{1, pathSize},
		Data: make([]byte, pathSize)}}
	client, ctx := b.server.Native(), context.Background()
	return func() (*stream.Result, error) { return client.Infer(ctx, "identity", inputs) }
}

func nativePath(b *bench) (bare, ours func() error, end func(), err error) {
	there, back := make(chan *int), make(chan *int)
	go func() { // ends with there
		for p := range there {
			back <- p
		}
	}()
	one, call := new(int), nativeInfer(b)
	bare = func() error { there <- one; <-back; return nil }
	ours = func() error {
		r, err := call()
		if err == nil {
			r.Release()
		}
		return err
	}
	return bare, ours, func() { close(there) }, nil
}

func restPath(b *bench) (bare, ours func() error, end func(), err error) {
	url, stop, err := fiberServer()
	if err != nil {
		return nil, nil, nil, err
	}
	body := make([]byte, pathSize)
	query := fmt.Sprintf("?datatype=UINT8&shape=1,%d&outputs=binary", pathSize)
	x := newRequester(url+"/echo", fiber.MIMEOctetStream, body, nil)
	y := newRequester(b.server.infer("identity", query), fiber.MIMEOctetStream, body,
		map[string]string{"Inference-Header-Content-Length": "0"})
	return x.once(), y.once(), func() {
		x.client.CloseIdleConnections()
		y.client.CloseIdleConnections()
		stop()
	}, nil
}

// once returns a function that makes one request.
func (p *requester) once() func() error {
	p.client.MaxConns = 1
	req, resp := new(fasthttp.Request), new(fasthttp.Response)
	p.fill(req)
	return func() error { return p.do(req, resp) }
}

func grpcPath(*bench) (bare, ours func() error, end func(), err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, nil, err
	}
	plain := grpc.NewServer()
	pb.RegisterGRPCInferenceServiceServer(plain, bareGRPC{})
	go plain.Serve(ln) // ends with Stop
	guarded, err := serve(func(c *server.Config) {
		c.HTTP, c.GRPC = server.Off, "127.0.0.1:0"
	}, workers.Config{Name: "identity", Source: "identity", Instances: 2})
	if err != nil {
		plain.Stop()
		return nil, nil, nil, err
	}
	var calls [2]func() error
	var clients [2]*grpcClients
	end = func() {
		for _, c := range clients {
			if c != nil {
				c.close()
			}
		}
		plain.Stop()
		_ = guarded.end()
	}
	for i, addr := range []string{ln.Addr().String(), guarded.Addr("grpc")} {
		c, err := dialGRPC(addr, pathSize)
		if err != nil {
			end()
			return nil, nil, nil, err
		}
		clients[i] = c
		client := pb.NewGRPCInferenceServiceClient(c.conns[0])
		calls[i] = func() error { _, err := client.ModelInfer(context.Background(), c.in); return err }
	}
	return calls[0], calls[1], end, nil
}

func webSocketPath(b *bench) (bare, ours func() error, end func(), err error) {
	url, stop, err := echoServer(false)
	if err != nil {
		return nil, nil, nil, err
	}
	var conns [2]*websocket.Conn
	var calls [2]func() error
	end = func() {
		for _, c := range conns {
			if c != nil {
				_ = c.Close()
			}
		}
		stop()
	}
	message, buffer := make([]byte, pathSize), make([]byte, 0, 2*pathSize)
	for i, at := range []string{url, b.server.stream("identity", wsQuery)} {
		ws, reply, err := websocket.DefaultDialer.Dial(at, nil)
		if err != nil {
			end()
			return nil, nil, nil, err
		}
		_ = reply.Body.Close()
		conns[i] = ws
		calls[i] = func() error {
			if err := ws.WriteMessage(websocket.BinaryMessage, message); err != nil {
				return err
			}
			_, r, err := ws.NextReader()
			if err == nil {
				_, err = readInto(r, buffer)
			}
			return err
		}
	}
	return calls[0], calls[1], end, nil
}
