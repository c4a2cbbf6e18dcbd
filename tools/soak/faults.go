package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"millrace/internal/ctxio"
	"millrace/stream"
)

// fault is one kind of disturbance. do returns an error when the server reacts wrongly.
type fault struct {
	name string
	do   func(*run, context.Context, *rand.Rand) error
}

var faults = []fault{
	{"a Python process is killed", (*run).killPython},
	{"an ffmpeg is killed", (*run).killFFmpeg},
	{"connections of REST and WebSocket are reset", func(r *run, _ context.Context, rng *rand.Rand) error {
		r.cutHTTP.cut(rng, 0.7)
		return nil
	}},
	{"connections of gRPC are reset", func(r *run, _ context.Context, rng *rand.Rand) error {
		r.cutGRPC.cut(rng, 0.7)
		return nil
	}},
	{"a client stops reading", (*run).stopReading},
	{"clients that stopped reading are reset", func(r *run, _ context.Context, rng *rand.Rand) error {
		r.slow.cut(rng, 1)
		return nil
	}},
	{"a model is swapped", (*run).swapModel},
	{"a model is unloaded and loaded", (*run).unloadModel},
	{"a model's workers are added or removed", (*run).scaleModel},
	{"a broken model is loaded", (*run).loadBroken},
	{"SIGHUP, another configuration", (*run).anotherConfig},
	{"SIGHUP, a broken configuration", (*run).brokenConfig},
	{"the webhook's receiver answers 503", (*run).receiverDown},
	{"the webhook's receiver closes without an answer", (*run).receiverHangs},
	{"a camera is cut", (*run).cutCamera},
	{"a camera is off", (*run).cameraOff},
	{"a camera sends nothing", (*run).cameraSilent},
	{"a camera sends damaged pictures", (*run).cameraDamaged},
	{"a stream is added", func(r *run, ctx context.Context, rng *rand.Rand) error { return r.guests.add(ctx, rng) }},
	{"a stream is removed", func(r *run, ctx context.Context, rng *rand.Rand) error {
		return r.guests.remove(ctx, rng)
	}},
	{"a stream is changed", func(r *run, ctx context.Context, rng *rand.Rand) error {
		return r.guests.change(ctx, rng)
	}},
	{"the file of a sink is renamed", (*run).renameFile},
	{"watchers come, read slowly and leave", (*run).watchStream},
	{"connections with bytes of no protocol", (*run).garbage},
}

// The time between two faults.
const minBetween, maxBetween = 2 * time.Second, 4 * time.Second

// disturb causes faults until ctx ends: each kind once, in a random order drawn by rng, then all kinds again.
func (r *run) disturb(ctx context.Context, rng *rand.Rand) {
	r.caused = make([]int, len(faults))
	var deck []int
	for {
		ctxio.Sleep(ctx, minBetween+within(rng, maxBetween-minBetween))
		if ctx.Err() != nil {
			return
		}
		if len(deck) == 0 {
			deck = rng.Perm(len(faults))
		}
		i := deck[0]
		deck = deck[1:]
		fmt.Fprintf(r.progress, "%s  %s\n", r.clock(), faults[i].name)
		// A fault once begun is finished.
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		if err := faults[i].do(r, limited, rng); err != nil {
			r.problem(fmt.Errorf("%s: %w", faults[i].name, err))
		}
		cancel()
		r.caused[i]++
		r.faults.Add(1)
	}
}

// after calls heal after a time. The run waits for heal.
func (r *run) after(d time.Duration, heal func()) {
	r.healing.Go(func() {
		time.Sleep(d)
		heal()
	})
}

func (r *run) killPython(_ context.Context, rng *rand.Rand) error { return r.kill("python", rng) }
func (r *run) killFFmpeg(_ context.Context, rng *rand.Rand) error { return r.kill("ffmpeg", rng) }

