package workers_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"image"
	"image/png"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"millrace/batching"
	"millrace/ingest"
	"millrace/internal/testseed"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

var (
	stressSeed   = flag.Uint64("stress.seed", testseed.First(), "first seed of TestStress")
	stressRounds = flag.Int("stress.rounds", 0, "rounds of TestStress; 0 = what fits its time")
)

// chaos fails as the first byte of a batch's first frame says.
type chaos struct {
	workers.Base
	image, stateful, affine, ahead, brief bool

	limit time.Duration
	in    atomic.Bool
	turn  chan struct{} // turn of a worker with batches ahead
	dead  bool          // under turn
}

const (
	doPanic = iota + 1
	doDie
	doHang
	doSleep
	doFail
	doEmit
)

var (
	states atomic.Int64 // of chaos: kept and not released
	misuse atomic.Value // text of a violated invariant
)

func init() {
	for _, name := range []string{"chaos", "chaos-stateful", "chaos-image", "chaos-image-stateful",
		"chaos-image-affine", "chaos-brief", "chaos-brief-stateful",
		"chaos-ahead", "chaos-ahead-stateful", "chaos-ahead-affine", "chaos-ahead-image"} {
		has := func(part string) bool { return strings.Contains(name, part) }
		workers.Register(workers.Kind{Name: name, Ahead: has("ahead"), New: func() workers.Worker {
			return &chaos{image: has("image"), stateful: has("stateful") || has("affine"), affine: has("affine"),
				ahead: has("ahead"), brief: has("brief"), turn: make(chan struct{}, 1)}
		}})
	}
}

func (c *chaos) Init(_ context.Context, env *workers.Env) (*stream.Model, error) {
	c.limit = env.Limit
	m := &stream.Model{AcceptsAnyInput: true, Ragged: true, Stateful: c.stateful, Affinity: c.affine, MaxBatch: 4}
	if c.image {
		m = &stream.Model{Stateful: c.stateful, Affinity: c.affine, MaxBatch: 4,
			Image:  &stream.ImageSpec{Width: 8, Height: 8, Color: "RGB", Layout: "NHWC", Fit: "stretch"},
			Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Uint8, Shape: []int{8, 8, 3}}}}
	}
	return m, nil
}

func (c *chaos) Brief() bool { return c.brief }

func (c *chaos) Run(ctx context.Context, b *batching.Batch) (err error) {
	if c.ahead {
		c.turn <- struct{}{}
		defer func() { <-c.turn }()
		if c.dead {
			return workers.ErrNotStarted
		}
		c.dead = true // unless the run ends well
		defer func() {
			if err == nil && recover() == nil {
				c.dead = false
			}
		}()
		b.Begin(stream.Now())
		var cancel func()
		ctx, cancel = context.WithTimeout(ctx, c.limit)
		defer cancel()
	}
	if !c.in.CompareAndSwap(false, true) {
		misuse.Store("two runs of one worker at once")
	}
	defer c.in.Store(false)
	for i, r := range b.Requests {
		data := r.Payload
		if c.image {
			data = b.Row(0, b.Offsets[i])
		}
		if c.stateful {
			n, _ := r.State().(*atomic.Int64)
			if n == nil {
				n = &atomic.Int64{}
				states.Add(1)
				r.SetState(n, func(v any) {
					if v.(*atomic.Int64).Swap(-1) < 0 {
						misuse.Store("a state was released twice")
					}
					states.Add(-1)
				})
			}
			if n.Add(1) <= 0 {
				misuse.Store("a released state is used")
			}
		}
		switch data[0] {
		case doPanic:
			panic("as told")
		case doDie:
			return fmt.Errorf("requested: %w", workers.ErrBroken)
		case doHang:
			<-ctx.Done()
			if c.ahead {
				return fmt.Errorf("hung as told: %w", workers.ErrBroken)
			}
		case doSleep: // ignores ctx
			time.Sleep(40 * time.Millisecond)
		case doFail:
			b.Fail(i, stream.Errorf(stream.Internal, "", "requested"))
			continue
		case doEmit:
			r.Emit([]stream.Tensor{{Name: "part", Datatype: stream.Uint8}}, nil)
		}
		b.Finish(i, []stream.Tensor{{Name: "y", Datatype: stream.Uint8, Shape: []int{9}, Data: data[:9]}})
	}
	return nil
}

// backend is an ingest.Backend over a manager.
type backend struct{ storm *storm }

func (d backend) Models() ingest.Repository    { return repository{storm: d.storm} }
func (d backend) Memory() *buf.Pool            { return d.storm.mem }
func (d backend) Sequences() *ingest.Sequences { return nil }
func (d backend) State() ingest.State          { return ingest.State{} }

