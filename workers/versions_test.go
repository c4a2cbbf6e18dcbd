package workers_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"millrace/ingest"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

var changes = flag.Int("changes", 30, "changes of TestManyChanges")

// shelf is a repository whose models are set by the test.
type shelf struct {
	mu     sync.Mutex
	defs   map[string]workers.Definition
	listed []workers.Listed // set before use
}

func (s *shelf) put(name string, versions ...workers.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range versions {
		versions[i].Name = name
		versions[i] = versions[i].WithDefaults()
	}
	s.defs[name] = workers.Definition{Versions: versions}
}

func (s *shelf) Find(name string, _ *workers.Definition, _ workers.Load) (*workers.Definition, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if def, ok := s.defs[name]; ok {
		return &def, nil
	}
	return nil, nil
}

func (s *shelf) List() []workers.Listed { return s.listed }

func newShelf(t *testing.T) (rig, *shelf) {
	t.Helper()
	s := &shelf{defs: map[string]workers.Definition{}}
	mem := buf.NewPool(0)
	m := workers.NewManager(workers.ManagerOptions{Memory: mem, Repository: s})
	t.Cleanup(func() {
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if st := mem.Stats(); st.Leases != 0 {
			t.Errorf("%d leases were not given back", st.Leases)
		}
	})
	return rig{m, mem}, s
}

func (r rig) mustLoad(t *testing.T, name string, how workers.Load) string {
	t.Helper()
	loaded, err := r.Load(t.Context(), name, how)
	if err != nil {
		t.Fatal(err)
	}
	return loaded.Endpoint
}

// Versions are served side by side; requests without a version are spread exactly by the weights; streams of a
// removed version move to the replacement, except streams whose client named the version.
func TestVersions(t *testing.T) {
	r, s := newShelf(t)
	split := workers.Versions{All: true, Weights: []string{"1=95", "2=5"}}
	s.put("m", workers.Config{Kind: "faulty", Version: "1"}, workers.Config{Kind: "faulty", Version: "2",
		Versions: split})
	r.mustLoad(t, "m", workers.Load{})
	got := map[string]int{}
	for range 400 {
		got[r.Choose("m")]++
	}
	if got["1"] != 380 || got["2"] != 20 {
		t.Errorf("by weights 95 and 5, of 400: %v", got)
	}
	if rows := r.Index(); len(rows) != 2 || rows[0].Version != "1" || rows[1].Version != "2" {
		t.Errorf("index: %+v", rows)
	}
	one, err := r.Group("m", "1")
	if err != nil {
		t.Fatal(err)
	}
	if g, _ := r.Group("m", ""); g.Model().Version != "2" {
		t.Errorf("without a version: %s", g.Model().Version)
	}
	if _, err := r.Group("m", "3"); stream.CodeOf(err) != stream.NotFound {
		t.Error(err)
	}
	free, freeSink := open(t, one, stream.Options{Policy: every.Policy})
	named, namedSink := open(t, one, stream.Options{Policy: every.Policy, Version: "1"})
	s.put("m", workers.Config{Kind: "faulty", Version: "2"}, workers.Config{Kind: "faulty", Version: "10"})
	two, _ := r.Group("m", "2")
	r.mustLoad(t, "m", workers.Load{})
	if g, _ := r.Group("m", "2"); g != two {
		t.Error("a version that has not changed was loaded again")
	}
	if v := r.Versions("m"); fmt.Sprint(v) != "[2 10]" || r.Choose("m") != "10" {
		t.Errorf("%v, chosen %s", v, r.Choose("m"))
	}
	_ = free.Submit(r.frame(t, 0, "x"))
	if x := freeSink.wait(t, 1)[0]; x.outcome != stream.Answered {
		t.Errorf("a stream without a version: %+v", x)
	}
	<-named.Finished()
	if len(namedSink.done) != 1 {
		t.Error("the stream of a version that is gone is open")
	}
	free.Close(stream.ByClient)
	if err := r.Unload(t.Context(), "m", "10"); err != nil || fmt.Sprint(r.Versions("m")) != "[2]" {
		t.Errorf("%v: %v", err, r.Versions("m"))
	}
	for _, weights := range [][]string{{"1=1"}, {"2=0"}, {"2=x"}, {"2=1", "2=1"}, {"2=1001"}, {"=1"}} {
		s.put("m", workers.Config{Kind: "faulty", Version: "2", Versions: workers.Versions{Weights: weights}})
		if _, err := r.Load(t.Context(), "m", workers.Load{}); stream.CodeOf(err) != stream.InvalidArgument {
			t.Errorf("%q: %v", weights, err)
		}
	}
}

