package main

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"millrace/client/load"
)

const (
	overloadStreams = 30 // streams
	overloadSize    = 1 << 10
)

// times are the offered multiples of the capacity.
var times = []float64{0.5, 1, 2, 4, 10}

// overloaded is a model under multiples of its capacity.
type overloaded struct {
	name    string
	cfg     load.Config
	service float64 // ms of a full batch; 0 = unknown, and rows without limits
	rounds  int
}

// overload measures the capacity of a model with a known batch time, and then offers multiples of the capacity.
func overload(b *bench) error {
	c, err := startChild()
	if err != nil {
		return err
	}
	defer c.end()
	p := &overloaded{name: "delay", cfg: b.opaqueLoad(b.server, "delay", overloadStreams), service: delayService,
		rounds: max(b.rounds/3, 1)}
	r, err := c.capacity(p.cfg)
	if err != nil {
		return err
	}
	ideal := 2 * delayBatch * 1000 / delayService
	b.add(Row{Name: fmt.Sprintf("delay, closed loop: capacity (mean batch %.1f)", r.MeanBatch), Unit: "frames/s",
		Bare: ideal, Millrace: r.FPS, Ratio: r.FPS / ideal})
	return b.offerMultiples(c, p, r.FPS)
}

// opaqueLoad is a load of opaque frames, without its rate.
func (b *bench) opaqueLoad(t *target, model string, streams int) load.Config {
	length := max(6*b.round, 200*time.Millisecond)
	return load.Config{
		URL: "http://" + t.addr, Model: model, Streams: streams, Size: overloadSize,
		Duration: length, Warmup: length / 6, Grace: 5 * time.Second, Options: map[string]string{"codec": "opaque"},
	}
}

// with is cfg with another option.
func with(cfg load.Config, key, value string) load.Config {
	options := maps.Clone(cfg.Options)
	options[key] = value
	cfg.Options = options
	return cfg
}

// capacity measures a model in a closed loop.
func (c *child) capacity(cfg load.Config) (*load.Report, error) {
	cfg = with(cfg, "policy", "every")
	cfg.Rate, cfg.Window, cfg.Burst = 0, wsWindow, 0
	all, err := c.load(cfg)
	if err != nil {
		return nil, err
	}
	r := all[0]
	if r.FPS <= 0 || r.Failed > 0 {
		return nil, fmt.Errorf("the capacity was measured as %v frames/s, %d failed: %v", r.FPS, r.Failed, r.Errors)
	}
	return r, nil
}

// offerMultiples offers each of times the capacity, in an open loop.
func (b *bench) offerMultiples(c *child, p *overloaded, capacity float64) error {
	for _, n := range times {
		b.step("%gx", n)
		if err := b.offerMultiple(c, p, capacity, n); err != nil {
			return fmt.Errorf("%g times the capacity: %w", n, err)
		}
	}
	return nil
}

// offerMultiple offers times the capacity, in several rounds.
func (b *bench) offerMultiple(c *child, p *overloaded, capacity, times float64) error {
	cfg := with(p.cfg, "policy", "latest")
	cfg.Rate = capacity * times / float64(cfg.Streams)
	oldest := 1000/cfg.Rate + 3*p.service // ms
	if p.service > 0 {
		cfg.Deadline = time.Duration(oldest * float64(time.Millisecond))
	}
	var goodput, age, peaks, heaps []float64
	var sum endings
	for range p.rounds {
		peak := make(chan float64)
		stop := make(chan struct{})
		go func() { peak <- peakResident(stop) }()
		all, err := c.load(cfg)
		close(stop)
		peaks = append(peaks, <-peak)
		if err != nil {
			return err
		}
		heaps = append(heaps, liveHeap())
		r := all[0]
		goodput, age = append(goodput, r.Goodput), append(age, r.Latency.P99)
		sum.add(r)
	}
	name, want := fmt.Sprintf("%s at %gx: ", p.name, times), capacity*min(times, 1)
	good := Row{Name: name + "goodput", Unit: "frames/s", Bare: want, Millrace: median(goodput)}
	good.Ratio = good.Millrace / want
	old := Row{Name: name + "p99 age of an answer", Unit: "ms", Millrace: median(age)}
	if p.service == 0 {
		good.Name = name + "answers"
		b.add(good)
		b.add(old)
		b.add(sum.row(name))
		return nil
	}
	old.Bare, old.Ratio = oldest, old.Millrace/oldest
	b.add(good.atLeast(0.95))
	b.add(old.atMost(1))
	b.add(memoryRow(name+"resident memory, highest", peaks))
	b.add(memoryRow(name+"live heap after it", heaps))
	b.add(sum.row(name))
	return nil
}

