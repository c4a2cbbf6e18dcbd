package frames_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/config"
	"millrace/examples/spotter"
	"millrace/ingest/sinks"
	"millrace/ingest/streams"
	"millrace/internal/servertest"
	"millrace/internal/wire"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

// toldCase is one or several endings over one protocol.
type toldCase struct {
	protocol, ending string
	model            workers.Config                    // without its name; without a source, a scripted model
	load             func(t *testing.T) workers.Config // instead of model
	oneShot          bool                              // drops are told as errors
	left             bool                              // the client leaves, and is told nothing
	queued           bool                              // frames are stale by the time-out of the queue
	run              func(c *scene)
	want             string // expected counts
}

// each ends frames in each way that depends only on their run.
var (
	each     = []string{"ok", "parts", "refuse", "panic", "not utf-8", "ok"}
	eachWant = "accepted 6, error internal 1, error unsupported 1, result 4"
)

const every = `"policy":{"mode":"every","window":8}`

var toldCases = []toldCase{
	{protocol: "server stream", ending: "runs", want: "accepted 11, error internal 1, error invalid_argument 1, " +
		"error unsupported 1, result 8, unsendable unsupported 1", run: (*scene).stream},
	{protocol: "server stream", ending: "rate", model: workers.Config{Policy: stream.Policy{MaxFPS: 0.001}},
		want: "accepted 11, drop rate 9, error invalid_argument 1, result 1", run: (*scene).stream},

	{protocol: "rest", ending: "runs", oneShot: true, want: eachWant + ", unsendable unsupported 1",
		run: func(c *scene) {
			for _, what := range each {
				c.rest("?outputs=json", what)
			}
		}},
	{protocol: "rest", ending: "requests that are wrong", oneShot: true,
		want: "accepted 4, error invalid_argument 3, refused invalid_argument 3, result 1, unsendable " +
			"invalid_argument 1", run: func(c *scene) {
			c.rest("?datatype=FP32&shape=x", "abcd")
			c.rest("", "")
			c.rest("?roi=0,0,1,1&datatype=FP32&shape=1", "abcd")
			r, err := http.Post("http://"+c.s.Addr("http")+"/v2/models/"+c.model+"/infer", "application/json",
				strings.NewReader(`{"inputs":[{"name":"x","datatype":"UINT8","shape":[1],"data":[1]}],`+
					`"outputs":[{"name":"z"}]}`))
			if err != nil {
				c.Fatal(err)
			}
			_ = r.Body.Close()
			c.tell(1, "error", map[int]string{http.StatusBadRequest: "invalid_argument"}[r.StatusCode])
		}},
	{protocol: "rest", ending: "no memory", oneShot: true, want: "accepted 2, drop memory 2, refused memory 2",
		run: func(c *scene) {
			defer c.exhaust()()
			c.rest("", "ok")
			c.rest("", "ok")
		}},
	{protocol: "rest", ending: "late, unloaded and overloaded", oneShot: true, model: workers.Config{MaxFlows: 4},
		want: "accepted 7, drop stale 1, error overloaded 1, error unloaded 3, refused overloaded 1, result 2",
		run: func(c *scene) {
			var wg sync.WaitGroup
			wg.Go(func() { c.rest("", "hold") })
			c.held()
			c.rest("?deadline_ms=1", "ok") // answered while the other request runs
			c.gate <- struct{}{}
			wg.Wait()
			for range 4 {
				wg.Go(func() { c.rest("", "hold") })
			}
			c.held()
			c.until("they wait", func() bool { return c.stats().Waiting == 3 })
			c.rest("", "ok")
			c.inFlight(4)
			c.unload(func() bool { return c.stats().Waiting == 0 })
			wg.Wait()
		}},

	{protocol: "rest", ending: "queue full", oneShot: true,
		model: workers.Config{Queue: stream.QueuePolicy{MaxSize: 2}},
		want:  "accepted 5, error overloaded 2, result 3", run: func(c *scene) {
			c.queueFull(func(what string) { c.rest("", what) })
		}},
	{protocol: "rest", ending: "queue time-outs", oneShot: true, queued: true,
		model: workers.Config{Queue: stream.QueuePolicy{Timeout: time.Hour}},
		want:  "accepted 4, drop stale 1, error invalid_argument 1, refused invalid_argument 1, result 2",
		run: func(c *scene) {
			c.queueTimes(c.restWith)
		}},
	{protocol: "rest", ending: "no time-out of requests", oneShot: true,
		model: workers.Config{Queue: stream.QueuePolicy{AllowTimeoutOverride: new(bool)}},
		want:  "accepted 2, error invalid_argument 1, result 1", run: func(c *scene) {
			c.restWith("ok", 0, 1000)
			c.restWith("ok", 1, 0)
		}},

	{protocol: "rest", ending: "bodies that do not arrive completely", oneShot: true, want: "accepted 1, result 1",
		run: func(c *scene) {
			c.cutBody("/v2/models/" + c.model + "/infer")
			c.cutBody("/v2/models/" + c.model + "/generate")
			c.rest("", "ok")
		}},

	{protocol: "rest", ending: "clients leave", left: true, want: "accepted 4, error canceled 4", run: func(c *scene) {
		request := "POST /v2/models/" + c.model + "/infer HTTP/1.1\r\nHost: localhost\r\nContent-Type: " +
			"application/octet-stream\r\nContent-Length: 4\r\n\r\nhold"
		var conns []net.Conn
		for i := range 4 {
			conn, err := net.Dial("tcp", c.s.Addr("http"))
			if err != nil {
				c.Fatal(err)
			}
			conns = append(conns, conn)
			if _, err := io.WriteString(conn, request); err != nil {
				c.Fatal(err)
			}
			if i == 0 {
				c.held()
			}
		}
		c.until("three wait", func() bool { return c.stats().Waiting == 3 })
		for _, conn := range conns {
			_ = conn.Close()
		}
		c.until("all have ended, while the first one runs", func() bool {
			return c.counted()["in_flight"] == 0 && c.stats().Waiting == 0
		})
		close(c.gate)
	}},

	{protocol: "apps", ending: "runs", oneShot: true, want: eachWant + ", unsendable unsupported 1",
		run: func(c *scene) {
			for _, what := range each {
				c.route("/one", what)
			}
		}},
	{protocol: "apps", ending: "events", oneShot: true, want: eachWant, run: func(c *scene) {
		for _, what := range each {
			c.route("/events", what)
		}
	}},
	{protocol: "apps", ending: "requests that are wrong", oneShot: true,
		want: "accepted 5, error invalid_argument 1, error not_found 1, error unsupported 2, refused " +
			"invalid_argument 1, refused not_found 1, refused unsupported 2, result 1", run: func(c *scene) {
			c.route("/one", "ok", "Millrace-Deadline-Ms", "soon")
			c.route("/one", "ok", "Content-Encoding", "lzw")
			c.route("/nothing", "ok")
			c.route("/events", "ok", "Accept", "application/json")
			c.route("/one", "ok")
		}},
	{protocol: "apps", ending: "no memory", oneShot: true, want: "accepted 2, drop memory 2, refused memory 2",
		run: func(c *scene) {
			defer c.exhaust()()
			c.route("/one", "ok")
			c.route("/events", "ok")
		}},
	{protocol: "apps", ending: "late and unloaded", oneShot: true,
		want: "accepted 6, drop stale 1, error unloaded 3, result 2", run: func(c *scene) {
			var wg sync.WaitGroup
			wg.Go(func() { c.route("/one", "hold") })
			c.held()
			c.route("/one", "ok", "Millrace-Deadline-Ms", "1") // answered while the other request runs
			c.gate <- struct{}{}
			wg.Wait()
			for _, path := range []string{"/one", "/events", "/one", "/events"} {
				wg.Go(func() { c.route(path, "hold") })
			}
			c.held()
			c.until("they wait", func() bool { return c.stats().Waiting == 3 })
			c.inFlight(4)
			c.unload(func() bool { return c.stats().Waiting == 0 })
			wg.Wait()
		}},
	{protocol: "apps", ending: "bodies that do not arrive completely", oneShot: true, want: "accepted 1, result 1",
		run: func(c *scene) {
			c.cutBody("/apps/" + c.model + "/one")
			c.cutBody("/apps/" + c.model + "/events")
			c.route("/one", "ok")
		}},
	{protocol: "apps", ending: "clients leave", left: true, want: "accepted 4, error canceled 4", run: func(c *scene) {
		var conns []net.Conn
		for i := range 4 {
			conn, err := net.Dial("tcp", c.s.Addr("http"))
			if err != nil {
				c.Fatal(err)
			}
			conns = append(conns, conn)
			path := []string{"/one", "/events"}[i%2]
			if _, err := io.WriteString(conn, "POST /apps/"+c.model+path+
				" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nhold"); err != nil {
				c.Fatal(err)
			}
			if i == 0 {
				c.held()
			}
		}
		c.until("three wait", func() bool { return c.stats().Waiting == 3 })
		for _, conn := range conns {
			_ = conn.Close()
		}
		c.until("all have ended, while the first one runs", func() bool {
			return c.counted()["in_flight"] == 0 && c.stats().Waiting == 0
		})
		close(c.gate)
	}},

	{protocol: "plain", ending: "runs", want: eachWant + ", unsendable unsupported 1", run: func(c *scene) {
		w := c.plain("policy=every")
		for _, what := range each {
			w.frame(what)
		}
		w.endings(len(each))
	}},
	{protocol: "plain", ending: "superseded", want: "accepted 4, drop superseded 2, result 2", run: func(c *scene) {
		w := c.plain("policy=latest")
		w.frame("hold")
		c.held()
		for range 3 {
			w.frame("ok")
		}
		w.endings(2)
		c.inFlight(2)
		close(c.gate)
		w.endings(2)
	}},
	{protocol: "plain", ending: "overtaken", model: workers.Config{Instances: 2},
		want: "accepted 2, drop overtaken 1, result 1", run: func(c *scene) {
			w := c.plain("policy=latest")
			w.frame("hold")
			c.held()
			w.frame("ok")
			w.endings(2)
			close(c.gate)
		}},
	{protocol: "plain", ending: "stale", want: "accepted 3, drop stale 2, result 1", run: func(c *scene) {
		first, late := c.plain("policy=every"), c.plain("policy=every&deadline_ms=1")
		first.frame("hold")
		c.held()
		late.frame("ok")
		late.frame("ok")
		late.endings(2)
		close(c.gate)
		first.endings(1)
	}},
	{protocol: "plain", ending: "rate", want: "accepted 3, drop rate 2, result 1", run: func(c *scene) {
		w := c.plain("policy=every&max_fps=0.001")
		for range 3 {
			w.frame("ok")
		}
		w.endings(3)
	}},
	{protocol: "plain", ending: "memory", want: "accepted 3, drop memory 2, refused memory 2, result 1",
		run: func(c *scene) {
			w := c.plain("policy=every")
			free := c.exhaust()
			w.frame("ok")
			w.frame("ok")
			w.endings(2)
			free()
			w.frame("ok")
			w.endings(1)
		}},
	{protocol: "plain", ending: "no picture", model: workers.Config{Source: "motion"},
		want: "accepted 2, error unsupported 2, refused unsupported 2", run: func(c *scene) {
			w := &socket{Conn: servertest.Dial(c.T, c.s, "/v2/models/"+c.model+"/stream"), c: c}
			defer w.Close()
			w.frame("no picture")
			w.frame("no picture")
			w.endings(2)
		}},
	{protocol: "plain", ending: "windows", want: "accepted 3, error invalid_argument 1, result 2",
		load: func(t *testing.T) workers.Config {
			return servertest.Mirror(t, "window.hop=2,batching.max_size=4,stream.policy=every")
		}, run: func(c *scene) {
			w := &socket{Conn: servertest.Dial(c.T, c.s, "/v2/models/"+c.model+"/stream?codec=pcm16"), c: c}
			defer w.Close()
			w.binary(servertest.PCM16(1, 2, 3)) // completes no window
			w.binary(servertest.PCM16(4, 5))
			w.binary([]byte{1})
			w.endings(3)
		}},
	{protocol: "plain", ending: "gated", want: "accepted 4, result 4", load: func(t *testing.T) workers.Config {
		path := filepath.Join(t.TempDir(), "spotter.onnx")
		err := os.WriteFile(path, spotter.Model, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		m, err := config.ParseModel("m=" + path + ",input.image.scale=0.00392157,output.boxes.threshold=0.3," +
			"gate.changed=0.1,gate.refresh=1h,batching.max_size=1")
		if err != nil {
			t.Fatal(err)
		}
		return m
	}, run: func(c *scene) {
		w := &socket{Conn: servertest.Dial(c.T, c.s, "/v2/models/"+c.model+"/stream?policy=every"), c: c}
		defer w.Close()
		for range 4 {
			w.binary(servertest.JPEG(c.T, 64, 48))
			w.endings(1)
		}
		if _, text := servertest.Get(c.T, c.s, "/metrics"); !strings.Contains(text,
			`millrace_skipped_frames_total{model="`+
				c.model+`",version="1"} 3`) {
			c.Error("three frames were not gated")
		}
	}},
	{protocol: "plain", ending: "frames while a video is pulled",
		want: "accepted 1, error conflict 1, refused conflict 1", run: func(c *scene) {
			silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				<-r.Context().Done()
			}))
			defer silent.Close()
			w := c.plain("policy=every")
			w.say(`{"url":"` + silent.URL + `/video"}`)
			w.frame("ok")
			w.endings(1)
			w.say(`{"stop":true}`)
			for m, _ := w.next(); !m.Done; m, _ = w.next() {
			}
		}},
	{protocol: "plain", ending: "unloaded", want: "accepted 5, error unloaded 4, result 1", run: func(c *scene) {
		w := c.plain("policy=every&window=8")
		w.frame("hold")
		c.held()
		for range 4 {
			w.frame("ok")
		}
		c.until("they wait", func() bool { return c.stats().Waiting == 4 })
		c.inFlight(5)
		c.unload(func() bool { return c.stats().Waiting == 0 })
		w.endings(5)
	}},
	{protocol: "plain", ending: "swapped for another version", want: "accepted 5, result 5, unsendable unsupported 1",
		run: func(c *scene) {
			w := c.plain("policy=every&window=8")
			w.frame("hold")
			c.held()
			for _, what := range []string{"ok", "not utf-8", "ok"} {
				w.frame(what)
			}
			c.until("they wait", func() bool { return c.stats().Waiting == 3 })
			swapped := make(chan error, 1)
			go func() {
				swapped <- c.s.Models().Swap(context.Background(), c.model,
					workers.Config{Kind: "scripted", Version: "2"})
			}()
			c.until("the new version answers", func() bool { return c.counted()["in_flight"] == 1 })
			close(c.gate)
			if err := <-swapped; err != nil {
				c.Error(err)
			}
			w.endings(4)
			w.frame("ok")
			w.endings(1)
			for _, st := range c.s.Models().Stats() {
				if want := map[string]uint64{"1": 4, "2": 1}[st.Model.Version]; st.Model.Name == c.model &&
					st.Frames.Accepted != want {
					c.Errorf("version %s has accepted %d frames, want %d", st.Model.Version, st.Frames.Accepted, want)
				}
				if want := map[string]uint64{"1": 1}[st.Model.Version]; st.Model.Name == c.model &&
					st.Frames.Unsendable[stream.Unsupported] != want {
					c.Errorf("version %s has %d unsendable results, want %d", st.Model.Version,
						st.Frames.Unsendable[stream.Unsupported], want)
				}
			}
		}},
	{protocol: "plain", ending: "timeout", model: workers.Config{Limits: workers.Limits{Run: 50 * time.Millisecond}},
		want: "accepted 2, error timeout 1, result 1", run: func(c *scene) {
			w := c.plain("policy=every")
			w.frame("hold")
			c.held()
			w.endings(1)
			w.frame("ok")
			w.endings(1)
			close(c.gate)
		}},
	{protocol: "plain", ending: "client leaves", left: true, want: "accepted 3, drop closed 2, result 1",
		run: func(c *scene) {
			w := c.plain("policy=every")
			w.frame("hold")
			c.held()
			w.frame("ok")
			w.frame("ok")
			c.until("they wait", func() bool { return c.stats().Waiting == 2 })
			_ = w.Close()
			c.until("the stream is closed", func() bool { return c.stats().Waiting == 0 })
			close(c.gate)
			c.until("the frame has ended", func() bool { return c.counted()["in_flight"] == 0 })
		}},

	{protocol: "calls", ending: "runs", want: "accepted 10, error internal 1, error unsupported 1, result 8, " +
		"unsendable unsupported 1", run: func(c *scene) {
		path := filepath.Join(c.TempDir(), "clip.mp4")
		servertest.Film(c.T, path)
		files := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(path))))
		defer files.Close()
		c.pull(files.URL+"/clip.mp4", "policy=every")
	}},
	{protocol: "calls", ending: "rate", want: "accepted 10, drop rate 9, result 1",
		model: workers.Config{Policy: stream.Policy{MaxFPS: 0.001}}, run: func(c *scene) {
			path := filepath.Join(c.TempDir(), "clip.mp4")
			servertest.Film(c.T, path)
			files := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(path))))
			defer files.Close()
			c.pull(files.URL+"/clip.mp4", "policy=every")
		}},

	{protocol: "v1", ending: "runs", want: eachWant + ", unsendable unsupported 1", run: func(c *scene) {
		w := c.v1(every)
		for _, what := range each {
			w.media(0, what)
		}
		w.endings(len(each))
	}},
	{protocol: "v1", ending: "superseded and stale", want: "accepted 3, drop stale 1, drop superseded 1, result 1",
		run: func(c *scene) {
			w := c.v1(`"policy":{"mode":"latest"}`)
			w.media(0, "hold")
			c.held()
			w.media(0, "ok")
			w.seq++
			w.binary(append(wire.AppendHeader(nil, &wire.Header{Kind: wire.KindFrame, SID: 1, Seq: w.seq,
				DeadlineMS: 1}),
				"ok"...))
			w.endings(2)
			close(c.gate)
			w.endings(1)
		}},
	{protocol: "v1", ending: "overtaken", model: workers.Config{Instances: 2},
		want: "accepted 2, drop overtaken 1, result 1", run: func(c *scene) {
			w := c.v1(`"policy":{"mode":"latest"}`)
			w.media(0, "hold")
			c.held()
			w.media(0, "ok")
			w.endings(2)
			close(c.gate)
		}},
	{protocol: "v1", ending: "rate", want: "accepted 3, drop rate 2, result 1", run: func(c *scene) {
		w := c.v1(`"policy":{"mode":"every","max_fps":0.001}`)
		for range 3 {
			w.media(0, "ok")
		}
		w.endings(3)
	}},
	{protocol: "v1", ending: "memory", want: "accepted 2, drop memory 1, refused memory 1, result 1",
		run: func(c *scene) {
			w := c.v1(every)
			free := c.exhaust()
			w.media(0, "ok")
			w.endings(1)
			free()
			w.media(0, "ok")
			w.endings(1)
		}},
	{protocol: "v1", ending: "flushed", want: "accepted 3, drop flushed 3", run: func(c *scene) {
		w := c.v1(every)
		w.say(`{"type":"pause","sid":1}`)
		for range 3 {
			w.media(0, "ok")
		}
		w.say(`{"type":"flush","sid":1}`)
		w.endings(3)
	}},
	{protocol: "v1", ending: "closed", want: "accepted 3, drop closed 3", run: func(c *scene) {
		w := c.v1(every)
		w.say(`{"type":"pause","sid":1}`)
		for range 3 {
			w.media(0, "ok")
		}
		w.say(`{"type":"close","sid":1}`)
		w.expect("closed")
	}},
	{protocol: "v1", ending: "flow_control",
		want: "accepted 10, error flow_control 2, refused flow_control 2, result 8", run: func(c *scene) {
			w := c.v1(every)
			w.say(`{"type":"pause","sid":1}`)
			for range 10 {
				w.media(0, "ok")
			}
			w.endings(2)
			w.say(`{"type":"resume","sid":1}`)
			w.endings(8)
		}},
	{protocol: "v1", ending: "malformed", want: "accepted 4, error conflict 1, error invalid_argument 1, error " +
		"unsupported 1, refused conflict 1, refused invalid_argument 1, refused unsupported 1, result 1",
		run: func(c *scene) {
			w := c.v1(every)
			w.media(1<<6, "ok") // an unknown flag
			w.endings(1)
			w.binary(servertest.Media(wire.KindFrame, wire.Opaque, 0, 0, []byte("ok"))) // seq falls
			w.endings(1)
			w.say(`{"type":"pause","sid":1}`)
			w.media(wire.FlagEnd, "ok")
			w.media(0, "ok") // after the last
			w.endings(1)
			w.say(`{"type":"resume","sid":1}`)
			w.expect("closed")
		}},
	{protocol: "v1", ending: "undecoded", want: "accepted 3, drop undecoded 2, error invalid_argument 1",
		run: func(c *scene) {
			w := c.v1(`"codec":"vp8",` + every)
			chunk := func(b []byte) {
				w.seq++
				w.binary(servertest.Media(wire.KindFrame, wire.VP8, 0, w.seq, b))
			}
			chunk([]byte{1, 2, 3, 4}) // no key frame
			chunk([]byte{1, 2, 3, 4})
			chunk(nil)
			w.endings(3)
		}},
	{protocol: "v1", ending: "unloaded", want: "accepted 5, error unloaded 4, result 1", run: func(c *scene) {
		w := c.v1(every)
		w.media(0, "hold")
		c.held()
		for range 4 {
			w.media(0, "ok")
		}
		c.until("they wait", func() bool { return c.stats().Waiting == 4 })
		c.inFlight(5)
		c.unload(func() bool { return c.stats().Waiting == 0 })
		w.endings(5)
		w.expect("closed")
	}},
	{protocol: "v1", ending: "told again after a resumption", want: "accepted 4, drop flushed 1, result 3",
		run: func(c *scene) {
			w := c.v1(every)
			for range 2 {
				w.media(0, "ok")
			}
			w.endings(2)
			w.say(`{"type":"pause","sid":1}`)
			w.media(0, "ok")
			w.say(`{"type":"flush","sid":1}`)
			w.endings(1)
			token := w.resume
			_ = w.NetConn().Close()
			again := &scene{T: c.T, s: c.s, told: map[string]int{}}
			x := &socket{Conn: servertest.V1(c.T, c.s, `{"type":"attach","token":"`+token+`","streams":[{"sid":1}]}`),
				c: again}
			defer x.Close()
			x.expect("attached")
			x.endings(3)
			if got := listing(again.told); got != listing(c.told) {
				c.Errorf("told again: %s, at first: %s", got, listing(c.told))
			}
			x.c, x.seq = c, w.seq
			// not before: what a client sends just before its connection is cut may be lost
			x.say(`{"type":"resume","sid":1}`)
			x.media(0, "ok")
			x.endings(1)
		}},

	{protocol: "native call", ending: "runs", oneShot: true, want: eachWant, run: func(c *scene) {
		for _, what := range each {
			c.call(context.Background(), what)
		}
	}},
	{protocol: "native call", ending: "wrong tensor", oneShot: true,
		want: "accepted 1, error invalid_argument 1, refused invalid_argument 1", run: func(c *scene) {
			_, err := c.s.Native().Infer(context.Background(), c.model,
				[]stream.Tensor{{Name: "x", Datatype: stream.Int32, Shape: []int{2}, Data: []byte{1}}})
			c.tell(1, "error", string(stream.CodeOf(err)))
		}},
	{protocol: "native call", ending: "given up", oneShot: true, want: "accepted 2, error canceled 2",
		run: func(c *scene) {
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			wg.Go(func() { c.call(ctx, "hold") })
			c.held()
			wg.Go(func() { c.call(ctx, "hold") })
			c.until("it waits", func() bool { return c.stats().Waiting == 1 })
			c.inFlight(2)
			cancel()
			wg.Wait()
			close(c.gate)
		}},
	{protocol: "native stream", ending: "runs", want: eachWant, run: func(c *scene) {
		send, end, _ := c.nativeStream(stream.Policy{Mode: stream.Every, Window: 8})
		for _, what := range each {
			send(what)
		}
		c.until("all have ended", func() bool { return c.counted()["in_flight"] == 0 })
		end()
	}},
	{protocol: "native stream", ending: "flushed, memory and refused", want: "accepted 12, drop flushed 2, drop " +
		"memory 1, error conflict 1, error flow_control 7, refused conflict 1, refused flow_control 7, refused " +
		"memory 1, result 1", run: func(c *scene) {
		send, end, flush := c.nativeStream(stream.Policy{Mode: stream.Every, Window: 3})
		send("hold")
		c.held()
		for range 7 {
			send("ok") // two fit
		}
		flush()
		free := c.exhaust()
		send("ok")
		free()
		send("ok") // flushed frames fill the window until their turn comes
		send("ok")
		close(c.gate)
		end()
		send("ok")
	}},
	{protocol: "native stream", ending: "superseded and closed",
		want: "accepted 3, drop closed 1, drop superseded 1, result 1", run: func(c *scene) {
			send, end, _ := c.nativeStream(stream.Policy{Mode: stream.Latest})
			send("hold")
			c.held()
			send("ok")
			send("ok")
			closed := make(chan struct{})
			go func() { end(); close(closed) }()
			c.until("the stream is closed", func() bool { return c.stats().Waiting == 0 })
			close(c.gate)
			<-closed
		}},
}