// When the version chosen for a request has gone, another version answers; a request that names the version is
// refused.
func TestChosenVersionIsGone(t *testing.T) {
	r, s := newShelf(t)
	s.put("m", workers.Config{Kind: "faulty", Version: "1"}, workers.Config{Kind: "faulty", Version: "2"})
	r.mustLoad(t, "m", workers.Load{})
	chosen := r.Choose("m")
	s.put("m", workers.Config{Kind: "faulty", Version: "1"})
	r.mustLoad(t, "m", workers.Load{})
	st, err := r.Open("m", chosen, every, newEndings())
	if err != nil || st.Model().Version != "1" {
		t.Fatalf("%s was chosen: %v", chosen, err)
	}
	st.Close(stream.ByClient)
	if _, err := r.Open("m", chosen, stream.Options{Policy: every.Policy, Version: chosen},
		newEndings()); stream.CodeOf(err) != stream.NotFound {
		t.Errorf("%s was named: %v", chosen, err)
	}
	if _, err := r.Open("n", chosen, every, newEndings()); stream.CodeOf(err) != stream.NotFound {
		t.Error(err)
	}
}

// One unload undoes one load: added workers go singly, configured workers together.
func TestUnloadUndoesALoad(t *testing.T) {
	r, s := newShelf(t)
	s.put("m", workers.Config{Kind: "faulty", Version: "1", Instances: 3})
	for range 2 {
		r.mustLoad(t, "m", workers.Load{})
	}
	if e := r.mustLoad(t, "m", workers.Load{Params: stream.Params{"max_size": int64(2)}}); e != "m-0" {
		t.Error(e)
	}
	for range 2 {
		r.mustLoad(t, "m", workers.Load{Params: stream.Params{"share": false}})
	}
	for _, want := range []int{4, 3, 0} {
		if err := r.Unload(t.Context(), "m", ""); err != nil {
			t.Fatal(err)
		}
		g, err := r.Group("m", "")
		if want == 0 {
			if stream.CodeOf(err) != stream.NotFound {
				t.Errorf("%v", err)
			}
		} else if err != nil || g.Workers() != want {
			t.Errorf("%v, %d workers, want %d", err, g.Workers(), want)
		}
	}
	if e := r.mustLoad(t, "m", workers.Load{Params: stream.Params{"max_size": int64(2)}}); e != "m-0" {
		t.Errorf("the parameters of m-0 make %s", e)
	}
}

// A load with a number of workers sets the number; a load without a number keeps the number.
func TestLoadSetsTheNumberOfWorkers(t *testing.T) {
	r, s := newShelf(t)
	s.put("m", workers.Config{Kind: "faulty", Version: "1"})
	r.mustLoad(t, "m", workers.Load{})
	for i, c := range []struct{ ask, want int }{{3, 3}, {3, 3}, {0, 3}, {0, 3}, {2, 2}, {1, 1}, {0, 1}, {4, 4}} {
		params := stream.Params{}
		if c.ask > 0 {
			params["instances"] = int64(c.ask)
		}
		if e := r.mustLoad(t, "m", workers.Load{Params: params}); e != "m" {
			t.Errorf("load %d: endpoint %s", i, e)
		}
		if g, err := r.Group("m", ""); err != nil || g.Workers() != c.want {
			t.Errorf("load %d asks for %d: %d workers, want %d (%v)", i, c.ask, g.Workers(), c.want, err)
		}
	}
}

