package ingest_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"millrace/batching"
	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/internal/role"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

// summing adds up the lengths of the payloads of a stream. The state is in the stream, or in the worker (affine).
// Payloads beginning with "fail" fail, payloads beginning with "panic" panic, and "wait" waits for the test.
type summing struct {
	workers.Base
	affine bool
}

// sums are the channels of the present test, made inside the test's bubble as testing/synctest requires.
var sums atomic.Pointer[struct{ runs, goes chan struct{} }]

func init() {
	workers.Register(workers.Kind{Name: "summing", New: func() workers.Worker { return &summing{} }})
	workers.Register(workers.Kind{Name: "affine", New: func() workers.Worker { return &summing{affine: true} }})
}

func (w *summing) Init(context.Context, *workers.Env) (*stream.Model, error) {
	return &stream.Model{AcceptsAnyInput: true, Ragged: true, MaxBatch: 4, Stateful: true, Affinity: w.affine}, nil
}

func (*summing) Run(ctx context.Context, b *batching.Batch) error {
	for i, r := range b.Requests {
		text := string(r.Payload)
		switch {
		case strings.HasPrefix(text, "fail"):
			r.Fail(stream.Errorf(stream.Internal, "", "as asked"))
			continue
		case strings.HasPrefix(text, "panic"):
			panic("as asked")
		case strings.HasPrefix(text, "wait"):
			sums.Load().runs <- struct{}{}
			select {
			case <-sums.Load().goes:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		sum, _ := r.State().(int)
		sum += len(text)
		r.SetState(sum, func(any) {})
		b.Finish(i, []stream.Tensor{{Name: "sum", Datatype: stream.Uint8, Shape: []int{1}, Data: []byte{byte(sum)}}})
	}
	return nil
}

// sequences is a manager with a stateful model m, and callers of two protocols.
type sequences struct {
	*backend
	t          *testing.T
	rest, grpc *ingest.OneShot
}

func newSequences(t *testing.T, cfg workers.Config) *sequences {
	t.Helper()
	sums.Store(&struct{ runs, goes chan struct{} }{make(chan struct{}, 64), make(chan struct{})})
	mem := buf.NewPool(0)
	d := &backend{Manager: workers.NewManager(workers.ManagerOptions{Memory: mem}), mem: mem}
	d.sequences = ingest.NewSequences(d)
	s := &sequences{backend: d, t: t, rest: ingest.NewOneShot(ingest.NewGate(d, nil), "rest", &d.noModel),
		grpc: ingest.NewOneShot(ingest.NewGate(d, nil), "grpc", &d.noModel)}
	t.Cleanup(func() {
		s.rest.Close()
		s.grpc.Close()
		if err := d.Close(context.Background()); err != nil {
			t.Error(err)
		}
		d.sequences.Close()
		for _, x := range d.opened {
			<-x.Finished()
		}
		if n := mem.Stats().Leases; n != 0 {
			t.Errorf("%d leases are held", n)
		}
		if open := d.sequences.Open(); len(open) != 0 {
			t.Errorf("sequences are open: %v", open)
		}
	})
	if cfg.Name == "" {
		cfg.Name = "m"
	}
	if cfg.Kind == "" {
		cfg.Kind = "summing"
	}
	s.load(t, cfg)
	return s
}

// clients returns a function for making clients with quotas.
func (s *sequences) clients() func(name string, quotas map[string]float64) *ingest.Client {
	gate := ingest.NewGate(s.backend, access.AllowEverybody(access.Quotas{}))
	return func(name string, quotas map[string]float64) *ingest.Client {
		return gate.TrustedClient(&access.Principal{Key: name, Name: name, Roles: role.All, Quotas: quotas})
	}
}

const (
	begin = 1 << iota
	end
)

func of(id uint64, flags int) ingest.Sequence {
	return ingest.Sequence{ID: ingest.SequenceID{Number: id}, Start: flags&begin != 0, End: flags&end != 0}
}

// send sends a request of a sequence and returns the answer, or the code of the error.
func (s *sequences) send(one *ingest.OneShot, q ingest.Sequence, data string) string {
	s.t.Helper()
	return s.sendIn(s.t.Context(), one, q, data)
}

func (s *sequences) sendIn(ctx context.Context, one *ingest.OneShot, q ingest.Sequence, data string) string {
	s.t.Helper()
	return s.sendAs(ctx, s.owner(), one, q, data)
}

func (s *sequences) sendAs(ctx context.Context, client *ingest.Client, one *ingest.OneShot, q ingest.Sequence,
	data string) string {
	f := s.frame(data)
	r, err := one.InferIn(ctx, client, q, "m", "", f)
	if err != nil {
		if r == nil {
			s.t.Errorf("%s: no ending for %v", data, err)
		}
		return string(stream.CodeOf(err)) + ": " + err.Error()
	}
	defer r.Release()
	return fmt.Sprint(r.Outputs[0].Data[0])
}

func (s *sequences) want(got, want string) {
	s.t.Helper()
	if !strings.HasPrefix(got, want) {
		s.t.Errorf("got %q, want %q", got, want)
	}
}

const notOpen = "invalid_argument: inference request for sequence "

func TestSequences(t *testing.T) {
	s := newSequences(t, workers.Config{Sequences: stream.Sequences{Idle: time.Hour}})
	text := ingest.Sequence{ID: ingest.SequenceID{Text: "7"}}
	s.want(s.send(s.rest, of(7, 0), "a"), notOpen)
	s.want(s.send(s.rest, of(7, begin), "a"), "1")
	s.want(s.send(s.grpc, of(7, 0), "bb"), "3")
	s.want(s.send(s.rest, text, "a"), notOpen)
	s.want(s.send(s.rest, of(math.MaxUint64, begin), "cccc"), "4")
	s.want(s.send(s.rest, of(7, 0), "d"), "4")
	s.want(s.send(s.rest, of(7, begin), "e"), "1") // started again
	s.want(s.send(s.rest, of(7, end), "f"), "2")
	s.want(s.send(s.rest, of(7, 0), "g"), notOpen)
	s.want(s.send(s.rest, of(7, end), "g"), notOpen)
	s.want(s.send(s.rest, of(8, begin|end), "gg"), "2")
	s.want(s.send(s.rest, of(8, 0), "g"), notOpen)
	s.want(s.send(s.rest, ingest.Sequence{}, "hhh"), "3") // alone
	s.want(s.send(s.rest, of(math.MaxUint64, 0), "i"), "5")
	if open := s.sequences.Open(); open["m"] != 1 {
		t.Errorf("%v are open, want 1", open)
	}
	g, _ := s.Group("m", "")
	if f := g.Stats().Frames; f.InFlight != 0 || f.Results != 9 || f.Accepted != 14 ||
		f.Refused["invalid_argument"] != 5 {
		t.Errorf("%+v", f)
	}
}

// TestOneSequencesRequestsAreInOrder: requests sent before earlier answers run in order, and END takes effect after
// all of them.
func TestOneSequencesRequestsAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSequences(t, workers.Config{Instances: 3})
		got := make([]string, 20)
		var wg sync.WaitGroup
		for i := range got {
			flags := 0
			if i == 0 {
				flags = begin
			} else if i == len(got)-1 {
				flags = end
			}
			data := "x"
			if i == 0 {
				data = "wait"
			}
			wg.Go(func() { got[i] = s.send(s.rest, of(1, flags), data) })
			synctest.Wait()
		}
		<-sums.Load().runs
		sums.Load().goes <- struct{}{}
		wg.Wait()
		for i, g := range got {
			s.want(g, fmt.Sprint(4+i))
		}
		s.want(s.send(s.rest, of(1, 0), "x"), notOpen)
	})
}

