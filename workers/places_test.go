package workers_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"millrace/stream"
	"millrace/workers"
)

// held is a sink whose Done waits for pass.
type held struct{ done, pass chan struct{} }

func (h *held) Push(r *stream.Result)   { r.Release() }
func (h *held) Done(stream.CloseReason) { close(h.done); <-h.pass }

// nothing is a sink that releases each result.
type nothing struct{}

func (nothing) Push(r *stream.Result)   { r.Release() }
func (nothing) Done(stream.CloseReason) {}

// hungGroup returns a group whose only worker hangs in a run, so that no worker takes the tokens of closed streams.
func hungGroup(t *testing.T, flows int) (rig, *workers.Group) {
	t.Helper()
	r := newRig(t)
	g := r.load(t, workers.Config{Kind: "faulty", Instances: 1, MaxFlows: flows})
	s, _ := open(t, g, every)
	if err := s.Submit(r.frame(t, 0, "hang")); err != nil {
		t.Fatal(err)
	}
	waitBusy(t, g)
	t.Cleanup(releaseHung)
	return r, g
}

// TestPlaceOfOneWhoLeaves: a finished stream's place is found, also right after a search without a result.
func TestPlaceOfOneWhoLeaves(t *testing.T) {
	r, g := hungGroup(t, 2)
	leaves := &held{make(chan struct{}), make(chan struct{})}
	s, err := g.Open(every, leaves)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Submit(r.frame(t, 0, "x")); err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() {
		s.Close(stream.ByClient)
		close(closed)
	}()
	<-leaves.done
	if _, err := g.Open(every, nothing{}); err == nil {
		t.Fatal("its place is free before it has left")
	}
	close(leaves.pass)
	<-closed
	if _, err = g.Open(every, nothing{}); err != nil {
		t.Errorf("%v; %d places are taken", err, g.Stats().PlacesUsed)
	}
}

// TestPlacesFoundAtOnce: no caller is refused while another caller looks for the places of finished streams.
func TestPlacesFoundAtOnce(t *testing.T) {
	const flows, leave = 16001, 16 // so many that looking takes a while
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	r, g := hungGroup(t, flows)
	enter := func() *stream.Stream {
		s, err := g.Open(every, nothing{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Submit(r.frame(t, 0, "x")); err != nil {
			t.Fatal(err)
		}
		return s
	}
	var waiting []*stream.Stream
	for range flows - 1 - leave {
		waiting = append(waiting, enter())
	}
	for range 10 {
		var all [leave]*stream.Stream
		for i := range all {
			all[i] = enter()
		}
		for _, s := range all {
			s.Close(stream.ByClient)
		}
		var opens sync.WaitGroup
		var refused atomic.Int64
		for i := range all {
			opens.Go(func() {
				s, err := g.Open(every, nothing{})
				if err != nil {
					refused.Add(1)
				}
				all[i] = s
			})
		}
		opens.Wait()
		if n := refused.Load(); n > 0 {
			t.Fatalf("%d of %d callers are refused, for each of whom there is a place", n, leave)
		}
		for _, s := range all {
			s.Close(stream.ByClient)
		}
	}
	for _, s := range waiting {
		s.Close(stream.ByClient)
	}
}
