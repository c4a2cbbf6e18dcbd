package workers_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace/batching"
	"millrace/stream"
	"millrace/workers"
)

// A worker that parks while frames wait would leave a frame without an ending: no timer would find the frame later.
// Every producer waits for an answer before continuing, so that the workers park all the time.
func TestNoWakeUpIsLost(t *testing.T) {
	defer toldPrograms(t) // keeps the programs away from other tests
	for _, c := range []struct{ kind, order string }{{"identity", ""}, {"affine", ""}, {"program", ""},
		{"program-affine", ""}, {"identity", "turns"}, {"program", "turns"}} {
		for _, n := range []int{1, 2, 4} {
			r := newRig(t)
			g := r.load(t, workers.Config{Kind: c.kind, Instances: n, Order: c.order})
			each := 1500
			if testing.Short() {
				each = 500
			}
			var wg sync.WaitGroup
			for p := range 6 {
				k := make(answers, 3)
				s, err := g.Open(every, k)
				if err != nil {
					t.Fatal(err)
				}
				wg.Go(func() {
					rnd := rand.New(rand.NewPCG(uint64(p), uint64(n)))
					for i := 0; i < each; {
						burst := min(1+rnd.IntN(3), each-i)
						for range burst {
							_ = s.Submit(r.frame(t, uint64(i), "x"))
							i++
						}
						for range burst {
							<-k
						}
						for range rnd.IntN(20) {
							runtime.Gosched()
						}
					}
				})
			}
			wg.Wait()
		}
	}
}

// answers is a sink that counts, with room for all frames sent at once.
type answers chan stream.Outcome

func (a answers) Push(r *stream.Result) {
	r.Release()
	a <- r.Outcome
}

func (answers) Done(stream.CloseReason) {}

// As above, with added, removed and broken workers, and with fewer batches than workers: a leaving worker must pass
// on its batch and its work.
func TestNoWakeUpIsLostWhenWorkersLeave(t *testing.T) {
	for _, kind := range []string{"faulty", "program"} {
		for _, buffers := range []int{1, 9} {
			leave(t, kind, "recent", buffers)
		}
		leave(t, kind, "turns", 9)
	}
	toldPrograms(t)
}

func leave(t *testing.T, kind, order string, buffers int) {
	r := newRig(t)
	g := r.load(t, workers.Config{Kind: kind, Instances: 3, Order: order, Batching: workers.Batching{Buffers: buffers},
		Limits: workers.Limits{Restarts: 1 << 30}})
	each := 600
	if testing.Short() {
		each = 100
	}
	var wg sync.WaitGroup
	for p := range 4 {
		s, e := open(t, g, every)
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(p), 9))
			for i := range each {
				what := "fine"
				if rnd.IntN(100) == 0 {
					what = "die"
				}
				_ = s.Submit(r.frame(t, uint64(i), what))
				e.wait(t, i+1)
			}
		})
	}
	stop := make(chan struct{})
	var scaler sync.WaitGroup
	scaler.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := r.Scale(context.Background(), kind, 1+n%4); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	close(stop)
	scaler.Wait()
	if st := g.Stats(); buffers == 1 && st.Buffers != 1 {
		t.Errorf("%d batches, configured was 1", st.Buffers)
	}
}

// In a synctest bubble a lost wake-up is a deadlock, which synctest reports. Time
// passes only when all goroutines wait.
func TestParkingInABubble(t *testing.T) {
	defer toldPrograms(t) // keeps the programs away from other tests
	for _, worker := range []string{"faulty", "program", "program-affine"} {
		for _, order := range []string{"recent", "turns"} {
			parkInABubble(t, worker, order)
		}
	}
}

func parkInABubble(t *testing.T, worker, order string) {
	for _, k := range batching.Kinds() {
		kind := k.Name
		if worker == "program-affine" && kind != batching.Adaptive && kind != batching.Soft {
			// three of eight streams fill no batch of four: the other streams wait for a full batch until too late
			// for their next frame
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			g := r.load(t, workers.Config{Kind: worker, Instances: 3, Order: order,
				Batching: workers.Batching{Kind: workers.BatcherKind(kind), MaxSize: 4},
				Parts:    batching.PartsOf(kind, []any{&batching.SoftSettings{MaxDelay: 3 * time.Millisecond}})})
			what := "slow" // a millisecond, and of a program a second
			if worker != "faulty" {
				what = "short"
			}
			var wg sync.WaitGroup
			const streams, frames = 8, 40
			for p := range streams {
				options := every
				options.Policy.Deadline = time.Second
				s, e := open(t, g, options)
				wg.Go(func() {
					rnd := rand.New(rand.NewPCG(uint64(p), 3))
					for i := range frames {
						time.Sleep(time.Duration(rnd.IntN(3)) * time.Millisecond)
						_ = s.Submit(r.frame(t, uint64(i), what))
					}
					for _, x := range e.wait(t, frames) {
						if x.outcome != stream.Answered {
							t.Errorf("%s %s %s: %+v", worker, order, kind, x)
						}
					}
				})
			}
			wg.Wait() // streams*frames is a multiple of 4, so that hard batches are all full
			if st := g.Stats(); st.Waiting != 0 || fullOnly(kind) && st.Batches != streams*frames/4 {
				t.Errorf("%s: %d wait, %d batches", kind, st.Waiting, st.Batches)
			}
		})
	}
}

// Abandoning a hung run with the only batch makes room for another batch.
func TestMemoryOfAHungRunIsFreeForTheOthers(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		g := r.load(t, workers.Config{Kind: "faulty", Instances: 2, Batching: workers.Batching{Buffers: 1, MaxSize: 1},
			Limits: workers.Limits{Run: 20 * time.Millisecond, Quarantined: -1}})
		a, ae := open(t, g, every)
		b, be := open(t, g, every)
		_ = a.Submit(r.frame(t, 0, "hang"))
		waitBusy(t, g)
		_ = b.Submit(r.frame(t, 0, "fine"))
		if x := be.wait(t, 1)[0]; x.data != "fine" {
			t.Fatalf("%+v", x)
		}
		if x := ae.wait(t, 1)[0]; stream.CodeOf(x.err) != stream.Timeout {
			t.Fatalf("%+v", x)
		}
		// The frame's ending is pushed before the worker is removed.
		until(t, "the hung worker is off the list, and its batch replaced", func() bool {
			st := g.Stats()
			return st.Workers == 1 && st.Quarantined == 1 && st.Buffers == 1
		})
		releaseHung()
	})
}

// A limit of one batch allows one batch at a time, with any number of workers.
func TestThrottle(t *testing.T) {
	r := newRig(t)
	g := r.load(t, workers.Config{Kind: "gauge", Instances: 4, Batching: workers.Batching{Buffers: 2, MaxSize: 1}})
	most.Store(0)
	for range 8 {
		s, e := open(t, g, every)
		for i := range 20 {
			_ = s.Submit(r.frame(t, uint64(i), "x"))
		}
		defer e.wait(t, 20)
	}
	s, e := open(t, g, every)
	_ = s.Submit(r.frame(t, 0, "x"))
	e.wait(t, 1)
	if n := most.Load(); n > 2 {
		t.Fatalf("%d runs at once", n)
	}
}
