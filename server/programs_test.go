package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"millrace/batching"
	"millrace/config"
	"millrace/ingest"
	"millrace/stream"
	"millrace/workers"
)

func init() {
	programKinds["staged"] = true
	stagedFails.Store(true)
	workers.Register(workers.Kind{
		Name: "staged", Doc: "a program of several stages, for tests", New: func() workers.Worker {
			return &staged{}
		}, Settings: func() any { return new(stagedSettings) },
		Loads: workers.HasSuffix(".staged"), File: "model.staged",
	})
}

var (
	stagedPort    atomic.Int64                // requested by a program
	stagedReplace atomic.Pointer[func(error)] // Env.Replace of the last main process
	stagedFails   atomic.Bool                 // stage "fail" does
	// of which stage "slow" takes one when its load begins, and one when it ends
	stagedSlow = make(chan struct{})
)

type stagedSettings struct {
	Stage       string   `yaml:"stage" help:"which stage of the program it is"`
	InstanceEnv []string `yaml:"instance_env" help:"variables"`
}

// staged is a program of several stages with its description as source. A stage answers a call with its name.
type staged struct {
	workers.Base
	stage   string
	lingers bool // its end is as that of the load of stage "slow"
}

// Destroy implements workers.Worker.
func (w *staged) Destroy() {
	if w.lingers {
		<-stagedSlow
		<-stagedSlow
	}
}

