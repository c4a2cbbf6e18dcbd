package ingest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"millrace/batching"
	"millrace/ingest"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

// gated answers each batch when the test permits.
type gated struct{ workers.Base }

var (
	inRun = make(chan string, 64)
	pass  = make(chan struct{})
)

func init() {
	workers.Register(workers.Kind{Name: "gated", New: func() workers.Worker { return &gated{} }})
}

func (*gated) Init(context.Context, *workers.Env) (*stream.Model, error) {
	return &stream.Model{AcceptsAnyInput: true, Ragged: true, MaxBatch: 1}, nil
}

func (*gated) Run(_ context.Context, b *batching.Batch) error {
	inRun <- string(b.Requests[0].Payload)
	<-pass
	b.Finish(0, []stream.Tensor{{Name: "y", Datatype: stream.Uint8, Shape: []int{1}, Data: []byte{1}}})
	return nil
}

// backend is a Backend over a manager, and counts the opened streams.
type backend struct {
	*workers.Manager
	mem       *buf.Pool
	sequences *ingest.Sequences
	noModel   stream.FrameCounts
	mu        sync.Mutex
	opened    []*stream.Stream
}

func (d *backend) Models() ingest.Repository { return repository{Manager: d.Manager} }

// owner is the server itself, without quotas.
func (d *backend) owner() *ingest.Client { return ingest.NewGate(d, nil).Owner() }

func (d *backend) Memory() *buf.Pool            { return d.mem }
func (d *backend) Sequences() *ingest.Sequences { return d.sequences }
func (d *backend) State() ingest.State          { return ingest.State{} }

func (d *backend) Open(model, version string, opts stream.Options, sink stream.Sink) (*stream.Stream, error) {
	g, err := d.Group(model, version)
	if err != nil {
		return nil, err
	}
	s, err := g.Open(opts, sink)
	if err == nil {
		d.mu.Lock()
		d.opened = append(d.opened, s)
		d.mu.Unlock()
	}
	return s, err
}

// repository finds models only.
type repository struct {
	ingest.Repository
	*workers.Manager
}

func (r repository) Model(name, version string) (*stream.Model, bool, error) {
	g, err := r.Group(name, version)
	if err != nil {
		return nil, false, err
	}
	return g.Model(), g.Ready(), nil
}

func (r repository) Index() []ingest.Entry         { return nil }
func (r repository) Choose(name string) string     { return r.Manager.Choose(name) }
func (r repository) Versions(name string) []string { return r.Manager.Versions(name) }

func (r repository) Load(ctx context.Context, name string, how ingest.Load) (ingest.Loaded, error) {
	loaded, err := r.Manager.Load(ctx, name, workers.Load(how))
	return ingest.Loaded(loaded), err
}
func (r repository) Unload(ctx context.Context, name string, _ ingest.Unload) error {
	return r.Manager.Unload(ctx, name, "")
}
func (r repository) Scale(ctx context.Context, name string, instances int) error {
	return r.Manager.Scale(ctx, name, instances)
}

func newBackend(t *testing.T) *backend {
	t.Helper()
	d := &backend{mem: buf.NewPool(0)}
	d.Manager = workers.NewManager(workers.ManagerOptions{Memory: d.mem})
	t.Cleanup(func() {
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
		for _, s := range d.opened {
			<-s.Finished()
		}
		if n := d.mem.Stats().Leases; n != 0 {
			t.Errorf("%d leases were not given back", n)
		}
	})
	return d
}

func (d *backend) load(t *testing.T, cfg workers.Config) *workers.Group {
	t.Helper()
	name, err := d.LoadConfig(context.Background(), cfg, true)
	if err != nil {
		t.Fatal(err)
	}
	g, _ := d.Group(name, "")
	return g
}

func (d *backend) frame(data string) stream.Frame {
	l, _ := d.mem.Copy([]byte(data))
	return stream.Frame{Payload: l.Bytes(), Lease: l}
}

// sole counts the frames whose memory has no other holder, so that bytes can be prepended.
type sole struct{ workers.Base }

func init() {
	workers.Register(workers.Kind{Name: "sole", New: func() workers.Worker { return &sole{} }})
}

var alone int

func (*sole) Init(context.Context, *workers.Env) (*stream.Model, error) {
	// called while the frame is submitted
	return &stream.Model{AcceptsAnyInput: true, Ragged: true, MaxBatch: 1, Cost: func(r *stream.Request) time.Duration {
		if _, ok := r.Lease.Prepend(1); ok {
			alone++
		}
		return 0
	}}, nil
}

func (*sole) Run(_ context.Context, b *batching.Batch) error {
	b.Finish(0, []stream.Tensor{{Name: "y", Datatype: stream.Uint8, Shape: []int{1}, Data: []byte{1}}})
	return nil
}

// TestFramesAreHeldOnce: only the stream holds a frame's memory once a worker can get the frame. With another holder,
// the worker would have to answer with a copy.
func TestFramesAreHeldOnce(t *testing.T) {
	d := newBackend(t)
	d.sequences = ingest.NewSequences(d)
	defer d.sequences.Close()
	d.load(t, workers.Config{Name: "m", Kind: "sole"})
	c := ingest.NewOneShot(ingest.NewGate(d, nil), "test", &d.noModel)
	defer c.Close()
	sequence := ingest.Sequence{ID: ingest.SequenceID{Number: 1}, Start: true, End: true}
	alone = 0
	for _, of := range []ingest.Sequence{{}, sequence} {
		f := d.frame("x")
		f.Codec = stream.JPEG
		r, err := c.InferIn(context.Background(), d.owner(), of, "m", "", f)
		if err != nil {
			t.Fatal(err)
		}
		r.Release()
	}
	if alone != 2 {
		t.Errorf("the model held %d of 2 frames alone", alone)
	}
}