// repository finds the models of a manager; one-shot requests need no other method.
type repository struct {
	ingest.Repository
	storm *storm
}

func (r repository) Choose(name string) string { return r.storm.Choose(name) }

func (r repository) Model(name, version string) (*stream.Model, bool, error) {
	g, err := r.storm.Group(name, version)
	if err != nil {
		return nil, false, err
	}
	return g.Model(), true, nil
}

func (d backend) Open(model, version string, opts stream.Options, sink stream.Sink) (*stream.Stream, error) {
	g, err := d.storm.Group(model, version)
	if err != nil {
		return nil, err
	}
	s, err := g.Open(opts, sink)
	if err == nil {
		d.storm.mu.Lock()
		d.storm.oneShots = append(d.storm.oneShots, s)
		d.storm.mu.Unlock()
	}
	return s, err
}

// checker is a sink that checks each result.
type checker struct {
	storm *storm
	mode  stream.Mode
	next  uint64 // in Every: the next ending; in Latest: the least seq of a result
	n     stream.Counts
	done  int
}

func (j *checker) Push(r *stream.Result) {
	defer r.Release()
	switch {
	case j.done > 0:
		j.storm.fault("an ending after the last one")
	case j.mode == stream.Every && r.Seq != j.next:
		j.storm.fault("frame %d in the turn of %d", r.Seq, j.next)
	case r.Outcome == stream.Answered && r.Seq < j.next:
		j.storm.fault("the result of %d after one of at least %d", r.Seq, j.next)
	}
	if r.Partial {
		return
	}
	if j.mode == stream.Every || r.Outcome == stream.Answered {
		j.next = r.Seq + 1
	}
	switch r.Outcome {
	case stream.Answered:
		j.n.Results++
	case stream.Dropped:
		j.n.Drops++
	case stream.Failed:
		j.n.Errors++
	}
}

func (j *checker) Done(stream.CloseReason) {
	if j.done++; j.done > 1 {
		j.storm.fault("done twice")
	}
}

// storm is one round of clients, callers and changes, with a time limit.
type storm struct {
	*workers.Manager
	t        *testing.T
	seed     uint64
	mem      *buf.Pool
	until    time.Time
	kinds    []string
	heavy    *buf.Buf // a picture decoded beside the workers, because its decoding takes longer than a run
	accounts [3]stream.Account
	told     atomic.Uint64 // endings reported to the hooks
	calls    atomic.Uint64 // number of the last call

	mu       sync.Mutex
	oneShots []*stream.Stream
	accepted uint64
	faults   []string
}

func (s *storm) fault(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.faults) < 10 {
		s.faults = append(s.faults, fmt.Sprintf(format, args...))
	}
}

func (s *storm) over() bool { return time.Now().After(s.until) }

func (s *storm) config(r *rand.Rand) workers.Config {
	kinds := batching.Kinds()
	kind := kinds[r.IntN(len(kinds))].Name
	return workers.Config{
		Name: "m", Kind: s.kinds[r.IntN(len(s.kinds))], Instances: 1 + r.IntN(3), MaxFlows: 64,
		Batching: workers.Batching{
			Kind: workers.BatcherKind(kind), MaxSize: 1 + r.IntN(4), Buffers: r.IntN(4),
		},
		Parts: batching.PartsOf(kind, []any{&batching.SoftSettings{MaxDelay: time.Millisecond}}),
		Limits: workers.Limits{Run: 20 * time.Millisecond, Quarantined: 1 + r.IntN(50), Restarts: 1 + r.IntN(20),
			IdleState: time.Duration(1+r.IntN(50)) * time.Millisecond},
	}
}

func (s *storm) frame(r *rand.Rand, seq uint64) stream.Frame {
	what := byte(0)
	switch n := r.IntN(400); {
	case n < 4:
		what = doPanic + byte(n)
	case n < 40:
		what = doFail
	case n < 80:
		what = doEmit
	}
	if r.IntN(20) == 0 {
		return stream.Frame{Seq: seq, Codec: stream.PNG, Payload: s.heavy.Bytes(), Lease: s.heavy.Retain(),
			Must: r.IntN(20) == 0, Account: &s.accounts[r.IntN(len(s.accounts))]}
	}
	l, err := s.mem.Lease(8 * 8 * 3)
	if err != nil {
		panic(err)
	}
	clear(l.Bytes())
	l.Bytes()[0] = what
	f := stream.Frame{Seq: seq, Codec: stream.RGB24, Width: 8, Height: 8, Payload: l.Bytes(), Lease: l,
		Must: r.IntN(20) == 0}
	switch r.IntN(20) {
	case 0:
		f.Codec = stream.JPEG // the payload is no JPEG
	case 1:
		f.Width = 9 // nor has the payload this width
	case 2:
		f.Deadline = time.Duration(r.IntN(3000)) * time.Microsecond
	}
	return f
}