func (w *staged) Init(ctx context.Context, env *workers.Env) (*stream.Model, error) {
	text, err := os.ReadFile(env.Source)
	if err != nil {
		return nil, err
	}
	first, rest, _ := bytes.Cut(text, []byte("\n"))
	if string(first) == "broken" {
		return nil, stream.Errorf(stream.InvalidArgument, "source", "%s is broken", env.Source)
	}
	w.stage = env.Settings.(*stagedSettings).Stage
	if w.stage == "fail" && stagedFails.Load() {
		return nil, stream.Errorf(stream.InvalidArgument, "source", "the stage fails")
	}
	switch w.stage {
	case "slow":
		<-stagedSlow
		<-stagedSlow
	case "waits":
		<-stagedSlow
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	w.lingers = w.stage == "lingers" || w.stage == "" && string(first) == "lingers"
	m := &stream.Model{
		Inputs:  []stream.TensorSpec{{Name: "body", Datatype: stream.Bytes, Shape: []int{1}}},
		Outputs: []stream.TensorSpec{{Name: "body", Datatype: stream.Bytes, Shape: []int{1}}},
		Ragged:  true, MaxBatch: 1, Calls: true,
	}
	if w.stage == "" {
		if m.App = (&stream.App{Style: "test", Parts: rest}); string(rest) == "null" {
			m.App.Parts = nil // a program of one stage
		}
		stagedReplace.Store(&env.Replace)
		if bytes.HasPrefix(first, []byte("daemons")) {
			m.App.Extra = stream.Params{"daemons": `["clock"]`}
		}
		if bytes.HasPrefix(first, []byte("listen")) {
			m.App.Extra = stream.Params{"address": "0.0.0.0", "port": stagedPort.Load()}
		}
		for route := range strings.FieldsSeq(string(first)) {
			m.App.Routes = append(m.App.Routes, stream.Route{Method: "POST", Path: "/" + route, Model: route,
				Endpoint: route})
		}
	}
	return m, nil
}

func (w *staged) Run(_ context.Context, b *batching.Batch) error {
	if w.stage == "die" {
		return workers.ErrBroken
	}
	for i := range b.Requests {
		b.Finish(i, []stream.Tensor{{Name: "body", Datatype: stream.Bytes, Shape: []int{1},
			Data: append(binary.LittleEndian.AppendUint32(nil, uint32(len(w.stage))), w.stage...)}})
	}
	return nil
}

// startPrograms runs a server with the program of a description.
func startPrograms(t *testing.T, text string, change func(*Config)) (s *Server, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "svc.staged")
	write(t, file, text)
	cfg := Config{HTTP: "127.0.0.1:0", GRPC: Off, Models: []workers.Config{{Name: "svc", Source: file}}}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	select {
	case <-s.Ready():
	case err := <-done:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s, file
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func post(t *testing.T, s *Server, path string) string {
	t.Helper()
	r, err := http.Post(s.URL("http")+path, "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.Status + " " + string(text)
}

func (s *Server) loadedNames() (names []string) {
	for _, g := range s.models.Groups() {
		names = append(names, g.Model().Name)
	}
	return names
}

const twoStages = `a b
{"stages": [{"name": "a", "stage": "one", "instances": 2, "max_batch": 8, "wait_ms": 5, "timeout_ms": 70000, "environment": [{"X": "1", "Y": "2"}, {}]}, {"name": "b", "stage": "two"}],
 "graphs": [{"name": "both", "steps": [{"stage": "a", "output": {"body": "middle"}}, {"name": "last", "stage": "b", "endpoint": "e", "input": {"body": "middle"}, "output": {"body": "result"}}]}]}`

// TestStagesOfPrograms: stages are loaded, replaced and unloaded with their program.
func TestStagesOfPrograms(t *testing.T) {
	s, file := startPrograms(t, twoStages, nil)
	if got, want := s.loadedNames(), []string{"svc", "svc.a", "svc.b", "svc.both"}; !slices.Equal(got, want) {
		t.Fatalf("%q are loaded, want %q", got, want)
	}
	for path, want := range map[string]string{"/apps/svc/a": "200 OK one", "/apps/svc/b": "200 OK two"} {
		if got := post(t, s, path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	g, err := s.models.Group("svc.a", "")
	if err != nil {
		t.Fatal(err)
	}
	cfg := g.Config()
	if cfg.Instances != 2 || cfg.Batching.Kind != batching.Soft || cfg.Limits.Run.Milliseconds() != 70000 ||
		cfg.Params["instance_env"] != `["X=1;Y=2",""]` {
		t.Errorf("%+v", cfg)
	}
	if soft, _ := cfg.Parts[slices.IndexFunc(cfg.Parts,
		isSoft)].(*batching.SoftSettings); soft.MaxDelay.Milliseconds() != 5 {
		t.Errorf("waits %v", soft.MaxDelay)
	}

	if g, err = s.models.Group("svc.both", ""); err != nil {
		t.Fatal(err)
	}
	if limit := g.Config().Limits.Run; limit != 100*time.Second {
		t.Errorf("a run of the graph may take %v, want the sum of its stages", limit)
	}

	write(t, file, "a c\n"+`{"stages": [{"name": "a", "stage": "one changed"}, {"name": "c", "stage": "three"}]}`)
	s.watched.reload(t.Context(), "svc", nil)
	if got, want := s.loadedNames(), []string{"svc", "svc.a", "svc.c"}; !slices.Equal(got, want) {
		t.Errorf("%q are loaded, want %q", got, want)
	}
	for path, want := range map[string]string{"/apps/svc/a": "200 OK one changed", "/apps/svc/c": "200 OK three"} {
		if got := post(t, s, path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	// After a failed load of a stage the next attempt loads the stage, although the program is unchanged.
	write(t, file, "a d route\n"+`{"stages": [{"name": "a", "stage": "one changed"}, {"name": "d", "stage": `+
		`"fail"}], "graphs": [{"name": "route", "steps": [{"stage": "d"}]}]}`)
	s.watched.reload(t.Context(), "svc", nil)
	for _, route := range []string{"d", "route"} {
		if got := post(t, s, "/apps/svc/"+route); !strings.HasPrefix(got, "503") ||
			!strings.Contains(got, "d of program svc could not be loaded: ") ||
			!strings.Contains(got, "the stage fails") {
			t.Errorf("route %s, whose stage could not be loaded: %s", route, got)
		}
	}
	write(t, file, "a c\n"+`{"stages": [{"name": "a", "stage": "one changed"}, {"name": "c", "stage": "fail"}]}`)
	s.watched.reload(t.Context(), "svc", nil)
	stagedFails.Store(false)
	if err := s.programs.sync(t.Context(), "svc"); err != nil {
		t.Errorf("tried again: %v", err)
	}
	if got := post(t, s, "/apps/svc/c"); got != "200 OK fail" {
		t.Errorf("a stage that could not be loaded at first: %s", got)
	}
	write(t, file, "a c\n"+`{"stages": [{"name": "a", "stage": "one changed"}, {"name": "c", "stage": "three"}]}`)
	s.watched.reload(t.Context(), "svc", nil)
	// A program with a failed load changes nothing.
	write(t, file, "broken")
	s.watched.reload(t.Context(), "svc", nil)
	if got := post(t, s, "/apps/svc/c"); got != "200 OK three" {
		t.Errorf("behind a broken one: %s", got)
	}
	if got := post(t, s, "/v2/repository/models/svc/unload"); !strings.HasPrefix(got, "200") {
		t.Fatal(got)
	}
	if got := s.loadedNames(); len(got) != 0 {
		t.Errorf("%q are loaded", got)
	}
	write(t, file, twoStages)
	if got := post(t, s, "/v2/repository/models/svc/load"); !strings.HasPrefix(got, "200") {
		t.Fatal(got)
	}
	if got := post(t, s, "/apps/svc/b"); got != "200 OK two" {
		t.Errorf("loaded again: %s", got)
	}
}

// TestDescriptionsOfPrograms: errors name invalid fields.
func TestDescriptionsOfPrograms(t *testing.T) {
	for text, want := range map[string]string{
		`{`:                          "cannot be read",
		`{"stages": 1}`:              "cannot be read",
		`{"stages": [{"name": ""}]}`: "has a stage \"\"",
		`{"stages": [{"name": "a"}, {"name": "a"}]}`:                              "has a stage \"a\"",
		`{"graphs": [{"name": "g", "steps": [{"stage": "x"}]}]}`:                  "has a graph g with a step of stage \"x\"",
		`{"stages": [{"name": "a"}], "graphs": [{"name": "a"}]}`:                  "has a graph \"a\"",
		`{"stages": [{"name": "a"}], "graphs": [{"name": "g"}]}`:                  "steps: is missing",
		`{"stages": [{"name": "a", "environment": [{"X": ";"}]}]}`:                "X has a semicolon",
		`{"stages": [` + strings.Repeat(`{"name": "a"},`, 64) + `{"name": "b"}]}`: "65 stages and graphs",
	} {
		if _, err := PartsOf(workers.Config{Name: "svc"}, []byte(text)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v, want %s", text, err, want)
		}
	}
}

// TestMainProcessReplaced: a planned replacement of the main process of the program at the root does not end the
// server; after a failure the server ends with the main process's reason, not with a reason from before the last
// load.
func TestMainProcessReplaced(t *testing.T) {
	s, _ := startPrograms(t, "a\n"+`{"stages": [{"name": "a", "stage": "one"}]}`, func(c *Config) {
		c.Programs.Root = "svc"
		c.Programs.Exit = new(bool)
	})
	first := stagedReplace.Load()
	(*first)(nil)
	for stagedReplace.Load() == first {
		time.Sleep(time.Millisecond)
	}
	if err := s.programs.rootFailed(); err != nil {
		t.Errorf("a planned replacement: %v", err)
	}
	s.watched.reload(t.Context(), "svc", nil)
	if err := s.programs.rootFailed(); err != nil {
		t.Errorf("loaded again: %v", err)
	}
	(*stagedReplace.Load())(errors.New("daemon clock has exited"))
	g, err := s.models.Group("svc", "")
	if err != nil {
		t.Fatal(err)
	}
	for g.LastFailure() == nil {
		time.Sleep(time.Millisecond)
	}
	if err := s.programs.rootFailed(); err == nil || err.Error() !=
		"the main process of program svc has ended: daemon clock has exited" {
		t.Errorf("a failure: %v", err)
	}
	s.watched.reload(t.Context(), "svc", nil)
	if err := s.programs.rootFailed(); err != nil {
		t.Errorf("loaded again behind a failure: %v", err)
	}
}

// TestReplicas: replicas multiply only instances of programs: in a program with stages, the stages' instances, which
// its graphs then see, and not the main process.
func TestReplicas(t *testing.T) {
	s, file := startPrograms(t, twoStages, func(c *Config) {
		c.Programs.Replicas = 3
		c.Models[0].Instances = 2
		one := filepath.Join(filepath.Dir(c.Models[0].Source), "one.staged")
		write(t, one, "-\nnull")
		c.Models = append(c.Models, workers.Config{Name: "other", Source: "identity", Instances: 2},
			workers.Config{Name: "one", Source: one, Instances: 2})
	})
	var graph *workers.Group
	check := func(doing string, want map[string]int, swapped bool) {
		t.Helper()
		for name, n := range want {
			g, err := s.models.Group(name, "")
			if err != nil || g.Workers() != n {
				t.Errorf("%s: %s: %d workers, %v, want %d", doing, name, g.Workers(), err, n)
			}
		}
		g, err := s.models.Group("svc.both", "")
		if err != nil || swapped == (g == graph) {
			t.Errorf("%s: the graph was replaced: %v, want %v (%v)", doing, g != graph, swapped, err)
		}
		graph = g
		for path, want := range map[string]string{"/apps/svc/a": "200 OK one", "/apps/svc/b": "200 OK two"} {
			if got := post(t, s, path); got != want {
				t.Errorf("%s: %s: %s, want %s", doing, path, got, want)
			}
		}
	}
	ask := func(path, body string) {
		t.Helper()
		r, err := http.Post(s.URL("http")+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
		if r.StatusCode != http.StatusOK {
			t.Errorf("%s %s: %s", path, body, r.Status)
		}
	}
	check("at the start", map[string]int{"svc": 1, "svc.a": 12, "svc.b": 6, "one": 6, "other": 2}, true)
	ask("/v2/workers/svc/scale", `{"instances": 2}`)
	check("scaled", map[string]int{"svc": 1, "svc.a": 4, "svc.b": 2}, true)
	s.watched.reload(t.Context(), "svc", nil)
	check("loaded again", map[string]int{"svc": 1, "svc.a": 4, "svc.b": 2}, true)
	ask("/v2/workers/svc.b/scale", `{"instances": 5}`)
	check("with a scaled stage", map[string]int{"svc": 1, "svc.a": 4, "svc.b": 5}, true)
	write(t, file, strings.Replace(twoStages, `"name": "b", "stage"`, `"name": "b", "instances": 3, "stage"`, 1))
	s.watched.reload(t.Context(), "svc", nil)
	check("with another number in the program", map[string]int{"svc": 1, "svc.a": 4, "svc.b": 6}, true)
	ask("/v2/repository/models/svc/load", `{"parameters": {"instances": 1}}`)
	check("by a load", map[string]int{"svc": 1, "svc.a": 2, "svc.b": 3}, true)
	ask("/v2/repository/models/svc/load", `{"parameters": {"share": false}}`)
	check("with one more", map[string]int{"svc": 1, "svc.a": 4, "svc.b": 6}, true)
	ask("/v2/repository/models/svc/unload", `{}`)
	check("with one less", map[string]int{"svc": 1, "svc.a": 2, "svc.b": 3}, true)
	ask("/v2/workers/svc/scale", `{"instances": 1}`)
	check("as it is", map[string]int{"svc": 1, "svc.a": 2, "svc.b": 3}, false)
}

// TestReplicasOfCommands: a program given by a command has replicas too.
func TestReplicasOfCommands(t *testing.T) {
	params := stream.Params{"command": "python3", "args": `["-m", "child"]`}
	c := Replicate(config.Config{Programs: config.Programs{Replicas: 3}, Models: []workers.Config{
		{Name: "source", Source: "process", Params: params}, {Name: "kind", Kind: "process", Params: params,
			Instances: 2},
		config.Config{Models: []workers.Config{{Name: "filled", Source: "process", Params: params}}}.WithDefaults().
			Models[0],
		{Name: "other", Source: "identity"},
	}})
	for i, want := range []int{3, 6, 3, 0} {
		if m := c.Models[i]; m.Instances != want {
			t.Errorf("%s has %d instances, want %d", m.Name, m.Instances, want)
		}
	}
}

// TestProgramsLoadAtTheSameTime: a slow load of a program's stage does not delay another program.
func TestProgramsLoadAtTheSameTime(t *testing.T) {
	s, file := startPrograms(t, "a\n"+`{"stages": [{"name": "a", "stage": "one"}]}`, func(c *Config) {
		quick := filepath.Join(filepath.Dir(c.Models[0].Source), "quick.staged")
		write(t, quick, "a\n"+`{"stages": [{"name": "a", "stage": "one"}]}`)
		c.Models = append(c.Models, workers.Config{Name: "quick", Source: quick})
	})
	write(t, file, "a\n"+`{"stages": [{"name": "a", "stage": "slow"}]}`)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.watched.reload(t.Context(), "svc", nil)
	}()
	stagedSlow <- struct{}{} // the stage is being loaded
	s.watched.reload(t.Context(), "quick", nil)
	if all, ok := s.programs.of("quick"); !ok || all.app == nil {
		t.Errorf("another program: %+v", all)
	}
	waits, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.programs.sync(waits, "svc"); err == nil {
		t.Error("two changes of a program at once")
	}
	stagedSlow <- struct{}{}
	<-done
	if got := post(t, s, "/apps/svc/a"); got != "200 OK slow" {
		t.Error(got)
	}
	if n := len(s.programs.turns); n != 0 {
		t.Errorf("%d turns are left", n)
	}
}

// TestCallersThatLeave: a program's stages are loaded and unloaded with the program also after the client has
// disconnected, but not once the server drains.
func TestCallersThatLeave(t *testing.T) {
	drained := make(chan error, 1)
	t.Cleanup(func() { // runs after the cleanup of startPrograms
		if err := <-drained; stream.CodeOf(err) != stream.Draining {
			t.Errorf("a load while the server drains: %v", err)
		}
	})
	s, file := startPrograms(t, "lingers\n"+`{"stages": [{"name": "a", "stage": "one"}]}`, nil)
	leaves := func(doing string, do func(context.Context) error, want ...string) {
		t.Helper()
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		done := make(chan error, 1)
		go func() { done <- do(ctx) }()
		stagedSlow <- struct{}{}
		leave()
		stagedSlow <- struct{}{}
		<-done // the client may have disconnected
		if got := s.loadedNames(); !slices.Equal(got, want) {
			t.Errorf("%s: %q are loaded, want %q", doing, got, want)
		}
	}
	models := backend{s}.Models()
	leaves("unloaded", func(ctx context.Context) error { return models.Unload(ctx, "svc", ingest.Unload{}) })
	write(t, file, "a b\n"+`{"stages": [{"name": "a", "stage": "slow"}, {"name": "b", "stage": "two"}]}`)
	load := func(ctx context.Context) error {
		_, err := models.Load(ctx, "svc", ingest.Load{})
		return err
	}
	leaves("loaded", load, "svc", "svc.a", "svc.b")

	write(t, file, "a\n"+`{"stages": [{"name": "a", "stage": "waits"}]}`)
	go func() { drained <- load(context.Background()) }()
	stagedSlow <- struct{}{}
}

// TestPartsThatStay: the next change unloads a stage whose unload failed.
func TestPartsThatStay(t *testing.T) {
	s, file := startPrograms(t, "a\n"+`{"stages": [{"name": "a", "stage": "one"}, {"name": "b", "stage": "two"}, `+
		`{"name": "c", "stage": "lingers"}]}`, nil)
	write(t, file, "a\n"+`{"stages": [{"name": "a", "stage": "one"}]}`)
	if _, err := s.models.Load(t.Context(), "svc", workers.Load{Params: stream.Params{"swap": true}}); err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.programs.sync(ctx, "svc") }()
	stagedSlow <- struct{}{} // c is being unloaded
	leave()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	stagedSlow <- struct{}{}
	if all, _ := s.programs.of("svc"); !slices.Contains(all.names, "svc.b") {
		t.Errorf("%q are its parts", all.names)
	}
	if err := s.programs.sync(t.Context(), "svc"); err != nil {
		t.Error(err)
	}
	if got, want := s.loadedNames(), []string{"svc", "svc.a"}; !slices.Equal(got, want) {
		t.Errorf("%q are loaded, want %q", got, want)
	}
}

// TestRootFails: when all workers of a stage of the program at the root have failed, the server
// ends with the reason.
func TestRootFails(t *testing.T) {
	file := filepath.Join(t.TempDir(), "svc.staged")
	write(t, file, "a\n"+`{"stages": [{"name": "a", "stage": "die"}]}`)
	s, err := New(Config{
		HTTP: "127.0.0.1:0", GRPC: Off, Programs: config.Programs{Root: "svc"},
		Models: []workers.Config{{Name: "svc", Source: file, Limits: workers.Limits{Restarts: 1}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Run(t.Context()) }()
	<-s.Ready()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	for {
		select {
		case err = <-done:
			if err == nil || !strings.Contains(err.Error(), "all workers of svc.a are gone: its workers failed") {
				t.Errorf("ended with %v", err)
			}
			return
		default:
			if r, err := http.Post(s.URL("http")+"/a", "", nil); err == nil {
				r.Body.Close()
			}
		}
	}
}

// TestRootListens: the program at the root is also served at its requested address, unless the server already has the
// port.
func TestRootListens(t *testing.T) {
	s, _ := startPrograms(t, "listen\n{}", func(c *Config) { c.Programs.Root, c.Insecure = "svc", true })
	all := s.Listeners()
	last := all[len(all)-1]
	if len(all) != 2 || !strings.HasPrefix(last.URL, "http://[::]:") && !strings.HasPrefix(last.URL,
		"http://0.0.0.0:") {
		t.Fatalf("%+v", all)
	}
	_, port, _ := net.SplitHostPort(last.Addr)
	r, err := http.Get("http://127.0.0.1:" + port + "/v2/health/ready")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Errorf("answers %s", r.Status)
	}

	file := filepath.Join(t.TempDir(), "svc.staged")
	write(t, file, "listen\n{}")
	same, err := New(Config{HTTP: "127.0.0.1:0", GRPC: Off, Programs: config.Programs{Root: "svc"},
		Models: []workers.Config{{Name: "svc", Source: file}}})
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ = net.SplitHostPort(same.Addr("http"))
	n, err := strconv.ParseInt(port, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	stagedPort.Store(n)
	defer stagedPort.Store(0)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- same.Run(ctx) }()
	select {
	case <-same.Ready():
	case err := <-done:
		t.Fatal(err)
	}
	if all := same.Listeners(); len(all) != 1 {
		t.Errorf("%+v", all)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestStageFails: a program with a failed stage fails the start with the reason.
func TestStageFails(t *testing.T) {
	stagedFails.Store(true)
	file := filepath.Join(t.TempDir(), "svc.staged")
	write(t, file, "a\n"+`{"stages": [{"name": "a", "stage": "fail"}]}`)
	s, err := New(Config{HTTP: "127.0.0.1:0", GRPC: Off, Models: []workers.Config{{Name: "svc", Source: file}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Run(t.Context()); err == nil ||
		err.Error() != "models[0]: load failed for model 'svc.a': source: the stage fails" {
		t.Errorf("ended with %v", err)
	}
}

// TestStageOfARepositoryFails: a program of the repository with a failed stage fails the start with the reason,
// unless exit_on_error is off.
func TestStageOfARepositoryFails(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "svc", "1"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "svc", "1", "model.staged"), "a\n"+`{"stages": [{"name": "a", "stage": "fail"}]}`)
	stagedFails.Store(true)
	for _, exit := range []bool{true, false} {
		s, err := New(Config{HTTP: "127.0.0.1:0", GRPC: Off, Repository: config.Repository{Dir: dir, Exit: &exit}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		select {
		case err = <-done:
			if !exit || err == nil || !strings.Contains(err.Error(),
				"model_repository: load failed for model 'svc.a': source: the stage fails") {
				t.Errorf("exit_on_error %v: ended with %v", exit, err)
			}
		case <-s.Ready():
			if exit {
				t.Error("it is ready")
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		cancel()
	}
}
