package process

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"millrace/stream"
	"millrace/workers"
)

// hold has the child run a batch of one request until next has returned, and then ends the batch by do: "wait", or
// "wait and exit".
func (c *client) hold(do string, next func()) {
	c.rig.Helper()
	file := filepath.Join(c.TempDir(), "go")
	c.submit(numbers(stream.Params{"do": do + ":" + file}, 100, 0, 0, 0))
	c.begins(do)
	next()
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		c.Fatal(err)
	}
}

// begins waits until the child runs a request.
func (c *client) begins(do string) {
	c.rig.Helper()
	c.until("the child runs the first batch", func() bool {
		return strings.Contains(c.log.String(), `msg="begins `+do)
	})
}

// eachLimit runs a test with a short limit, and with longer limits as long as f returns false: on a busy machine an
// innocent batch may pass the limit.
func eachLimit(t *testing.T, f func(t *testing.T, limit time.Duration) bool) {
	t.Helper()
	for limit := 300 * time.Millisecond; limit < time.Minute; limit *= 4 {
		done := false
		if !t.Run(limit.String(), func(t *testing.T) { done = f(t, limit) }) || done {
			return
		}
	}
	t.Error("the limit is always passed")
}

// When a batch ends the child, the next child runs the waiting batch: a death fails exactly the running batch.
func TestSecondBatchSurvives(t *testing.T) {
	eight := func(s *client) {
		for i := range 8 {
			s.submit(numbers(nil, float32(i), 0, 0, 0))
		}
	}
	slow := func(s *client) {
		for i := range 8 {
			s.submit(numbers(stream.Params{"do": "sleep:0.05"}, float32(i), 0, 0, 0))
		}
	}
	check := func(s *client, says string) bool {
		got := s.next()
		if got.Outcome != stream.Failed || !strings.Contains(got.Err.Error(), says) {
			s.Fatalf("the batch that ran: %v, %v", got.Outcome, got.Err)
		}
		for i := range 8 {
			got = s.next()
			if stream.CodeOf(got.Err) == stream.Timeout {
				return false
			}
			if got.Outcome != stream.Answered || got.Outputs[0].Float32s()[0] != float32(i) {
				s.Errorf("%d of the batch that waited: %v, %v", i, got.Outcome, got.Err)
			}
			got.Release()
		}
		if n := s.group.Stats().Restarts; n != 1 {
			s.Errorf("%d restarts", n)
		}
		return true
	}
	t.Run("exit", func(t *testing.T) {
		s := load(t, "", func(c *workers.Config) { c.Batching.MaxSize = 8 }).open(stream.Options{})
		s.hold("wait and exit", func() { eight(s) })
		if !check(s, "status 3") {
			t.Error("the batch that waited passed the limit")
		}
	})
	t.Run("wrong result", func(t *testing.T) { // while the waiting batch runs
		s := load(t, "", func(c *workers.Config) { c.Batching.MaxSize = 8 }).open(stream.Options{})
		s.hold("wait and size", func() { slow(s) })
		if !check(s, "broke the protocol: outputs.y.data: 4 bytes") {
			t.Error("the batch that waited passed the limit")
		}
	})
	t.Run("hang", func(t *testing.T) {
		eachLimit(t, func(t *testing.T, limit time.Duration) bool {
			s := load(t, "", func(c *workers.Config) {
				c.Batching.MaxSize, c.Limits.Run = 8, limit
			}).open(stream.Options{})
			s.submit(numbers(stream.Params{"do": "hang"}, 100, 0, 0, 0))
			s.begins("hang")
			eight(s)
			return check(s, "limits.run")
		})
	})
}

// For a program that reports the begin of batches, a process that ends before the begin of a batch leaves the batch
// to the next process, and a process that ends afterwards fails the batch; with shared memory and with messages.
func TestBegins(t *testing.T) {
	for _, shared := range []bool{true, false} {
		for do, want := range map[string]string{"end before it": "", "end after it": "has ended with status 3",
			"wrong id": "begun has the id"} {
			t.Run(fmt.Sprintf("%s, shared memory %v", do, shared), func(t *testing.T) {
				once := filepath.Join(t.TempDir(), "once")
				r := load(t, "begins", params("shared_memory", shared), func(c *workers.Config) {
					c.Params["env"] = `["MODE=begins", "ONCE=` + once + `"]`
				})
				s := r.open(stream.Options{})
				for i, do := range []string{"", do, ""} {
					s.submit(numbers(stream.Params{"do": do}, float32(i), 0, 0, 0))
					got := s.next()
					switch {
					case i == 1 && want != "":
						if got.Outcome != stream.Failed || !strings.Contains(got.Err.Error(), want) {
							t.Errorf("%v, %v", got.Outcome, got.Err)
						}
					case got.Outcome != stream.Answered || got.Outputs[0].Float32s()[0] != float32(i):
						t.Errorf("%d: %v, %v", i, got.Outcome, got.Err)
					}
					got.Release()
				}
				if n := r.group.Stats().Restarts; n != 1 {
					t.Errorf("%d restarts", n)
				}
			})
		}
	}
}

