//go:build !nometrics

package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"millrace/config"
	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/internal/inferencepb"
	"millrace/internal/wire"
	"millrace/stream"
	"millrace/workers"
)

// figures returns the metrics of a server.
func (k *keyed) figures(t *testing.T) string {
	t.Helper()
	req, _ := http.NewRequest("GET", "http://"+k.Addr("http")+"/metrics", nil)
	req.Header.Set(access.KeyName, k.keys["metrics"])
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != 200 {
		t.Fatalf("%s %v", r.Status, err)
	}
	return string(text)
}

// figure returns a value of the metrics; -1 = missing.
func figure(metrics, series string) float64 {
	_, rest, found := strings.Cut("\n"+metrics, "\n"+series+" ")
	if !found {
		return -1
	}
	value, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return -1
	}
	return n
}

// checkFigures compares the client's counts with the metrics.
func (c *quotaClient) checkFigures(name string) {
	c.t.Helper()
	all := c.k.figures(c.t)
	for quota, want := range c.refused {
		if got := figure(all, fmt.Sprintf("millrace_quota_refused_total{principal=%q,quota=%q}", name,
			quota)); got != float64(want) {
			c.t.Errorf("%s: %v refused because of the quota %s, and the client was told of %d", name, got, quota, want)
		}
	}
	for series, want := range map[string]int{"requests": c.requests, "frames": c.frames} {
		if got := figure(all, fmt.Sprintf("millrace_client_%s_total{principal=%q}", series,
			name)); got != float64(want) {
			c.t.Errorf("%s: %v %s, and the client counts %d", name, got, series, want)
		}
	}
}

// holds waits until the metrics report a client's use of a quota.
func (c *quotaClient) holds(name, quota string, want float64) {
	c.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		got := figure(c.k.figures(c.t), fmt.Sprintf("millrace_client_held{principal=%q,quota=%q}", name, quota))
		if got == want {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%v %s are held, want %v", got, quota, want)
		}
	}
}

