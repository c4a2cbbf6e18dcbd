package frames_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"millrace/batching"
	pb "millrace/internal/inferencepb"
	"millrace/internal/servertest"
	"millrace/internal/wire"
	"millrace/server"
	"millrace/stream"
	"millrace/workers"
)

// scripted is a worker that ends each frame as its model's scene prescribes.
type scripted struct {
	workers.Base
	scene *scene
}

// scene is one model of TestToldIsCounted: the script of its frames, and the endings seen by their client.
type scene struct {
	*testing.T
	s       *server.Server
	model   string
	app     bool          // has routes
	lines   string        // the file of its server stream
	bySeq   []string      // script of frame n; later frames follow their bytes
	running chan struct{} // a held frame is running
	gate    chan struct{} // lets a held frame go on

	mu   sync.Mutex
	told map[string]int // endings, as in "result", "drop stale", "error timeout"
}

var scenes sync.Map // by the model's name

func init() {
	workers.Register(workers.Kind{Name: "scripted", New: func() workers.Worker { return &scripted{} }})
}

func (w *scripted) Init(_ context.Context, env *workers.Env) (*stream.Model, error) {
	found, _ := scenes.Load(env.Name)
	w.scene = found.(*scene)
	m := &stream.Model{AcceptsAnyInput: true, Ragged: true, MaxBatch: 1}
	if w.scene.app {
		m.App = &stream.App{Routes: []stream.Route{{Method: "POST", Path: "/one"},
			{Method: "POST", Path: "/events", Events: true}}}
	}
	return m, nil
}

func (w *scripted) Run(_ context.Context, b *batching.Batch) error {
	r := b.Requests[0]
	what := string(r.Payload)
	if len(r.Inputs) > 0 {
		what = string(r.Inputs[0].Data)
	}
	if r.Seq < uint64(len(w.scene.bySeq)) {
		what = w.scene.bySeq[r.Seq]
	}
	y := stream.Tensor{Name: "y", Datatype: stream.Float32, Shape: []int{1}, Data: stream.AppendFloat32(nil, 1)}
	body := stream.Tensor{Name: "body", Datatype: stream.Bytes, Shape: []int{1}, Data: []byte{1, 0, 0, 0, '1'}}
	switch what {
	case "ok", "hold", "parts":
		if r.Call != nil { // the other answers are no body of a reply
			y = body
		}
	}
	switch what {
	case "refuse":
		return stream.Errorf(stream.Unsupported, "frame", "is not what the model takes")
	case "panic":
		panic("as the scene says")
	case "parts":
		part := stream.Tensor{Name: "y", Datatype: stream.Float32, Shape: []int{1}, Data: stream.AppendFloat32(nil, 0)}
		if r.Call != nil {
			part = body
		}
		for range 3 {
			r.Emit([]stream.Tensor{part}, nil)
		}
	case "not utf-8":
		y.Datatype, y.Data = stream.Bytes, []byte{1, 0, 0, 0, 0xff} // not encodable in JSON
	case "hold":
		w.scene.running <- struct{}{}
		<-w.scene.gate
	}
	b.Finish(0, []stream.Tensor{y})
	return nil
}

// tell records n endings seen by the client.
func (c *scene) tell(n int, ending ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told[strings.Join(ending, " ")] += n
}

// held waits until a frame is held.
func (c *scene) held() { <-c.running }

// inFlight checks how many frames have no ending.
func (c *scene) inFlight(n int) {
	c.Helper()
	if counts := c.counted(); counts["in_flight"] != n {
		c.Errorf("%d frames are in flight, counted: %s", n, listing(counts))
	}
}

// unload unloads the model while frames are held or wait, and releases the held frames once the unload has begun.
func (c *scene) unload(began func() bool) {
	done := make(chan error, 1)
	go func() { done <- c.s.Models().Unload(context.Background(), c.model, "") }()
	c.until("the unloading has begun", began)
	close(c.gate)
	if err := <-done; err != nil {
		c.Error(err)
	}
}

