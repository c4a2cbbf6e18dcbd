package workers

import (
	"fmt"

	"millrace/stream"
)

// What a group's batches take is reserved in the byte budget for as long as one of
// its goroutines lives: the inputs of all batches, and beside each worker the
// outputs whose size the model says. Inputs with free dimensions are leased while
// a batch runs. What the model computes between its inputs and outputs is its own
// and not known here.

// maxRow bounds what is counted of one row, so that sums of it do not overflow.
const maxRow = 1 << 40

// rowBytes is what one row of these takes, free dimensions left out.
func rowBytes(of []stream.TensorSpec) (n int64) {
	for _, t := range of {
		if e := stream.Elements(t.Shape); e > 0 {
			n = min(n+min(int64(e), maxRow)*int64(t.Datatype.Size()), maxRow)
		}
	}
	return n
}

// perRow is what a row of every batch takes, with so many workers.
func (g *Group) perRow(workers int) int64 {
	if g.computed.Ragged {
		return 0
	}
	return rowBytes(g.computed.Inputs)*int64(g.buffersFor(workers)) + rowBytes(g.computed.Outputs)*int64(workers)
}

// buffersFor is the number of batches for so many workers. Fewer than there are
// instances are a throttle, and meant.
func (g *Group) buffersFor(workers int) int {
	b := g.cfg.buffers()
	if b > g.cfg.Instances {
		b = max(b, workers+1)
	}
	return b
}

// provide reserves the memory of so many workers and their batches, or gives back
// what is more, and lets there be as many batches. Only the manager calls it.
func (g *Group) provide(workers int) error {
	g.gather.Lock()
	defer g.gather.Unlock()
	row, rows := g.perRow(workers), int64(g.computed.MaxBatch)
	most := g.mem.Reservable() + g.reserved // for this group
	if row > 0 && rows > most/row {
		return g.tooLarge(workers, most, most/row)
	}
	need := row * rows
	if need > g.reserved {
		if err := g.mem.Reserve(need - g.reserved); err != nil {
			return stream.Errorf(stream.Overloaded, "memory.budget", "batches of model %s would take %s, and frames hold that memory now: try later, or raise the setting", g.cfg.Name, bytesText(need))
		}
	} else {
		g.mem.Unreserve(g.reserved - need)
	}
	g.reserved = need
	g.pool.Resize(g.buffersFor(workers))
	return nil
}

// tooLarge says how large batches may be: at most fit rows in most bytes.
func (g *Group) tooLarge(workers int, most, fit int64) error {
	advice := "unload another model, or raise memory.budget"
	switch {
	case g.computed.Fixed || fit < 1:
	case workers > 1:
		advice = fmt.Sprintf("batches of %d rows fit; or take fewer instances, %s", fit, advice)
	default:
		advice = fmt.Sprintf("batches of %d rows fit; or %s", fit, advice)
	}
	return stream.Errorf(stream.TooLarge, "batching.max_size", "%d rows in each of %d batches, with %d workers, would take %s of memory, and there are %s for the batches of model %s: all models together, and in a swap both of them, may take half of memory.budget: %s",
		g.computed.MaxBatch, g.buffersFor(workers), workers, bytesText(mul(g.perRow(workers), int64(g.computed.MaxBatch))), bytesText(most), g.cfg.Name, advice)
}

// mul multiplies, up to the largest number there is.
func mul(a, b int64) int64 {
	if a > 0 && b > (1<<63-1)/a {
		return 1<<63 - 1
	}
	return a * b
}

// giveBack gives the group's reservation back.
func (g *Group) giveBack() {
	g.gather.Lock()
	defer g.gather.Unlock()
	g.mem.Unreserve(g.reserved)
	g.reserved = 0
}

// bytesText writes a number of bytes as the settings are written.
func bytesText(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.size {
			return fmt.Sprintf("%.1f%s", float64(n)/float64(u.size), u.name)
		}
	}
	return fmt.Sprintf("%dB", n)
}
