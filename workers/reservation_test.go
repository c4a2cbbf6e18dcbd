package workers

import (
	"math"
	"strings"
	"testing"

	"millrace/stream"
	"millrace/stream/buf"
)

// A group may take all memory not held by other groups, to the last byte, and errors tell the size that would fit.
func TestReservation(t *testing.T) {
	mem := buf.NewPool(2 << 20)
	half := mem.Reservable()
	row := half / 64
	m := &stream.Model{Name: "m", Inputs: []stream.TensorSpec{{Name: "x", Datatype: stream.Uint8,
		Shape: []int{int(row)}}}}
	cfg := Config{Name: "m", Instances: 1, Batching: Batching{Buffers: 1}}.WithDefaults()
	r := reservation{mem: mem}
	resize := func(rows int, want int64, code stream.Code) {
		t.Helper()
		m.MaxBatch = rows
		if err := r.resize(cfg, m, 1); stream.CodeOf(err) != code {
			t.Errorf("%d rows: %v", rows, err)
		}
		if r.held != want || mem.Stats().Reserved != want {
			t.Errorf("%d rows: %d bytes are held, %d reserved, want %d", rows, r.held, mem.Stats().Reserved, want)
		}
	}
	resize(40, 40*row, "")
	resize(64, 64*row, "") // the group's own memory counts as free for the group
	resize(65, 64*row, stream.TooLarge)
	resize(1, row, "")
	if err := mem.Reserve(half - 3*row); err != nil {
		t.Fatal(err)
	}
	m.MaxBatch = 4
	if err := r.resize(cfg, m, 1); err == nil || !strings.Contains(err.Error(), ": batches of 3 rows fit; or unload") {
		t.Errorf("%v", err)
	}
	mem.Unreserve(half - 3*row)
	r.release()
	if n := mem.Stats().Reserved; n != 0 || r.held != 0 {
		t.Errorf("%d bytes are left", n)
	}
	r.release() // nothing
	if n := mem.Stats().Reserved; n != 0 {
		t.Errorf("%d bytes were given back twice", n)
	}
}

func TestAdviceOnTooLargeBatches(t *testing.T) {
	for _, c := range []struct {
		workers int
		fit     int64
		axis    stream.BatchAxis
		advice  string
	}{
		{1, 0, stream.FreeAxis, ": unload another model, or raise memory.budget"},
		{2, 0, stream.FreeAxis, ": unload another model, or raise memory.budget"},
		{1, 5, stream.FixedAxis, ": unload another model, or raise memory.budget"},
		{1, 1, stream.FreeAxis, ": batches of 1 rows fit; or unload another model, or raise memory.budget"},
		{2, 5, stream.FreeAxis, ": batches of 5 rows fit; or take fewer instances, unload another model, or raise " +
			"memory.budget"},
	} {
		m := &stream.Model{Name: "m", MaxBatch: 8, Axis: c.axis,
			Inputs: []stream.TensorSpec{{Datatype: stream.Float32, Shape: []int{256}}}}
		err := tooLarge(Config{Name: "m", Instances: c.workers}, m, c.workers, 2048, c.fit)
		if err == nil || !strings.HasSuffix(err.Error(), "take half of memory.budget"+c.advice) ||
			!strings.Contains(err.Error(), "but 2.0KiB are left") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestSumsOfBytes(t *testing.T) {
	for _, c := range [][3]int64{
		{0, 0, 0}, {0, math.MaxInt64, 0}, {3, 0, 0}, {3, 4, 12}, {1, math.MaxInt64, math.MaxInt64},
		{2, math.MaxInt64 / 2, math.MaxInt64 - 1},
		{2, math.MaxInt64/2 + 1, math.MaxInt64}, {math.MaxInt64, math.MaxInt64, math.MaxInt64},
		{math.MaxInt64, 1, math.MaxInt64},
	} {
		if got := mul(c[0], c[1]); got != c[2] {
			t.Errorf("%d * %d = %d, want %d", c[0], c[1], got, c[2])
		}
	}
	for n, want := range map[int64]string{
		0: "0B", 1023: "1023B", 1024: "1.0KiB", 1536: "1.5KiB", 1<<20 - 1: "1024.0KiB", 1 << 20: "1.0MiB",
		1 << 30: "1.0GiB", 5 << 30: "5.0GiB",
	} {
		if got := bytesText(n); got != want {
			t.Errorf("%d bytes: %s, want %s", n, got, want)
		}
	}
	spec := func(shapes ...[]int) (out []stream.TensorSpec) {
		for _, s := range shapes {
			out = append(out, stream.TensorSpec{Datatype: stream.Float32, Shape: s})
		}
		return out
	}
	for want, s := range map[int64][]stream.TensorSpec{
		0: spec([]int{-1, 3}), 12: spec([]int{3}, []int{-1}), 20: spec([]int{3}, []int{2}),
		maxRow: spec([]int{1 << 40}, []int{1 << 40}),
	} {
		if got := rowBytes(s); got != want {
			t.Errorf("%v: %d, want %d", s, got, want)
		}
	}
}
