package workers

import (
	"fmt"

	"millrace/stream"
	"millrace/stream/buf"
)

// The memory of a group's batches is reserved in the byte budget as long as a goroutine of the group runs: the inputs
// of all batches, and for each worker the outputs with a declared size. Inputs with free dimensions are leased while
// a batch runs. The model's memory between inputs and outputs is unknown here.

// maxRow is the highest counted size of a row, so that sums do not overflow.
const maxRow = 1 << 40

// rowBytes returns the size of one row of the tensors, without tensors with free dimensions.
func rowBytes(of []stream.TensorSpec) (n int64) {
	for _, t := range of {
		if e := stream.Elements(t.Shape); e > 0 {
			n = min(n+min(int64(e), maxRow)*int64(t.Datatype.Size()), maxRow)
		}
	}
	return n
}

// perRow returns the memory of one row in all batches, for the given number of workers.
func perRow(cfg Config, m *stream.Model, workers int) int64 {
	if m.Ragged {
		return 0
	}
	state := 2 * min(int64(m.StateRow), maxRow) // into a run and out of the run
	return rowBytes(m.Inputs)*int64(cfg.buffersFor(workers)) + (rowBytes(m.Outputs)+state)*int64(workers)
}

// reservation is a group's part of the byte budget, for the group's batches and cache.
type reservation struct {
	mem   *buf.Pool
	held  int64
	cache int64
}

// keep reserves the memory of the model's cache.
func (r *reservation) keep(cfg Config) error {
	n := cfg.Cache.Size
	if err := r.mem.Reserve(n); err != nil {
		return stream.Errorf(stream.TooLarge, "cache.size", "%s for model %s are more than the %s that are left: "+
			"batches and caches of all models, and in a swap of both of them, may take half of memory.budget: "+
			"choose fewer, unload another model, or raise memory.budget",
			bytesText(n), cfg.Name, bytesText(r.mem.Reservable()))
	}
	r.cache = n
	return nil
}

// resize reserves the memory of the given number of workers of m and their batches, or releases memory no longer
// needed.
func (r *reservation) resize(cfg Config, m *stream.Model, workers int) error {
	row, rows := perRow(cfg, m, workers), int64(m.MaxBatch)
	most := r.mem.Reservable() + r.held // available to this group
	if row > 0 && rows > most/row {
		return tooLarge(cfg, m, workers, most, most/row)
	}
	need := row * rows
	if need > r.held {
		if err := r.mem.Reserve(need - r.held); err != nil {
			return stream.Errorf(stream.Overloaded, "memory.budget",
				"batches of model %s would take %s, but frames hold that memory now: try later, or raise the setting",
				cfg.Name, bytesText(need))
		}
	} else {
		r.mem.Unreserve(r.held - need)
	}
	r.held = need
	return nil
}

func (r *reservation) release() {
	r.mem.Unreserve(r.held + r.cache)
	r.held, r.cache = 0, 0
}

// tooLarge returns an error with the largest possible batch: at most fit rows in most bytes.
func tooLarge(cfg Config, m *stream.Model, workers int, most, fit int64) error {
	advice := "unload another model, or raise memory.budget"
	switch {
	case m.Axis != stream.FreeAxis || fit < 1:
	case workers > 1:
		advice = fmt.Sprintf("batches of %d rows fit; or take fewer instances, %s", fit, advice)
	default:
		advice = fmt.Sprintf("batches of %d rows fit; or %s", fit, advice)
	}
	return stream.Errorf(stream.TooLarge, "batching.max_size", "%d rows in each of %d batches, with %d workers, "+
		"would take %s of memory, but %s are left for the batches of model %s: all models together, and in a swap "+
		"both of them, may take half of memory.budget: %s",
		m.MaxBatch, cfg.buffersFor(workers), workers, bytesText(mul(perRow(cfg, m, workers), int64(m.MaxBatch))),
		bytesText(most), cfg.Name, advice)
}

// mul multiplies; the result is at most the largest int64.
func mul(a, b int64) int64 {
	if a > 0 && b > (1<<63-1)/a {
		return 1<<63 - 1
	}
	return a * b
}

// bytesText formats a number of bytes in the form of a setting.
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