// client opens a stream, sends for a while and closes the stream, repeatedly.
func (s *storm) client(r *rand.Rand) {
	for !s.over() {
		p := stream.Policy{Mode: []stream.Mode{stream.Latest, stream.Every}[r.IntN(2)], Window: 1 + r.IntN(8),
			Priority: stream.Priority(r.IntN(3))}
		if r.IntN(4) == 0 {
			p.MaxAge = 5 * time.Millisecond
		}
		g, err := s.Group("m", "")
		if err != nil {
			time.Sleep(100 * time.Microsecond)
			continue
		}
		j := &checker{storm: s, mode: p.Mode}
		st, err := g.Open(stream.Options{Policy: p}, j)
		if err != nil {
			time.Sleep(100 * time.Microsecond)
			continue
		}
		seq := uint64(0)
		for range r.IntN(100) {
			if st.Submit(s.frame(r, seq)) == nil {
				seq++
			}
			if r.IntN(3) == 0 {
				time.Sleep(time.Duration(r.IntN(300)) * time.Microsecond)
			}
		}
		st.Close([]stream.CloseReason{stream.ByClient, stream.ClientGone, stream.SlowConsumer}[r.IntN(3)])
		if !s.finishes(st) {
			s.mu.Lock() // frames that wait for a full batch end with the group
			s.oneShots = append(s.oneShots, st)
			s.mu.Unlock()
			continue
		}
		select {
		case <-st.Finished():
		default:
			s.fault("a stream of %s does not end: %+v, %+v", g.Config().Kind, st.Counts(), g.Stats())
			stacks := make([]byte, 1<<20)
			s.t.Logf("%+v\n%s", g.Config(), stacks[:runtime.Stack(stacks, true)])
			return
		}
		c := st.Counts()
		if c.Accepted != seq || c.Accepted != c.Results+c.Drops+c.Errors || c.Results != j.n.Results ||
			c.Drops != j.n.Drops || c.Errors != j.n.Errors {
			s.fault("%d sent, %+v counted, %+v pushed", seq, c, j.n)
		}
		s.mu.Lock()
		s.accepted += seq
		s.mu.Unlock()
	}
}

// finishes waits for the end of a closed stream, at most 20 s. finishes returns false when the stream may end only
// with its group: when batches wait to be full, also in a group that took over the stream.
func (s *storm) finishes(st *stream.Stream) bool {
	for range 200 {
		select {
		case <-st.Finished():
			return true
		case <-time.After(100 * time.Millisecond):
		}
		if g, err := s.Group("m", ""); err == nil && fullOnly(string(g.Config().Batching.Kind)) {
			return false
		}
	}
	return true
}

func (s *storm) caller(r *rand.Rand, c *ingest.OneShot) {
	for !s.over() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(30000))*time.Microsecond)
		f := s.frame(r, s.calls.Add(1))
		if f.Codec != stream.PNG { // otherwise calls share the payload
			binary.LittleEndian.PutUint64(f.Payload[1:], f.Seq)
		}
		res, err := c.Infer(ctx, ingest.NewGate(backend{s}, nil).Owner(), "m", "", f)
		if res != nil && res.Seq != f.Seq {
			s.fault("the call of frame %d got the result of frame %d", f.Seq, res.Seq)
		} else if err == nil && f.Codec == stream.RGB24 {
			s.checkOutput(f.Seq, res.Outputs[0])
		}
		res.Recycle()
		cancel()
	}
}

// checkOutput checks that a call got its own output, from models that answer with the frame.
func (s *storm) checkOutput(seq uint64, t stream.Tensor) {
	switch t.Name {
	case "output": // of identity: one string
		t.Data = t.Data[4:]
	case "y": // of chaos
	default:
		return
	}
	if binary.LittleEndian.Uint64(t.Data[1:]) != seq {
		s.fault("the call of frame %d got the output %v", seq, t.Data[:9])
	}
}

func (s *storm) changes(r *rand.Rand) {
	ctx := context.Background()
	for !s.over() {
		switch r.IntN(5) {
		case 0:
			_ = s.Unload(ctx, "m", "")
		case 1:
			_ = s.Scale(ctx, "m", 1+r.IntN(4))
		case 2, 3:
			_ = s.Swap(ctx, "m", s.config(r))
		}
		if g, err := s.Group("m", ""); err != nil || !g.Ready() {
			_ = s.Unload(ctx, "m", "")
			if _, err := s.LoadConfig(ctx, s.config(r), true); err != nil {
				s.fault("load: %v", err)
			}
		}
		time.Sleep(time.Duration(r.IntN(60)) * time.Millisecond)
	}
}

