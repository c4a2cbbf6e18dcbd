package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"millrace/batching"
	"millrace/ingest"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

// numbered answers each request with the number of its run and its payload. A payload beginning with "fail" fails; a
// payload beginning with "part" gets a partial result before the ending.
type numbered struct{ workers.Base }

var runs atomic.Int64

func init() {
	workers.Register(workers.Kind{Name: "numbered", New: func() workers.Worker { return &numbered{} }})
}

func (*numbered) Init(context.Context, *workers.Env) (*stream.Model, error) {
	return &stream.Model{AcceptsAnyInput: true, Ragged: true, MaxBatch: 1}, nil
}

func (*numbered) Run(_ context.Context, b *batching.Batch) error {
	r := b.Requests[0]
	text := string(r.Payload)
	switch {
	case strings.HasPrefix(text, "fail"):
		runs.Add(1)
		return errors.New("as asked")
	case strings.HasPrefix(text, "part"):
		r.Emit(nil, nil)
	}
	out := fmt.Appendf(nil, "%d %s", runs.Add(1), text)
	r.SetResultParam("run", true)
	b.Finish(0, []stream.Tensor{{Name: "y", Datatype: stream.Uint8, Shape: []int{len(out)}, Data: out}})
	return nil
}

// cached is a manager with the kind numbered as model m.
type cached struct {
	*backend
	one *ingest.OneShot
	t   *testing.T
}

func newCached(t *testing.T, cfg workers.Config) *cached {
	t.Helper()
	mem := buf.NewPool(8 << 20)
	m := workers.NewManager(workers.ManagerOptions{Memory: mem})
	d := &backend{Manager: m, mem: mem}
	one := ingest.NewOneShot(ingest.NewGate(d, nil), "test", &d.noModel)
	t.Cleanup(func() {
		one.Close()
		if err := m.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if st := mem.Stats(); st.Leases != 0 || st.Reserved != 0 {
			t.Errorf("memory is held: %+v", st)
		}
	})
	cfg.Name, cfg.Kind = "m", "numbered"
	if _, err := m.LoadConfig(t.Context(), cfg, true); err != nil {
		t.Fatal(err)
	}
	return &cached{d, one, t}
}

// ask returns the text of the answer or of the error.
func (c *cached) ask(f stream.Frame) string {
	r, err := c.one.Infer(c.t.Context(), c.backend.owner(), "m", "", f)
	if err != nil {
		return err.Error()
	}
	defer r.Release()
	if r.Params["run"] != true || r.Outputs[0].Shape[0] != len(r.Outputs[0].Data) || r.Model.Name != "m" ||
		r.Timing.Done == 0 {
		c.t.Errorf("%+v", r)
	}
	return string(r.Outputs[0].Data)
}

func text(s string) stream.Frame { return stream.Frame{Payload: []byte(s)} }

func TestEqualRequestsAreAnsweredFromTheCache(t *testing.T) {
	c := newCached(t, workers.Config{Cache: workers.Cache{Size: 1 << 20}})
	first := c.ask(text("a"))
	for range 3 {
		if again := c.ask(text("a")); again != first {
			t.Errorf("%q, then %q", first, again)
		}
	}
	g, err := c.Group("m", "")
	if err != nil {
		t.Fatal(err)
	}
	st := g.Stats()
	if f := st.Frames; f.Accepted != 4 || f.Results != 4 || f.InFlight != 0 || f.CacheHits != 3 ||
		f.CacheMisses != 1 || st.Batches != 1 || st.CacheResults != 1 || st.CacheBytes <= int64(len(first)) {
		t.Errorf("%+v", st)
	}
}