// The requests of a fatal batch are run again one by one: one request fails, the others are answered, and equal input
// is refused afterwards.
func TestKillerIsFound(t *testing.T) {
	r := load(t, "", func(c *workers.Config) { c.Batching.MaxSize = 8 })
	s := r.open(stream.Options{})
	poison := stream.Params{"do": "abort if 13"}
	s.hold("wait", func() {
		for i := range 8 {
			s.submit(numbers(poison, float32(10+i), 0, 0, 0))
		}
	})
	s.next().Release()
	for i := range 8 {
		got := s.next()
		switch {
		case i == 3 && (got.Outcome != stream.Failed || !strings.Contains(got.Err.Error(), "signal 6 (aborted)")):
			t.Errorf("the killer: %v, %v", got.Outcome, got.Err)
		case i != 3 && (got.Outcome != stream.Answered || got.Outputs[0].Float32s()[0] != float32(10+i)):
			t.Errorf("%d: %v, %v", i, got.Outcome, got.Err)
		}
		got.Release()
	}
	restarts := r.group.Stats().Restarts
	for _, v := range []float32{13, 14} {
		s.submit(numbers(poison, v, 0, 0, 0))
	}
	got := s.next()
	if stream.CodeOf(got.Err) != stream.InvalidArgument ||
		!strings.Contains(got.Err.Error(), "refuse: an equal request ended the model's program") {
		t.Errorf("the killer again: %v", got.Err)
	}
	if got = s.next(); got.Outcome != stream.Answered || got.Outputs[0].Float32s()[0] != 14 {
		t.Errorf("its neighbour: %v, %v", got.Outcome, got.Err)
	}
	got.Release()
	if n := r.group.Stats().Restarts; n != restarts || n != 2 {
		t.Errorf("%d restarts, then %d", restarts, n)
	}
}

// In a batch run one by one, a request with a wrong answer fails, and the next child runs the later requests.
func TestOneOfSeveralBreaksTheProtocol(t *testing.T) {
	r := load(t, "", func(c *workers.Config) { c.Batching.MaxSize = 4 })
	s := r.open(stream.Options{})
	s.submit(numbers(stream.Params{"do": "segfault"}, 13, 0, 0, 0))
	if got := s.next(); got.Outcome != stream.Failed {
		t.Fatalf("%v", got.Outcome)
	}
	s.hold("wait", func() {
		for i, do := range []string{"segfault", "size", "", ""} { // the first is refused
			s.submit(numbers(stream.Params{"do": do}, float32(13+i), 0, 0, 0))
		}
	})
	s.next().Release()
	for i, code := range []stream.Code{stream.InvalidArgument, stream.Internal, "", ""} {
		got := s.next()
		if stream.CodeOf(got.Err) != code || code == "" && got.Outputs[0].Float32s()[0] != float32(13+i) {
			t.Errorf("%d: %v, %v", i, got.Outcome, got.Err)
		}
		got.Release()
	}
	if n := r.group.Stats().Restarts; n != 2 {
		t.Errorf("%d restarts", n)
	}
}

