package frames_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace/ingest/sinks"
	"millrace/ingest/streams"
	"millrace/internal/testneeds"
	"millrace/stream"
)

// soakStreams are the server streams in a soak: one permanent stream of the configuration, and streams of failing
// cameras that requests add and remove.
type soakStreams struct {
	*soaking
	cameras [2]*flapping
	clip    string // the address of a video with an end
	hook    *httptest.Server
	steady  *http.Client // the soak closes its connections
	made    atomic.Int64
	results atomic.Int64 // results of streams seen by watchers
}

const clipFrames = 20

func newSoakStreams(t *testing.T) *soakStreams {
	k := &soakStreams{cameras: [2]*flapping{newFlapping(t), newFlapping(t)},
		steady: &http.Client{Transport: &http.Transport{}}}
	path := filepath.Join(t.TempDir(), "clip.mp4")
	out, err := exec.Command(testneeds.Program(t, "ffmpeg"), "-nostdin", "-v", "error", "-f", "lavfi", "-i",
		"testsrc2=size=64x48:rate=10", "-frames:v", fmt.Sprint(clipFrames), "-pix_fmt", "yuv420p",
		path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	mux := http.NewServeMux()
	mux.Handle("/clip.mp4", http.FileServer(http.Dir(filepath.Dir(path))))
	var posts atomic.Int64
	mux.HandleFunc("/hook", func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		if posts.Add(1)%4 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	})
	k.hook = httptest.NewServer(mux)
	t.Cleanup(k.hook.Close)
	k.clip = k.hook.URL + "/clip.mp4"
	return k
}

// config is the permanent stream.
func (k *soakStreams) config(file string) streams.Config {
	return streams.Config{
		Name: "door", Source: k.cameras[0].URL, Model: "find",
		Sinks: []sinks.Settings{&sinks.File{Path: file, MaxSize: 1 << 20}, &sinks.Webhook{URL: k.hook.URL + "/hook"}},
	}
}

// close lets go of all connections.
func (k *soakStreams) close() {
	for _, c := range k.cameras {
		c.renew()
	}
	k.steady.CloseIdleConnections()
	k.hook.CloseClientConnections()
}

