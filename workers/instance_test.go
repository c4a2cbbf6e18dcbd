package workers

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/codec"
	"millrace/stream"
	"millrace/stream/buf"
)

// The watchdog abandons an instance only during an overdue run, and distinguishes a later run from an earlier run.
func TestPhases(t *testing.T) {
	i := newInstance(&common{}, 0)
	defer i.cancel()
	w := &i.first
	if w.abandon(1 << 60) {
		t.Fatal("abandoned before its first run")
	}
	w.beginWatched(nil, 100)
	first := w.phase.Load()
	if w.abandon(99) {
		t.Fatal("abandoned before its time")
	}
	if !w.endWatched() || w.abandon(1<<60) {
		t.Fatal("abandoned after its run")
	}
	w.beginWatched(nil, 100)
	if w.phase.Load() == first {
		t.Fatal("the second run cannot be told from the first")
	}
	if !w.abandon(100) {
		t.Fatal("not abandoned when its time is over")
	}
	if w.endWatched() || w.abandon(200) {
		t.Fatal("abandoned twice, or kept after all")
	}
}

func TestPausesBetweenRestarts(t *testing.T) {
	w := newInstance(&common{}, 0)
	defer w.cancel()
	if d := w.repairs.backoff.Next(0); d != 10*time.Millisecond {
		t.Errorf("the first pause is %v", d)
	}
	longest := time.Duration(0)
	for range 50 {
		longest = max(longest, w.repairs.backoff.Next(1))
	}
	if longest != 5*time.Second {
		t.Errorf("the longest pause is %v", longest)
	}
}

func TestWatchInterval(t *testing.T) {
	for run, want := range map[time.Duration]time.Duration{
		time.Millisecond: 5 * time.Millisecond, 40 * time.Millisecond: 5 * time.Millisecond,
		80 * time.Millisecond: 10 * time.Millisecond, 8 * time.Second: time.Second, time.Minute: time.Second,
	} {
		if got := (Limits{Run: run}).watchInterval(); got != want {
			t.Errorf("%v: %v, want %v", run, got, want)
		}
	}
}

