package process

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"millrace/internal/child"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sink sends every result to a channel.
type sink struct {
	results chan *stream.Result
	done    chan stream.CloseReason
}

func (s sink) Push(r *stream.Result)       { s.results <- r }
func (s sink) Done(why stream.CloseReason) { s.done <- why }

type logText struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *logText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// rig is a model of kind process in a manager.
type rig struct {
	*testing.T
	mem   *buf.Pool
	m     *workers.Manager
	group *workers.Group
	log   *logText
}

// load loads the test child in a mode; set changes the configuration.
func load(t *testing.T, mode string, set ...func(*workers.Config)) *rig {
	t.Helper()
	r, err := tryLoad(t, mode, set...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func tryLoad(t *testing.T, mode string, set ...func(*workers.Config)) (*rig, error) {
	t.Helper()
	path, err := filepath.Abs("testdata/child.py")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{T: t, mem: buf.NewPool(0), log: &logText{}}
	r.m = workers.NewManager(workers.ManagerOptions{Memory: r.mem, Log: slog.New(slog.NewTextHandler(r.log, nil))})
	t.Cleanup(func() {
		if err := r.m.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if s := r.mem.Stats(); s.Leases != 0 || s.Leased != 0 || s.Reserved != 0 {
			t.Errorf("memory was not given back: %+v", s)
		}
		// one may be ending
		for limit := time.Now().Add(20 * time.Second); child.LiveChildren() != 0; time.Sleep(time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatalf("%d children are left", child.LiveChildren())
			}
		}
		if t.Failed() {
			t.Log(r.log.String())
		}
	})
	cfg := workers.Config{Name: "m", Source: path, Kind: "process",
		Params: stream.Params{"env": `["MODE=` + mode + `"]`}}
	for _, f := range set {
		f(&cfg)
	}
	if _, err = r.m.LoadConfig(t.Context(), cfg, true); err != nil {
		return r, err
	}
	r.group, err = r.m.Group("m", "")
	return r, err
}

// client is a stream.
type client struct {
	*rig
	*stream.Stream
	sink
}

func (r *rig) open(opts stream.Options) *client {
	r.Helper()
	if opts.Policy.Mode == "" {
		opts.Policy.Mode = stream.Every
	}
	s := sink{make(chan *stream.Result, 64), make(chan stream.CloseReason, 1)}
	st, err := r.group.Open(opts, s)
	if err != nil {
		r.Fatal(err)
	}
	c := &client{r, st, s}
	r.Cleanup(func() {
		st.Close(stream.ByClient)
		<-s.done
		for {
			select {
			case left := <-s.results:
				left.Release()
				continue
			default:
			}
			return
		}
	})
	return c
}

// submit sends a frame.
func (c *client) submit(f stream.Frame) {
	c.rig.Helper()
	if err := c.Submit(f); err != nil {
		c.Fatal(err)
	}
}

// next returns the next result.
func (c *client) next() *stream.Result {
	c.rig.Helper()
	select {
	case r := <-c.results:
		return r
	case <-time.After(30 * time.Second):
		c.Fatal("no result")
		return nil
	}
}

// numbers is a frame of FP32.
func numbers(params stream.Params, v ...float32) stream.Frame {
	return stream.Frame{Codec: stream.Tensors, Params: params,
		Inputs: []stream.Tensor{{Name: "x", Datatype: stream.Float32, Shape: []int{1, len(v)},
			Data: stream.AppendFloat32(nil, v...)}}}
}

func params(kv ...any) func(*workers.Config) {
	return func(c *workers.Config) {
		for i := 0; i < len(kv); i += 2 {
			c.Params[kv[i].(string)] = kv[i+1]
		}
	}
}

// Dense batches go to the child in shared memory, and in the pipe form.
func TestDense(t *testing.T) {
	for _, c := range []struct {
		name, mode string
		shared     bool
	}{{"shared memory", "", true}, {"pipe", "", false}, {"free dimensions", "free", true},
		{"free dimensions, pipe", "free", false}} {
		t.Run(c.name, func(t *testing.T) {
			r := load(t, c.mode, params("shared_memory", c.shared))
			s := r.open(stream.Options{})
			for i := range 40 {
				v := float32(i)
				s.submit(numbers(nil, v, v+1, v+2, v+3))
				got := s.next()
				if got.Outcome != stream.Answered || len(got.Outputs) != 1 || got.Outputs[0].Name != "y" {
					t.Fatalf("%+v, %v", got, got.Err)
				}
				if f := got.Outputs[0].Float32s(); len(f) != 4 || f[0] != v || f[3] != v+3 {
					t.Fatalf("%v", f)
				}
				got.Release()
			}
		})
	}
}

// Shared memory does not need /dev/shm, which is small in containers.
func TestSmallShm(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount another /dev/shm")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := `mount -t tmpfs -o size=4k tmpfs /dev/shm && df -k /dev/shm | grep -q " 4 " && exec "$0" -test.run ` +
		`'^TestResultsGrow$|^TestDense$'`
	out, err := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", script, program).CombinedOutput()
	if err != nil && strings.Contains(string(out), "unshare failed") {
		t.Skipf("mounts are not possible here: %s", out)
	}
	if err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("%v: %s", err, out)
	}
}