func TestStreamsAreUsedAgain(t *testing.T) {
	d := newBackend(t)
	c := ingest.NewOneShot(ingest.NewGate(d, nil), "test", &d.noModel)
	ask := func() error {
		r, err := c.Infer(context.Background(), d.owner(), "m", "", d.frame("x"))
		if err == nil {
			r.Release()
		}
		return err
	}
	if err := ask(); stream.CodeOf(err) != stream.NotFound {
		t.Fatalf("%v", err)
	}
	g := d.load(t, workers.Config{Name: "m", Kind: "plain"})
	for range 10 {
		if err := ask(); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(d.opened); n != 1 {
		t.Fatalf("%d streams for one request at a time", n)
	}
	// An unload and a load between two requests end the stream; the second request gets another stream.
	if err := d.Unload(context.Background(), "m", ""); err != nil {
		t.Fatal(err)
	}
	if err := ask(); stream.CodeOf(err) != stream.NotFound {
		t.Fatalf("%v", err)
	}
	if n := g.Stats().PlacesUsed; n != 0 {
		t.Fatalf("%d places", n)
	}
	g = d.load(t, workers.Config{Name: "m", Kind: "plain"})
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	c.Close()
	if n := g.Stats().PlacesUsed; n != 0 {
		t.Fatalf("%d places after Close", n)
	}
	if err := ask(); err != nil { // still served, by a stream that is not kept
		t.Fatal(err)
	}
	if n := g.Stats().PlacesUsed; n != 0 {
		t.Fatalf("%d places", n)
	}
}

// A caller that gives up returns at once, whether its frame waits or runs. Neither stream is reused.
func TestCallersWhoLeave(t *testing.T) {
	d := newBackend(t)
	g := d.load(t, workers.Config{Name: "m", Kind: "gated"})
	c := ingest.NewOneShot(ingest.NewGate(d, nil), "test", &d.noModel)
	defer c.Close()
	ended := func(ctx context.Context, data string) chan error {
		out := make(chan error, 1)
		go func() {
			r, err := c.Infer(ctx, d.owner(), "m", "", d.frame(data))
			if err == nil {
				r.Release()
			}
			out <- err
		}()
		return out
	}
	ctx, leave := context.WithCancelCause(context.Background())
	runs := ended(ctx, "runs")
	if what := <-inRun; what != "runs" {
		t.Fatal(what)
	}
	waits := ended(ctx, "waits")
	for g.Stats().Waiting == 0 {
		runtime.Gosched()
	}
	leave(fmt.Errorf("gone home: %w", context.Canceled))
	for _, x := range []chan error{runs, waits} {
		if err := <-x; stream.CodeOf(err) != stream.Canceled || !errors.Is(err, context.Canceled) {
			t.Fatalf("%v", err)
		}
	}
	pass <- struct{}{}
	stays := ended(context.Background(), "stays")
	if what := <-inRun; what != "stays" {
		t.Fatalf("%q runs for nobody", what)
	}
	pass <- struct{}{}
	if err := <-stays; err != nil {
		t.Fatal(err)
	}
	if n := len(d.opened); n != 3 {
		t.Fatalf("%d streams", n)
	}
	for _, s := range d.opened[:2] {
		<-s.Finished()
	}
	if n := g.Stats().PlacesUsed; n != 1 { // the place of the kept stream
		t.Fatalf("%d places", n)
	}
}

// A caller that leaves while its frame waits frees its place at once, although the only worker is in a run.
func TestCallersThatLeaveFreeTheirPlaces(t *testing.T) {
	d := newBackend(t)
	d.load(t, workers.Config{Name: "m", Kind: "gated", MaxFlows: 2})
	c := ingest.NewOneShot(ingest.NewGate(d, nil), "test", &d.noModel)
	defer c.Close()
	first := make(chan error, 1)
	go func() {
		r, err := c.Infer(context.Background(), d.owner(), "m", "", d.frame("a"))
		if err == nil {
			r.Release()
		}
		first <- err
	}()
	<-inRun
	for range 10 {
		ctx, cancel := context.WithCancel(context.Background())
		left := make(chan error, 1)
		go func() {
			_, err := c.Infer(ctx, d.owner(), "m", "", d.frame("b"))
			left <- err
		}()
		for d.Manager.Snapshot()[0].Waiting == 0 {
			select {
			case err := <-left:
				t.Fatal(err)
			default:
				runtime.Gosched()
			}
		}
		cancel()
		if err := <-left; stream.CodeOf(err) != stream.Canceled {
			t.Fatalf("%v", err)
		}
	}
	pass <- struct{}{}
	if err := <-first; err != nil {
		t.Fatal(err)
	}
}

func TestAFullQueueRefusesCalls(t *testing.T) {
	d := newBackend(t)
	d.load(t, workers.Config{Name: "m", Kind: "gated", MaxFlows: 1})
	c := ingest.NewOneShot(ingest.NewGate(d, nil), "test", &d.noModel)
	defer c.Close()
	first := make(chan error, 1)
	go func() {
		r, err := c.Infer(context.Background(), d.owner(), "m", "", d.frame("a"))
		if err == nil {
			r.Release()
		}
		first <- err
	}()
	<-inRun
	if _, err := c.Infer(context.Background(), d.owner(), "m", "",
		d.frame("b")); stream.CodeOf(err) != stream.Overloaded {
		t.Fatalf("%v", err)
	}
	pass <- struct{}{}
	if err := <-first; err != nil {
		t.Fatal(err)
	}
}
