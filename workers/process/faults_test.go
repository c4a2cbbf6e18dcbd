package process

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"millrace/internal/testneeds"
	"millrace/stream"
	"millrace/workers"
)

// The load of a program that cannot start fails with the program's reason.
func TestStartFailures(t *testing.T) {
	dir := t.TempDir()
	program := func(name, text string) string {
		path := filepath.Join(dir, name)
		testneeds.WriteProgram(t, path, text)
		return path
	}
	plain := program("plain", "#!/bin/sh\n")
	if err := os.Chmod(plain, 0o644); err != nil {
		t.Fatal(err)
	}
	command := func(path string) func(*workers.Config) {
		return func(c *workers.Config) { c.Source = ""; c.Params["command"] = path }
	}
	short := func(c *workers.Config) { c.Limits.Start = 100 * time.Millisecond }
	grace := params("grace", "50ms")
	for _, c := range []struct {
		name, mode string
		set        []func(*workers.Config)
		code       stream.Code
		says       []string
	}{
		{"missing", "", []func(*workers.Config){command("/no/such/program")}, stream.NotFound,
			[]string{"command", "/no/such/program does not exist"}},
		{"not in PATH", "", []func(*workers.Config){command("no-such-program")}, stream.NotFound,
			[]string{"was not found in PATH"}},
		{"not executable", "", []func(*workers.Config){command(plain)}, stream.PermissionDenied,
			[]string{"is not executable: chmod +x"}},
		{"no interpreter", "", []func(*workers.Config){command(program("script", "#!/no/such/interpreter\n"))},
			stream.NotFound, []string{"or its interpreter does not"}},
		{"no format", "", []func(*workers.Config){command(program("text", "exit 0\n"))}, stream.InvalidArgument,
			[]string{"needs #!"}},
		{"exits", "exits", nil, stream.Internal, []string{"did not start: hello", "status 1", "no reason"}},
		{"exits at once", "", []func(*workers.Config){command("/bin/true")}, stream.Internal,
			[]string{"did not start: hello", "ended with status 0"}},
		{"speaks garbage", "speaks garbage", nil, stream.Internal,
			[]string{"broke the protocol", "begins with a length"}},
		{"refuses", "raises", nil, stream.Internal, []string{"ModuleNotFoundError: No module named 'nothing'",
			"Traceback (most recent call last)", "service.py"}},
		{"hangs", "mute", []func(*workers.Config){short, grace}, stream.Timeout,
			[]string{"limits.start", "did not answer hello in time"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := tryLoad(t, c.mode, c.set...)
			if err == nil {
				t.Fatal("it was loaded")
			}
			if code := stream.CodeOf(err); code != c.code {
				t.Errorf("code %s, want %s", code, c.code)
			}
			for _, text := range c.says {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%q lacks %q", err, text)
				}
			}
		})
	}
}

// The load of a program with an endless setup fails with an error naming the setup.
func TestSetupHangs(t *testing.T) {
	eachLimit(t, func(t *testing.T, limit time.Duration) bool {
		_, err := tryLoad(t, "slow setup", params("grace", "50ms"), func(c *workers.Config) { c.Limits.Start = limit })
		switch {
		case err == nil:
			t.Error("it was loaded")
		case strings.Contains(err.Error(), "did not answer hello in time"): // Python itself starts slowly
			return false
		case stream.CodeOf(err) != stream.Timeout || !strings.Contains(err.Error(), "limits.start") ||
			!strings.Contains(err.Error(), "did not answer setup in time"):
			t.Error(err)
		}
		return true
	})
}