// TestQuotas: requests above a client's quotas are refused over every protocol, with the retry time, or dropped with
// the reason; other clients are served, and the metrics match the clients' counts.
func TestQuotas(t *testing.T) {
	k, all := startQuotas(t, map[string]map[string]float64{
		"requests": {"requests": perHour(5)},
		"frames":   {"frames": perHour(7)},
		"bytes":    {"bytes": perHour(4 * 5)},
		"open":     {"streams": 1, "sessions": 2},
		"good":     nil,
	}, nil)
	// Requests, over REST, gRPC and WebSocket.
	c := all["requests"]
	for range 2 {
		c.infer()
		c.call()
	}
	c.rest("GET", "/v2/models/echo", "")
	for range 3 {
		c.infer()
		c.call()
		c.rest("GET", "/v2/models/echo", "")
		c.dial("/v2/stream?model=echo")
	}
	if c.refused["requests"] != 12 || c.frames != 4 {
		t.Errorf("%d of requests refused, %d frames", c.refused["requests"], c.frames)
	}
	c.checkFigures("requests")
	// Frames: one-shot requests, a stream of gRPC requests, and streams, which drop frames.
	c = all["frames"]
	c.infer()
	c.call()
	messages, err := c.stub.ModelStreamInfer(c.context())
	if err != nil {
		t.Fatal(err)
	}
	c.requests++
	ws := c.dial("/v2/stream?model=echo&policy=every&codec=opaque")
	say := func() (dropped string) {
		if err := ws.WriteMessage(websocket.BinaryMessage, []byte("four")); err != nil {
			t.Fatal(err)
		}
		_, text, err := ws.ReadMessage()
		var m struct{ Dropped, Error string }
		if err != nil || json.Unmarshal(text, &m) != nil || m.Error != "" {
			t.Fatalf("%v %s", err, text)
		}
		if m.Dropped == "" {
			c.frames++
		}
		return m.Dropped
	}
	ask := func() string {
		if err := messages.Send(oneNumberOf()); err != nil {
			t.Fatal(err)
		}
		m, err := messages.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if m.ErrorMessage == "" {
			c.frames++
		}
		return m.ErrorMessage
	}
	for range 2 {
		if got := ask() + say(); got != "" {
			t.Errorf("within the quota: %s", got)
		}
	}
	c.infer() // the seventh
	for range 3 {
		if why := say(); why != "quota" {
			t.Errorf("a frame over the quota: %q", why)
		}
		c.refused["frames"]++
		c.count(ask())
		c.infer()
		c.call()
	}
	if c.frames != 7 || c.refused["frames"] != 12 {
		t.Errorf("%d frames, %d refused", c.frames, c.refused["frames"])
	}
	_ = messages.CloseSend()
	c.checkFigures("frames")
	if got := figure(k.figures(t), `millrace_dropped_frames_total{model="echo",reason="quota",version="1"}`); got != 3 {
		t.Errorf("%v drops of the model", got)
	}
	// Bytes: four of FP32 for each request.
	c = all["bytes"]
	for range 8 {
		c.infer()
	}
	if c.frames != 5 || c.refused["bytes"] != 3 {
		t.Errorf("%d frames, %d refused for their bytes", c.frames, c.refused["bytes"])
	}
	c.checkFigures("bytes")
	// The limits of concurrent sessions and streams.
	c = all["open"]
	first := c.dial("/v2/stream?model=echo")
	// the stream opens after the handshake, perhaps after a stream of the second session
	c.holds("open", "streams", 1)
	second := c.dial("/v2/stream?model=echo")
	if second == nil {
		t.Fatal("the second session was refused")
	}
	if _, text, err := second.ReadMessage(); err != nil || !bytes.Contains(text, []byte("quotas.streams")) {
		t.Errorf("a second stream: %s %v", text, err)
	}
	c.refused["streams"]++
	stream, err := c.stub.ModelStreamInfer(c.context())
	if err == nil {
		_, err = stream.Recv()
	}
	c.called(err)
	second.Close()
	c.holds("open", "sessions", 1)
	second = c.dial("/v2/stream?model=echo") // gets no stream and ends soon
	if second == nil {
		t.Fatal("the place of a session was not given back")
	}
	c.refused["streams"]++
	_, _, _ = second.ReadMessage()
	second.Close()
	c.holds("open", "sessions", 1)
	first.Close()
	c.holds("open", "sessions", 0)
	c.holds("open", "streams", 0)
	c.checkFigures("open")
	// Other clients are not affected.
	c = all["good"]
	for range 20 {
		c.infer()
		c.call()
	}
	if len(c.refused) != 0 || c.frames != 40 {
		t.Errorf("%v refused, %d frames", c.refused, c.frames)
	}
	c.checkFigures("good")
}

// TestQuotaOfSessionsAtOnce: WebSockets above the quota are refused before the upgrade, and a page gets the reason.
func TestQuotaOfSessionsAtOnce(t *testing.T) {
	_, all := startQuotas(t, map[string]map[string]float64{"c": {"sessions": 2}}, nil)
	c := all["c"]
	for range 2 {
		c.dial("/v2/stream?model=echo")
	}
	for range 3 {
		if c.dial("/v2/stream?model=echo") != nil {
			t.Error("a third session")
		}
	}
	page := websocket.Dialer{Subprotocols: []string{wire.Subprotocol}}
	ws, _, err := page.Dial("ws://"+c.k.Addr("http")+"/v2/stream",
		http.Header{access.KeyName: {c.key}, "Origin": {"http://" + c.k.Addr("http")}})
	if err != nil {
		t.Fatal(err)
	}
	defer ws.Close()
	c.requests++
	_, text, err := ws.ReadMessage()
	m, wrong := wire.ParseControl(text, wire.Server)
	if e, ok := m.(*wire.ErrorMessage); err != nil || wrong != nil || !ok || c.count(e.Message) != "sessions" ||
		!e.Retryable || e.RetryAfterMS != 1000 {
		t.Errorf("a page: %s %v %v", text, err, wrong)
	}
	if _, _, err := ws.ReadMessage(); !websocket.IsCloseError(err, int(wire.CloseTooMany)) {
		t.Errorf("a page: %v", err)
	}
	if c.refused["sessions"] != 4 {
		t.Errorf("%v", c.refused)
	}
	c.checkFigures("c")
}