func (c *scene) until(what string, ok func() bool) {
	c.Helper()
	for limit := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			c.Fatalf("not within a minute: %s", what)
		}
	}
}

// counted returns the series of the scene's model above 0.
func (c *scene) counted() map[string]int { return countsOf(c.T, c.s, c.model) }

// statistics compares the protocol's statistics with /metrics for each loaded version and, when one version ran all
// frames of the scene, with the endings seen by its client.
func (c *scene) statistics(left bool) {
	r, err := c.grpcClient().ModelStatistics(context.Background(), &pb.ModelStatisticsRequest{Name: c.model})
	if status.Code(err) == codes.NotFound { // the scene has unloaded the model
		return
	}
	if err != nil {
		c.Fatal(err)
	}
	endings := func(counts map[string]int) (n int) {
		for name, of := range counts {
			if kind, _, _ := strings.Cut(name, " "); kind == "result" || kind == "drop" || kind == "error" {
				n += of
			}
		}
		return n
	}
	for _, st := range r.ModelStats {
		counts := countsOf(c.T, c.s, c.model, st.Version)
		unsendable := 0
		for name, n := range counts {
			if strings.HasPrefix(name, "unsendable ") {
				unsendable += n
			}
		}
		success, fail := int(st.InferenceStats.Success.Count), int(st.InferenceStats.Fail.Count)
		if success != counts["result"]-unsendable || success+fail != endings(counts) ||
			success > 0 && time.Since(time.UnixMilli(int64(st.LastInference))).Abs() > time.Hour {
			c.Errorf("statistics of version %s: %d have succeeded and %d failed; counted: %s", st.Version, success,
				fail, listing(counts))
		}
		// The run of a frame of a disconnected client ends after the frame.
		differs := c.tritonMetrics(st)
		for end := time.Now().Add(20 * time.Second); len(differs) > 0 &&
			time.Now().Before(end); time.Sleep(time.Millisecond) {
			again, err := c.grpcClient().ModelStatistics(context.Background(),
				&pb.ModelStatisticsRequest{Name: c.model, Version: st.Version})
			if err != nil || len(again.ModelStats) != 1 {
				c.Fatal(again, err)
			}
			differs = c.tritonMetrics(again.ModelStats[0])
		}
		for _, d := range differs {
			c.Error(d)
		}
		if told := endings(c.told); !left && len(r.ModelStats) == 1 && len(c.s.Models().Versions(c.model)) == 1 &&
			counts["accepted"] == c.counted()["accepted"] && told != success+fail {
			c.Errorf("%d endings were told, the statistics have %d", told, success+fail)
		}
	}
}

// seriesOf returns the lines of /metrics with the model's name as label. seriesOf does not search the lines of other
// models, because the search is slow under the race detector.
func seriesOf(t *testing.T, s *server.Server, model string) string {
	t.Helper()
	_, text := servertest.Get(t, s, "/metrics")
	label := `model="` + model + `"`
	var lines strings.Builder
	for line := range strings.Lines(text) {
		if strings.Contains(line, label) {
			lines.WriteString(line)
		}
	}
	return lines.String()
}

var tritonSeries = regexp.MustCompile(`(?m)^(nv_\w+)\{([^}]*)\} (\S+)$`)