func (s *storm) run() {
	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 8, 8))); err != nil {
		s.t.Fatal(err)
	}
	var err error
	if s.heavy, err = s.mem.Copy(append(picture.Bytes(), make([]byte, 5<<20)...)); err != nil {
		s.t.Fatal(err)
	}
	source := func(n uint64) *rand.Rand { return rand.New(rand.NewPCG(s.seed, n)) }
	if _, err := s.LoadConfig(context.Background(), s.config(source(0)), true); err != nil {
		s.t.Fatal(err)
	}
	c := ingest.NewOneShot(ingest.NewGate(backend{s}, nil), "test", new(stream.FrameCounts))
	var wg sync.WaitGroup
	for i := range uint64(6) {
		wg.Go(func() { s.client(source(10 + i)) })
	}
	for i := range uint64(3) {
		wg.Go(func() { s.caller(source(20+i), c) })
	}
	wg.Go(func() { s.changes(source(30)) })
	wg.Wait()
	c.Close()
	s.settle()
	s.heavy.Release()
	s.account()
}

// settle waits until the groups are idle, stops the groups and checks that everything is released.
func (s *storm) settle() {
	for _, st := range s.Snapshot() {
		g, err := s.Group(st.Model.Name, "")
		if err != nil {
			s.t.Fatal(err)
		}
		whole := func() bool {
			st := g.Stats()
			return st.Busy == 0 && st.Quarantined == 0 && st.Waiting == 0 && st.PlacesUsed == 0 && st.Streams == 0 &&
				st.BuffersFree == st.Buffers
		}
		if fullOnly(string(g.Config().Batching.Kind)) {
			_ = s.Unload(context.Background(), st.Model.Name, "")
			continue
		}
		for end := time.Now().Add(10 * time.Second); !whole(); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				s.fault("%s %s is left as %+v", g.Config().Kind, g.Config().Batching.Kind, g.Stats())
				break
			}
		}
	}
	if err := s.Close(context.Background()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *storm) account() {
	s.t.Helper()
	for _, l := range s.oneShots {
		select {
		case <-l.Finished():
		case <-time.After(10 * time.Second):
			s.fault("a line does not end: %+v", l.Counts())
		}
		n := l.Counts()
		if n.Accepted != n.Results+n.Drops+n.Errors {
			s.fault("a line: %+v", n)
		}
		s.accepted += n.Accepted
	}
	// Hung runs release their memory when they return, even when their groups have ended.
	for end := time.Now().Add(10 * time.Second); s.mem.Stats().Leases != 0 || s.mem.Stats().Reserved != 0 ||
		states.Load() != 0 || tallies.Load() != 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			s.fault("%d leases, %d bytes and %d + %d states are left", s.mem.Stats().Leases, s.mem.Stats().Reserved,
				states.Load(), tallies.Load())
			break
		}
	}
	if n := s.told.Load(); n != s.accepted {
		s.fault("%d frames were accepted, %d endings told", s.accepted, n)
	}
	if what := misuse.Swap(""); what != nil && what != "" {
		s.fault("%v", what)
	}
	for _, f := range s.faults {
		s.t.Errorf("seed %d: %s", s.seed, f)
	}
}

func TestStress(t *testing.T) {
	stress(t, "chaos", "chaos-stateful", "chaos-image", "chaos-image-stateful", "chaos-image-affine", "affine",
		"identity")
}

// TestStressBrief repeats the storm with workers whose batches run in the goroutines of callers.
func TestStressBrief(t *testing.T) { stress(t, "chaos-brief", "chaos-brief-stateful", "identity") }

// TestStressAhead repeats the storm with workers that get batches ahead.
func TestStressAhead(t *testing.T) {
	stress(t, "chaos-ahead", "chaos-ahead-stateful", "chaos-ahead-affine", "chaos-ahead-image")
}

func stress(t *testing.T, kinds ...string) {
	round, rounds := 800*time.Millisecond, 12
	if testing.Short() {
		rounds = 3
	}
	if *stressRounds > 0 {
		rounds = *stressRounds
	}
	var frames uint64
	for i := range rounds {
		s := &storm{t: t, seed: *stressSeed + uint64(i), mem: buf.NewPool(0), until: time.Now().Add(round),
			kinds: kinds}
		s.Manager = workers.NewManager(workers.ManagerOptions{Memory: s.mem, Hooks: func(*stream.Model) workers.Hooks {
			return workers.Hooks{Ended: func(*stream.Request) { s.told.Add(1) }}
		}})
		s.run()
		frames += s.accepted
		if t.Failed() {
			t.Fatalf("-stress.seed=%d -stress.rounds=1", s.seed)
		}
	}
	t.Logf("%d frames from seed %d on", frames, *stressSeed)
}
