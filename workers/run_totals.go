package workers

import (
	"maps"
	"slices"
	"sync"
	"time"

	"millrace/stream"
)

// RunTotals is the time taken by a model and version for answered frames run by a worker. A frame counts for the
// version of its run.
type RunTotals struct {
	Frames uint64        // answered
	Rows   uint64        // of these frames
	Queue  time.Duration // wait until bound to a batch
	// The times of the frames' batches, once for each frame: to prepare the batch, to run the batch, and to make the
	// results.
	Input, Infer, Output time.Duration

	Runs  uint64     // batches with a successful run
	Sizes []SizeStat // these by their rows, the smallest first
}

// SizeStat is the time taken by the runs of batches with one number of rows.
type SizeStat struct {
	Rows                 int
	Runs                 uint64
	Input, Infer, Output time.Duration
}

// ran collects the values of RunTotals.
type ran struct {
	mu    sync.Mutex
	all   RunTotals
	sizes map[int]*SizeStat // at most MaxBatch
}

// answeredTotals are the answered frames of a batch.
type answeredTotals struct {
	frames, rows uint64
	queue        time.Duration
}

func (n *answeredTotals) add(r *stream.Request) {
	n.frames++
	n.rows += uint64(r.Rows)
	n.queue += max(r.Timing.Dequeued.Sub(r.Timing.Received), 0)
}

// add counts a batch with the given rows and the times of its begin, start, run and end. ok reports whether the run
// succeeded.
func (x *ran) add(n answeredTotals, rows int, begun, started, done, ended stream.Instant, ok bool) {
	input, infer, output := max(started.Sub(begun), 0), max(done.Sub(started), 0), max(ended.Sub(done), 0)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.all.Frames += n.frames
	x.all.Rows += n.rows
	x.all.Queue += n.queue
	x.all.Input += time.Duration(n.frames) * input
	x.all.Infer += time.Duration(n.frames) * infer
	x.all.Output += time.Duration(n.frames) * output
	if !ok {
		return
	}
	x.all.Runs++
	s := x.sizes[rows]
	if s == nil {
		if x.sizes == nil {
			x.sizes = map[int]*SizeStat{}
		}
		s = &SizeStat{Rows: rows}
		x.sizes[rows] = s
	}
	s.Runs++
	s.Input += input
	s.Infer += infer
	s.Output += output
}

func (x *ran) read() RunTotals {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := x.all
	for _, rows := range slices.Sorted(maps.Keys(x.sizes)) {
		out.Sizes = append(out.Sizes, *x.sizes[rows])
	}
	return out
}
