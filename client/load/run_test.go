package load_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gorilla/websocket"
	"go.uber.org/goleak"

	"millrace/client/load"
	"millrace/stream"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// Goroutines of fasthttp end some time after the last connection.
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*workerPool).Start.func2"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.updateServerDate.func1"),
		goleak.IgnoreAnyFunction("github.com/valyala/fasthttp.(*HostClient).connsCleaner"))
}

func run(t *testing.T, c load.Config) *load.Report {
	t.Helper()
	r, err := load.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Frames wait for slow calls, and their latencies count from the due time.
func TestOpenLoopCountsFromDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := run(t, load.Config{
			Rate: 100, Frames: 10, Duration: time.Second, Deadline: 200 * time.Millisecond,
			Target: load.Calls{InFlight: 1, Call: func(context.Context, int, *load.Frame) (int, error) {
				time.Sleep(50 * time.Millisecond)
				return 4, nil
			}},
		})
		// Frame k is due at 10k ms and answered at 50(k+1) ms.
		if r.Sent != 10 || r.Answered != 10 || r.Good != 4 || r.MeanBatch != 4 || !r.OK() {
			t.Errorf("%+v", r)
		}
		if r.Latency.Min != 50 || r.Latency.Max != 410 || r.Latency.Mean != 230 {
			t.Errorf("latency %+v", r.Latency)
		}
		if r.Service.Min != 50 || r.Service.Max != 50 {
			t.Errorf("service %+v", r.Service)
		}
		if r.Lag.Min != 0 || r.Lag.Max != 360 {
			t.Errorf("lag %+v", r.Lag)
		}
		if r.Seconds != 0.5 || r.FPS != 20 || r.Goodput != 8 {
			t.Errorf("%v s, %v/s, %v/s", r.Seconds, r.FPS, r.Goodput)
		}
	})
}

// TestOpenLoopDoesNotWait: frames are sent although none was answered.
func TestOpenLoopDoesNotWait(t *testing.T) {
	const frames = 50
	var calls atomic.Int64
	all := make(chan struct{})
	r := run(t, load.Config{
		Rate: 1000, Frames: frames, Target: load.Calls{Call: func(context.Context, int, *load.Frame) (int, error) {
			if calls.Add(1) == frames {
				close(all)
			}
			<-all
			return 0, nil
		}},
	})
	if r.Answered != frames || r.Unsent != 0 || !r.OK() {
		t.Errorf("%+v", r)
	}
}

func TestSchedules(t *testing.T) {
	for _, c := range []struct {
		name string
		cfg  load.Config
		want uint64
		rows int
	}{
		{"even", load.Config{Rate: 50, Duration: 2 * time.Second}, 100, 2},
		{"streams", load.Config{Rate: 50, Streams: 3, Duration: time.Second}, 150, 1},
		// the second begins after half a second
		{"ramp-up", load.Config{Rate: 100, Streams: 2, RampUp: time.Second, Duration: 2 * time.Second}, 350, 2},
		{"bursts", load.Config{Rate: 50, Burst: 10, Duration: 2 * time.Second}, 100, 2},
		{"count", load.Config{Rate: 50, Burst: 4, Frames: 6, Duration: 2 * time.Second}, 6, 0},
		{"closed", load.Config{Duration: time.Second, Window: 2}, 200, 1}, // 10 ms each
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				most, now := 0, 0
				var mu sync.Mutex
				c.cfg.Target = load.Calls{Call: func(context.Context, int, *load.Frame) (int, error) {
					mu.Lock()
					now++
					most = max(most, now)
					mu.Unlock()
					time.Sleep(10 * time.Millisecond)
					mu.Lock()
					now--
					mu.Unlock()
					return 0, nil
				}}
				rows := 0
				c.cfg.Progress = func(row load.Row) {
					rows++
					if !strings.Contains(row.String(), "sent/s") {
						t.Error(row)
					}
				}
				r := run(t, c.cfg)
				if r.Sent != c.want || r.Unsent != 0 || r.Answered != c.want || !r.OK() {
					t.Errorf("sent %d, want %d: %+v", r.Sent, c.want, r)
				}
				if c.cfg.Window > 0 && most != c.cfg.Window {
					t.Errorf("%d at once", most)
				}
				if c.cfg.Burst > 0 && most != min(c.cfg.Burst, int(c.want)) {
					t.Errorf("%d at once", most)
				}
				if rows < c.rows || len(r.Rows) != rows {
					t.Errorf("%d rows told, %d kept, want %d", rows, len(r.Rows), c.rows)
				}
				var sum uint64
				for _, row := range r.Rows {
					sum += row.Answered
				}
				if sum != r.Answered {
					t.Errorf("rows have %d answers of %d", sum, r.Answered)
				}
			})
		})
	}
}

