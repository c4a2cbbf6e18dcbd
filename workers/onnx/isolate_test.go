//go:build cgo && linux

package onnx

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	childproc "millrace/internal/child"
	"millrace/internal/onnxfile"
	"millrace/stream"
	"millrace/workers"
)

// children returns the ids of the processes that run isolated models for this process.
func children(t testing.TB) (pids []int) {
	t.Helper()
	tasks, err := filepath.Glob("/proc/self/task/*/children")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range tasks {
		list, _ := os.ReadFile(file) // empty for an ended thread
		for _, pid := range strings.Fields(string(list)) {
			line, _ := os.ReadFile("/proc/" + pid + "/cmdline")
			if id, err := strconv.Atoi(pid); err == nil && strings.Contains(string(line), IsolatedCommand) {
				pids = append(pids, id)
			}
		}
	}
	return pids
}

// oneChild returns the id of the only process.
func oneChild(t testing.TB) int {
	t.Helper()
	pids := children(t)
	if len(pids) != 1 {
		t.Fatalf("%d processes run the model", len(pids))
	}
	return pids[0]
}

// TestIsolatedResults: models of all forms describe the same and answer the same in a child process as in the server.
func TestIsolatedResults(t *testing.T) {
	square := func(dims ...any) []byte {
		return graph([]onnxfile.Value{value("x", onnxfile.Float32, dims...)},
			[]onnxfile.Value{value("y", onnxfile.Float32, dims...)}, []onnxfile.Node{node("Mul", "x x", "y")})
	}
	for _, c := range []struct {
		name   string
		model  []byte
		params stream.Params
		in     stream.Tensor
	}{
		{"free batch", onnxfile.MLP(16, 32, 4, 2), nil, tensor("", stream.Float32, floats(random(3*16, 1)...), 3, 16)},
		{"one row of a free batch", onnxfile.MLP(16, 32, 4, 2), nil,
			tensor("", stream.Float32, floats(random(16, 2)...), 16)},
		{"fixed batch", square(4, 2), nil, tensor("x", stream.Float32, floats(1, 2, 3, 4), 2, 2)},
		{"fixed batch of one", square(1, 2), nil, tensor("x", stream.Float32, floats(1, 2), 1, 2)},
		{"no batch", square(2, 2), stream.Params{"batch_axis": false}, tensor("x", stream.Float32, floats(1, 2, 3, 4),
			2, 2)},
		{"free sizes", square("n", "m"), nil, tensor("x", stream.Float32, floats(1, 2, 3), 1, 3)},
		{"a loop", countdown(), stream.Params{"batch_axis": false}, tensor("n", stream.Int64, int64s(5), 1)},
		{"size of the values", graph([]onnxfile.Value{value("n", onnxfile.Int64, 1)},
			[]onnxfile.Value{value("y", onnxfile.Float32, "k")}, []onnxfile.Node{node("ConstantOfShape", "n", "y")}),
			stream.Params{"batch_axis": false, "warmup": false}, tensor("n", stream.Int64, int64s(100_000), 1)},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := write(t, c.model)
			var models [2]*stream.Model
			var answers [2]got
			for i, isolate := range []bool{false, true} {
				t.Run(fmt.Sprintf("isolate=%v", isolate), func(t *testing.T) {
					params := stream.Params{"isolate": isolate}
					maps.Copy(params, c.params)
					g := newRig(t).load(t, workers.Config{Source: path, Params: params})
					models[i] = g.Model()
					in := c.in
					in.Name = models[i].Inputs[0].Name
					if answers[i] = call(t, g).send(t, in); answers[i].err != nil {
						t.Fatal(answers[i].err)
					}
					if n := len(children(t)); (n == 1) != isolate {
						t.Errorf("%d processes run the model", n)
					}
				})
			}
			if t.Failed() {
				return
			}
			plain, isolated := models[0], models[1]
			if !reflect.DeepEqual(plain.Inputs, isolated.Inputs) ||
				!reflect.DeepEqual(plain.Outputs, isolated.Outputs) || plain.Axis != isolated.Axis ||
				plain.MaxBatch != isolated.MaxBatch || plain.Platform != isolated.Platform ||
				plain.Ragged != isolated.Ragged || plain.Policy != isolated.Policy {
				t.Errorf("metadata: %+v, isolated %+v", plain, isolated)
			}
			if len(answers[0].outputs) != len(answers[1].outputs) {
				t.Fatalf("%d outputs, isolated %d", len(answers[0].outputs), len(answers[1].outputs))
			}
			for k, a := range answers[0].outputs {
				b := answers[1].outputs[k]
				if a.Name != b.Name || a.Datatype != b.Datatype || fmt.Sprint(a.Shape) != fmt.Sprint(b.Shape) ||
					!bytes.Equal(a.Data, b.Data) {
					t.Errorf("output %s %v, isolated %s %v, equal data: %v", a.Name, a.Shape, b.Name, b.Shape,
						bytes.Equal(a.Data, b.Data))
				}
			}
		})
	}
	for deadline := time.Now().Add(10 * time.Second); len(children(t)) > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("processes are left after the models were unloaded")
		}
	}
}

