package workers

import (
	"millrace/batching"
	"millrace/internal/histogram"
	"millrace/stream"
)

// figures count the runs of a group, under Group.gather.
type figures struct {
	rows                       histogram.Buckets // of batches
	queue, prepare, run, total histogram.Buckets // microseconds of answered frames
}

// Figures are the histograms of a group over its batches and frames since the load, without frames answered without a
// run (Hooks.Skipped).
type Figures struct {
	Rows histogram.Snapshot // rows of batches
	// The stages of answered frames, in microseconds: Queue until the frame was bound to a batch, Prepare until the
	// batch ran, Run until the result, and Total.
	Queue, Prepare, Run, Total histogram.Snapshot
}

// add counts a run batch, and adds the batch's answered frames to n.
func (f *figures) add(b *batching.Batch, rows int, n *answeredTotals) {
	f.rows.Add(uint64(rows))
	for _, r := range b.Requests {
		if r.Outcome() != stream.Answered {
			continue
		}
		f.addFrame(&r.Timing)
		n.add(r)
	}
}

// addFrame counts an answered frame.
func (f *figures) addFrame(t *stream.Timing) {
	f.queue.Add(micros(t.Received, t.Dequeued))
	f.prepare.Add(micros(t.Dequeued, t.Started))
	f.run.Add(micros(t.Started, t.Done))
	f.total.Add(micros(t.Received, t.Done))
}

// addTaken counts a request taken from a batch by the worker.
func (g *Group) addTaken(r *stream.Request) {
	if r.Outcome() != stream.Answered {
		return
	}
	g.gather.Lock()
	g.figures.addFrame(&r.Timing)
	g.gather.Unlock()
	var n answeredTotals
	n.add(r)
	g.totals.ran.add(n, r.Rows, r.Timing.Dequeued, r.Timing.Started, r.Timing.Done, r.Timing.Done, true)
}

// micros returns the time between two instants, rounded up.
func micros(from, to stream.Instant) uint64 { return uint64((max(to.Sub(from), 0) + 999) / 1000) }

// Figures returns the group's histograms.
func (g *Group) Figures() Figures {
	g.gather.Lock()
	f := g.figures
	g.gather.Unlock()
	return Figures{
		Rows: f.rows.Snapshot(), Queue: f.queue.Snapshot(), Prepare: f.prepare.Snapshot(), Run: f.run.Snapshot(),
		Total: f.total.Snapshot(),
	}
}
