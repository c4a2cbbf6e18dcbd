package main

import (
	"context"
	_ "embed"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "millrace/internal/inferencepb"
	"millrace/workers/onnx"
)

//go:embed peers.py
var peersScript []byte

// peerConns is the number of connections to a server, each with one request at a time.
const peerConns = 8

// peerShare is the share of the slower server's capacity that is offered to both servers, to compare processor time and
// latency.
const peerShare = 0.5

// peers compares Millrace with what people would write instead for the small CNN: FastAPI with OpenCV, Go's HTTP server
// with ONNX Runtime, a gRPC server with ONNX Runtime; and for cameras: a pipeline of GStreamer. Each server runs in a
// process of its own, and the clients are the same. The model is small, so that the cost of serving shows.
func peers(b *bench) error {
	if _, err := onnx.Library(); err != nil {
		return err
	}
	m, err := writeModels()
	if err != nil {
		return err
	}
	defer m.remove()
	picture, script := filepath.Join(m.dir, "picture.jpg"), filepath.Join(m.dir, "peers.py")
	err = errors.Join(writePicture(picture, cnnSide, cnnSide), os.WriteFile(script, peersScript, 0o600))
	if err != nil {
		return err
	}
	jpeg, err := os.ReadFile(picture)
	if err != nil {
		return err
	}
	ours, err := startMillrace(cnnLines(m))
	if err != nil {
		return err
	}
	defer ours.end()
	pictures := pictureClient("http://"+ours.addr+"/v2/models/cnn/infer", jpeg)
	defer pictures.end()
	for _, p := range []struct {
		name  string
		start func() (*peerServer, error)
	}{
		{"JPEG 128x128 over REST, small CNN, against FastAPI, uvicorn and cv2.dnn",
			func() (*peerServer, error) { return startFastAPI(script, m.cnn) }},
		{"JPEG 128x128 over REST, small CNN, against net/http and onnxruntime_go",
			func() (*peerServer, error) { return startHandWritten("http", m.cnn) }},
	} {
		theirs, err := p.start()
		if err != nil {
			return err
		}
		c := pictureClient("http://"+theirs.addr+"/infer", jpeg)
		err = b.besidePeer(p.name, theirs, c, ours, pictures)
		c.end()
		if err = errors.Join(err, theirs.end()); err != nil {
			return err
		}
	}
	theirs, err := startHandWritten("grpc", m.cnn)
	if err != nil {
		return err
	}
	bare, err := tensorClient(theirs.addr)
	if err != nil {
		return errors.Join(err, theirs.end())
	}
	defer bare.end()
	tensors, err := tensorClient(ours.grpc)
	if err != nil {
		return errors.Join(err, theirs.end())
	}
	defer tensors.end()
	err = b.besidePeer("FP32 3x128x128 over gRPC, small CNN, against gRPC-Go and onnxruntime_go", theirs, bare, ours,
		tensors)
	if err = errors.Join(err, theirs.end()); err != nil {
		return err
	}
	return b.besideGStreamer()
}

// peerServer is a server in a process of its own.
type peerServer struct {
	addr, grpc string
	pid        int
	end        func() error
}

func startMillrace(models string) (*peerServer, error) {
	return startPeer(job{Serve: "http: 127.0.0.1:0\ngrpc: 127.0.0.1:0\nlog: {level: error}\n" + models})
}

func startHandWritten(kind, model string) (*peerServer, error) {
	return startPeer(job{Peer: &handWritten{Kind: kind, Model: model}})
}

func startPeer(j job) (*peerServer, error) {
	c, err := startChild()
	if err != nil {
		return nil, err
	}
	a, err := c.do(j)
	if err != nil {
		return nil, errors.Join(err, c.end())
	}
	return &peerServer{addr: a.Addr, grpc: a.GRPC, pid: c.cmd.Process.Pid, end: c.end}, nil
}

func startFastAPI(script, model string) (*peerServer, error) {
	addr, pid, end, err := startUvicorn(script, "app", "MODEL="+model)
	if err != nil {
		return nil, err
	}
	return &peerServer{addr: addr, pid: pid, end: func() error { end(); return nil }}, nil
}

// peerClient makes requests to one server. one is called by one goroutine for each connection, and returns the scores.
type peerClient struct {
	one func(conn int) ([]float64, error)
	end func()
}

// pictureClient posts a picture.
func pictureClient(url string, picture []byte) *peerClient {
	p := newRequester(url, "image/jpeg", picture, nil)
	p.client.MaxConns = peerConns
	requests, replies := make([]*fasthttp.Request, peerConns), make([]*fasthttp.Response, peerConns)
	for i := range requests {
		requests[i], replies[i] = &fasthttp.Request{}, &fasthttp.Response{}
		p.fill(requests[i])
		requests[i].Header.Set(fiber.HeaderAccept, fiber.MIMEApplicationJSON)
	}
	return &peerClient{end: p.client.CloseIdleConnections, one: func(conn int) ([]float64, error) {
		if err := p.do(requests[conn], replies[conn]); err != nil {
			return nil, err
		}
		var reply struct {
			Scores  []float64
			Outputs []struct{ Data []float64 }
		}
		if err := json.Unmarshal(replies[conn].Body(), &reply); err != nil {
			return nil, err
		}
		if len(reply.Outputs) == 1 {
			return reply.Outputs[0].Data, nil
		}
		return reply.Scores, nil
	}}
}

