package main

import (
	"fmt"
	"runtime"
	"time"

	"millrace/client/load"
)

const (
	crowd     = 30 // streams
	crowdSize = 1 << 10
)

// overload measures the capacity of a model whose batches take a known time, and
// then offers multiples of it.
func overload(b *bench) error {
	c, err := startChild()
	if err != nil {
		return err
	}
	defer c.end()
	length := max(6*b.round, 200*time.Millisecond)
	base := load.Config{
		URL: "http://" + b.server.addr, Model: "delay", Streams: crowd, Size: crowdSize,
		Duration: length, Warmup: length / 6, Grace: 5 * time.Second,
	}
	full := base
	full.Window, full.Options = wsWindow, map[string]string{"policy": "every", "codec": "opaque"}
	a, err := c.do(job{Load: &full})
	if err != nil {
		return err
	}
	capacity := a.Report.FPS
	if capacity <= 0 {
		return fmt.Errorf("the capacity was measured as %v frames/s", capacity)
	}
	ideal := 2 * delayBatch * 1000 / delayService
	b.add(Row{Name: fmt.Sprintf("delay, closed loop: capacity (mean batch %.1f)", a.Report.MeanBatch), Unit: "frames/s", Bare: ideal, Millrace: capacity, Ratio: capacity / ideal})
	for _, times := range []float64{0.5, 1, 2, 4, 10} {
		if err := b.multiple(c, base, capacity, times); err != nil {
			return fmt.Errorf("%g times the capacity: %w", times, err)
		}
	}
	return nil
}

// multiple offers times the capacity in an open loop, in several rounds.
func (b *bench) multiple(c *child, cfg load.Config, capacity, times float64) error {
	cfg.Options = map[string]string{"policy": "latest", "codec": "opaque"}
	cfg.Rate = capacity * times / crowd
	oldest := 1000/cfg.Rate + 3*delayService // ms
	cfg.Deadline = time.Duration(oldest * float64(time.Millisecond))
	var (
		goodput, age, peaks, heaps   []float64
		sent, answered, dropped, due uint64
		faults                       int64
	)
	for range max(b.rounds/3, 1) {
		peak := make(chan float64)
		stop := make(chan struct{})
		go func() { peak <- highest(stop) }()
		a, err := c.do(job{Load: &cfg})
		close(stop)
		peaks = append(peaks, <-peak)
		if err != nil {
			return err
		}
		heaps = append(heaps, live())
		r := a.Report
		goodput, age = append(goodput, r.Goodput), append(age, r.Latency.P99)
		sent, answered, dropped, due = sent+r.Sent, answered+r.Answered, dropped+r.Dropped, due+r.Unsent
		faults += faultsOf(r)
	}
	name, want := fmt.Sprintf("delay at %gx: ", times), capacity*min(times, 1)
	good := Row{Name: name + "goodput", Unit: "frames/s", Bare: want, Millrace: median(goodput)}
	good.Ratio = good.Millrace / want
	old := Row{Name: name + "p99 age of an answer", Unit: "ms", Bare: oldest, Millrace: median(age)}
	old.Ratio = old.Millrace / oldest
	if times < 2 {
		b.add(good)
		b.add(old)
		return nil
	}
	b.add(good.atLeast(0.95))
	b.add(old.atMost(1))
	last := len(peaks) - 1
	for _, m := range []struct {
		name string
		of   []float64
	}{{"resident memory, highest", peaks}, {"live heap after it", heaps}} {
		row := Row{Name: name + m.name + ", first and last round", Unit: "MB", Bare: m.of[0] / (1 << 20), Millrace: m.of[last] / (1 << 20), Limit: "<= first + 10%"}
		row.Met = row.Millrace <= row.Bare*1.1
		b.add(row)
	}
	b.add(Row{
		Name: fmt.Sprintf("%s%d sent - %d answered - %d dropped", name, sent, answered, dropped),
		Unit: "frames", Millrace: float64(faults), Limit: "= 0", Met: faults == 0,
	})
	if due > 0 {
		b.add(Row{Name: name + "due, but not taken in time", Unit: "frames", Millrace: float64(due)})
	}
	return nil
}

// faultsOf counts what must never happen.
func faultsOf(r *load.Report) int64 {
	return r.Unaccounted + int64(r.Unexpected) + int64(r.Failed) + int64(len(r.Lost))
}

// live is the memory that is in use after a collection.
func live() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// highest is the most resident memory until stop, looked at often.
func highest(stop <-chan struct{}) (most float64) {
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for {
		if v, err := resident(false); err == nil {
			most = max(most, v)
		}
		select {
		case <-t.C:
		case <-stop:
			return most
		}
	}
}