// TestQuotaOfRegions: a client's quota of shared memory regions spans both protocols, and other clients can still
// register regions.
func TestQuotaOfRegions(t *testing.T) {
	k, all := startQuotas(t, map[string]map[string]float64{"bad": {"regions": 2}, "good": nil}, func(c *Config) {
		c.Limits.MaxRegions = 3
	})
	key, _ := memoryOf(t, "mine")
	other, _ := memoryOf(t, "hers")
	bad := &sharer{t: t, s: k.Server, key: all["bad"].key}
	for i, want := range []string{"", "", "quotas.regions", "quotas.regions"} {
		if got := bad.over(i%2 == 0).register(fmt.Sprint(i), key); (got == "") != (want == "") ||
			!strings.Contains(got, want) {
			t.Errorf("%d: %s, want %s", i, got, want)
		}
	}
	good := &sharer{t: t, s: k.Server, key: all["good"].key}
	if got := good.register("0", other); got != "" {
		t.Error(got)
	}
	figures := k.figures(t)
	for series, want := range map[string]float64{`millrace_quota_refused_total{principal="bad",quota="regions"}`: 2,
		`millrace_client_held{principal="bad",quota="regions"}`:  2,
		`millrace_client_held{principal="good",quota="regions"}`: 1} {
		if got := figure(figures, series); got != want {
			t.Errorf("%s %v, want %v", series, got, want)
		}
	}
	if got := bad.unregister("0") + bad.register("2", key); got != "" {
		t.Errorf("in place of another one: %s", got)
	}
}

// TestQuotaOfPulls: a client's quota of concurrent video pulls includes silent servers, and other clients can still
// pull.
func TestQuotaOfPulls(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // connects, and answers nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	connections := make(chan net.Conn, 16)
	go func() {
		for {
			conn, err := silent.Accept()
			if err != nil {
				return
			}
			connections <- conn
		}
	}()
	_, all := startQuotas(t, map[string]map[string]float64{"c": {"pulls": 1}, "other": nil}, func(c *Config) {
		c.Sources.AllowPrivate = true
	})
	address := "http://" + silent.Addr().String() + "/video.mp4"
	first := pullVideo(t, all["c"], address)
	first.isPulled(connections)
	second := pullVideo(t, all["c"], address)
	c := all["c"]
	var m wire.Plain
	if text := <-second.texts; wire.ParsePlain(text, &m) != nil || m.Error == nil || m.Error.Code != "flow_control" ||
		!m.Error.Retryable || m.Error.RetryAfterMS != 1000 || c.count(m.Error.Message) != "pulls" {
		t.Errorf("a second video: %s", text)
	}
	c.checkFigures("c")
	first.write(`{"stop":true}`)
	if text := <-first.texts; !bytes.Contains(text, []byte(`"done":true`)) {
		t.Fatalf("a video that was stopped: %s", text)
	}
	second.ask()
	second.isPulled(connections)
	pullVideo(t, all["other"], address).isPulled(connections)
}

// pulledVideo is a WebSocket whose video the server pulls.
type pulledVideo struct {
	*testing.T
	ws      *websocket.Conn
	address string
	texts   chan []byte // the messages of the server
}

// pullVideo opens a WebSocket and asks for the video at an address.
func pullVideo(t *testing.T, c *quotaClient, address string) *pulledVideo {
	t.Helper()
	v := &pulledVideo{t, c.dial("/v2/stream?model=echo"), address, make(chan []byte, 16)}
	go func() {
		defer close(v.texts)
		for {
			_, text, err := v.ws.ReadMessage()
			if err != nil {
				return
			}
			v.texts <- text
		}
	}()
	v.ask()
	return v
}

