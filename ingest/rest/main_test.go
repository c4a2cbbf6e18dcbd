package rest_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"millrace/batching"
	"millrace/internal/servertest"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	for name, run := range map[string]*kind{"pair": &pair, "picture": &picture, "text": &text, "stuck": &stuck,
		"traced": &traced, "failing": &failing} {
		workers.Register(workers.Kind{Name: name, New: func() workers.Worker { return run }})
	}
	servertest.CheckLeaks(m)
}

// kind is a model for these tests: metadata and computation.
type kind struct {
	workers.Base
	model stream.Model
	run   func(ctx context.Context, b *batching.Batch) error
}

func (k *kind) Init(context.Context, *workers.Env) (*stream.Model, error) {
	m := k.model
	return &m, nil
}
func (k *kind) Run(ctx context.Context, b *batching.Batch) error { return k.run(ctx, b) }

// pair adds up a row's numbers.
var pair = kind{
	model: stream.Model{
		Inputs: []stream.TensorSpec{{Name: "a", Datatype: stream.Float32, Shape: []int{3}},
			{Name: "b", Datatype: stream.Float32, Shape: []int{1}}},
		Outputs: []stream.TensorSpec{{Name: "sum", Datatype: stream.Float32, Shape: []int{1}},
			{Name: "rows", Datatype: stream.Float32, Shape: []int{1}}},
		MaxBatch: 4,
	},
	run: func(_ context.Context, b *batching.Batch) error {
		a, c := b.Inputs[0].Float32s(), b.Inputs[1].Float32s()
		var sum, rows []byte
		for i := range b.Rows {
			sum = stream.AppendFloat32(sum, a[3*i]+a[3*i+1]+a[3*i+2]+c[i])
			rows = stream.AppendFloat32(rows, 1)
		}
		shape := []int{b.Rows, 1}
		b.Outputs = []stream.Tensor{
			{Name: "sum", Datatype: stream.Float32, Shape: shape, Data: sum},
			{Name: "rows", Datatype: stream.Float32, Shape: shape, Data: rows},
		}
		return nil
	},
}

// picture answers with the first pixel of the input.
var picture = kind{
	model: stream.Model{
		Inputs:   []stream.TensorSpec{{Name: "image", Datatype: stream.Uint8, Shape: []int{2, 4, 3}}},
		Outputs:  []stream.TensorSpec{{Name: "pixel", Datatype: stream.Uint8, Shape: []int{3}}},
		Image:    &stream.ImageSpec{Width: 4, Height: 2, Color: "RGB", Layout: "NHWC", Fit: "stretch"},
		MaxBatch: 4,
	},
	run: func(_ context.Context, b *batching.Batch) error {
		var out []byte
		for i := range b.Rows {
			out = append(out, b.Row(0, i)[:3]...)
		}
		b.Outputs = []stream.Tensor{{Name: "pixel", Datatype: stream.Uint8, Shape: []int{b.Rows, 3}, Data: out}}
		return nil
	},
}

// text answers with the length of the input.
var text = kind{
	model: stream.Model{
		Inputs:   []stream.TensorSpec{{Name: "text", Datatype: stream.Bytes, Shape: []int{1}}},
		Outputs:  []stream.TensorSpec{{Name: "length", Datatype: stream.Int64, Shape: []int{1}}},
		Ragged:   true,
		MaxBatch: 1,
	},
	run: func(_ context.Context, b *batching.Batch) error {
		for i, r := range b.Requests {
			n := len(r.Payload)
			if r.Codec == stream.Tensors {
				n = len(r.Inputs[0].Data) - 4
			}
			b.Finish(i, []stream.Tensor{{Name: "length", Datatype: stream.Int64, Shape: []int{1},
				Data: binary.LittleEndian.AppendUint64(nil, uint64(n))}})
		}
		return nil
	},
}

// traced answers with the trace context sent by the client of each frame: the ids and the sampling decision.
var traced = kind{
	model: stream.Model{AcceptsAnyInput: true, Ragged: true, MaxBatch: 1},
	run: func(_ context.Context, b *batching.Batch) error {
		r := b.Requests[0]
		out := append(append(r.Trace[:], r.Parent[:]...), 0)
		if r.Decision == stream.Sampled {
			out[24] = 1
		}
		b.Finish(0, []stream.Tensor{{Name: "trace", Datatype: stream.Uint8, Shape: []int{25}, Data: out}})
		return nil
	},
}