// kill kills a process of the server whose program name begins with program. Without such a process, kill does
// nothing: the server may be restarting the process.
func (r *run) kill(program string, rng *rand.Rand) error {
	var pids []int
	for _, d := range descendants(r.server.pid()) {
		name, _, _ := strings.Cut(d.command, " ")
		if strings.HasPrefix(filepath.Base(name), program) {
			pids = append(pids, d.pid)
		}
	}
	if len(pids) == 0 {
		return nil
	}
	if err := syscall.Kill(pids[rng.IntN(len(pids))], syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

func (r *run) stopReading(_ context.Context, rng *rand.Rand) error {
	r.after(time.Second+within(rng, 6*time.Second), r.slow.hold())
	return nil
}

// swapModel swaps a model with the same or other parameters: the model's streams stay open.
func (r *run) swapModel(ctx context.Context, rng *rand.Rand) error {
	models := []string{sleepModel, everyModel, sessionModel, graphModel, "left", wordsModel, cutSession, findModel,
		picturesModel}
	if r.site.onnx {
		models = append(models, onnxModel)
	}
	name, params := models[rng.IntN(len(models))], stream.Params{"swap": true}
	if name == sleepModel {
		params["fixed"] = fmt.Sprintf("%dms", 1+rng.IntN(4))
	}
	loaded, err := r.api.Load(ctx, name, params)
	if err == nil && loaded.Endpoint != name {
		err = fmt.Errorf("the endpoint of %s is %s", name, loaded.Endpoint)
	}
	return err
}

func (r *run) unloadModel(ctx context.Context, rng *rand.Rand) error {
	if err := r.api.Unload(ctx, comingModel); err != nil {
		return err
	}
	ctxio.Sleep(ctx, within(rng, time.Second))
	loaded, err := r.api.Load(ctx, comingModel, nil)
	if err == nil && loaded.Endpoint != comingModel {
		err = fmt.Errorf("the endpoint of %s is %s", comingModel, loaded.Endpoint)
	}
	return err
}

func (r *run) scaleModel(ctx context.Context, rng *rand.Rand) error {
	models := []string{sleepModel, callsModel, latestModel, cutREST}
	name := models[rng.IntN(len(models))]
	if err := r.api.Scale(ctx, name, 2+rng.IntN(2)); err != nil {
		return err
	}
	later := context.WithoutCancel(ctx)
	instances := map[string]int{sleepModel: 2}[name]
	r.after(2*time.Second, func() { r.problem(r.api.Scale(later, name, max(instances, 1))) })
	return nil
}

// loadBroken sends an invalid model: the load must fail.
func (r *run) loadBroken(ctx context.Context, _ *rand.Rand) error {
	body, err := json.Marshal(map[string]any{"parameters": map[string]any{"config": `{"backend":"onnxruntime"}`,
		"file:1/model.onnx": "bm8gbW9kZWw="}})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost,
		"http://"+r.server.http+"/v2/repository/models/broken/load", bytes.NewReader(body))
	if err != nil {
		return err
	}
	a, err := r.web.Do(req)
	if err != nil {
		return err
	}
	defer discard(a.Body)
	if a.StatusCode < 400 || a.StatusCode >= 500 {
		return fmt.Errorf("the server answered %s, want an error of the request", a.Status)
	}
	return nil
}

// reloadTime bounds the server's time for reading its configuration again.
const reloadTime = 40 * time.Second

// reload has the server read a form of the configuration.
func (r *run) reload(ctx context.Context, f form) error {
	const done, refused = "the configuration was read again", "not all of the configuration"
	if err := os.WriteFile(r.site.path("millrace.yaml"), []byte(r.site.config(f)), 0o600); err != nil {
		return err
	}
	r.server.log.skip()
	if err := r.server.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		return err
	}
	line, err := r.server.log.wait(ctx, reloadTime, done, refused)
	if err == nil && strings.Contains(line, refused) != (f.broken != "") {
		err = fmt.Errorf("the log says %s", line)
	}
	return err
}

func (r *run) anotherConfig(ctx context.Context, rng *rand.Rand) error {
	f := form{sleep: fmt.Sprintf("%dms", 1+rng.IntN(3)), find: rng.IntN(2) == 0, guest: !r.form.guest}
	r.form = f
	return r.reload(ctx, f)
}

// brokenConfig makes the server read an invalid configuration: everything running stays.
func (r *run) brokenConfig(ctx context.Context, rng *rand.Rand) error {
	f := r.form
	f.guest = !f.guest
	f.broken = []string{"hosts: [\"a/b\"]\n", "modles: []\n", "limits: {max_streams: many}\n", "{"}[rng.IntN(4)]
	if err := r.reload(ctx, f); err != nil {
		return err
	}
	_, err := r.api.ServerStream(ctx, guestStream)
	if there := err == nil; there != r.form.guest {
		return fmt.Errorf("stream %s after a configuration that is refused: %v", guestStream, err)
	}
	return nil
}