// call makes a request about streams and expects one of the statuses.
func (k *soakStreams) call(method, path, body string, want ...int) []byte {
	q, err := http.NewRequestWithContext(k.t.Context(), method, k.s.URL("http")+"/v2/streams"+path,
		strings.NewReader(body))
	if err != nil {
		k.t.Errorf("streams: %v", err)
		return nil
	}
	r, err := k.steady.Do(q)
	if err != nil {
		k.t.Errorf("streams: %v", err)
		return nil
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	for _, code := range want {
		if r.StatusCode == code && err == nil {
			return b
		}
	}
	k.t.Errorf("streams: %s %s: %s %v: %s, want %v", method, path, r.Status, err, b, want)
	return nil
}

// soakReport is a stream's report by GET.
type soakReport struct {
	State                             string
	Frames, Results, Errors, Restarts uint64
	Drops                             map[string]uint64
	Lost                              struct{ Frames uint64 }
	Error                             struct{ Message string }
}

// ended is the number of frames with a known ending.
func (r *soakReport) ended() uint64 {
	n := r.Results + r.Errors + r.Lost.Frames
	for _, d := range r.Drops {
		n += d
	}
	return n
}

// until polls a stream until ok returns true, or for the time d.
func (k *soakStreams) until(name string, d time.Duration, ok func(*soakReport) bool) (r soakReport, seen bool) {
	for limit := time.Now().Add(d); ; <-time.After(10 * time.Millisecond) {
		r = soakReport{}
		if err := json.Unmarshal(k.call("GET", "/"+name, "", 200), &r); err != nil || k.t.Failed() {
			return r, false
		}
		if seen = ok(&r); seen || time.Now().After(limit) {
			return r, seen
		}
	}
}

// troubles makes the cameras fail and work again.
func (k *soakStreams) troubles(rng *rand.Rand) {
	k.cameras[rng.IntN(len(k.cameras))].trouble(rng)
	<-time.After(time.Duration(rng.IntN(400)) * time.Millisecond)
}

// churn adds a stream, changes and watches the stream, and removes the stream at a random time.
func (k *soakStreams) churn(rng *rand.Rand) {
	n := k.made.Add(1)
	name := fmt.Sprintf("s%d", n)
	c := streams.Config{
		Name: name, Source: k.cameras[rng.IntN(2)].URL, Model: [...]string{"find", "m", "extra"}[rng.IntN(3)],
		Policy: stream.Policy{Mode: []stream.Mode{stream.Latest, stream.Every}[rng.IntN(2)]},
		FPS:    float64(rng.IntN(3) * 5),
	}
	if rng.IntN(3) == 0 {
		c.Sinks = []sinks.Settings{&sinks.Webhook{URL: k.hook.URL + "/hook", Secret: "geheim"}}
	}
	body, _ := json.Marshal(c)
	if k.call("POST", "", string(body), 201) == nil {
		return
	}
	watching, leave := context.WithCancel(k.t.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		k.watch(watching, name, 1000)
	}()
	k.until(name, time.Duration(rng.IntN(1500))*time.Millisecond, func(r *soakReport) bool { return r.Results > 10 })
	if rng.IntN(2) == 0 {
		k.call("PATCH", "/"+name, `{"paused":true,"max_age_ms":500}`, 200)
		k.call("PATCH", "/"+name, `{"paused":false}`, 200)
	}
	if rng.IntN(2) == 0 {
		leave()
		<-watched
	}
	k.call("DELETE", "/"+name, "", 204)
	k.call("GET", "/"+name, "", 404)
	<-watched // told, or gone
	leave()
}

// whole runs a stream from a finite video: each frame has one ending.
func (k *soakStreams) whole(rng *rand.Rand) {
	name := fmt.Sprintf("c%d", k.made.Add(1))
	body := fmt.Sprintf(`{"name":%q,"source":%q,"model":%q,"policy":%q}`, name, k.clip,
		[...]string{"find", "m"}[rng.IntN(2)], [...]string{"latest", "every"}[rng.IntN(2)])
	if k.call("POST", "", body, 201) == nil {
		return
	}
	r, ok := k.until(name, soakPatience, func(r *soakReport) bool { return r.State == "ended" })
	if !ok || r.Restarts == 0 && r.Frames != clipFrames || r.ended() != r.Frames {
		k.t.Errorf("streams: a clip of %d frames: %+v", clipFrames, r)
	}
	k.call("DELETE", "/"+name, "", 204)
}

// viewers watch the results or pictures of the permanent stream, and disconnect.
func (k *soakStreams) viewers(rng *rand.Rand) {
	ctx, leave := context.WithTimeout(k.t.Context(), time.Duration(rng.IntN(1500))*time.Millisecond)
	defer leave()
	if rng.IntN(4) > 0 {
		k.watch(ctx, "door", 1+rng.IntN(40))
		return
	}
	q, err := http.NewRequestWithContext(ctx, "GET", k.s.URL("http")+"/v2/streams/door/video", nil)
	if err != nil {
		k.t.Error(err)
		return
	}
	if r, err := k.steady.Do(q); err == nil {
		_, _ = io.CopyN(io.Discard, r.Body, 1<<20)
		_ = r.Body.Close()
	}
}

// watch reads n results, or until the end of the stream or ctx.
func (k *soakStreams) watch(ctx context.Context, name string, n int) {
	q, err := http.NewRequestWithContext(ctx, "GET", k.s.URL("http")+"/v2/streams/"+name+"/results", nil)
	if err != nil {
		k.t.Error(err)
		return
	}
	r, err := k.steady.Do(q)
	if err != nil {
		if ctx.Err() == nil {
			k.t.Errorf("watch: %v", err)
		}
		return
	}
	defer r.Body.Close()
	last := int64(-1)
	for in := bufio.NewScanner(r.Body); r.StatusCode == 200 && n > 0 && in.Scan(); {
		data, ok := strings.CutPrefix(in.Text(), "data: ")
		if !ok {
			continue
		}
		var l struct {
			Stream string
			Seq    *int64
		}
		if err := json.Unmarshal([]byte(data), &l); err != nil {
			if ctx.Err() == nil {
				k.t.Errorf("watch: %v: %s", err, data)
			}
			return
		}
		if l.Seq == nil { // lost lines or the end
			continue
		}
		if l.Stream != name || *l.Seq <= last {
			k.t.Errorf("watch: after %d of %s: %s", last, name, data)
			return
		}
		last = *l.Seq
		n--
		k.results.Add(1)
	}
}

// settle repairs the cameras and then breaks the cameras for good: the permanent stream recovers, and each of its
// frames has one ending.
func (k *soakStreams) settle() {
	if k.t.Failed() {
		return
	}
	for _, c := range k.cameras {
		c.heal()
		c.renew()
	}
	if k.call("POST", "", fmt.Sprintf(`{"name":"last","source":%q,"model":"find"}`, k.cameras[1].URL), 201) == nil {
		return
	}
	if r, ok := k.until("last", soakPatience, func(r *soakReport) bool { return r.Results > 5 }); !ok {
		k.t.Errorf("streams: the last one: %+v", r)
	}
	k.call("DELETE", "/last", "", 204)
	if *soakFor >= time.Minute { // shorter soaks do not wait for the next attempt
		before, _ := k.until("door", 0, func(*soakReport) bool { return true })
		if r, ok := k.until("door", soakPatience, func(r *soakReport) bool {
			return r.Results > before.Results+5
		}); !ok {
			k.t.Errorf("streams: the one that stays does not come back: %+v", r)
		}
	}
	for _, c := range k.cameras {
		c.dead.Store(true)
		c.renew()
	}
	r, ok := k.until("door", soakPatience, func(r *soakReport) bool {
		return r.State == "waiting" && r.ended() == r.Frames
	})
	if !ok {
		k.t.Errorf("streams: %d endings: %+v", r.ended(), r)
	}
	k.t.Logf("%d streams came and went, %d results were watched; the one that stays: %+v", k.made.Load(),
		k.results.Load(), r)
}

// lines checks the files of results.
func (k *soakStreams) lines(file string) {
	names, err := filepath.Glob(file + "*")
	if err != nil || len(names) == 0 {
		k.t.Errorf("streams: no file: %v", err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			k.t.Error(err)
		}
		for _, l := range bytes.SplitAfter(b, []byte("\n")) {
			if len(l) > 0 && (!json.Valid(l) || !bytes.HasSuffix(l, []byte("\n"))) {
				k.t.Errorf("streams: in %s: %.100q", name, l)
				break
			}
		}
	}
}

// soakPatience is the timeout of every wait; a passing run stays far below.
const soakPatience = 90 * time.Second