func TestBuffersForWorkers(t *testing.T) {
	for _, c := range []struct{ instances, buffers, workers, want int }{
		// workers + 1, and at least the number for the instances
		{1, 0, 1, 2}, {2, 0, 2, 3}, {2, 0, 5, 6}, {2, 0, 1, 3},
		{2, 5, 2, 5}, {2, 5, 10, 11},
		{4, 4, 4, 4}, {4, 4, 9, 4}, {4, 1, 4, 1}, // fewer than workers stay so
	} {
		cfg := Config{Instances: c.instances, Batching: Batching{Buffers: c.buffers}}
		if got := cfg.buffersFor(c.workers); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

func TestFamily(t *testing.T) {
	for name, want := range map[string]string{
		"m": "m", "m-0": "m", "m-12-3": "m", "m1": "m1", "m-": "m-", "m-a": "m-a", "m-a-7": "m-a", "m-1a": "m-1a",
		"7": "7", "m1-2": "m1",
	} {
		if got := family(name); got != want {
			t.Errorf("%s is of the family %q, want %q", name, got, want)
		}
	}
}

// The waiting changes, and the running and starting endpoints, have bounds.
func TestBoundsOfTheManager(t *testing.T) {
	ctx := context.Background()
	var m *Manager
	during := 0
	m = NewManager(ManagerOptions{Memory: buf.NewPool(0), Hooks: func(*stream.Model) Hooks {
		m.mu.Lock()
		defer m.mu.Unlock()
		during = m.loading[modelVersion{"m", "1"}]
		return Hooks{}
	}})
	change := func() error { return m.change(ctx, "m", func() error { return nil }) }
	m.waiting = maxUpdates
	if err := change(); stream.CodeOf(err) != stream.Overloaded {
		t.Errorf("as many changes as may wait, and one more: %v", err)
	}
	m.waiting = maxUpdates - 1
	if err := change(); err != nil || m.waiting != maxUpdates-1 {
		t.Errorf("the last change that may wait: %v, %d wait after it", err, m.waiting)
	}
	m.waiting = 0
	load := func() error {
		_, err := m.LoadConfig(ctx, Config{Kind: "identity", Name: "m"}, true)
		return err
	}
	others := modelVersion{"others", "1"}
	m.loading[others] = maxEndpoints
	if err := load(); stream.CodeOf(err) != stream.Overloaded || len(m.loading) != 1 {
		t.Errorf("one endpoint too many: %v", err)
	}
	m.loading[others] = maxEndpoints - 1
	if err := load(); err != nil || during != 1 || len(m.loading) != 1 {
		t.Errorf("the last endpoint: %v; %d started, %d after it", err, during, len(m.loading))
	}
	if _, err := m.LoadConfig(ctx, Config{Kind: "identity", Name: "m", MaxFlows: 2},
		true); stream.CodeOf(err) != stream.Overloaded {
		t.Errorf("one endpoint too many, of which one is loaded: %v", err)
	}
	delete(m.loading, others)
	for n, code := range map[int]stream.Code{0: stream.InvalidArgument, 1: stream.NotFound, 1024: stream.NotFound,
		1025: stream.InvalidArgument} {
		if err := m.Scale(ctx, "none", n); stream.CodeOf(err) != code {
			t.Errorf("%d workers: %v", n, err)
		}
	}
	for version, found := range map[string]bool{"": true, "1": true, "2": false} {
		if g, err := m.Group("m", version); (err == nil) != found || found != (g != nil) ||
			!found && stream.CodeOf(err) != stream.NotFound {
			t.Errorf("version %q: %v", version, err)
		}
	}
	if err := errors.Join(m.Define(Config{Name: "z", Kind: "identity"}), m.Define(Config{Name: "a", Kind: "identity"}),
		m.Define(Config{Name: "b", Kind: "identity"})); err != nil {
		t.Fatal(err)
	}
	names := ""
	for _, r := range m.Index() {
		if r.Reason == NotLoaded {
			names += r.Name + " "
		}
	}
	if names != "a b z " {
		t.Errorf("known: %s", names)
	}
	if err := m.Close(ctx); err != nil {
		t.Error(err)
	}
}

// A worker parks unless a frame has arrived or the worker has to stop; for a batcher that asks, arrivals are counted
// and departures are not.
func TestArrivals(t *testing.T) {
	m := NewManager(ManagerOptions{Memory: buf.NewPool(0)})
	defer m.Close(context.Background())
	for kind, needs := range map[BatcherKind]bool{"hard": true, "adaptive": false} {
		name, err := m.LoadConfig(context.Background(), Config{Name: string(kind), Kind: "identity",
			Batching: Batching{Kind: kind}}, true)
		if err != nil {
			t.Fatal(err)
		}
		g, _ := m.Group(name, "")
		w := g.instances()[0]
		for n, arrives := range map[int]bool{-1: false, 0: needs, 1: needs} {
			seen := g.intake.Arrivals()
			if g.mustLookAgain(w, seen) {
				t.Errorf("%s: nothing has happened", kind)
			}
			g.AddWaiting(n)
			if g.mustLookAgain(w, seen) != arrives {
				t.Errorf("%s: %d frames more: want an arrival: %v", kind, n, arrives)
			}
			g.AddWaiting(-n)
		}
		seen := g.intake.Arrivals()
		w.stopRequested.Store(true)
		if !g.mustLookAgain(w, seen) {
			t.Errorf("%s: a worker that has to stop parks", kind)
		}
		w.stopRequested.Store(false)
	}
}

// A worker with more frames than fit its batch wakes another worker.
func TestMoreFramesWakeAnotherWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewManager(ManagerOptions{Memory: buf.NewPool(0)})
		defer m.Close(context.Background())
		cfg := Config{Name: "m", Kind: "delay", Instances: 2, Batching: Batching{MaxSize: 1},
			Params: stream.Params{"fixed": "1s"}}
		if _, err := m.LoadConfig(context.Background(), cfg, true); err != nil {
			t.Fatal(err)
		}
		g, _ := m.Group("m", "")
		sink := make(ends, 2)
		s, err := g.Open(stream.Options{Policy: stream.Policy{Mode: stream.Every, Window: 4}}, sink)
		if err != nil {
			t.Fatal(err)
		}
		g.gather.Lock() // so that both workers wait before gathering
		for i := range 2 {
			if err := s.Submit(stream.Frame{Seq: uint64(i)}); err != nil {
				t.Fatal(err)
			}
		}
		g.gather.Unlock()
		start := time.Now()
		<-sink
		<-sink
		if took := time.Since(start); took >= 2*time.Second {
			t.Errorf("two frames took two workers %v, each of them 1s", took)
		}
	})
}