// TestIsolatedEndlessRun: the child ends an endless loop at limits.run, and the same process answers the next
// request.
func TestIsolatedEndlessRun(t *testing.T) {
	g := newRig(t).load(t, workers.Config{Source: write(t, countdown()), Params: stream.Params{"batch_axis": false,
		"isolate": true}, Limits: workers.Limits{Run: 200 * time.Millisecond}})
	c, pid := call(t, g), oneChild(t)
	if e := coded(t, c.send(t, tensor("n", stream.Int64, int64s(math.MaxInt64), 1)).err); e.Code != stream.Timeout ||
		e.Field != "limits.run" || !strings.Contains(e.Msg, "model m") {
		t.Errorf("an endless run: %+v", e)
	}
	next := c.send(t, tensor("n", stream.Int64, int64s(3), 1))
	if next.err != nil {
		t.Fatal(next.err)
	}
	want(t, next.outputs, 0, floats(3), 1)
	if oneChild(t) != pid {
		t.Error("the process was replaced")
	}
}

// stopRun ends the process of an endless run by a signal after the run has begun, and returns the error of the
// request.
func stopRun(t *testing.T, c caller, sig syscall.Signal) *stream.Error {
	t.Helper()
	pid := oneChild(t)
	before := cpuOf(t, pid)
	if err := c.Submit(stream.Frame{Codec: stream.Tensors,
		Inputs: []stream.Tensor{tensor("n", stream.Int64, int64s(math.MaxInt64), 1)}}); err != nil {
		t.Fatal(err)
	}
	for cpuOf(t, pid) < before+5 { // 50 ms: the child computes
		time.Sleep(time.Millisecond)
	}
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
	return coded(t, (<-c.sink).err)
}

// cpuOf returns the processor time of a process in hundredths of a second.
func cpuOf(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), ") ")
	n, err := strconv.Atoi(strings.Fields(after)[11])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestIsolatedDeath: when a process is killed, or crashes like the library may, the running request fails with an
// error that names the model. Another process answers the next request, and a neighboring model is not affected.
func TestIsolatedDeath(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSEGV} {
		t.Run(sig.String(), func(t *testing.T) {
			r := newRig(t)
			g := r.load(t, workers.Config{Source: write(t, countdown()), Params: stream.Params{"batch_axis": false,
				"isolate": true}})
			beside := call(t, r.load(t, workers.Config{Name: "beside", Source: write(t, countdown()),
				Params: stream.Params{"batch_axis": false}}))
			c, pid := call(t, g), oneChild(t)
			if e := stopRun(t, c, sig); e.Code != stream.Internal ||
				!strings.Contains(e.Msg, "model m (isolate) has ended") {
				t.Errorf("%v: %+v", sig, e)
			}
			next := c.send(t, tensor("n", stream.Int64, int64s(3), 1))
			if next.err != nil {
				t.Fatal(next.err)
			}
			want(t, next.outputs, 0, floats(3), 1)
			if oneChild(t) == pid {
				t.Error("the process has survived")
			}
			if got := beside.send(t, tensor("n", stream.Int64, int64s(2), 1)); got.err != nil {
				t.Error(got.err)
			}
			if s := g.Stats(); s.Restarts != 1 {
				t.Errorf("%d restarts", s.Restarts)
			}
		})
	}
}