func (v *pulledVideo) ask() {
	v.Helper()
	v.write(`{"url":"` + v.address + `"}`)
}

func (v *pulledVideo) write(text string) {
	v.Helper()
	if err := v.ws.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		v.Fatal(err)
	}
}

// isPulled waits until the server has connected to the address. A late ffmpeg, for example under load, is started
// again.
func (v *pulledVideo) isPulled(connections <-chan net.Conn) {
	v.Helper()
	for {
		select {
		case conn := <-connections:
			v.Cleanup(func() { conn.Close() })
			return
		case text := <-v.texts:
			var m wire.Plain
			if wire.ParsePlain(text, &m) != nil || m.Error == nil || m.Error.Code != "timeout" {
				v.Fatalf("the video is not pulled: %s", text)
			}
			v.ask()
		}
	}
}

// TestQuotaOfWatchers: a client's quota of watched server streams covers every form of watching, and other clients
// can still watch.
func TestQuotaOfWatchers(t *testing.T) {
	_, all := startQuotas(t, map[string]map[string]float64{"c": {"watchers": 1}, "other": nil}, func(c *Config) {
		c.Sources.AllowPrivate = true
	})
	c := all["c"]
	// which is tried again and again
	c.rest("POST", "/v2/streams", `{"name":"door","source":"rtsp://127.0.0.1:9/","model":"echo"}`)
	const results = "/v2/streams/door/results"
	first := c.dial(results)
	if first == nil {
		t.Fatal("nobody may watch")
	}
	if c.dial(results) != nil {
		t.Error("a second watcher")
	}
	c.rest("GET", results, "")
	if c.refused["watchers"] != 2 {
		t.Errorf("%v", c.refused)
	}
	if all["other"].dial(results) == nil {
		t.Error("another client may not watch")
	}
	c.checkFigures("c")
	first.Close()
	c.holds("c", "watchers", 0)
	if c.dial(results) == nil {
		t.Error("the place of a watcher was not given back")
	}
}

// TestTicketsOfAKey: a key's limit of tickets holds for all addresses of its requests, here through a proxy, and
// other keys get tickets.
func TestTicketsOfAKey(t *testing.T) {
	k, all := startQuotas(t, map[string]map[string]float64{"greedy": nil, "other": nil}, nil)
	mint := func(c *quotaClient) int {
		t.Helper()
		req, _ := http.NewRequest("POST", "http://"+k.Addr("http")+"/v2/tickets", nil)
		req.Header.Set(access.KeyName, c.key)
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		r.Body.Close()
		return r.StatusCode
	}
	for range 256 {
		if got := mint(all["greedy"]); got != 200 {
			t.Fatal(got)
		}
	}
	if got := mint(all["greedy"]); got != 429 {
		t.Errorf("one too many: %d", got)
	}
	if got := mint(all["other"]); got != 200 {
		t.Errorf("another key: %d", got)
	}
}