// A number of workers set at run time stays when the model is loaded again or replaced, until the configuration has
// another number.
func TestReloadKeepsTheNumberOfWorkers(t *testing.T) {
	r, s := newShelf(t)
	put := func(instances, flows int) {
		s.put("m", workers.Config{Kind: "faulty", Version: "1", Instances: instances, MaxFlows: flows})
	}
	load := func(params stream.Params) func() {
		return func() { r.mustLoad(t, "m", workers.Load{Params: params}) }
	}
	scale := func(n int) func() {
		return func() {
			if err := r.Scale(t.Context(), "m", n); err != nil {
				t.Fatal(err)
			}
		}
	}
	swap := load(stream.Params{"swap": true})
	put(2, 10)
	for i, c := range []struct {
		do   func()
		want int
	}{
		{load(nil), 2}, {scale(4), 4}, {load(nil), 4}, {swap, 4},
		{func() { put(2, 11); load(nil)() }, 4}, // another configuration, with the same number
		{func() {
			put(3, 11)
			load(nil)()
		}, 3}, {scale(1), 1}, {swap, 1}, {func() { put(3, 12); swap() }, 1}, {func() { put(2, 12); swap() }, 2},
		{load(stream.Params{"instances": int64(5)}), 5}, {swap, 5}, {load(nil), 5}, {func() {
			put(1, 12)
			load(nil)()
		}, 1},
		{load(stream.Params{"share": false}), 2}, {swap, 2}, {func() { put(3, 12); swap() }, 4},
	} {
		c.do()
		if g, err := r.Group("m", ""); err != nil || g.Workers() != c.want {
			t.Errorf("step %d: %d workers, want %d (%v)", i, g.Workers(), c.want, err)
		}
	}
}

// A failed model's number of workers also stays when the model is loaded again, for example with mended files, and an
// unload removes an added worker.
func TestReloadOfAFailedModelKeepsTheNumberOfWorkers(t *testing.T) {
	r, s := newShelf(t)
	s.put("m", workers.Config{Kind: "faulty", Version: "1", Limits: workers.Limits{Restarts: 1}})
	check := func(doing string, want int) {
		t.Helper()
		if g, err := r.Group("m", ""); err != nil || g.Workers() != want {
			t.Errorf("%s: %d workers, want %d (%v)", doing, g.Workers(), want, err)
		}
	}
	fail := func() {
		t.Helper()
		g, err := r.Group("m", "")
		if err != nil {
			t.Fatal(err)
		}
		st, e := open(t, g, every)
		for i := 0; st.Submit(r.frame(t, uint64(i), "die")) == nil; i++ { // until the stream is closed
			e.wait(t, i+1)
		}
		until(t, "it has failed", func() bool { return g.Stats().State == workers.StateUnavailable })
	}
	r.mustLoad(t, "m", workers.Load{})
	if err := r.Scale(t.Context(), "m", 4); err != nil {
		t.Fatal(err)
	}
	fail()
	r.mustLoad(t, "m", workers.Load{})
	check("loaded again", 4)
	r.mustLoad(t, "m", workers.Load{Params: stream.Params{"share": false}})
	fail()
	r.mustLoad(t, "m", workers.Load{})
	check("with one that was added", 5)
	if err := r.Unload(t.Context(), "m", ""); err != nil {
		t.Fatal(err)
	}
	check("without it", 4)
	fail()
	r.mustLoad(t, "m", workers.Load{Params: stream.Params{"instances": int64(2)}})
	check("with another number in the request", 2)
}

// An endpoint for other parameters takes no name of another model, of the configuration or of the repository, loaded
// or not.
func TestEndpointTakesNoModelsName(t *testing.T) {
	r, s := newShelf(t)
	for _, name := range []string{"m", "m-0"} {
		s.listed = append(s.listed, workers.Listed{Name: name, Version: "1"})
		s.put(name, workers.Config{Kind: "faulty", Version: "1"})
	}
	if err := r.Define(workers.Config{Name: "m-1", Kind: "faulty", Version: "1", MaxFlows: 7}); err != nil {
		t.Fatal(err)
	}
	r.mustLoad(t, "m", workers.Load{})
	other := workers.Load{Params: stream.Params{"max_size": int64(2)}}
	for range 2 {
		if e := r.mustLoad(t, "m", other); e != "m-2" {
			t.Errorf("m with other parameters is %s", e)
		}
	}
	for _, name := range []string{"m-0", "m-1"} {
		if e := r.mustLoad(t, name, workers.Load{}); e != name {
			t.Errorf("%s is %s", name, e)
		}
	}
}