func TestIdleSequences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSequences(t, workers.Config{Sequences: stream.Sequences{Idle: 2 * time.Second},
			Limits: workers.Limits{IdleState: time.Second}})
		s.want(s.send(s.rest, of(1, begin), "a"), "1")
		for i := range 5 {
			time.Sleep(2*time.Second - time.Millisecond)
			// longer than limits.idle_state, which applies to other streams
			s.want(s.send(s.rest, of(1, 0), "a"), fmt.Sprint(2+i))
		}
		time.Sleep(2*time.Second + time.Millisecond)
		synctest.Wait()
		if open := s.sequences.Open(); len(open) != 0 {
			t.Errorf("%v are open", open)
		}
		s.want(s.send(s.rest, of(1, 0), "a"), notOpen)
		// The idle time excludes the time of a request in flight.
		s.want(s.send(s.rest, of(1, begin), "a"), "1")
		var wg sync.WaitGroup
		wg.Go(func() { s.want(s.send(s.rest, of(1, 0), "wait"), "5") })
		<-sums.Load().runs
		time.Sleep(10 * time.Second)
		sums.Load().goes <- struct{}{}
		wg.Wait()
		s.want(s.send(s.rest, of(1, end), "a"), "6")
	})
}

func TestMostSequences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSequences(t, workers.Config{Sequences: stream.Sequences{Max: 2, Idle: time.Minute}})
		s.want(s.send(s.rest, of(1, begin), "a"), "1")
		s.want(s.send(s.rest, of(2, begin), "a"), "1")
		s.want(s.send(s.rest, of(3, begin), "a"), "overloaded: sequences.max")
		s.want(s.send(s.rest, of(2, begin), "aa"), "2") // in the place of its predecessor
		s.want(s.send(s.rest, of(1, end), "a"), "2")
		s.want(s.send(s.rest, of(3, begin), "a"), "1")
		s.want(s.send(s.rest, of(4, begin), "a"), "overloaded: sequences.max")
		time.Sleep(time.Minute)
		synctest.Wait()
		s.want(s.send(s.rest, of(4, begin), "a"), "1")
	})
}