// tritonMetrics returns how the metrics with Triton's names differ from the statistics.
func (c *scene) tritonMetrics(st *pb.ModelStatistics) (differs []string) {
	differ := func(format string, args ...any) { differs = append(differs, fmt.Sprintf(format, args...)) }
	of, failed := map[string]float64{}, 0.0
	for _, m := range tritonSeries.FindAllStringSubmatch(seriesOf(c.T, c.s, st.Name), -1) {
		if !strings.Contains(m[2], `version="`+st.Version+`"`) {
			continue
		}
		v, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			c.Error(err)
		}
		if m[1] == "nv_inference_request_failure" {
			failed += v
		} else {
			of[m[1]] = v
		}
	}
	x := st.InferenceStats
	us := func(d *pb.StatisticDuration) float64 { return float64(d.Ns / 1000) }
	want := map[string]float64{
		"nv_inference_request_success": float64(x.Success.Count), "nv_inference_count": float64(st.InferenceCount),
		"nv_inference_exec_count":          float64(st.ExecutionCount),
		"nv_inference_request_duration_us": us(x.Success), "nv_inference_queue_duration_us": us(x.Queue),
		"nv_inference_compute_input_duration_us":  us(x.ComputeInput),
		"nv_inference_compute_infer_duration_us":  us(x.ComputeInfer),
		"nv_inference_compute_output_duration_us": us(x.ComputeOutput), "nv_inference_pending_request_count": 0,
	}
	if x.CacheHit.Count+x.CacheMiss.Count > 0 {
		want["nv_cache_num_hits_per_model"], want["nv_cache_num_misses_per_model"] = float64(x.CacheHit.Count),
			float64(x.CacheMiss.Count)
		want["nv_cache_hit_duration_per_model"], want["nv_cache_miss_duration_per_model"] = us(x.CacheHit),
			us(x.CacheMiss)
	}
	for name, v := range of {
		if _, known := want[name]; !known && (v != 0 || !strings.HasPrefix(name, "nv_cache_")) {
			differ("version %s: %s is not expected", st.Version, name)
		}
	}
	for name, v := range want {
		if got, ok := of[name]; !ok || got != v {
			differ("version %s: %s is %v, in the statistics %v", st.Version, name, got, v)
		}
	}
	if failed != float64(x.Fail.Count) {
		differ("version %s: nv_inference_request_failure is %v, in the statistics %d", st.Version, failed, x.Fail.Count)
	}
	return differs
}

var series = regexp.MustCompile(`(?m)^millrace_(\w+)\{([^}]*)\} (\d+)$`)

// countsOf reads the counts of frames at /metrics: "accepted", "in_flight", "result",
// "drop REASON", "error CODE", "refused REASON" and "unsendable CODE".
func countsOf(t *testing.T, s *server.Server, model string, version ...string) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, m := range series.FindAllStringSubmatch(seriesOf(t, s, model), -1) {
		labels := map[string]string{}
		for _, l := range strings.Split(m[2], ",") {
			name, value, _ := strings.Cut(l, "=")
			labels[name] = strings.Trim(value, `"`)
		}
		name := map[string]string{
			"frames_accepted_total": "accepted", "frames_in_flight": "in_flight", "frames_total": labels["outcome"] +
				"s",
			"dropped_frames_total": "drop " + labels["reason"], "frame_errors_total": "error " + labels["code"],
			"refused_frames_total": "refused " + labels["reason"], "unsendable_results_total": "unsendable " +
				labels["code"],
		}[m[1]]
		if n, err := strconv.Atoi(m[3]); err == nil && n > 0 && name != "" && labels["model"] == model &&
			(len(version) == 0 || labels["version"] == version[0]) {
			out[name] += n
		}
	}
	if out["results"] > 0 {
		out["result"] = out["results"]
	}
	sum := map[string]int{}
	for name, n := range out {
		kind, _, _ := strings.Cut(name, " ")
		sum[kind] += n
	}
	if sum["drop"] != out["drops"] || sum["error"] != out["errors"] || out["accepted"] != out["result"]+out["drops"]+
		out["errors"]+out["in_flight"] {
		t.Errorf("%s: the counts do not add up: %v", model, out)
	}
	delete(out, "results")
	delete(out, "drops")
	delete(out, "errors")
	return out
}

// asError maps a drop to the error of one-shot requests.
var asError = map[string]string{"stale": "timeout", "memory": "overloaded", "closed": "canceled"}

// tellable returns the endings seen by the clients of frames with these counts; queued means frames are stale by the
// queue's timeout.
func tellable(counts map[string]int, oneShot, queued bool) map[string]int {
	told := map[string]int{}
	for name, n := range counts {
		kind, of, _ := strings.Cut(name, " ")
		switch {
		case kind == "unsendable":
			told["result"] -= n
			told["error "+of] += n
		case kind == "drop" && oneShot && of == "stale" && queued:
			told["error overloaded"] += n
		case kind == "drop" && oneShot:
			told["error "+asError[of]] += n
		case kind == "result" || kind == "drop" || kind == "error":
			told[name] += n
		}
	}
	for name, n := range told {
		if n == 0 {
			delete(told, name)
		}
	}
	return told
}