// Each failed load is in the index, however many loads fail; a later successful load of the model removes the
// failure.
func TestFailedLoadsAreListed(t *testing.T) {
	r, s := newShelf(t)
	for i := range 130 {
		name := fmt.Sprintf("m%d", i)
		s.put(name, workers.Config{Kind: "starter", Version: "1", Params: stream.Params{"how": "init fails"}})
		if _, err := r.Load(t.Context(), name, workers.Load{}); err == nil {
			t.Fatal("it was loaded")
		}
	}
	rows := r.Index()
	if len(rows) != 128 || rows[0].State != workers.StateUnavailable || rows[0].Reason == "" {
		t.Fatalf("%d rows, %+v", len(rows), rows[0])
	}
	s.put("m129", workers.Config{Kind: "starter", Version: "1", Params: stream.Params{"how": "well"}})
	r.mustLoad(t, "m129", workers.Load{})
	for _, row := range r.Index() {
		if row.Name == "m129" && (row.State != workers.StateReady || row.Reason != "") {
			t.Errorf("%+v", row)
		}
	}
	// 126 and m129
	if err := r.Unload(t.Context(), "m128", ""); stream.CodeOf(err) != stream.NotFound || len(r.Index()) != 127 {
		t.Errorf("%v, %d rows", err, len(r.Index()))
	}
}

// Versions with incompatible requests are not served side by side: the load fails, and the served versions stay.
func TestVersionsThatDoNotFit(t *testing.T) {
	r, s := newShelf(t)
	s.put("m", workers.Config{Kind: "identity", Version: "1"})
	r.mustLoad(t, "m", workers.Load{})
	before, _ := r.Group("m", "1")
	weights := workers.Versions{All: true, Weights: []string{"1=1", "2=1"}}
	stateful := workers.Config{Kind: "faulty-stateful", Version: "2", Versions: workers.Versions{All: true},
		Shadow: workers.Shadow{Version: "1", Sample: 1}}
	for what, versions := range map[string][]workers.Config{
		"versions": {{Kind: "identity", Version: "1", Versions: weights},
			{Kind: "dense", Version: "2", Versions: weights}},
		"shadow.version": {{Kind: "identity", Version: "1"}, stateful},
	} {
		s.put("m", versions...)
		_, err := r.Load(t.Context(), "m", workers.Load{})
		var e *stream.Error
		if !errors.As(err, &e) || e.Field != what {
			t.Errorf("%s: %v", what, err)
		}
		if g, err := r.Group("m", ""); err != nil || g != before || !g.Ready() {
			t.Errorf("%s: another version is served, %v", what, err)
		}
		if st := r.Versions("m"); len(st) != 1 {
			t.Errorf("%s: the versions are %v", what, st)
		}
	}
}

// A shadow gets copies of a share of the requests, and no result of the shadow reaches a client.
func TestShadow(t *testing.T) {
	r, s := newShelf(t)
	s.put("m", workers.Config{Kind: "identity", Version: "1"}, workers.Config{Kind: "identity", Version: "2",
		Shadow: workers.Shadow{Version: "2", Sample: 0.25}, Versions: workers.Versions{All: true}})
	r.mustLoad(t, "m", workers.Load{})
	if v := r.Choose("m"); v != "1" {
		t.Errorf("chosen: %q", v)
	}
	g, err := r.Group("m", "")
	if err != nil || g.Model().Version != "1" {
		t.Fatal(err)
	}
	to, _ := r.Group("m", "2")
	run := func(n int, data string) {
		st, e := open(t, g, every)
		for i := range n {
			_ = st.Submit(r.frame(t, uint64(i), data))
			if x := e.wait(t, i+1)[i]; x.outcome != stream.Answered {
				t.Fatalf("%+v", x)
			}
		}
		st.Close(stream.ByClient)
		<-st.Finished()
	}
	run(40, "x")
	until(t, "a quarter is compared", func() bool {
		c := to.Stats().Shadow
		return c.Equal+c.Skipped == 10 && c.Different == 0 && c.Failed == 0
	})
	s.put("m", workers.Config{Kind: "identity", Version: "1"}, workers.Config{Kind: "faulty", Version: "2",
		Shadow: workers.Shadow{Version: "2", Sample: 1}, Versions: workers.Versions{All: true}})
	r.mustLoad(t, "m", workers.Load{})
	before := to.Stats().Shadow
	run(6, "error")
	until(t, "the failures of a shadow are counted, and no client sees one", func() bool {
		c := to.Stats().Shadow
		return c.Failed+c.Skipped-before.Failed-before.Skipped == 6
	})
	run(6, "x")
	until(t, "other results are counted", func() bool {
		c := to.Stats().Shadow
		return c.Failed+c.Skipped+c.Different-before.Failed-before.Skipped == 12
	})
}