// Tensors, bytes and calls reach a program that accepts any input.
func TestRagged(t *testing.T) {
	t.Run("shared memory", func(t *testing.T) { testRagged(t, true) })
	t.Run("pipe", func(t *testing.T) { testRagged(t, false) })
}

func testRagged(t *testing.T, shared bool) {
	r := load(t, "any", params("shared_memory", shared))
	s := r.open(stream.Options{})
	for _, n := range []int{0, 1, 1000, 300_000, 10} {
		payload := strings.Repeat("a", n)
		s.submit(stream.Frame{Codec: stream.Opaque, Payload: []byte(payload)})
		got := s.next()
		if got.Outcome != stream.Answered || len(got.Outputs) != 1 || string(got.Outputs[0].Data[4:]) != payload ||
			got.Params["codec"] != "opaque" {
			t.Fatalf("%d bytes: %v, %v", n, got.Outcome, got.Err)
		}
		got.Release()
	}
	s.submit(numbers(nil, 1, 2, 3))
	got := s.next()
	if got.Outcome != stream.Answered || len(got.Outputs) != 1 || got.Outputs[0].Float32s()[2] != 3 {
		t.Fatalf("%+v, %v", got, got.Err)
	}
	got.Release()
	s.submit(stream.Frame{Codec: stream.Opaque, Payload: []byte("{}"),
		Call: &stream.Call{Endpoint: "infer", Method: "POST", Header: map[string]string{"a": "b\xff"}}})
	got = s.next()
	if got.Outcome != stream.Answered || got.Reply == nil || got.Reply.Status != 201 ||
		got.Reply.ContentType != "text/x" || got.Reply.Header["x-a"] != "b" {
		t.Fatalf("%+v, %v, %+v", got, got.Err, got.Reply)
	}
	if body := string(got.Outputs[0].Data[4:]); got.Outputs[0].Name != "body" || !strings.HasSuffix(body, "}{}") ||
		!strings.Contains(body, `"endpoint": "infer"`) {
		t.Errorf("%q", body)
	}
	got.Release()
	s.submit(stream.Frame{Codec: stream.Opaque, Params: stream.Params{"parts": int64(3)}})
	for i := range 4 {
		got = s.next()
		if got.Partial != (i < 3) || got.Partial && got.Outputs[0].Data[0] != byte(i) {
			t.Fatalf("part %d: %+v, %v", i, got, got.Err)
		}
		got.Release()
	}
}

// Held results stay unchanged during later computations, if larger than all inputs, and if part of the inputs.
func TestHeldResults(t *testing.T) {
	for _, mode := range []string{"large", "wide"} {
		t.Run(mode, func(t *testing.T) {
			r := load(t, mode, func(c *workers.Config) { c.Instances, c.Batching.MaxSize = 4, 2 })
			s := r.open(stream.Options{Policy: stream.Policy{Mode: stream.Every, Window: 32}})
			var held []*stream.Result
			for i := range 64 {
				x := make([]float32, map[string]int{"large": 4, "wide": 76800}[mode])
				for k := range x {
					x[k] = float32(i)
				}
				s.submit(numbers(stream.Params{"do": map[string]string{"wide": "whole"}[mode]}, x...))
				if i >= 8 {
					held = append(held, s.next())
				}
			}
			for len(held) < 64 {
				held = append(held, s.next())
			}
			for i, got := range held {
				if got.Outcome != stream.Answered {
					t.Fatalf("%v, %v", got.Outcome, got.Err)
				}
				out := got.Outputs[0].Float32s()
				for k := 0; k < len(out); k += 511 {
					if out[k] != float32(i) {
						t.Fatalf("result %d has %v", i, out[k])
					}
				}
				got.Release()
			}
		})
	}
}

// TestInputsAsResults answers requests with the places of their inputs, in the memory of batches
// and in the worker's.
func TestInputsAsResults(t *testing.T) {
	for _, mode := range []string{"", "free"} {
		t.Run("mode "+mode, func(t *testing.T) {
			r := load(t, mode, func(c *workers.Config) { c.Batching.MaxSize = 4 })
			s := r.open(stream.Options{})
			const frames = 9
			for i := range frames {
				s.submit(numbers(stream.Params{"do": "same"}, float32(i), 1, 2, 3))
			}
			for i := range frames {
				got := s.next()
				if got.Outcome != stream.Answered {
					t.Fatalf("%v, %v", got.Outcome, got.Err)
				}
				if want := stream.AppendFloat32(nil, float32(i), 1, 2, 3); !bytes.Equal(got.Outputs[0].Data, want) {
					t.Errorf("frame %d: %v, want %v", i, got.Outputs[0].Data, want)
				}
				got.Release()
			}
		})
	}
}