func (r *run) receiverDown(_ context.Context, rng *rand.Rand) error {
	r.receiver.down.Store(true)
	r.after(within(rng, 5*time.Second), func() { r.receiver.down.Store(false) })
	return nil
}

func (r *run) receiverHangs(_ context.Context, rng *rand.Rand) error {
	r.receiver.hangs.Store(true)
	r.after(within(rng, 4*time.Second), func() { r.receiver.hangs.Store(false) })
	return nil
}

func (r *run) oneCamera(rng *rand.Rand) *camera { return r.cameras[rng.IntN(len(r.cameras))] }

func (r *run) cutCamera(_ context.Context, rng *rand.Rand) error {
	r.oneCamera(rng).cut()
	return nil
}

func (r *run) cameraOff(_ context.Context, rng *rand.Rand) error {
	c := r.oneCamera(rng)
	c.dead.Store(true)
	c.cut()
	r.after(within(rng, 6*time.Second), func() { c.dead.Store(false) })
	return nil
}

func (r *run) cameraSilent(_ context.Context, rng *rand.Rand) error {
	c := r.oneCamera(rng)
	c.silent.Store(true)
	r.after(within(rng, 6*time.Second), func() { c.silent.Store(false) })
	return nil
}

func (r *run) cameraDamaged(_ context.Context, rng *rand.Rand) error {
	c := r.oneCamera(rng)
	c.damaged.Store(true)
	r.after(within(rng, 4*time.Second), func() { c.damaged.Store(false) })
	return nil
}

func (r *run) renameFile(_ context.Context, rng *rand.Rand) error {
	err := rotate(r.site.file([]string{loopStream, programStream}[rng.IntN(2)]))
	if os.IsNotExist(err) {
		return nil // the server has not begun the next reload yet
	}
	return err
}

// watchStream reads the results and the video of streams, slowly, and leaves.
func (r *run) watchStream(ctx context.Context, rng *rand.Rand) error {
	ctx = context.WithoutCancel(ctx)
	for _, path := range []string{"/results", "/results", "/video"} {
		d, name := time.Second+within(rng, 4*time.Second), stayers[rng.IntN(len(stayers))]
		r.healing.Go(func() { r.problem(r.watcher(ctx, d, name+path)) })
	}
	return nil
}

func (r *run) watcher(ctx context.Context, d time.Duration, path string) error {
	timed, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	req, err := http.NewRequestWithContext(timed, http.MethodGet, "http://"+r.server.http+"/v2/streams/"+path, nil)
	if err != nil {
		return err
	}
	a, err := r.web.Do(req)
	if err != nil {
		return ignoreEnd(timed, err)
	}
	defer a.Body.Close()
	if a.StatusCode != http.StatusOK {
		return fmt.Errorf("a watcher of %s was answered %s", path, a.Status)
	}
	for timed.Err() == nil {
		if _, err := io.CopyN(io.Discard, a.Body, 1000); err != nil {
			return ignoreEnd(timed, err)
		}
		ctxio.Sleep(timed, 100*time.Millisecond)
	}
	return nil
}

// ignoreEnd returns the error, or nil if ctx has ended.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// garbage sends bytes of no protocol and unfinished requests, and resets the connections.
func (r *run) garbage(ctx context.Context, rng *rand.Rand) error {
	random := make([]byte, 1+rng.IntN(5000))
	for i := range random {
		random[i] = byte(rng.IntN(256))
	}
	half := "POST /v2/models/" + comingModel + "/infer HTTP/1.1\r\nHost: " + r.server.http +
		"\r\nContent-Length: 1000\r\n\r\nabc"
	for _, to := range []struct{ addr, text string }{
		{r.server.http, string(random)}, {r.server.grpc, string(random)}, {r.server.http, half},
		{r.server.grpc, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + string(random)},
	} {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", to.addr)
		if err != nil {
			return err
		}
		_, _ = c.Write([]byte(to.text)) // the server may have closed the connection
		r.after(within(rng, time.Second), func() {
			_ = c.(*net.TCPConn).SetLinger(0)
			_ = c.Close()
		})
	}
	return nil
}

// panics returns the lines of a log from the first panic or data race on, as an error.
func panics(log string) error {
	for _, text := range []string{"panic", "fatal error: ", "DATA RACE", "goroutine 1 ["} {
		if i := strings.Index(log, text); i >= 0 {
			return fmt.Errorf("the server's log has %q: %.1000s", text, log[i:])
		}
	}
	return nil
}