// A shadow answers only requests that name the shadow, even when no other version can serve; a weight for a shadow is
// refused.
func TestShadowAnswersNoClient(t *testing.T) {
	r, s := newShelf(t)
	shadow := workers.Shadow{Version: "3", Sample: 1}
	v := func(version string, weights ...string) workers.Config {
		return workers.Config{Kind: "faulty", Version: version, Shadow: shadow, Limits: workers.Limits{Restarts: 1},
			Versions: workers.Versions{All: true, Weights: weights}}
	}
	s.put("m", v("1"), v("2"), v("3"))
	r.mustLoad(t, "m", workers.Load{})
	for _, version := range []string{"2", "1"} {
		g, err := r.Group("m", version)
		if err != nil {
			t.Fatal(err)
		}
		st, e := open(t, g, every)
		for i := range 2 { // one restart is allowed in a row
			_ = st.Submit(r.frame(t, uint64(i), "die"))
			e.wait(t, i+1)
		}
		<-st.Finished()
		g, err = r.Group("m", "")
		if want := map[string]string{"2": "1", "1": "2"}[version]; err != nil || g.Model().Version != want ||
			r.Choose("m") != want {
			t.Errorf("without version %s: version %s, and %s is chosen, %v; want %s", version, g.Model().Version,
				r.Choose("m"), err, want)
		}
	}
	s.put("w", v("1"), v("3", "1=1", "3=1"))
	var e *stream.Error
	if _, err := r.Load(t.Context(), "w", workers.Load{}); !errors.As(err, &e) || e.Field != "versions.weights" ||
		e.Code != stream.InvalidArgument {
		t.Errorf("a weight of the shadow: %v", err)
	}
	s.put("w", v("1"), v("3", "1=1", "3=0"))
	r.mustLoad(t, "w", workers.Load{})
}

// A result of the cache is not compared: the shadow would get a request without its input.
func TestShadowOfCachedResults(t *testing.T) {
	r, s := newShelf(t)
	v := func(version string) workers.Config {
		return workers.Config{Kind: "identity", Version: version, Cache: workers.Cache{Size: 1 << 20},
			Shadow: workers.Shadow{Version: "2", Sample: 1}, Versions: workers.Versions{All: true}}
	}
	s.put("m", v("1"), v("2"))
	r.mustLoad(t, "m", workers.Load{})
	gate := ingest.NewGate(&plainBackend{models: r.Manager, mem: r.mem}, nil)
	calls := ingest.NewOneShot(gate, "test", nil)
	defer calls.Close()
	for _, data := range []string{"x", "x", "x", "y"} {
		res, err := calls.Infer(context.Background(), gate.Owner(), "m", "", r.frame(t, 0, data))
		if err != nil {
			t.Fatal(err)
		}
		res.Release()
	}
	to, _ := r.Group("m", "2")
	until(t, "the two that were run are compared", func() bool {
		c := to.Stats().Shadow
		return c.Equal+c.Skipped >= 2
	})
	if c := to.Stats().Shadow; c.Equal+c.Skipped != 2 || c.Different+c.Failed != 0 {
		t.Errorf("%+v", c)
	}
}

// Loads, unloads and swaps under traffic lose no request and leak no memory, also for a model with state, whose
// requests open a stream each.
func TestManyChanges(t *testing.T) {
	for _, kind := range []string{"faulty", "faulty-stateful"} {
		t.Run(kind, func(t *testing.T) { manyChanges(t, kind, *changes) })
	}
}