// TestQuotaOfLoads: a client makes so many endpoints, by default too, and so many loads; unloading gives the place of
// an endpoint back.
func TestQuotaOfLoads(t *testing.T) {
	three := 3
	k, all := startQuotas(t, map[string]map[string]float64{"bad": nil, "good": nil, "slow": {"loads": perHour(2)}},
		func(c *Config) {
			c.Quotas.Endpoints = &three
		})
	c := all["bad"]
	name := func(i int) string { return fmt.Sprintf(`{"parameters":{"delay":"%dus"}}`, i) }
	made := 0
	for i := range 20 {
		if c.rest("POST", "/v2/repository/models/echo/load", name(i+1)) == "" {
			made++
		}
	}
	if made != 3 || c.refused["endpoints"] != 17 {
		t.Errorf("%d endpoints were made, %v refused", made, c.refused)
	}
	if n := len(k.models.Groups()); n != 4 { // with the configured model
		t.Errorf("%d endpoints", n)
	}
	c.checkFigures("bad")
	own := ""
	for _, g := range k.models.Groups() {
		if n := g.Model().Name; n != "echo" {
			own = n
		}
	}
	if got := all["good"].rest("POST", "/v2/repository/models/echo/load", name(100)); got != "" {
		t.Errorf("another client: %s", got)
	}
	all["good"].rest("POST", "/v2/repository/models/"+own+"/unload", "")
	if got := c.rest("POST", "/v2/repository/models/echo/load", name(50)); got != "" {
		t.Errorf("after an unload: %s", got)
	}
	c = all["slow"]
	for range 4 {
		c.rest("POST", "/v2/repository/models/echo/load", name(200))
	}
	if c.refused["loads"] != 2 {
		t.Errorf("%v", c.refused)
	}
	c.checkFigures("slow")
}

// The worker kind flawed closes FlawedBegun at a start with FlawedGate set, and then waits for FlawedGate.
var FlawedBegun, FlawedGate chan struct{}

// TestQuotaOfEndpoints: the quota includes endpoints made by a failed load, and endpoints of a client that
// disconnected during the load; at the quota a client can still reload loaded models.
func TestQuotaOfEndpoints(t *testing.T) {
	k, all := startQuotas(t, map[string]map[string]float64{"fails": {"endpoints": 2}, "again": {"endpoints": 1},
		"left": {"endpoints": 1}}, nil)
	if err := k.models.Define(workers.Config{Name: "pair", Version: "1", Kind: "flawed"},
		workers.Config{Name: "pair", Version: "2", Kind: "flawed", Params: stream.Params{"second": true}}); err != nil {
		t.Fatal(err)
	}
	load := func(of, model, parameters string) (code string) {
		t.Helper()
		req := must(http.NewRequest("POST", k.URL("http")+"/v2/repository/models/"+model+"/load",
			strings.NewReader(`{"parameters":{`+parameters+`}}`)))
		req.Header.Set(access.KeyName, all[of].key)
		r := must(http.DefaultClient.Do(req))
		defer r.Body.Close()
		var e struct{ Code string }
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		return e.Code
	}
	holds := func(of string) int64 {
		p, _ := k.access.Identify(t.Context(), access.Credentials{Keys: []string{all[of].key}})
		return k.access.AccountOf(p, access.Credentials{}).Used(stream.QuotaEndpoints)
	}
	for i, want := range []string{"internal", "internal", "flow_control", "flow_control"} {
		if got := load("fails", "pair", fmt.Sprintf(`"flaw":%d`, i+1)); got != want ||
			holds("fails") != int64(min(i+1, 2)) {
			t.Errorf("%d: %s, want %s; %d are held", i, got, want, holds("fails"))
		}
	}
	if n := len(k.models.Groups()); n != 3 { // with the configured model
		t.Errorf("%d groups", n)
	}
	if got := load("fails", "pair", `"flaw":2`); got != "internal" {
		t.Errorf("what the client has made: %s", got)
	}
	for i, c := range [][3]string{{"echo", `"delay":"1us"`, ""}, {"echo", `"delay":"1us"`, ""},
		{"echo", `"delay":"2us"`, "flow_control"}, {"echo", ``, ""}, {"echo", `"swap":true`, ""}} {
		if got := load("again", c[0], c[1]); got != c[2] || holds("again") != 1 {
			t.Errorf("%d: %s %s: %q; %d are held", i, c[0], c[1], got, holds("again"))
		}
	}
	FlawedBegun, FlawedGate = make(chan struct{}), make(chan struct{})
	defer func() { FlawedGate = nil }()
	client := must(k.gate.Identify(t.Context(), access.Credentials{Keys: []string{all["left"].key}}))
	ctx, leave := context.WithCancel(t.Context())
	go func() {
		<-FlawedBegun
		leave()
		close(FlawedGate)
	}()
	_, _ = client.Models().Load(ctx, "flawed", ingest.Load{})
	if err := k.models.Settle(t.Context(), "flawed"); err != nil {
		t.Fatal(err)
	}
	if _, err := k.models.Group("flawed", ""); err != nil || holds("left") != 1 {
		t.Errorf("%v; %d are held", err, holds("left"))
	}
}