// listing writes counts in order.
func listing(counts map[string]int) string {
	var out []string
	for name, n := range counts {
		out = append(out, fmt.Sprintf("%s %d", name, n))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// reply is a message of each WebSocket protocol, reduced to its ending.
type toldReply struct {
	Type    string
	Seq     *uint64
	Dropped string
	Partial bool
	Error   *struct{ Code string }
	Code    string
	Reason  string
	Seqs    [][2]uint64
	Done    bool
	Params  struct{ Partial bool } `json:"parameters"`
	Token   string                 `json:"resume_token"`

	ModelName string `json:"model_name"`
}

// tally records the endings in a message, and returns the message with the number of its endings.
func (c *scene) tally(b []byte) (m toldReply, endings int) {
	if err := json.Unmarshal(b, &m); err != nil {
		c.Errorf("%s: %v", b, err)
	}
	switch {
	case m.Partial, m.Params.Partial:
	case m.Type == "drop":
		for _, r := range m.Seqs {
			endings += int(r[1] - r[0] + 1)
		}
		c.tell(endings, "drop", m.Reason)
	case m.Type == "error" && m.Seq != nil:
		endings = 1
		c.tell(1, "error", m.Code)
	case m.Type != "" && m.Type != "result", m.Done:
	case m.Dropped != "":
		endings = 1
		c.tell(1, "drop", m.Dropped)
	case m.Error != nil && m.Seq != nil:
		endings = 1
		c.tell(1, "error", m.Error.Code)
	case m.Seq != nil || m.ModelName != "":
		endings = 1
		c.tell(1, "result")
	}
	return m, endings
}

// socket is a WebSocket connection of a scene.
type socket struct {
	*websocket.Conn
	c      *scene
	seq    uint64 // of the last frame of millrace.v1
	resume string // the session's newest token
}

// plain opens a stream in plain mode.
func (c *scene) plain(query string) *socket {
	c.Helper()
	w := &socket{Conn: servertest.Dial(c.T, c.s, "/v2/models/"+c.model+"/stream?codec=opaque&"+query), c: c}
	c.Cleanup(func() { _ = w.Close() })
	return w
}

// v1 opens stream 1 of millrace.v1.
func (c *scene) v1(options string) *socket {
	c.Helper()
	w := &socket{Conn: servertest.V1(c.T, c.s, `{"type":"open","sid":1,"model":"`+c.model+`",`+options+`}`), c: c}
	c.Cleanup(func() { _ = w.Close() })
	w.expect("opened")
	return w
}

func (w *socket) binary(b []byte) {
	w.c.Helper()
	if err := w.WriteMessage(websocket.BinaryMessage, b); err != nil {
		w.c.Fatal(err)
	}
}

func (w *socket) say(text string) {
	w.c.Helper()
	if err := w.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		w.c.Fatal(err)
	}
}

// frame sends the next frame of plain mode.
func (w *socket) frame(what string) { w.c.Helper(); w.binary([]byte(what)) }

// media sends the next frame of millrace.v1.
func (w *socket) media(flags wire.Flags, what string) {
	w.c.Helper()
	w.seq++
	w.binary(servertest.Media(wire.KindFrame, wire.Opaque, flags, w.seq, []byte(what)))
}

// next reads one message.
func (w *socket) next() (toldReply, int) {
	w.c.Helper()
	_ = w.SetReadDeadline(time.Now().Add(time.Minute))
	_, b, err := w.ReadMessage()
	if err != nil {
		w.c.Fatal(err)
	}
	m, n := w.c.tally(b)
	if m.Token != "" {
		w.resume = m.Token
	}
	return m, n
}

// endings reads until n endings have been told.
func (w *socket) endings(n int) {
	w.c.Helper()
	for n > 0 {
		_, m := w.next()
		n -= m
	}
}

// expect reads up to a control message of millrace.v1.
func (w *socket) expect(kind string) toldReply {
	w.c.Helper()
	for {
		if m, _ := w.next(); m.Type == kind {
			return m
		}
	}
}

// rest sends a request.
func (c *scene) rest(query, body string) { c.post(query, "application/octet-stream", body) }

// cutBody sends half of a body, enough for the server to begin reading, and closes the sending side.
func (c *scene) cutBody(path string) {
	const size = 200_000
	conn, err := net.Dial("tcp", c.s.Addr("http"))
	if err != nil {
		c.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: "+
		"application/json\r\nContent-Length: %d\r\n\r\n%s", path, size, strings.Repeat(" ", size/2)); err != nil {
		c.Fatal(err)
	}
	_ = conn.(*net.TCPConn).CloseWrite()
	r, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		c.Fatal(err)
	}
	defer r.Body.Close()
	if text, _ := io.ReadAll(r.Body); r.StatusCode != http.StatusBadRequest ||
		!strings.Contains(string(text), "the body ended before") {
		c.Errorf("%s: %s: %s", path, r.Status, text)
	}
}