// TestToldIsCounted: for every ending over every protocol, the counts of /metrics equal the endings seen by clients,
// to the frame, and add up. Each protocol has its own server: the page of a server with all models takes a fifth of a
// second under the race detector, and each ending reads the page several times.
func TestToldIsCounted(t *testing.T) {
	for rest := toldCases; len(rest) > 0; {
		n := 1
		for n < len(rest) && rest[n].protocol == rest[0].protocol {
			n++
		}
		cases := rest[:n]
		rest = rest[n:]
		t.Run(cases[0].protocol, func(t *testing.T) { toldIsCounted(t, cases) })
	}
}

// toldIsCounted runs the cases of one protocol, each with its own model.
func toldIsCounted(t *testing.T, cases []toldCase) {
	dir := t.TempDir()
	cfg := server.Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0",
		Log:    config.Log{Level: "error", File: filepath.Join(dir, "log")},
		Memory: config.Memory{Budget: 24 << 20}, Sources: config.Sources{AllowPrivate: true},
		Metrics: config.Metrics{Triton: true}}
	all := make([]*scene, len(cases))
	for i, x := range cases {
		c := &scene{model: fmt.Sprintf("case%02d", i), told: map[string]int{}, running: make(chan struct{}, 16),
			gate: make(chan struct{})}
		c.lines = filepath.Join(dir, c.model+".jsonl")
		c.app = x.protocol == "apps"
		all[i] = c
		scenes.Store(c.model, c)
		m := x.model
		if x.load != nil {
			m = x.load(t)
		}
		m.Name, m.Source = c.model, cmp.Or(m.Source, "scripted")
		cfg.Models = append(cfg.Models, m)
		if x.protocol == "calls" || x.protocol == "server stream" {
			c.bySeq = each
		}
		if x.protocol == "server stream" {
			pictures := filepath.Join(dir, c.model)
			if err := os.Mkdir(pictures, 0o700); err != nil {
				t.Fatal(err)
			}
			for n := range 11 {
				b := servertest.JPEG(t, 8, 8)
				if n == 8 {
					b = []byte("not a picture")
				}
				if err := os.WriteFile(filepath.Join(pictures, fmt.Sprintf("%02d.jpg", n)), b, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cfg.Streams = append(cfg.Streams, streams.Config{
				Name: c.model, Source: "folder:" + pictures, FPS: 50, Model: c.model,
				Policy: stream.Policy{Mode: stream.Every},
				Sinks:  []sinks.Settings{&sinks.File{Path: c.lines, MaxSize: 1 << 20}},
			})
		}
	}
	s, stop := servertest.RunWith(t, cfg)
	for i, x := range cases {
		t.Run(x.ending, func(t *testing.T) {
			c := all[i]
			c.T, c.s = t, s
			x.run(c)
			counted := c.counted()
			if got := listing(counted); got != x.want {
				t.Errorf("counted: %s\nwant:    %s", got, x.want)
			}
			if told := listing(c.told); !x.left && told != listing(tellable(counted, x.oneShot, x.queued)) {
				t.Errorf("told:    %s\ncounted: %s", told, listing(counted))
			}
			c.statistics(x.left)
		})
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	if m := s.Memory().Stats(); m.Leases != 0 {
		t.Errorf("%d leases left", m.Leases)
	}
}

// TestFramesForNoModelAreCounted checks the counts of frames for an unknown model.
func TestFramesForNoModelAreCounted(t *testing.T) {
	s, stop := servertest.Run(t)
	c := &scene{T: t, s: s, model: "nobody", told: map[string]int{}}
	c.rest("", "ok")
	c.call(context.Background(), "ok")
	w := &socket{Conn: servertest.V1(t, s, `{"type":"ping","t":1}`), c: c}
	w.media(0, "ok")
	w.endings(1)
	_ = w.Close()
	const want = "accepted 3, error not_found 3, refused not_found 3"
	if counted := countsOf(t, s, ""); listing(counted) != want ||
		listing(c.told) != listing(tellable(counted, true, false)) {
		t.Errorf("told: %s, counted: %s, want %s", listing(c.told), listing(counted), want)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// TestDrainIsCounted: frames ended by a drain are counted, and their clients get the ending.
func TestDrainIsCounted(t *testing.T) {
	c := &scene{T: t, model: "drained", told: map[string]int{}, running: make(chan struct{}, 1),
		gate: make(chan struct{})}
	scenes.Store(c.model, c)
	s, stop := servertest.Run(t, workers.Config{Name: c.model, Source: "scripted"})
	c.s = s
	w := c.plain("policy=every")
	w.frame("hold")
	c.held()
	w.frame("ok")
	w.frame("ok")
	c.until("they wait", func() bool { return c.stats().Waiting == 2 })
	stopped := make(chan error, 1)
	go func() { stopped <- stop() }()
	c.until("the drain has begun", func() bool { return c.stats().Waiting == 0 })
	close(c.gate)
	w.endings(3)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if f := c.stats().Frames; f.Accepted != 3 || f.Results != 1 || f.Errors[stream.Draining] != 2 ||
		listing(c.told) != "error draining 2, result 1" {
		t.Errorf("counted %+v, told %s", f, listing(c.told))
	}
}