// TestIsolatedHang: a process with an endless run is killed 2 s after limits.run, and the next request is answered. A
// stopped process stands for an endless node.
func TestIsolatedHang(t *testing.T) {
	if testing.Short() {
		t.Skip("takes limits.run and 2 s more")
	}
	g := newRig(t).load(t, workers.Config{Source: write(t, countdown()), Params: stream.Params{"batch_axis": false,
		"isolate": true}, Limits: workers.Limits{Run: time.Second}})
	c, began := call(t, g), time.Now()
	if e := stopRun(t, c, syscall.SIGSTOP); e.Code != stream.Timeout || e.Field != "limits.run" ||
		!strings.Contains(e.Msg, "model m") {
		t.Errorf("a process that hangs: %+v", e)
	}
	if took := time.Since(began); took > 8*time.Second { // the group gives a run up after 12 s
		t.Errorf("it was killed after %v", took)
	}
	if got := c.send(t, tensor("n", stream.Int64, int64s(3), 1)); got.err != nil {
		t.Error(got.err)
	}
}

// TestIsolatedMemory: a run with a need above onnx.memory fails with an error that names the setting, in the child as
// in the server.
func TestIsolatedMemory(t *testing.T) {
	g := newRig(t).load(t, workers.Config{Source: write(t, graph(
		[]onnxfile.Value{value("n", onnxfile.Int64, 1)}, []onnxfile.Value{value("y", onnxfile.Float32, "k")},
		[]onnxfile.Node{node("ConstantOfShape", "n", "y")})), Params: stream.Params{"batch_axis": false,
		"warmup": false, "isolate": true}})
	c, pid := call(t, g), oneChild(t)
	for range 3 {
		if e := coded(t, c.send(t, tensor("n", stream.Int64, int64s(testMemory/2), 1)).err); e.Code !=
			stream.TooLarge || e.Field != "onnx.memory" {
			t.Errorf("%+v", e)
		}
		if got := c.send(t, tensor("n", stream.Int64, int64s(1<<20), 1)); got.err != nil ||
			len(got.outputs[0].Data) != 4<<20 {
			t.Errorf("%d outputs, %v", len(got.outputs), got.err)
		}
	}
	if oneChild(t) != pid {
		t.Error("the process was replaced")
	}
}

// TestIsolatedMemoryLimit: a process with more resident memory than memory_limit is replaced, and the next request is
// answered.
func TestIsolatedMemoryLimit(t *testing.T) {
	// the weights alone pass the limit
	g := newRig(t).load(t, workers.Config{Source: write(t, onnxfile.MLP(2048, 4096, 16, 2)),
		Params: stream.Params{"isolate": true, "memory_limit": int64(64 << 20), "warmup": false}})
	for deadline := time.Now().Add(20 * time.Second); g.Stats().Restarts == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the process is not replaced")
		}
	}
}

