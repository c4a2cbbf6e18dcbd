package workers_test

import (
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"millrace/batching"
	"millrace/internal/histogram"
	"millrace/stream"
	"millrace/workers"
)

// TestFiguresOfWhatRan checks the rows and the stages of frames that waited for exactly known times.
func TestFiguresOfWhatRan(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := newRig(t)
		g := r.load(t, workers.Config{
			Kind: "delay", Batching: workers.Batching{MaxSize: 2},
			Params: stream.Params{"fixed": "10ms", "per_item": "0s"},
		})
		s, e := open(t, g, every)
		for seq := range uint64(5) { // runs of 1, 2 and 2, in sequence
			if err := s.Submit(r.frame(t, seq, "x")); err != nil {
				t.Fatal(err)
			}
			if seq == 0 {
				synctest.Wait()
			}
		}
		e.wait(t, 5)
		synctest.Wait()
		const ms = time.Millisecond
		if ran, want := g.Stats().RunTotals, (workers.RunTotals{
			Frames: 5, Rows: 5, Queue: 60 * ms, Infer: 50 * ms, Runs: 3,
			Sizes: []workers.SizeStat{
				{Rows: 1, Runs: 1, Infer: 10 * ms}, {Rows: 2, Runs: 2, Infer: 20 * ms},
			}}); !reflect.DeepEqual(ran, want) {
			t.Errorf("ran: got %+v, want %+v", ran, want)
		}
		if f := g.Stats().Frames; f.Succeeded() != 5 || f.Failed() != 0 || f.Answering != 110*ms || f.Failing != 0 {
			t.Errorf("%+v", f)
		}
		f := g.Figures()
		var want [5]histogram.Buckets // rows, queue, prepare, run, total
		for i, rows := range []uint64{1, 2, 2} {
			want[0].Add(rows)
			waited := uint64(i) * 10_000
			for range rows {
				want[1].Add(waited)
				want[2].Add(0)
				want[3].Add(10_000)
				want[4].Add(waited + 10_000)
			}
		}
		for i, got := range []histogram.Snapshot{f.Rows, f.Queue, f.Prepare, f.Run, f.Total} {
			if w := want[i].Snapshot(); !reflect.DeepEqual(got, w) {
				t.Errorf("histogram %d: got %+v, want %+v", i, got, w)
			}
		}
	})
}

// TestFiguresLeaveOutWhatFailed checks that unanswered frames have no stages.
func TestFiguresLeaveOutWhatFailed(t *testing.T) {
	r := newRig(t)
	g := r.load(t, workers.Config{Kind: "faulty", Batching: workers.Batching{Kind: batching.Hard, MaxSize: 1}})
	s, e := open(t, g, every)
	for seq, data := range []string{"error", "x"} {
		if err := s.Submit(r.frame(t, uint64(seq), data)); err != nil {
			t.Fatal(err)
		}
	}
	e.wait(t, 2)
	if err := r.Close(t.Context()); err != nil { // each run has been counted then
		t.Fatal(err)
	}
	count := func(s histogram.Snapshot) (n uint64) {
		for _, c := range s.Counts {
			n += c
		}
		return n
	}
	if f := g.Figures(); count(f.Total) != 1 || count(f.Rows) != 2 {
		t.Errorf("%d frames of %d batches, want 1 of 2", count(f.Total), count(f.Rows))
	}
}