// Random gaps vary and have the right mean.
func TestPoisson(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start, gaps := time.Now(), map[time.Duration]bool{}
		last := start
		r := run(t, load.Config{
			Rate: 1000, Poisson: true, Duration: 10 * time.Second, Seed: 7,
			Target: load.Calls{Call: func(context.Context, int, *load.Frame) (int, error) {
				now := time.Now()
				gaps[now.Sub(last)], last = true, now
				return 0, nil
			}, InFlight: 1},
		})
		if r.Sent < 9500 || r.Sent > 10500 || len(gaps) < 1000 {
			t.Errorf("%d frames, %d gaps", r.Sent, len(gaps))
		}
	})
}

func TestWarmupIsOnlyCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		r := run(t, load.Config{
			Rate: 100, Duration: 2 * time.Second, Warmup: time.Second,
			Target: load.Calls{Call: func(context.Context, int, *load.Frame) (int, error) {
				if time.Since(begin) < 900*time.Millisecond {
					time.Sleep(100 * time.Millisecond)
				}
				return 0, nil
			}},
		})
		if r.Sent != 200 || r.Answered != 200 || r.Latency.Count != 100 || r.Latency.Max > 1 || r.FPS != 100 ||
			r.Measured != 1 {
			t.Errorf("%+v", r)
		}
	})
}

func TestErrorsByCode(t *testing.T) {
	var n atomic.Int64
	r := run(t, load.Config{Frames: 9, Target: load.Calls{Call: func(context.Context, int, *load.Frame) (int, error) {
		switch n.Add(1) % 3 {
		case 0:
			return 0, stream.Errorf(stream.Overloaded, "", "full")
		case 1:
			return 0, errors.New("other")
		}
		return 0, nil
	}}})
	if r.Failed != 6 || r.Errors["overloaded"] != 3 || r.Errors["internal"] != 3 || r.Answered != 3 || !r.OK() {
		t.Errorf("%+v", r)
	}
}

// An interrupted run waits for the frames in flight.
func TestInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 1050*time.Millisecond)
		defer cancel()
		r, err := load.Run(ctx, load.Config{Rate: 10, Duration: time.Hour,
			Target: load.Calls{Call: func(context.Context, int, *load.Frame) (int, error) {
				time.Sleep(300 * time.Millisecond)
				return 0, nil
			}}})
		if err != nil || !r.Interrupted || r.Sent != 11 || r.Answered != 11 || r.Unsent > 1 || !r.OK() {
			t.Errorf("%v %+v", err, r)
		}
	})
}