// TestIsolatedErrors: errors of a load equal the errors of a model in the server, and a setting impossible in a child
// process is refused by name.
func TestIsolatedErrors(t *testing.T) {
	load := func(path string, params stream.Params) *stream.Error {
		t.Helper()
		m := newRig(t)
		_, err := m.LoadConfig(t.Context(), workers.Config{Name: "m", Kind: "onnx", Source: path, Params: params}, true)
		if err == nil {
			t.Fatalf("%s is loaded with %v", path, params)
		}
		return coded(t, err)
	}
	none := filepath.Join(t.TempDir(), "none.onnx")
	if err := os.WriteFile(none, []byte("no model"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string]string{"no model": none, "empty": write(t, nil)} {
		plain, isolated := load(path, nil), load(path, stream.Params{"isolate": true})
		if plain.Code != isolated.Code || plain.Field != isolated.Field || plain.Msg != isolated.Msg {
			t.Errorf("%s: %q, isolated %q", name, plain, isolated)
		}
	}
	texts := write(t, graph([]onnxfile.Value{value("x", onnxfile.String, "n")},
		[]onnxfile.Value{value("y", onnxfile.String, "n")}, []onnxfile.Node{node("Identity", "x", "y")}))
	for field, c := range map[string]struct {
		path   string
		params stream.Params
	}{
		"state":    {write(t, countdown()), stream.Params{"state": "a=b"}},
		"controls": {write(t, countdown()), stream.Params{"controls": "a=start"}},
		"provider": {write(t, countdown()), stream.Params{"provider": "cuda"}},
		"isolate":  {texts, stream.Params{}},
	} {
		c.params["isolate"] = true
		if e := load(c.path, c.params); e.Code != stream.Unsupported || e.Field != field ||
			!strings.Contains(e.Msg, "kind remote") && field != "provider" {
			t.Errorf("%s: %+v", field, e)
		}
	}
	isolation.Lock()
	self := isolation.self
	isolation.Unlock()
	defer SetProgram(self)
	SetProgram("")
	if e := load(write(t, countdown()), stream.Params{"isolate": true}); e.Code != stream.Unavailable ||
		!strings.Contains(e.Msg, "onnx.program") {
		t.Errorf("without a program: %+v", e)
	}
}

// TestIsolatedIsConfined: the process has no variables of the server, no capabilities, and a filter of system calls;
// the sandbox has the model's folder without private files, and not the folders above.
func TestIsolatedIsConfined(t *testing.T) {
	if err := childproc.SandboxError(); err != nil {
		t.Skip(err)
	}
	t.Setenv("MILLRACE_TEST_SECRET", "secret")
	path := write(t, countdown())
	key := filepath.Join(filepath.Dir(path), "key.pem")
	if err := os.WriteFile(key, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	newRig(t).load(t, workers.Config{Source: path, Params: stream.Params{"batch_axis": false, "isolate": true}})
	pid := oneChild(t)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"Seccomp:\t2", "NoNewPrivs:\t1", "CapEff:\t0000000000000000"} {
		if !strings.Contains(string(status), line) {
			t.Errorf("no %q in %s", line, status)
		}
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil || !bytes.Contains(env, []byte("MILLRACE_SOCKET")) || bytes.Contains(env, []byte("SECRET")) {
		t.Errorf("variables %q, %v", env, err)
	}
	s := sandboxOf("/program", path, "", []string{key})
	for _, file := range s.Read {
		if file == key || file == filepath.Dir(path) || file == "/" || file == os.Getenv("HOME") {
			t.Errorf("it may read %s", file)
		}
	}
	if s.Network || len(s.Write)+len(s.Connect) > 0 || !s.NoCapabilities {
		t.Errorf("%+v", s)
	}
}

// TestIsolateAll: onnx.isolate makes processes of all models.
func TestIsolateAll(t *testing.T) {
	SetIsolation(Isolation{All: true})
	defer SetIsolation(Isolation{})
	g := newRig(t).load(t, workers.Config{Source: write(t, countdown()), Params: stream.Params{"batch_axis": false},
		Instances: 2})
	if n := len(children(t)); n != 2 {
		t.Errorf("%d processes for 2 instances", n)
	}
	if got := call(t, g).send(t, tensor("n", stream.Int64, int64s(2), 1)); got.err != nil {
		t.Error(got.err)
	}
}

// BenchmarkIsolated compares a small network in the server with one in a child process.
func BenchmarkIsolated(b *testing.B) {
	path := write(b, onnxfile.MLP(64, 128, 10, 2))
	for _, isolate := range []bool{false, true} {
		b.Run(fmt.Sprintf("isolate=%v", isolate), func(b *testing.B) {
			g := newRig(b).load(b, workers.Config{Source: path, Params: stream.Params{"isolate": isolate}})
			c := call(b, g)
			in := tensor(g.Model().Inputs[0].Name, stream.Float32, floats(random(64, 1)...), 1, 64)
			b.ReportAllocs()
			for b.Loop() {
				if got := c.send(b, in); got.err != nil {
					b.Fatal(got.err)
				}
			}
		})
	}
}