// restWith sends a request with a priority and a time-out in microseconds.
func (c *scene) restWith(what string, priority, timeout int) {
	data := strings.ReplaceAll(strings.Trim(fmt.Sprint([]byte(what)), "[]"), " ", ",")
	c.post("", "application/json", fmt.Sprintf(`{"inputs":[{"name":"x","datatype":"UINT8","shape":[%d],"data":[%s]}`+
		`],"parameters":{"priority":%d,"timeout":%d}}`,
		len(what), data, priority, timeout))
}

func (c *scene) post(query, kind, body string) {
	r, err := http.Post("http://"+c.s.Addr("http")+"/v2/models/"+c.model+"/infer"+query, kind, strings.NewReader(body))
	if err != nil {
		c.Error(err)
		return
	}
	defer r.Body.Close()
	var e struct{ Code string }
	if r.StatusCode == http.StatusOK {
		c.tell(1, "result")
		return
	}
	if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
		c.Error(err)
	}
	if want := map[string]int{"overloaded": http.StatusServiceUnavailable,
		"invalid_argument": http.StatusBadRequest}[e.Code]; want > 0 && want != r.StatusCode {
		c.Errorf("%s has the status %d", e.Code, r.StatusCode)
	}
	if r.StatusCode == http.StatusServiceUnavailable && e.Code == "overloaded" && r.Header.Get("Retry-After") == "" {
		c.Error("no Retry-After")
	}
	c.tell(1, "error", e.Code)
}

// route sends a request to a route of the program.
func (c *scene) route(path, what string, headers ...string) {
	req, err := http.NewRequestWithContext(c.Context(), http.MethodPost, "http://"+c.s.Addr("http")+"/apps/"+c.model+
		path, strings.NewReader(what))
	if err != nil {
		c.Error(err)
		return
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		c.Error(err)
		return
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		c.Error(err)
	}
	_, failed, isEvent := strings.Cut(string(text), "event: error\ndata: ")
	if r.StatusCode == http.StatusOK && !isEvent {
		c.tell(1, "result")
		return
	}
	if !isEvent {
		failed = string(text)
	}
	var e struct{ Code string }
	if err := json.Unmarshal([]byte(failed), &e); err != nil {
		c.Error(err)
	}
	c.tell(1, "error", e.Code)
}

// queueFull fills a queue of two places while a request runs: two more are refused.
func (c *scene) queueFull(send func(what string)) {
	var wg sync.WaitGroup
	wg.Go(func() { send("hold") })
	c.held()
	for range 2 {
		wg.Go(func() { send("ok") })
	}
	c.until("they wait", func() bool { return c.stats().Waiting == 2 })
	send("ok")
	send("ok")
	c.inFlight(3)
	close(c.gate)
	wg.Wait()
}