// ends is a sink that passes outcomes on.
type ends chan stream.Outcome

func (e ends) Push(r *stream.Result) {
	r.Release()
	e <- r.Outcome
}

func (ends) Done(stream.CloseReason) {}

func TestParking(t *testing.T) {
	var p parking
	var w [4]waiter
	done := make(chan int)
	park := func(i int) {
		t.Helper()
		n := p.count.Load()
		go func() {
			p.wait(&w[i], 0, func() bool { return false })
			done <- i
		}()
		for p.count.Load() == n {
			time.Sleep(time.Microsecond)
		}
	}
	check := func(woken, left int) {
		t.Helper()
		if got := <-done; got != woken {
			t.Errorf("%d was woken, want %d", got, woken)
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if n := p.count.Load(); int(n) != left || len(p.parked) != left {
			t.Errorf("%d are counted and %d are parked, want %d", n, len(p.parked), left)
		}
	}
	for i := range w {
		w[i].init()
		park(i)
	}
	p.wakeOne()
	check(3, 3)
	p.wakeThis(&w[0])
	check(0, 2)
	p.wakeThis(&w[1])
	check(1, 1)
	p.wakeOne()
	check(2, 0)
	p.wakeOne() // nobody
	park(0)
	park(1)
	p.wakeAll()
	<-done
	check2 := <-done
	if p.count.Load() != 0 || check2 > 1 {
		t.Errorf("%d are left after all were woken", p.count.Load())
	}
}

// The decoding target of a worker is checked at the worker's start, and errors name the setting.
func TestTarget(t *testing.T) {
	model := func(change func(*stream.ImageSpec), datatype stream.Datatype) *stream.Model {
		s := &stream.ImageSpec{Width: 4, Height: 2, Color: "BGR", Layout: "NCHW", Fit: "stretch",
			Scale: [3]float32{2, 2, 2}}
		change(s)
		return &stream.Model{Name: "m", Image: s,
			Inputs: []stream.TensorSpec{{Name: "x", Datatype: datatype, Shape: []int{3, 2, 4}}}}
	}
	got, err := target(model(func(*stream.ImageSpec) {}, stream.Float32))
	want := codec.Target{Width: 4, Height: 2, Color: codec.BGR, Layout: codec.NCHW, Fit: codec.Stretch, Fill: 114,
		Type: codec.FP32, Norm: codec.Norm{Scale: [3]float32{2, 2, 2}}}
	if err != nil || got != want {
		t.Errorf("%+v, %v\nwant %+v", got, err, want)
	}
	if got, err := target(model(func(s *stream.ImageSpec) {
		s.Scale = [3]float32{}
	}, stream.Uint8)); err != nil || got.Type != codec.UINT8 {
		t.Errorf("%+v, %v", got, err)
	}
	for field, m := range map[string]*stream.Model{
		"input.image.color: ":    model(func(s *stream.ImageSpec) { s.Color = "red" }, stream.Float32),
		"input.image.layout: ":   model(func(s *stream.ImageSpec) { s.Layout = "CHWN" }, stream.Float32),
		"input.image.fit: ":      model(func(s *stream.ImageSpec) { s.Fit = "tight" }, stream.Float32),
		"input.image.datatype: ": model(func(*stream.ImageSpec) {}, stream.Int64),
		"input.image: ":          model(func(*stream.ImageSpec) {}, stream.Uint8), // bytes are not scaled
	} {
		if _, err := target(m); err == nil || !strings.HasPrefix(err.Error(), field) {
			t.Errorf("%v, want %s", err, field)
		}
	}
}

// A picture's map leads from the model's picture to the sent frame, also for a part of the frame.
func TestMapOfAPartOfAPicture(t *testing.T) {
	m := &stream.Model{Image: &stream.ImageSpec{Width: 2, Height: 4, Color: "RGB", Layout: "NHWC", Fit: "stretch"},
		Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Uint8, Shape: []int{4, 2, 3}}}}
	p, err := newPreparer(m, codec.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	r := &stream.Request{}
	r.Codec, r.Width, r.Height, r.Payload = stream.RGB24, 16, 12, make([]byte, 16*12*3)
	r.Region = stream.Region{X: 5, Y: 3, Width: 8, Height: 4}
	if err := p.decode(r, make([]byte, 2*4*3)); err != nil {
		t.Fatal(err)
	}
	if r.SentWidth != 16 || r.SentHeight != 12 || r.MapX != [2]float64{4, 5} || r.MapY != [2]float64{1, 3} {
		t.Errorf("sent %d x %d, map %v and %v", r.SentWidth, r.SentHeight, r.MapX, r.MapY)
	}
}