// TestQuotasOfAddresses: clients without credentials have the quotas of their address; behind a trusted proxy, of the
// address named by the proxy.
func TestQuotasOfAddresses(t *testing.T) {
	s, err := New(Config{HTTP: "127.0.0.1:0", GRPC: "127.0.0.1:0", Log: config.Log{Level: "error"},
		Quotas: access.Quotas{Requests: perHour(3), Burst: time.Hour},
		Models: []workers.Config{{Name: "echo", Source: "identity"}}})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	ctx, stop := contextOf(t)
	go func() { done <- s.Run(ctx) }()
	<-s.Ready()
	ask := func(forwarded string) int {
		req, _ := http.NewRequest("GET", "http://"+s.Addr("http")+"/v2/models/echo", nil)
		if forwarded != "" {
			req.Header.Set("X-Forwarded-For", forwarded)
		}
		r, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		r.Body.Close()
		return r.StatusCode
	}
	for _, c := range []struct {
		from []string // addresses of one client
	}{
		{[]string{"", "", "", ""}}, // the proxy itself
		{[]string{"192.0.2.1", "192.0.2.7, 192.0.2.1", "192.0.2.1:80", "192.0.2.1"}},
		{[]string{"2001:db8::1", "2001:db8::2", "[2001:db8::3]:80", "2001:db8:0:0:1::"}},
		{[]string{"2001:db8:0:1::1", "2001:db8:0:1::2", "2001:db8:0:1::3", "2001:db8:0:1::4"}},
	} {
		for i, from := range c.from {
			if got, want := ask(from), map[bool]int{true: 429, false: 200}[i == 3]; got != want {
				t.Errorf("%d: %q: %d, want %d", i, from, got, want)
			}
		}
	}
	conn, err := grpc.NewClient(s.Addr("grpc"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stub := inferencepb.NewGRPCInferenceServiceClient(conn)
	for i, from := range []string{"192.0.2.1", "198.51.100.1", "198.51.100.1", "198.51.100.1", "198.51.100.1"} {
		_, err := stub.ModelMetadata(metadata.AppendToOutgoingContext(t.Context(), "x-forwarded-for", from),
			&inferencepb.ModelMetadataRequest{Name: "echo"})
		if got, want := status.Code(err), map[bool]codes.Code{true: codes.ResourceExhausted, false: codes.OK}[i == 0 ||
			i == 4]; got != want {
			t.Errorf("gRPC %d: %q: %v, want %v", i, from, err, want)
		}
	}
	for range 5 { // is open to all
		if r, err := http.Get("http://" + s.Addr("http") + "/v2/health/ready"); err != nil || r.StatusCode != 200 {
			t.Error(err)
		} else {
			r.Body.Close()
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestQuotasAreReadAgain: a change of the keys' file changes a key's quotas and keeps the counted use.
func TestQuotasAreReadAgain(t *testing.T) {
	k, all := startQuotas(t, map[string]map[string]float64{"c": {"requests": perHour(2)}}, nil)
	c := all["c"]
	for range 4 {
		c.infer()
	}
	if c.refused["requests"] != 2 {
		t.Errorf("%v", c.refused)
	}
	k.all[len(k.all)-1].Quotas = nil
	k.write(t)
	k.access.Recheck()
	for range 4 {
		c.infer()
	}
	if c.refused["requests"] != 2 {
		t.Errorf("without a quota: %v", c.refused)
	}
	c.checkFigures("c")
}