// A run ends early when the first frames all failed with the same error, and continues after an answer or a different
// error.
func TestGiveUp(t *testing.T) {
	for name, c := range map[string]struct {
		failing func(n int) error
		rate    float64
		given   bool
	}{
		"closed loop":  {func(int) error { return errors.New("refused") }, 0, true},
		"open loop":    {func(int) error { return errors.New("refused") }, 100, true},
		"one answered": {func(n int) error { return map[bool]error{false: errors.New("refused")}[n == 3] }, 0, false},
		"another error": {func(n int) error {
			return map[bool]error{true: errors.New("a"), false: errors.New("b")}[n < 3]
		}, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var n atomic.Int64
				r := run(t, load.Config{GiveUp: 10, Rate: c.rate, Duration: time.Minute,
					Target: load.Calls{Call: func(context.Context, int, *load.Frame) (int, error) {
						time.Sleep(10 * time.Millisecond)
						return 0, c.failing(int(n.Add(1)))
					}}})
				if r.GivenUp != c.given || c.given != (r.Sent < 15) || c.given != (r.Seconds < 1) || !r.OK() ||
					r.Unsent > 1 {
					t.Errorf("%+v", r)
				}
				var text strings.Builder
				if err := r.WriteText(&text); err != nil || c.given != strings.Contains(text.String(),
					"ended early: the first frames all failed with one error") {
					t.Errorf("%v\n%s", err, &text)
				}
			})
		})
	}
}

// With a target that never answers, the run ends and reports the number of missing endings.
func TestNoEnding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		r := run(t, load.Config{Rate: 10, Duration: time.Second, Grace: 3 * time.Second,
			Target: load.Calls{Call: func(ctx context.Context, _ int, _ *load.Frame) (int, error) {
				<-ctx.Done()
				return 0, ctx.Err()
			}}})
		if r.Unaccounted != 10 || r.OK() || time.Since(begin) > 5*time.Second {
			t.Errorf("%v %+v", time.Since(begin), r)
		}
	})
}

// peer is a server of plain mode with replies defined by the test.
func peer(t *testing.T, serve func(ws *websocket.Conn, r *http.Request)) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		up := websocket.Upgrader{}
		ws, err := up.Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer ws.Close()
		serve(ws, r)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestPeerThatRepliesTwiceAndForgets(t *testing.T) {
	url := peer(t, func(ws *websocket.Conn, r *http.Request) {
		if r.URL.Path != "/v2/models/a%20b/stream" && r.URL.Path != "/v2/models/a b/stream" {
			t.Errorf("path %q", r.URL.Path)
		}
		if r.URL.Query().Get("policy") != "every" || r.URL.Query().Get("window") != "4" ||
			r.Header.Get("X-Key") != "k" {
			t.Errorf("query %q", r.URL.RawQuery)
		}
		for seq := 0; ; seq++ {
			if _, _, err := ws.ReadMessage(); err != nil {
				return
			}
			text := fmt.Sprintf(`{"seq":%d,"partial":true}`, seq)
			for range 2 {
				if ws.WriteMessage(websocket.TextMessage, []byte(text)) != nil {
					return
				}
				if seq%5 == 0 {
					break // no ending
				}
				text = fmt.Sprintf(`{"seq":%d,"batch":2}`, seq)
			}
			if seq == 1 {
				_ = ws.WriteMessage(websocket.TextMessage, []byte(`{"seq":1}`))
			}
		}
	})
	r := run(t, load.Config{
		URL: url, Model: "a b", Options: map[string]string{"policy": "every"}, Header: map[string]string{"X-Key": "k"},
		Window: 4, Frames: 10, Grace: 100 * time.Millisecond,
	})
	if r.Sent != 10 || r.Answered != 8 || r.Partials != 10 || r.Unaccounted != 2 || r.Unexpected != 1 ||
		r.MeanBatch != 2 || r.OK() {
		t.Errorf("%+v", r)
	}
}

func TestPeerThatLeaves(t *testing.T) {
	url := peer(t, func(ws *websocket.Conn, _ *http.Request) {
		_, _, _ = ws.ReadMessage()
		_ = ws.WriteMessage(websocket.TextMessage, []byte(`{"seq":0,"dropped":"stale"}`))
		_, _, _ = ws.ReadMessage()
	})
	r := run(t, load.Config{URL: url, Model: "m", Window: 1, Streams: 2})
	if r.Sent != 4 || r.Drops["stale"] != 2 || r.Unaccounted != 2 || len(r.Lost) == 0 || r.OK() {
		t.Errorf("%+v", r)
	}
}