func manyChanges(t *testing.T, kind string, cycles int) {
	r, s := newShelf(t)
	v := func(version string, flows int) workers.Config {
		return workers.Config{Kind: kind, Version: version, MaxFlows: flows}
	}
	s.put("m", v("1", 64))
	r.mustLoad(t, "m", workers.Load{})
	d := &plainBackend{models: r.Manager, mem: r.mem}
	gate := ingest.NewGate(d, nil)
	calls := ingest.NewOneShot(gate, "test", nil)
	var stop atomic.Bool
	var answered atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for !stop.Load() {
				res, err := calls.Infer(context.Background(), gate.Owner(), "m", "", r.frame(t, 0, "x"))
				if err != nil {
					t.Error("a request was lost: ", err)
					return
				}
				res.Release()
				answered.Add(1)
			}
		})
	}
	memory := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var first uint64
	for i := range cycles {
		if i == cycles/5 {
			first = memory()
		}
		switch i % 3 {
		case 0: // another version beside the first, then alone
			s.put("m", v("1", 64), v("2", 64))
			r.mustLoad(t, "m", workers.Load{})
			s.put("m", v("2", 64+i%2))
		case 1:
			if err := r.Swap(t.Context(), "m", v("1", 80)); err != nil {
				t.Fatal(err)
			}
			s.put("m", v("1", 64))
		case 2:
			other := fmt.Sprintf("other%d", i%7)
			s.put(other, v("1", 64))
			r.mustLoad(t, other, workers.Load{})
			if err := r.Unload(t.Context(), other, ""); err != nil {
				t.Fatal(err)
			}
		}
		r.mustLoad(t, "m", workers.Load{})
		for seen := answered.Load(); answered.Load() == seen && !t.Failed(); { // traffic between any two changes
			runtime.Gosched()
		}
	}
	stop.Store(true)
	wg.Wait()
	calls.Close()
	if last := memory(); last > first+first/2+(8<<20) {
		t.Errorf("the heap has %d bytes after %d changes, and %d early on", last, cycles, first)
	}
	t.Logf("%d changes, %d requests", cycles, answered.Load())
}

// plainBackend is a backend over a manager.
type plainBackend struct {
	ingest.Backend
	models *workers.Manager
	mem    *buf.Pool
}

func (d *plainBackend) Open(model, version string, opts stream.Options, sink stream.Sink) (*stream.Stream, error) {
	return d.models.Open(model, version, opts, sink)
}
func (d *plainBackend) Models() ingest.Repository { return models{m: d.models} }
func (d *plainBackend) Memory() *buf.Pool         { return d.mem }
func (d *plainBackend) State() ingest.State       { return ingest.State{} }

type models struct {
	ingest.Repository
	m *workers.Manager
}

func (m models) Choose(name string) string { return m.m.Choose(name) }
func (m models) Model(name, version string) (*stream.Model, bool, error) {
	g, err := m.m.Group(name, version)
	if err != nil {
		return nil, false, err
	}
	return g.Model(), g.Ready(), nil
}

// TestLoadResults: a load reports the change, also a change of only the versions or of the weights.
func TestLoadResults(t *testing.T) {
	r := newRig(t)
	sets := []workers.Config{}
	for _, d := range []string{"1ms", "2ms"} {
		sets = append(sets, workers.Config{Name: "m", Kind: "delay", Params: stream.Params{"fixed": d}})
	}
	for _, c := range []struct {
		step   string
		config workers.Config
		how    workers.Load
		want   string
	}{
		{"first", sets[0], workers.Load{}, workers.ResultLoaded},
		{"again", sets[0], workers.Load{}, workers.ResultUnchanged},
		{"swap", sets[0], workers.Load{Params: stream.Params{"swap": true}}, workers.ResultReloaded},
		{"after the swap", sets[0], workers.Load{}, workers.ResultUnchanged},
		{"another configuration", sets[1], workers.Load{}, workers.ResultReloaded},
		{"workers", sets[1], workers.Load{Params: stream.Params{"instances": int64(2)}}, workers.ResultScaled},
		{"one worker more", sets[1], workers.Load{Params: stream.Params{"share": false, "instances": int64(2)}},
			workers.ResultScaled},
		{"another configuration, swapped", sets[0], workers.Load{Params: stream.Params{"swap": true}},
			workers.ResultReloaded},
	} {
		if err := r.Define(c.config); err != nil {
			t.Fatal(err)
		}
		if got, err := r.Load(t.Context(), "m", c.how); err != nil ||
			got != (workers.Loaded{Endpoint: "m", Result: c.want}) {
			t.Errorf("%s: %v, %v: want %s", c.step, got, err, c.want)
		}
	}
}