// memoryRow compares the memory of the last round with the first, in bytes.
func memoryRow(name string, rounds []float64) Row {
	row := Row{Name: name + ", first and last round", Unit: "MB", Bare: rounds[0] / (1 << 20),
		Millrace: rounds[len(rounds)-1] / (1 << 20), Limit: "<= first + 10%"}
	row.Met = row.Millrace <= row.Bare*1.1
	return row
}

// endings counts frames by ending, over several runs.
type endings struct {
	sent, unsent, answered, failed uint64
	drops                          map[string]uint64
	faults                         int64 // see faultsOf
}

func (a *endings) add(r *load.Report) {
	a.sent, a.unsent, a.answered, a.failed = a.sent+r.Sent, a.unsent+r.Unsent, a.answered+r.Answered, a.failed+r.Failed
	if a.drops == nil {
		a.drops = map[string]uint64{}
	}
	for reason, n := range r.Drops {
		a.drops[reason] += n
	}
	a.faults += faultsOf(r)
}

// row lists the endings, and has the number of faults, which must be 0.
func (a *endings) row(name string) Row {
	text := fmt.Sprintf("%s%d sent = %d answered", name, a.sent, a.answered)
	for _, reason := range slices.Sorted(maps.Keys(a.drops)) {
		text += fmt.Sprintf(" + %d %s", a.drops[reason], reason)
	}
	if a.failed > 0 {
		text += fmt.Sprintf(" + %d failed", a.failed)
	}
	if a.unsent > 0 {
		text += fmt.Sprintf("; %d due were not sent", a.unsent)
	}
	return Row{Name: text, Unit: "frames", Millrace: float64(a.faults), Limit: "= 0", Met: a.faults == 0}
}

// faultsOf counts faults: frames without an ending, endings without a frame, errors and broken streams.
func faultsOf(r *load.Report) int64 {
	missing := r.Unaccounted
	if missing < 0 { // ended twice; must not cancel a missing ending
		missing = -missing
	}
	return missing + int64(r.Unexpected) + int64(r.Failed) + int64(len(r.Lost))
}

// overloadCPU offers multiples of the capacity of a CPU-bound model. The rows have no limits, because the clients use
// the same processors, and the time of a batch is unknown.
func overloadCPU(b *bench) error {
	f, err := renderClip(smallW, smallH)
	if err != nil {
		return err
	}
	defer f.remove()
	c, err := startChild()
	if err != nil {
		return err
	}
	defer c.end()
	return b.withCPUModel(func(name string, t *target, model string) error {
		cfg := b.opaqueLoad(t, model, overloadStreams)
		cfg.Options, cfg.Dir = map[string]string{}, f.dir
		r, err := c.capacity(cfg)
		if err != nil {
			return err
		}
		name = fmt.Sprintf("%s, JPEG %dx%d", name, smallW, smallH)
		b.add(Row{Name: fmt.Sprintf("%s, closed loop: capacity (mean batch %.1f)", name, r.MeanBatch),
			Unit: "frames/s", Millrace: r.FPS})
		return b.offerMultiples(c, &overloaded{name: name, cfg: cfg, rounds: 1}, r.FPS)
	})
}

// liveHeap returns the heap in use after a collection.
func liveHeap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// peakResident returns the maximum of resident memory until stop, sampled every 20 ms.
func peakResident(stop <-chan struct{}) (most float64) {
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

// step prints progress.
func (b *bench) step(format string, args ...any) {
	fmt.Fprintf(b.progress, strings.TrimSpace(format)+" ", args...)
}