// queueTimes lets the timeout of a queued request expire while another request with a priority runs. A negative
// timeout is refused.
func (c *scene) queueTimes(send func(what string, priority, timeout int)) {
	var wg sync.WaitGroup
	wg.Go(func() { send("hold", 1, 0) })
	c.held()
	send("ok", 0, 1000) // answered while the other request runs
	send("ok", 0, -1)
	c.inFlight(1)
	close(c.gate)
	wg.Wait()
	send("ok", 3, 3_600_000_000)
}

// call makes a native call.
func (c *scene) call(ctx context.Context, body string) {
	r, err := c.s.Native().InferBytes(ctx, c.model, stream.Opaque, []byte(body))
	if err != nil {
		c.tell(1, "error", string(stream.CodeOf(err)))
		return
	}
	r.Release()
	c.tell(1, "result")
}

// nativeStream opens a native stream. send sends a frame, and records a refusal.
func (c *scene) nativeStream(p stream.Policy) (send func(what string), end, flush func()) {
	c.Helper()
	done := make(chan struct{})
	st, err := c.s.Native().Stream(c.model, stream.Options{Policy: p}, func(r *stream.Result) {
		switch {
		case r.Partial:
		case r.Outcome == stream.Dropped:
			c.tell(1, "drop", string(r.Reason))
		case r.Outcome == stream.Failed:
			c.tell(1, "error", string(stream.CodeOf(r.Err)))
		default:
			c.tell(1, "result")
		}
	}, func(stream.CloseReason) { close(done) })
	if err != nil {
		c.Fatal(err)
	}
	seq := uint64(0)
	send = func(what string) {
		err := st.Send(seq, stream.Opaque, []byte(what))
		seq++
		switch {
		case err == nil:
		case stream.CodeOf(err) == stream.Overloaded: // the memory budget
			c.tell(1, "drop", "memory")
		default:
			c.tell(1, "error", string(stream.CodeOf(err)))
		}
	}
	return send, func() { st.Close(stream.ByClient); <-done }, st.Flush
}

// pull sends a call for the video and reads the replies.
func (c *scene) pull(url, query string) {
	c.Helper()
	w := &socket{Conn: servertest.Dial(c.T, c.s, "/models/infer?"+query), c: c}
	defer w.Close()
	w.say(`{"model":"` + c.model + `","inputs":[{"name":"url","datatype":"BYTES","shape":[1],"data":["` + url + `"]}]}`)
	for {
		if m, _ := w.next(); m.Done || m.Error != nil && m.Seq == nil {
			return
		}
	}
}

// stream counts the endings of the model's server stream, which reads a folder: the lines of its file, and drops,
// without lines, from its report.
func (c *scene) stream() {
	c.Helper()
	var r struct {
		State   string
		Results int
		Errors  int
		Drops   map[string]int
		Lost    struct{ Frames int }
		Sinks   map[string]struct{ Sent int }
	}
	c.until("the stream has ended", func() bool {
		_, text := servertest.Get(c.T, c.s, "/v2/streams/"+c.model)
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			c.Fatalf("%s: %v", text, err)
		}
		return r.State == "ended"
	})
	text, err := os.ReadFile(c.lines)
	if err != nil {
		c.Fatal(err)
	}
	lines := 0
	for line := range bytes.Lines(text) {
		_, n := c.tally(line)
		lines += n
	}
	for why, n := range r.Drops {
		if n > 0 {
			c.tell(n, "drop", why)
		}
	}
	if r.Results+r.Errors != lines {
		c.Errorf("%d results and %d errors, %d endings in the file", r.Results, r.Errors, lines)
	}
}

func (c *scene) stats() workers.GroupStats {
	for _, st := range c.s.Models().Stats() {
		if st.Model.Name == c.model {
			return st
		}
	}
	return workers.GroupStats{}
}

// exhaust takes all memory, until the returned function is called.
func (c *scene) exhaust() (free func()) {
	var all []interface{ Release() }
	for size := 1 << 20; size > 0; size /= 2 {
		for {
			b, err := c.s.Memory().Lease(size)
			if err != nil {
				break
			}
			all = append(all, b)
		}
	}
	return func() {
		for _, b := range all {
			b.Release()
		}
	}
}