// stuck reports its start and waits for its release.
var (
	stuckRuns  = make(chan struct{}, 16)
	stuckGoes  = make(chan struct{})
	stuckShape = []int{1}
	stuck      = kind{
		model: stream.Model{AcceptsAnyInput: true, Ragged: true, MaxBatch: 1},
		run: func(ctx context.Context, b *batching.Batch) error {
			stuckRuns <- struct{}{}
			select {
			case <-stuckGoes:
			case <-ctx.Done():
				return ctx.Err()
			}
			b.Finish(0, []stream.Tensor{{Name: "done", Datatype: stream.Uint8, Shape: stuckShape, Data: []byte{1}}})
			return nil
		},
	}
)

// failing answers with the input, and then fails.
var failing = kind{
	model: stream.Model{
		Inputs:    []stream.TensorSpec{{Name: "x", Datatype: stream.Uint8, Shape: []int{1}}},
		Outputs:   []stream.TensorSpec{{Name: "x", Datatype: stream.Uint8, Shape: []int{1}}},
		Decoupled: true, Ragged: true, MaxBatch: 1,
	},
	run: func(_ context.Context, b *batching.Batch) error {
		b.Emit(0, []stream.Tensor{{Name: "x", Datatype: stream.Uint8, Shape: stuckShape,
			Data: bytes.Clone(b.Requests[0].Inputs[0].Data)}})
		b.Fail(0, stream.Errorf(stream.InvalidArgument, "", "emitted 1 and failed"))
		return nil
	},
}

// running is a whole server.
type running struct{ *servertest.Running }

// start runs a server with the named kinds from above or built-in, each as a model of the same name.
func start(t *testing.T, change func(*server.Config), kinds ...string) *running {
	t.Helper()
	cfg := server.Config{HTTP: "127.0.0.1:0", GRPC: server.Off}
	if change != nil {
		change(&cfg)
	}
	r := &running{servertest.Start(t, cfg)}
	for _, k := range kinds {
		if _, err := r.Models().LoadConfig(t.Context(), workers.Config{Name: k, Kind: k}, true); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// answer is a reply, read to its end.
type answer struct {
	*http.Response
	body []byte
}

func (a *answer) String() string { return a.Status + " " + string(a.body) }

// get returns the member of the body's JSON at path.
func (a *answer) get(path ...string) any {
	var v any
	b := a.body
	if n := a.Header.Get("Inference-Header-Content-Length"); n != "" {
		b = a.header()
	}
	if json.Unmarshal(b, &v) != nil {
		return nil
	}
	for _, p := range path {
		switch x := v.(type) {
		case map[string]any:
			v = x[p]
		case []any:
			if len(p) != 1 || int(p[0]-'0') >= len(x) {
				return nil
			}
			v = x[p[0]-'0']
		}
	}
	return v
}

// header and data are the two parts of a binary reply.
func (a *answer) header() []byte { return a.body[:a.split()] }
func (a *answer) data() []byte   { return a.body[a.split():] }
func (a *answer) split() int {
	var n int
	if json.Unmarshal([]byte(a.Header.Get("Inference-Header-Content-Length")), &n) != nil || n > len(a.body) {
		return len(a.body)
	}
	return n
}

// ask sends a request; headers are "Name: value".
func (r *running) ask(method, path string, body []byte, headers ...string) *answer {
	r.T.Helper()
	var in io.Reader
	if body != nil {
		in = bytes.NewReader(body)
	}
	req, err := http.NewRequest(method, r.Base+path, in)
	if err != nil {
		r.T.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "identity") // keeps net/http from asking for gzip
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		if k == "Host" {
			req.Host = v
		}
		req.Header.Set(k, v)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.T.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.T.Fatal(err)
	}
	if int64(len(b)) != resp.ContentLength && method != http.MethodHead {
		r.T.Errorf("%s %s: Content-Length %d for %d bytes", method, path, resp.ContentLength, len(b))
	}
	return &answer{resp, b}
}

const (
	isJSON  = "Content-Type: application/json"
	isBytes = "Content-Type: application/octet-stream"
)