// A batch fails with the reason when the program breaks during the batch, and another process answers the next batch.
func TestRunFailures(t *testing.T) {
	for _, c := range []struct {
		do   string
		code stream.Code
		says []string
	}{
		{"exit", stream.Internal, []string{"has ended with status 3: last words"}},
		{"segfault", stream.Internal, []string{"signal 11 (segmentation fault)"}},
		{"kill", stream.Internal, []string{"killed by SIGKILL", "another process sent"}},
		{"hang", stream.Timeout, []string{"limits.run", "did not answer a batch within LIMIT and is replaced"}},
		{"deaf", stream.Timeout, []string{"limits.run", "did not answer a batch"}},
		{"terminate", stream.Internal, []string{"signal 15 (terminated)", "another process sent SIGTERM"}},
		{"status 143", stream.Internal, []string{"status 143", "another process sent SIGTERM"}},
		{"close", stream.Internal, []string{"broke the protocol: it has closed its connection and goes on"}},
		{"fork", stream.Internal, []string{"status 4"}},
		{"gigabyte", stream.TooLarge, []string{"max_result", "1073741824 bytes"}},
		{"count", stream.Internal, []string{"result has 0 requests for a batch of 1"}},
		{"type", stream.Internal, []string{"broke the protocol", "in result: at byte"}},
		{"size", stream.Internal, []string{"4 bytes for shape [1 4] of FP32: want 16"}},
		{"place", stream.Internal, []string{"is in segment 1099511627776, and neither in the results nor in an input"}},
		{"beside", stream.Internal, []string{"and neither in the results nor in an input"}},
		{"id", stream.Internal, []string{"which is not that of the batch that runs"}},
		{"failed", stream.Internal, []string{"failed was not asked for"}},
		{`decode {"request": 1}`, stream.Internal,
			[]string{"broke the protocol", "decode has the request 1 of a batch of 1"}},
		{`decode {"width": 99999, "height": 1}`, stream.Internal,
			[]string{"decode wants a picture of 99999 x 1: want at most 16384 a side"}},
		{`decode {"width": 9}`, stream.Internal, []string{"decode wants a picture of 9 x 0"}},
		{`decode {"color": "CMYK"}`, stream.Internal, []string{"in decode: color: "}},
		{`decode {"fit": "crop"}`, stream.Internal, []string{`in decode: json: unknown field "fit"`}},
		{"begun", stream.Internal, []string{"begun was sent, and model did not say begins"}},
		{"unasked", stream.Internal, []string{"ready was not asked for"}},
		{"garbage", stream.Internal, []string{"begins with a length of"}},
		{"json", stream.Internal, []string{"not a JSON object"}},
		{"member", stream.Internal, []string{`"answer" is not a member of a request's result`}},
	} {
		run := func(t *testing.T, limit time.Duration) bool {
			r := load(t, "", func(cfg *workers.Config) { cfg.Limits.Run = limit })
			s := r.open(stream.Options{})
			s.submit(numbers(nil, 1, 2, 3, 4))
			first := s.next()
			if stream.CodeOf(first.Err) == stream.Timeout {
				return false
			}
			first.Release()
			s.submit(numbers(stream.Params{"do": c.do}, 1, 2, 3, 4))
			got := s.next()
			if got.Outcome != stream.Failed || stream.CodeOf(got.Err) != c.code {
				t.Fatalf("%v, %v", got.Outcome, got.Err)
			}
			for _, text := range c.says {
				if text = strings.ReplaceAll(text, "LIMIT", limit.String()); !strings.Contains(got.Err.Error(), text) {
					t.Errorf("%q lacks %q", got.Err, text)
				}
			}
			s.submit(numbers(nil, 5, 6, 7, 8))
			got = s.next()
			if stream.CodeOf(got.Err) == stream.Timeout {
				return false
			}
			if got.Outcome != stream.Answered || got.Outputs[0].Float32s()[0] != 5 {
				t.Errorf("afterwards: %v, %v", got.Outcome, got.Err)
			}
			got.Release()
			if n := r.group.Stats().Restarts; n != 1 {
				t.Errorf("%d restarts", n)
			}
			if n := strings.Count(r.log.String(), `level=ERROR msg="the program has ended" model=m error=`); n != 1 {
				t.Errorf("its end was logged %d times", n)
			}
			return true
		}
		t.Run(c.do, func(t *testing.T) {
			if c.code == stream.Timeout {
				eachLimit(t, run)
			} else {
				run(t, 0)
			}
		})
	}
}

// A program's prints are logged, and do no harm.
func TestGarbageOnStdout(t *testing.T) {
	r := load(t, "")
	s := r.open(stream.Options{})
	s.submit(numbers(stream.Params{"do": "print"}, 1, 2, 3, 4))
	if got := s.next(); got.Outcome != stream.Answered {
		t.Fatalf("%v, %v", got.Outcome, got.Err)
	} else {
		got.Release()
	}
	r.until("the lines are logged", func() bool {
		return strings.Contains(r.log.String(), `msg="garbage 19" model=m instance=0 from=stdout`)
	})
	if !strings.Contains(r.log.String(), `msg="set up" model=m instance=0`) {
		t.Error("the message log was not logged")
	}
}