// TestSequencesOfClients: clients use the same id for different sequences, over each protocol, and neither continue
// nor end another client's sequences.
func TestSequencesOfClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSequences(t, workers.Config{Sequences: stream.Sequences{Idle: time.Minute}})
		clients := s.clients()
		a, b, owner := clients("a", nil), clients("b", nil), s.owner()
		as := func(client *ingest.Client, one *ingest.OneShot, q ingest.Sequence, data string) string {
			return s.sendAs(t.Context(), client, one, q, data)
		}
		s.want(as(a, s.rest, of(7, begin), "a"), "1")
		for _, q := range []ingest.Sequence{of(7, 0), of(7, end)} {
			s.want(as(b, s.rest, q, "a"), notOpen)
			s.want(as(b, s.grpc, q, "a"), notOpen)
			s.want(as(owner, s.rest, q, "a"), notOpen)
		}
		s.want(as(b, s.rest, of(7, begin), "bbbb"), "4")
		s.want(as(a, s.grpc, of(7, 0), "a"), "2")
		s.want(as(b, s.grpc, of(7, end), "b"), "5")
		s.want(as(a, s.rest, of(7, end), "a"), "3")
	})
}

// TestSequencesHoldPlaces: each open sequence of a client counts as one of the client's streams until the sequence
// ends, for any reason.
func TestSequencesHoldPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSequences(t, workers.Config{Sequences: stream.Sequences{Max: 3, Idle: time.Minute}})
		clients := s.clients()
		a, b, c := clients("a", map[string]float64{"streams": 2}), clients("b", nil),
			clients("c", map[string]float64{"sequences": 1})
		as := func(client *ingest.Client, id uint64, flags int, data string) string {
			return s.sendAs(t.Context(), client, s.rest, of(id, flags), data)
		}
		const over = "flow_control: quotas.streams"
		holds := func(client *ingest.Client, want int) {
			t.Helper()
			for _, quota := range []stream.Quota{stream.QuotaStreams, stream.QuotaSequences} {
				if got, _ := client.Core().Holds(quota); got != want {
					t.Errorf("%d %v are held, want %d", got, quota, want)
				}
			}
		}
		s.want(as(a, 1, begin, "a"), "1")
		s.want(as(a, 2, begin, "a"), "1")
		s.want(as(a, 3, begin, "a"), over)
		s.want(as(b, 3, begin, "a"), "1")
		s.want(as(b, 4, begin, "a"), "overloaded: sequences.max")
		holds(b, 1)
		s.want(as(a, 2, begin, "aa"), "2") // in the place of its predecessor
		s.want(as(a, 2, end, "a"), "3")
		holds(a, 1)
		s.want(as(a, 3, begin, "fail"), "internal") // has no state, and ends
		synctest.Wait()
		s.want(as(a, 3, begin, "a"), "1")
		s.want(as(a, 4, begin, "a"), over)
		time.Sleep(time.Minute) // both are idle
		synctest.Wait()
		holds(a, 0)
		holds(b, 0)
		s.want(as(c, 1, begin, "a"), "1")
		s.want(as(c, 2, begin, "a"), "flow_control: quotas.sequences")
		holds(c, 1)
		s.want(as(a, 4, begin, "a"), "1")
		if err := s.Unload(t.Context(), "m", ""); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		holds(a, 0)
		holds(c, 0)
	})
}