// Senders block, and the run ends on time and reports the unsent frames.
func TestPeerThatReadsNothing(t *testing.T) {
	release := make(chan struct{})
	url := peer(t, func(*websocket.Conn, *http.Request) { <-release })
	r := run(t, load.Config{URL: url, Model: "m", Rate: 1000, Size: 8 << 20, Duration: 100 * time.Millisecond,
		Grace: 100 * time.Millisecond})
	close(release)
	if r.Unsent == 0 || r.Unaccounted != int64(r.Sent) || r.Sent+r.Unsent < 99 {
		t.Errorf("%+v", r)
	}
}

func TestRefused(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	_, err := load.Run(t.Context(), load.Config{URL: s.URL, Model: "m", Streams: 200})
	if err == nil || !strings.Contains(err.Error(), "404") {
		t.Error(err)
	}
}

func TestConfigErrorsNameTheFlag(t *testing.T) {
	good := load.Config{URL: "http://127.0.0.1:1", Model: "m"}
	for flag, change := range map[string]func(*load.Config){
		"--url":      func(c *load.Config) { c.URL = "" },
		"--url: \"1": func(c *load.Config) { c.URL = "127.0.0.1:8000" },
		"--model":    func(c *load.Config) { c.Model = "" },
		"--protocol": func(c *load.Config) { c.Protocol = "grpc" },
		"--tensor":   func(c *load.Config) { c.Tensor = true },
		"--streams":  func(c *load.Config) { c.Streams = -1 },
		"--rate":     func(c *load.Config) { c.Rate = -1 },
		"--poisson":  func(c *load.Config) { c.Poisson = true },
		"--burst":    func(c *load.Config) { c.Burst = 2 },
		"--window":   func(c *load.Config) { c.Window, c.Rate = 2, 1 },
		"--frames":   func(c *load.Config) { c.Frames = -1 },
		"--duration": func(c *load.Config) { c.RampUp = time.Minute },
		"--deadline": func(c *load.Config) { c.Deadline = -1 },
		"--grace":    func(c *load.Config) { c.Grace = -1 },
		"--size":     func(c *load.Config) { c.Size = -1 },
		"--dir":      func(c *load.Config) { c.File, c.Dir = "a", "b" },
		"--file":     func(c *load.Config) { c.File = "/nowhere/at/all" },
		"--dir: ope": func(c *load.Config) { c.Dir = "/nowhere/at/all" },
	} {
		c := good
		change(&c)
		if _, err := load.Run(t.Context(), c); err == nil || !strings.HasPrefix(err.Error(), flag) {
			t.Errorf("%s: %v", flag, err)
		}
	}
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}

func TestOutputs(t *testing.T) {
	var r *load.Report
	synctest.Test(t, func(t *testing.T) {
		r = run(t, load.Config{Rate: 10, Duration: 2 * time.Second, Deadline: time.Second,
			Target: load.Calls{Call: func(context.Context, int, *load.Frame) (int, error) {
				time.Sleep(20 * time.Millisecond)
				return 1, nil
			}}})
	})
	var csv, text, js strings.Builder
	for _, err := range []error{r.WriteCSV(&csv), r.WriteText(&text), r.WriteJSON(&js)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Split(strings.TrimSpace(csv.String()), "\n")
	if len(lines) != 1+len(r.Rows) || !strings.HasPrefix(lines[0], "at,seconds,sent,") ||
		!strings.HasPrefix(lines[1], "1.000,1.000,") {
		t.Errorf("%q", lines)
	}
	for _, want := range []string{"20 sent = 20 answered + 0 dropped + 0 failed", "10 frames/s offered",
		"within 1000 ms", "latency", "20.00"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is not in\n%s", want, text.String())
		}
	}
	var back load.Report
	if err := json.Unmarshal([]byte(js.String()), &back); err != nil || back.Latency != r.Latency ||
		len(back.Rows) != len(r.Rows) {
		t.Error(err, back)
	}
}