// A request that permits partial results fills the cache, too.
func TestAnswersInPartsFillTheCache(t *testing.T) {
	c := newCached(t, workers.Config{Cache: workers.Cache{Size: 1 << 20}})
	r, err := c.one.InferStream(t.Context(), c.backend.owner(), "m", "", text("a"), func(*stream.Result) error {
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	first := string(r.Outputs[0].Data)
	r.Release()
	if again := c.ask(text("a")); again != first {
		t.Errorf("%q, then %q", first, again)
	}
}

// TestRequestsThatDiffer: whatever a result may depend on is part of the key.
func TestRequestsThatDiffer(t *testing.T) {
	c := newCached(t, workers.Config{Cache: workers.Cache{Size: 1 << 20}})
	tensor := func(name string, kind stream.Datatype, shape []int, data string) stream.Frame {
		return stream.Frame{Codec: stream.Tensors,
			Inputs: []stream.Tensor{{Name: name, Datatype: kind, Shape: shape, Data: []byte(data)}}}
	}
	two := tensor("a", stream.Uint8, []int{4}, "abcd")
	two.Inputs = append(two.Inputs, stream.Tensor{Name: "b", Datatype: stream.Uint8, Shape: []int{0}})
	param := func(v any) stream.Frame { return stream.Frame{Payload: []byte("a"), Params: stream.Params{"x": v}} }
	seen := map[string]int{}
	for round := range 2 {
		for i, f := range []stream.Frame{
			text("a"), text("b"), {Payload: []byte("a"), Codec: stream.PCM16}, {Payload: []byte("a"), Width: 1},
			{Payload: []byte("a"), SourceHeight: 1},
			tensor("a", stream.Uint8, []int{4}, "abcd"), tensor("b", stream.Uint8, []int{4}, "abcd"),
			tensor("a", stream.Int8, []int{4}, "abcd"), tensor("a", stream.Uint8, []int{2, 2}, "abcd"),
			tensor("a", stream.Uint8, []int{4}, "abce"), tensor("a", stream.Uint8, []int{1, 4}, "abcd"), two,
			param("1"), param(int64(1)), param(1.0), param(true), param(false),
			{Payload: []byte("a"), Params: stream.Params{"y": "1"}},
		} {
			answer := c.ask(f)
			if at, known := seen[answer]; known != (round == 1) || known && at != i {
				t.Errorf("round %d, request %d: %q, which was answered to request %d", round, i, answer, at)
			}
			seen[answer] = i
		}
	}
}

func TestErrorsAndPartsAreNotCached(t *testing.T) {
	c := newCached(t, workers.Config{Cache: workers.Cache{Size: 1 << 20}})
	for _, of := range []string{"fail", "part"} {
		before := runs.Load()
		for range 2 {
			c.ask(text(of))
		}
		if n := runs.Load() - before; n != 2 {
			t.Errorf("%s: %d runs, want 2", of, n)
		}
	}
}

// TestReloadedModel: a model does not answer with cached results of the model replaced.
func TestReloadedModel(t *testing.T) {
	cfg := workers.Config{Name: "m", Kind: "numbered", Cache: workers.Cache{Size: 1 << 20}}
	c := newCached(t, cfg)
	first := c.ask(text("a"))
	if err := c.Swap(t.Context(), "m", cfg); err != nil {
		t.Fatal(err)
	}
	second := c.ask(text("a"))
	if second == first || c.ask(text("a")) != second {
		t.Errorf("%q before, %q after", first, second)
	}
	cfg.Cache.Size = 0
	if err := c.Swap(t.Context(), "m", cfg); err != nil {
		t.Fatal(err)
	}
	if third := c.ask(text("a")); third == second || c.ask(text("a")) == third {
		t.Error("a model without a cache answered from one")
	}
}

func TestCacheIsBounded(t *testing.T) {
	const size = 1 << 16
	c := newCached(t, workers.Config{Cache: workers.Cache{Size: size}})
	g, err := c.Group("m", "")
	if err != nil {
		t.Fatal(err)
	}
	pad := strings.Repeat("x", 1000)
	kept := c.ask(text("kept" + pad))
	for i := range 200 {
		c.ask(text(fmt.Sprint(i, pad)))
		if got := c.ask(text("kept" + pad)); got != kept {
			t.Fatalf("what was used last was forgotten after %d", i)
		}
		if st := g.Stats(); st.CacheBytes > size || st.CacheResults > size/1000 {
			t.Fatalf("%d bytes in %d results", st.CacheBytes, st.CacheResults)
		}
	}
	before := runs.Load()
	c.ask(text("0" + pad))
	large := strings.Repeat("y", size)
	c.ask(text(large))
	c.ask(text(large))
	if n := runs.Load() - before; n != 3 {
		t.Errorf("%d runs, want 3: the oldest was forgotten, and what is larger than the cache is not kept", n)
	}
	if got := c.ask(text("kept" + pad)); got != kept {
		t.Error("a result that is larger than the cache emptied it")
	}
}

// TestStreamsAreNotCached: a frame of a stream is always new, even with known content.
func TestStreamsAreNotCached(t *testing.T) {
	c := newCached(t, workers.Config{Cache: workers.Cache{Size: 1 << 20}})
	c.ask(text("a"))
	sink := make(results, 1)
	s, err := c.Open("m", "", stream.Options{Policy: stream.Policy{Mode: stream.Every}}, sink)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(stream.ByClient)
	before := runs.Load()
	if err := s.Submit(text("a")); err != nil {
		t.Fatal(err)
	}
	r := <-sink
	r.Release()
	if runs.Load() != before+1 {
		t.Error("the frame was not run")
	}
}

type results chan *stream.Result

func (c results) Push(r *stream.Result)   { c <- r }
func (c results) Done(stream.CloseReason) {}

func TestCacheTakesMemoryOfTheBudget(t *testing.T) {
	c := newCached(t, workers.Config{Cache: workers.Cache{Size: 1 << 20}})
	if st := c.mem.Stats(); st.Reserved != 1<<20 {
		t.Errorf("%+v", st)
	}
	for _, cfg := range []workers.Config{{Name: "n", Kind: "numbered", Cache: workers.Cache{Size: 4 << 20}},
		{Name: "n", Kind: "delay", Cache: workers.Cache{Size: 8192}, Params: stream.Params{"stateful": true}}} {
		_, err := c.LoadConfig(t.Context(), cfg, true)
		var e *stream.Error
		if !errors.As(err, &e) || e.Field != "cache.size" {
			t.Errorf("%v", err)
		}
	}
	if st := c.mem.Stats(); st.Reserved != 1<<20 {
		t.Errorf("%+v", st)
	}
}