// The input of a batch is blamed for a crash, but not for a signal from outside.
func TestSignals(t *testing.T) {
	// Under nohup SIGHUP is ignored, also by programs, unless handled here.
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	for _, c := range []struct {
		signal syscall.Signal
		cause  string
	}{
		{syscall.SIGTERM, "killed"}, {syscall.SIGINT, "killed"}, {syscall.SIGHUP, "killed"},
		{syscall.SIGKILL, "killed"},
		{syscall.SIGSEGV, "signal"}, {syscall.SIGABRT, "signal"}, {syscall.SIGBUS, "signal"},
		{syscall.SIGILL, "signal"}, {syscall.SIGFPE, "signal"},
	} {
		t.Run(unix.SignalName(c.signal), func(t *testing.T) {
			s := load(t, "any").open(stream.Options{})
			pid, file := s.report().PID, filepath.Join(t.TempDir(), "go")
			f := stream.Frame{Codec: stream.Opaque, Params: stream.Params{"do": "wait:" + file}}
			s.submit(f)
			s.begins("wait")
			if err := syscall.Kill(pid, c.signal); err != nil {
				t.Fatal(err)
			}
			if got := s.next(); got.Outcome != stream.Failed {
				t.Errorf("%v", got.Outcome)
			}
			if err := os.WriteFile(file, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			s.submit(f)
			got := s.next()
			if refused := stream.CodeOf(got.Err) == stream.InvalidArgument; refused != (c.cause == "signal") {
				t.Errorf("the same input again: %v, %v", got.Outcome, got.Err)
			}
			got.Release()
			if ends := s.group.Stats().Processes.Ended; len(ends) != 1 || ends[c.cause] != 1 {
				t.Errorf("ends %v", ends)
			}
		})
	}
}

// A program that refuses to start again counts as refusing, for any kind of end.
func TestRefusesToRestart(t *testing.T) {
	once := filepath.Join(t.TempDir(), "once")
	r := load(t, "refuses later", func(c *workers.Config) {
		c.Limits.Restarts = 3
		c.Params["env"] = `["MODE=refuses later", "ONCE=` + once + `"]`
	})
	if err := os.WriteFile(once, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := r.open(stream.Options{})
	s.submit(numbers(stream.Params{"do": "exit"}, 1, 2, 3, 4))
	s.next().Release()
	r.until("it is given up", func() bool {
		return strings.Contains(r.log.String(), "worker abandoned after too many restarts")
	})
	if ends := r.group.Stats().Processes.Ended; ends["exit"] != 1 || ends["start"] != 3 || len(ends) != 2 {
		t.Errorf("ends %v", ends)
	}
}

// A batch past its limit is run once more if allowed.
func TestIdempotent(t *testing.T) {
	eachLimit(t, func(t *testing.T, limit time.Duration) bool {
		once := filepath.Join(t.TempDir(), "once")
		r := load(t, "", func(c *workers.Config) {
			c.Limits.Run = limit
			c.Params["idempotent"] = true
			c.Params["env"] = `["MODE=", "ONCE=` + once + `"]`
		})
		s := r.open(stream.Options{})
		s.submit(numbers(stream.Params{"do": "once"}, 1, 2, 3, 4))
		got := s.next()
		if stream.CodeOf(got.Err) == stream.Timeout {
			return false
		}
		if got.Outcome != stream.Answered {
			t.Fatalf("%v, %v", got.Outcome, got.Err)
		}
		got.Release()
		s.submit(numbers(stream.Params{"do": "hang"}, 1, 2, 3, 4))
		if got := s.next(); stream.CodeOf(got.Err) != stream.Timeout {
			t.Errorf("%v, %v", got.Outcome, got.Err)
		}
		r.until("three restarts", func() bool { return r.group.Stats().Restarts == 3 })
		return true
	})
}

// A batch may have more fatal requests than limits.restarts allows, because answered requests are in between.
func TestSeveralKillers(t *testing.T) {
	// of five ends, at most three are in a row, however the frames share batches
	r := load(t, "", params("refuse", "0s"), func(c *workers.Config) { c.Batching.MaxSize, c.Limits.Restarts = 8, 3 })
	s := r.open(stream.Options{})
	s.submit(numbers(stream.Params{"do": "sleep:0.2"}, 100, 0, 0, 0))
	s.until("the child runs the first batch", func() bool {
		return strings.Contains(s.log.String(), `msg="begins sleep:0.2`)
	})
	values := []float32{10, 13, 11, 13, 12, 13, 14, 13}
	for _, v := range values {
		s.submit(numbers(stream.Params{"do": "abort if 13"}, v, 0, 0, 0))
	}
	s.next().Release()
	for i, v := range values {
		got := s.next()
		if v == 13 && (got.Outcome != stream.Failed || !strings.Contains(got.Err.Error(), "signal 6 (aborted)")) ||
			v != 13 && got.Outcome != stream.Answered {
			t.Errorf("%d: %v, %v", i, got.Outcome, got.Err)
		}
		got.Release()
	}
}

// Requests of a batch run one by one have a limit each: the batch does not count as hung.
func TestOneByOneIsNoHang(t *testing.T) {
	const rows = 16
	r := load(t, "", func(c *workers.Config) {
		c.Batching.MaxSize, c.Limits.Run, c.Limits.Start = rows, 400*time.Millisecond, 2*time.Second
	})
	s, before := r.open(stream.Options{}), r.open(stream.Options{})
	before.submit(numbers(stream.Params{"do": "sleep:0.2"}, 100, 0, 0, 0))
	s.until("the child runs the first batch", func() bool {
		return strings.Contains(s.log.String(), `msg="begins sleep:0.2`)
	})
	for i := range rows {
		do := "sleep:0.2"
		if i == 0 {
			do = "exit"
		}
		s.submit(numbers(stream.Params{"do": do}, float32(i), 0, 0, 0))
	}
	before.next().Release()
	for i := range rows {
		got := s.next()
		if want := stream.Answered; i > 0 && got.Outcome != want || i == 0 && got.Outcome != stream.Failed {
			t.Errorf("%d: %v, %v", i, got.Outcome, got.Err)
		}
		got.Release()
	}
}

// slow is a client that takes each part of an answer slowly.
type slow struct {
	sink
	each time.Duration
}

func (s slow) WaitForRoom() error {
	time.Sleep(s.each)
	return nil
}

// A client that takes the parts of an answer slowly makes neither the running batch nor the waiting batch pass the
// limit.
func TestSlowClientIsNoHang(t *testing.T) {
	r := load(t, "any", func(c *workers.Config) {
		c.Batching.MaxSize, c.Limits.Run, c.Limits.Start = 1, 400*time.Millisecond, 2*time.Second
	})
	in := slow{sink{make(chan *stream.Result, 64), make(chan stream.CloseReason, 1)}, 250 * time.Millisecond}
	st, err := r.group.Open(stream.Options{Policy: stream.Policy{Mode: stream.Every}}, in)
	if err != nil {
		t.Fatal(err)
	}
	other := r.open(stream.Options{})
	const parts = 14
	if err := st.Submit(stream.Frame{Codec: stream.Opaque, Params: stream.Params{"parts": int64(parts)}}); err != nil {
		t.Fatal(err)
	}
	c := &client{r, st, in.sink}
	first := c.next()
	other.submit(stream.Frame{Codec: stream.Opaque, Payload: []byte("a")})
	for i := range parts + 1 {
		got := first
		if i > 0 {
			got = c.next()
		}
		if got.Outcome != stream.Answered || got.Partial != (i < parts) {
			t.Errorf("%d: %v, %v", i, got.Outcome, got.Err)
		}
		got.Release()
	}
	got := other.next()
	if got.Outcome != stream.Answered {
		t.Errorf("the one behind: %v, %v", got.Outcome, got.Err)
	}
	got.Release()
	if n := r.group.Stats().Restarts; n != 0 {
		t.Errorf("%d restarts", n)
	}
	st.Close(stream.ByClient)
	<-in.done
}

var _, _ stream.Pacer = slow{}, blocked{}

// blocked is a client that takes no part of an answer until a channel is closed.
type blocked struct {
	sink
	until chan struct{}
}

func (b blocked) WaitForRoom() error {
	<-b.until
	return nil
}

// A partly answered batch is not run again when the later read answer to the batch before ends the program.
func TestAnsweredInPartIsNotRunAgain(t *testing.T) {
	r := load(t, "any", func(c *workers.Config) { c.Batching.MaxSize = 1 })
	in := blocked{sink{make(chan *stream.Result, 64), make(chan stream.CloseReason, 1)}, make(chan struct{})}
	st, err := r.group.Open(stream.Options{Policy: stream.Policy{Mode: stream.Every}}, in)
	if err != nil {
		t.Fatal(err)
	}
	unblock := sync.OnceFunc(func() { close(in.until) })
	defer unblock()
	first, second := &client{r, st, in.sink}, r.open(stream.Options{})
	first.submit(stream.Frame{Codec: stream.Opaque, Params: stream.Params{"do": "part and count"}})
	first.begins("part and count")
	second.submit(stream.Frame{Codec: stream.Opaque, Params: stream.Params{"do": "part and sleep"}})
	for _, c := range []*client{second, first} {
		if got := c.next(); !got.Partial {
			t.Errorf("%v, %v", got.Outcome, got.Err)
		} else {
			got.Release()
		}
		unblock()
	}
	for _, c := range []*client{first, second} {
		if got := c.next(); got.Outcome != stream.Failed || got.Partial ||
			!strings.Contains(got.Err.Error(), "result has 0 requests for a batch of 1") {
			t.Errorf("%v, %v", got.Outcome, got.Err)
		}
	}
	st.Close(stream.ByClient)
	<-in.done
}

// report returns the program's report.
func (c *client) report() (out struct {
	Env     map[string]string
	Cores   []int
	Dir     string
	PID     int
	Files   []string
	Request map[string]any
}) {
	c.rig.Helper()
	c.submit(stream.Frame{Codec: stream.Opaque, Params: stream.Params{"report": true}})
	got := c.next()
	if got.Outcome != stream.Answered {
		c.Fatalf("%v, %v", got.Outcome, got.Err)
	}
	if err := json.Unmarshal(got.Outputs[0].Data[4:], &out); err != nil {
		c.Fatal(err)
	}
	got.Release()
	return out
}

// A process killed while idle is replaced at once, and no input is blamed.
func TestKilledWhileIdle(t *testing.T) {
	r := load(t, "any")
	s := r.open(stream.Options{})
	before := s.report().PID
	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.until("another process has started", func() bool { return r.group.Stats().Processes.Started == 2 })
	if after := s.report().PID; after == before {
		t.Error("the same process")
	}
	if p := r.group.Stats().Processes; p.Running != 1 || p.Ended["killed"] != 1 {
		t.Errorf("%+v", p)
	}
}

// Each instance has its own environment, processors, folder and descriptors.
func TestPlacesOfInstances(t *testing.T) {
	dir := t.TempDir()
	inherited, err := unix.Dup(int(os.Stdin.Fd())) // without close-on-exec, like a descriptor inherited by the server
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(inherited) }()
	r := load(t, "any", params("instance_env", `["GPU=0;A=b", "GPU=1"]`, "cores", `["0", "0-1"]`, "dir", dir),
		func(c *workers.Config) {
			c.Instances, c.Batching.MaxSize = 2, 1
		})
	s, seen := r.open(stream.Options{}), map[string][]int{}
	for deadline := time.Now().Add(time.Minute); len(seen) < 2 && time.Now().Before(deadline); {
		got := s.report()
		seen[got.Env["GPU"]] = got.Cores
		if got.Dir != dir || got.Env["MODE"] != "any" || got.Env["MILLRACE_SOCKET"] != "3" ||
			(got.Env["GPU"] == "0") != (got.Env["A"] == "b") {
			t.Errorf("%+v", got)
		}
		if want := []string{"/dev/null", "pipe", "pipe", "socket"}; !slices.Equal(got.Files, want) {
			t.Fatalf("descriptors %v, want %v", got.Files, want)
		}
		// so that both instances get some
		s.submit(stream.Frame{Codec: stream.Opaque, Params: stream.Params{"do": "sleep:0.02"}})
		s.submit(stream.Frame{Codec: stream.Opaque, Params: stream.Params{"do": "sleep:0.02"}})
		s.next().Release()
		s.next().Release()
	}
	if len(seen["0"]) != 1 || len(seen) != 2 {
		t.Errorf("processors %v", seen)
	}
}

// The state of a stream is in one process, which is told when the state is no longer needed. A replacement process
// knows that the state is missing.
func TestState(t *testing.T) {
	r := load(t, "stateful", func(c *workers.Config) { c.Instances = 2 })
	var clients []*client
	for range 4 {
		clients = append(clients, r.open(stream.Options{}))
	}
	count := func(c *client) byte {
		c.submit(numbers(nil, 1, 2, 3, 4))
		got := c.next()
		if got.Outcome != stream.Answered {
			t.Fatalf("%v, %v", got.Outcome, got.Err)
		}
		defer got.Release()
		return got.Outputs[0].Data[0]
	}
	for n := range byte(10) {
		for i, c := range clients {
			if got := count(c); got != n+1 {
				t.Fatalf("frame %d of stream %d: counted %d", n, i, got)
			}
		}
	}
	id := clients[0].ID()
	clients[0].Close(stream.ByClient)
	count(clients[1])
	r.until("the state is released", func() bool {
		return strings.Contains(r.log.String(), fmt.Sprintf("released %d", id))
	})
	clients[2].submit(numbers(stream.Params{"do": "exit"}, 1, 2, 3, 4))
	if got := clients[2].next(); got.Outcome != stream.Failed {
		t.Errorf("%v", got.Outcome)
	}
	if got := count(clients[2]); got != 1 {
		t.Errorf("counted %d after the process was replaced", got)
	}
}

// The program is told of a leaving client.
func TestCancel(t *testing.T) {
	r := load(t, "any")
	s := r.open(stream.Options{})
	s.submit(stream.Frame{Codec: stream.Opaque, Params: stream.Params{"do": "until canceled"}})
	r.until("the batch runs", func() bool { return r.group.Stats().Busy == 1 })
	s.Close(stream.ClientGone)
	r.until("the program knows", func() bool { return strings.Contains(r.log.String(), "canceled 0") })
}

// A program is replaced after so many requests, and no request is lost.
func TestRecycling(t *testing.T) {
	r := load(t, "any", params("recycle_requests", int64(5)))
	s := r.open(stream.Options{})
	pids := map[int]bool{}
	for range 20 {
		pids[s.report().PID] = true
	}
	st := r.group.Stats()
	if len(pids) < 3 || st.Frames.Results != 20 || st.Processes.Ended["recycled"] == 0 ||
		st.Processes.Ended["exit"] != 0 {
		t.Errorf("%d processes, %+v", len(pids), st.Processes)
	}
}

// A program with too much memory is replaced after its batch.
func TestMemoryLimit(t *testing.T) {
	r := load(t, "any", params("memory_limit", "100MiB", "watchdog.period", "20ms"))
	s := r.open(stream.Options{})
	s.submit(stream.Frame{Codec: stream.Opaque, Params: stream.Params{"do": "grow"}})
	first := s.next()
	r.until("it is replaced", func() bool { return r.group.Stats().Processes.Ended["memory"] == 1 })
	if first.Outcome == stream.Failed && !strings.Contains(first.Err.Error(), "memory_limit") {
		t.Errorf("%v", first.Err)
	}
	first.Release()
	s.report()
	if !strings.Contains(r.log.String(), "MiB of resident memory") {
		t.Error("the reason is not logged")
	}
}

// The program's own watchdog is asked while idle, and a program that answers no is replaced.
func TestWatchdog(t *testing.T) {
	sick := filepath.Join(t.TempDir(), "sick")
	r := load(t, "any", params("watchdog.period", "10ms"), func(c *workers.Config) {
		c.Params["env"] = `["MODE=any", "UNHEALTHY=` + sick + `"]`
	})
	if err := os.WriteFile(sick, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// also successors, until the file is gone
	r.until("it is replaced", func() bool { return r.group.Stats().Processes.Ended["watchdog"] > 0 })
	if err := os.Remove(sick); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(r.log.String(), "the program's own watchdog reports: unhealthy") {
		t.Error("the reason is not logged")
	}
}

// After a failed check the next program starts watchdog.pause later.
func TestWatchdogPause(t *testing.T) {
	sick := filepath.Join(t.TempDir(), "sick")
	const pause = 300 * time.Millisecond
	r := load(t, "any", params("watchdog.period", "10ms", "watchdog.pause", pause.String()), func(c *workers.Config) {
		c.Params["env"] = `["MODE=any", "UNHEALTHY=` + sick + `"]`
	})
	began := time.Now()
	if err := os.WriteFile(sick, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.until("it is replaced", func() bool { return r.group.Stats().Restarts > 0 })
	if took := time.Since(began); took < pause {
		t.Errorf("replaced after %v", took)
	}
	if err := os.Remove(sick); err != nil {
		t.Fatal(err)
	}
}

// Many clients at once, two batches in flight, killed children: each frame has one ending, and the outputs match the
// inputs.
func TestStress(t *testing.T) {
	r := load(t, "", func(c *workers.Config) { c.Instances, c.Batching.MaxSize, c.Limits.Restarts = 2, 4, 1000 })
	const streams, frames = 8, 60
	done := make(chan error, streams)
	for k := range streams {
		s := r.open(stream.Options{})
		go func() {
			for i := range frames {
				v := float32(1000*k + i)
				p := stream.Params(nil)
				if k == 0 && i%20 == 10 {
					p = stream.Params{"do": "kill"}
				}
				if err := s.Submit(numbers(p, v, v, v, v)); err != nil {
					done <- err
					return
				}
				got := <-s.results
				if got.Outcome == stream.Answered && got.Outputs[0].Float32s()[3] != v {
					done <- fmt.Errorf("stream %d, frame %d: %v", k, i, got.Outputs[0].Float32s())
					return
				}
				if got.Outcome != stream.Answered && p == nil {
					done <- fmt.Errorf("stream %d, frame %d: %v, %w", k, i, got.Outcome, got.Err)
					return
				}
				got.Release()
			}
			done <- nil
		}()
	}
	for range streams {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if st := r.group.Stats(); st.Processes.Ended["killed"] < 3 {
		t.Errorf("%+v", st.Processes)
	}
}