// TestSequencesOfAnEndedModel: a request that continues a lost state is refused, and the places of the lost sequences
// are free.
func TestSequencesOfAnEndedModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := workers.Config{Name: "m", Kind: "summing", Sequences: stream.Sequences{Max: 2, Idle: time.Hour}}
		s := newSequences(t, cfg)
		s.want(s.send(s.rest, of(1, begin), "a"), "1")
		s.want(s.send(s.rest, of(2, begin), "a"), "1")
		var wg sync.WaitGroup
		var running, waiting string
		wg.Go(func() { running = s.send(s.rest, of(1, 0), "wait") })
		<-sums.Load().runs
		wg.Go(func() { waiting = s.send(s.rest, of(1, 0), "b") })
		synctest.Wait()
		wg.Go(func() {
			if err := s.Swap(context.Background(), "m", cfg); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		sums.Load().goes <- struct{}{}
		wg.Wait()
		s.want(running, "5")
		s.want(waiting, "unloaded: model m was replaced")
		s.want(s.send(s.rest, of(1, 0), "a"), notOpen)
		s.want(s.send(s.rest, of(2, 0), "a"), notOpen)
		s.want(s.send(s.rest, of(3, begin), "a"), "1")
		s.want(s.send(s.rest, of(4, begin), "a"), "1")
		if err := s.Unload(context.Background(), "m", ""); err != nil {
			t.Error(err)
		}
		s.want(s.send(s.rest, of(3, 0), "a"), "not_found")
	})
}

// TestSequenceWithoutItsFirstRequest: when START fails, all later requests are refused, even when sent before the
// answer; the sequence that START would have replaced has ended, too.
func TestSequenceWithoutItsFirstRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSequences(t, workers.Config{Sequences: stream.Sequences{Idle: time.Hour}})
		s.want(s.send(s.rest, of(1, begin), "a"), "1")
		s.want(s.send(s.rest, of(1, begin), "fail"), "internal")
		s.want(s.send(s.rest, of(1, 0), "a"), "conflict: sequence_start")
		s.want(s.send(s.rest, of(1, 0), "a"), notOpen)
		s.want(s.send(s.rest, of(1, begin), "a"), "1")
		s.want(s.send(s.rest, of(1, 0), "fail"), "internal") // alone
		s.want(s.send(s.rest, of(1, 0), "a"), "2")
	})
}

// TestStateOfAWorkerThatIsReplaced: after the replacement of a worker, a sequence does not continue with another
// state.
func TestStateOfAWorkerThatIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSequences(t, workers.Config{Kind: "affine", Sequences: stream.Sequences{Idle: time.Hour}})
		s.want(s.send(s.rest, of(1, begin), "a"), "1")
		s.want(s.send(s.rest, of(2, begin), "a"), "1")
		s.want(s.send(s.rest, of(2, 0), "panic"), "internal")
		synctest.Wait()
		s.want(s.send(s.rest, of(1, 0), "a"), "unavailable: sequence_id")
		s.want(s.send(s.rest, of(2, 0), "a"), "unavailable: sequence_id")
		s.want(s.send(s.rest, of(1, 0), "a"), notOpen)
		s.want(s.send(s.rest, of(1, begin), "a"), "1")
	})
}

// TestCallerOfASequenceGivesUp: a sequence ends when a caller gives up, since the request may or may not be part of
// the state.
func TestCallerOfASequenceGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSequences(t, workers.Config{Instances: 2, Sequences: stream.Sequences{Idle: time.Hour}})
		s.want(s.send(s.rest, of(1, begin), "a"), "1")
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { s.want(s.sendIn(ctx, s.rest, of(1, 0), "wait"), "canceled") })
		<-sums.Load().runs
		wg.Go(func() { s.want(s.send(s.rest, of(1, 0), "b"), "canceled") })
		synctest.Wait()
		cancel()
		wg.Wait() // while the run continues
		s.want(s.send(s.rest, of(1, 0), "a"), notOpen)
		s.want(s.send(s.rest, of(1, begin), "ab"), "2")
		sums.Load().goes <- struct{}{}
	})
}

// TestManySequences: at the end nothing is held, whatever their requests did.
func TestManySequences(t *testing.T) {
	s := newSequences(t, workers.Config{Instances: 2, Sequences: stream.Sequences{Max: 6, Idle: 2 * time.Millisecond}})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			sum := 0
			for n := range 300 {
				flags := 0
				if n%5 == 0 {
					sum, flags = 0, begin
				}
				if n%7 == 0 {
					flags |= end
				}
				got := s.send(s.rest, of(uint64(i+1), flags), "x")
				sum++
				if len(got) <= 3 && got != fmt.Sprint(sum) {
					t.Errorf("got %s, want %d", got, sum)
				}
				if n%50 == 49 && i == 0 {
					if err := s.Swap(context.Background(), "m", workers.Config{Kind: "summing", Instances: 2,
						Sequences: stream.Sequences{Max: 6, Idle: 2 * time.Millisecond}}); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
}