// until waits for a state that comes soon.
func (r *rig) until(what string, is func() bool) {
	r.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); runtime.Gosched() {
		if time.Now().After(end) {
			r.Fatalf("not in 30 s: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

// An error of one request of a batch ends only this request.
func TestOneFails(t *testing.T) {
	r := load(t, "")
	s := r.open(stream.Options{})
	for i := range 16 {
		p := stream.Params{"fail": "bad number"}
		if i%2 == 0 {
			p = nil
		}
		s.submit(numbers(p, float32(i), 0, 0, 0))
	}
	for i := range 16 {
		got := s.next()
		if i%2 == 0 && (got.Outcome != stream.Answered || got.Outputs[0].Float32s()[0] != float32(i)) ||
			i%2 == 1 && (stream.CodeOf(got.Err) != stream.InvalidArgument || got.Err.Error() != "bad number") {
			t.Errorf("%d: %v, %v", i, got.Outcome, got.Err)
		}
		got.Release()
	}
	if !strings.Contains(r.log.String(), "traceback=where") {
		t.Error("the traceback was not logged")
	}
}

// A program that ignores close and SIGTERM is killed.
func TestSlowClose(t *testing.T) {
	r := load(t, "slow close", params("grace", "30ms"))
	if err := r.m.Unload(t.Context(), "m", ""); err != nil {
		t.Fatal(err)
	}
}

// The time for a program to close is bounded by the time for the stop: of the model, which then does not count as
// hung, and of the server, also when the server's stop begins later.
func TestCloseIsBounded(t *testing.T) {
	slow := func(c *workers.Config) { c.Limits.Start, c.Params["grace"] = time.Hour, "1h" }
	t.Run("limits.start", func(t *testing.T) {
		eachLimit(t, func(t *testing.T, limit time.Duration) bool {
			r, err := tryLoad(t, "slow close", slow, func(c *workers.Config) { c.Limits.Start = limit })
			if stream.CodeOf(err) == stream.Timeout {
				return false
			}
			if err = r.m.Unload(t.Context(), "m", ""); err != nil {
				t.Error(err)
			}
			return !strings.Contains(r.log.String(), "hang")
		})
	})
	closes := func(t *testing.T, r *rig, bound time.Duration) bool {
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		return r.m.Close(ctx) == nil
	}
	t.Run("server", func(t *testing.T) {
		eachLimit(t, func(t *testing.T, bound time.Duration) bool {
			return closes(t, load(t, "slow close", slow), bound)
		})
	})
	t.Run("server, while the model is unloaded", func(t *testing.T) {
		eachLimit(t, func(t *testing.T, bound time.Duration) bool {
			r, unloaded := load(t, "slow close", slow), make(chan error, 1)
			go func() { unloaded <- r.m.Unload(t.Context(), "m", "") }()
			r.until("it closes", func() bool { return strings.Contains(r.log.String(), "msg=closing") })
			closed := closes(t, r, bound)
			if err := <-unloaded; err != nil {
				t.Error(err)
			}
			return closed
		})
	})
}

// Results too large for the shared memory come through the socket, and then the shared memory grows. After much
// smaller results for long, the shared memory shrinks.
func TestResultsGrow(t *testing.T) {
	r := load(t, "any")
	s := r.open(stream.Options{})
	for i, n := range []int{10, 1 << 20, 1 << 20, 3 << 20, 3 << 20, 20} {
		s.submit(stream.Frame{Codec: stream.Opaque, Payload: []byte(strings.Repeat(fmt.Sprint(i), n))})
		got := s.next()
		if got.Outcome != stream.Answered || len(got.Outputs[0].Data) != n+4 ||
			got.Outputs[0].Data[n+3] != byte('0'+i) {
			t.Fatalf("%d bytes: %v, %v", n, got.Outcome, got.Err)
		}
		got.Release()
	}
	grown := r.mem.Stats().Leased
	for range 2*spareAfter + 2 {
		s.submit(stream.Frame{Codec: stream.Opaque, Payload: []byte("1")})
		s.next().Release()
	}
	if n := r.mem.Stats().Leased; grown < 6<<20 || n > 1<<20 {
		t.Errorf("%d bytes after results of 3 MB, and %d after small ones", grown, n)
	}
}

// A program that ends anywhere in the middle of an answer fails the batch, and the next batch is answered.
func TestHalfAnAnswer(t *testing.T) {
	for _, n := range []int{-8, -5, 0, 1, 20, 40, 46} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := load(t, "", func(c *workers.Config) { c.Params["env"] = fmt.Sprintf(`["MODE=", "HALF=%d"]`, n) })
			s := r.open(stream.Options{})
			s.submit(numbers(stream.Params{"do": "half"}, 1, 2, 3, 4))
			if got := s.next(); got.Outcome != stream.Failed ||
				!strings.Contains(got.Err.Error(), "has ended with status 5") {
				t.Errorf("%v, %v", got.Outcome, got.Err)
			}
			s.submit(numbers(nil, 1, 2, 3, 4))
			got := s.next()
			if got.Outcome != stream.Answered {
				t.Errorf("%v, %v", got.Outcome, got.Err)
			}
			got.Release()
		})
	}
}

// Strings with wrong lengths do not leave the server.
func TestWrongStrings(t *testing.T) {
	r := load(t, "any")
	s := r.open(stream.Options{})
	s.submit(stream.Frame{Codec: stream.Opaque, Params: stream.Params{"do": "bytes"}})
	if got := s.next(); got.Outcome != stream.Failed ||
		!strings.Contains(got.Err.Error(), "outputs.y.data: element 0 has a length of 4294967295 bytes") {
		t.Errorf("%v, %v", got.Outcome, got.Err)
	}
}

// A program that describes another model after a restart does not serve.
func TestChangedModel(t *testing.T) {
	once := filepath.Join(t.TempDir(), "once")
	r := load(t, "changes", func(c *workers.Config) {
		c.Limits.Restarts = 1
		c.Params["env"] = `["MODE=changes", "ONCE=` + once + `"]`
	})
	s := r.open(stream.Options{})
	s.submit(numbers(stream.Params{"do": "exit"}, 1, 2, 3, 4))
	if got := s.next(); got.Outcome != stream.Failed {
		t.Errorf("%v", got.Outcome)
	}
	r.until("the reason is logged", func() bool {
		return strings.Contains(r.log.String(), "describes another model than when it was loaded")
	})
	r.until("the model is unavailable", func() bool { return r.group.Stats().State == workers.StateUnavailable })
}