// tensorClient sends tensors.
func tensorClient(addr string) (*peerClient, error) {
	image := tensor("image", 3, cnnSide, cnnSide)
	in := &pb.ModelInferRequest{ModelName: "cnn", Inputs: []*pb.ModelInferRequest_InferInputTensor{{Name: "image",
		Datatype: "FP32", Shape: []int64{1, 3, cnnSide, cnnSide}}}, RawInputContents: [][]byte{image.Data}}
	conns := make([]*grpc.ClientConn, 0, peerConns)
	end := func() {
		for _, c := range conns {
			c.Close()
		}
	}
	for range peerConns {
		c, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			end()
			return nil, err
		}
		conns = append(conns, c)
	}
	return &peerClient{end: end, one: func(conn int) ([]float64, error) {
		out, err := pb.NewGRPCInferenceServiceClient(conns[conn]).ModelInfer(context.Background(), in)
		if err != nil {
			return nil, err
		}
		if len(out.RawOutputContents) != 1 {
			return nil, fmt.Errorf("%d outputs", len(out.RawOutputContents))
		}
		raw := out.RawOutputContents[0]
		scores := make([]float64, 0, cnnScores)
		for ; len(raw) >= 4; raw = raw[4:] {
			scores = append(scores, float64(math.Float32frombits(binary.LittleEndian.Uint32(raw))))
		}
		return scores, nil
	}}, nil
}

// besidePeer adds the rows of one other server.
func (b *bench) besidePeer(name string, theirs *peerServer, bare *peerClient, ours *peerServer,
	millrace *peerClient) error {
	if err := sameScores(bare, millrace); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	row, err := b.pair(name+": at most", "frames/s", bare.rate, millrace.rate)
	if err != nil {
		return err
	}
	row.CPU = 0 // of the clients only
	b.add(row)
	rate := peerShare * min(row.Bare, row.Millrace)
	var cpus, ages [2][]float64
	var cpuRatios, ageRatios []float64
	for i := range max(b.rounds/3, 1) {
		var used, age [2]float64
		sides := []func() error{
			func() (err error) { used[0], age[0], err = bare.paced(theirs.pid, rate, b.span()); return err },
			func() (err error) { used[1], age[1], err = millrace.paced(ours.pid, rate, b.span()); return err },
		}
		if i%2 != 0 {
			slices.Reverse(sides)
		}
		for _, side := range sides {
			if err := side(); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		for i := range used {
			cpus[i], ages[i] = append(cpus[i], used[i]), append(ages[i], age[i])
		}
		cpuRatios, ageRatios = append(cpuRatios, used[1]/used[0]), append(ageRatios, age[1]/age[0])
	}
	at := fmt.Sprintf("%s: at %.0f frames/s, ", name, rate)
	b.add(Row{Name: at + "CPU a frame", Unit: "ms", Bare: median(cpus[0]), Millrace: median(cpus[1]),
		Ratio: median(cpuRatios)})
	b.add(Row{Name: at + "p99", Unit: "ms", Bare: median(ages[0]), Millrace: median(ages[1]), Ratio: median(ageRatios)})
	return nil
}

// sameScores checks that two servers compute the same. The decoders of pictures round differently.
func sameScores(a, b *peerClient) error {
	x, err := a.one(0)
	if err != nil {
		return err
	}
	y, err := b.one(0)
	if err != nil {
		return err
	}
	if len(x) != cnnScores || len(y) != cnnScores {
		return fmt.Errorf("%d and %d scores", len(x), len(y))
	}
	for i := range x {
		if math.Abs(x[i]-y[i]) > 0.05 {
			return fmt.Errorf("the scores differ: %v and %v", x, y)
		}
	}
	return nil
}

// rate returns replies a second.
func (c *peerClient) rate(d time.Duration) (float64, error) {
	var conns atomic.Int64
	return throughputOf(peerConns, d, func(more func() bool, done func(int)) error {
		conn := int(conns.Add(1)) - 1
		for more() {
			if _, err := c.one(conn); err != nil {
				return err
			}
			done(1)
		}
		return nil
	})
}

// paced makes rate requests a second for a time, and returns the server's processor time of a request and the 99th
// percentile of the times from when a request was due to its reply, in ms.
func (c *peerClient) paced(pid int, rate float64, d time.Duration) (each, age float64, err error) {
	before, err := usageOf(pid)
	if err != nil {
		return 0, 0, err
	}
	var next atomic.Int64
	var mu sync.Mutex
	var ages []time.Duration
	var wg sync.WaitGroup
	errs := make([]error, peerConns)
	began := time.Now()
	for conn := range peerConns {
		wg.Go(func() {
			for {
				due := began.Add(time.Duration(float64(next.Add(1)-1) / rate * float64(time.Second)))
				if due.Sub(began) >= d {
					return
				}
				time.Sleep(time.Until(due))
				if _, errs[conn] = c.one(conn); errs[conn] != nil {
					return
				}
				took := time.Since(due)
				mu.Lock()
				ages = append(ages, took)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	after, err := usageOf(pid)
	if err = errors.Join(append(errs, err)...); err != nil {
		return 0, 0, err
	}
	return costBetween(before, after, len(ages), 0).total(), p99(ages), nil
}