// The map of a scaled frame leads to the unscaled picture, for any ratio of the sizes: the corners of the model's
// picture, without the margins of a letterbox, are the corners of the picture or its region.
func TestMapOfAScaledFrame(t *testing.T) {
	for _, tt := range []struct {
		name          string
		width, height int // of the frame
		source        [2]int
		model         [2]int
		fit           string
		region        stream.Region
		corners       [4]float64 // in the model's picture: left, top, right, bottom
	}{
		{"the model's size", 320, 240, [2]int{1280, 720}, [2]int{320, 240}, "stretch", stream.Region{},
			[4]float64{0, 0, 320, 240}},
		{"larger than the model's", 640, 480, [2]int{1280, 720}, [2]int{320, 240}, "stretch", stream.Region{},
			[4]float64{0, 0, 320, 240}},
		{"smaller on one side", 100, 240, [2]int{1279, 719}, [2]int{320, 240}, "stretch", stream.Region{},
			[4]float64{0, 0, 320, 240}},
		{"letterbox", 640, 360, [2]int{1280, 720}, [2]int{640, 640}, "letterbox", stream.Region{},
			[4]float64{0, 140, 640, 500}},
		{"letterbox of a frame of another shape", 640, 640, [2]int{1280, 720}, [2]int{640, 640}, "letterbox",
			stream.Region{}, [4]float64{0, 140, 640, 500}},
		{"letterbox, upright", 101, 180, [2]int{721, 1280}, [2]int{320, 320}, "letterbox", stream.Region{},
			[4]float64{70, 0, 250, 320}},
		{"a region", 320, 240, [2]int{1279, 719}, [2]int{64, 64}, "stretch", stream.Region{X: 101, Y: 53, Width: 501,
			Height: 333}, [4]float64{0, 0, 64, 64}},
		{"a region, letterbox", 640, 360, [2]int{1280, 720}, [2]int{100, 100}, "letterbox",
			stream.Region{X: 7, Y: 11, Width: 400, Height: 200}, [4]float64{0, 25, 100, 75}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := &stream.Model{Image: &stream.ImageSpec{Width: tt.model[0], Height: tt.model[1], Color: "GRAY",
				Layout: "NHWC", Fit: tt.fit},
				Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Uint8,
					Shape: []int{tt.model[1], tt.model[0], 1}}}}
			p, err := newPreparer(m, codec.Limits{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer p.close()
			r := &stream.Request{}
			r.Codec, r.Width, r.Height, r.Payload = stream.NV12, tt.width, tt.height,
				make([]byte, codec.NV12.Size(tt.width, tt.height))
			r.SourceWidth, r.SourceHeight, r.Region = tt.source[0], tt.source[1], tt.region
			if err := p.decode(r, make([]byte, tt.model[0]*tt.model[1])); err != nil {
				t.Fatal(err)
			}
			if r.SentWidth != tt.source[0] || r.SentHeight != tt.source[1] {
				t.Errorf("the picture is %d x %d", r.SentWidth, r.SentHeight)
			}
			want := [4]float64{0, 0, float64(tt.source[0]), float64(tt.source[1])}
			if g := tt.region; g != (stream.Region{}) {
				want = [4]float64{float64(g.X), float64(g.Y), float64(g.X) + float64(g.Width),
					float64(g.Y) + float64(g.Height)}
			}
			for i, v := range tt.corners {
				along := [2][2]float64{r.MapX, r.MapY}[i%2]
				if got := v*along[0] + along[1]; math.Abs(got-want[i]) > 1e-6 {
					t.Errorf("corner %d is at %v, want %v", i, got, want[i])
				}
			}
		})
	}
}
