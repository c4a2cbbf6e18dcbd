package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"millrace/client/load"
)

// streamCounts are numbers of streams sharing a model.
var streamCounts = []int{1, 10, 100, 1000}

const (
	greedyFactor = 20   // times the rate of the other streams
	burst        = 10   // frames due at the same time
	minFairness  = 0.95 // Jain's index, at least
)

// fairness offers a model twice its capacity, and compares the frames answered for each stream with the stream's
// max-min fair share.
func fairness(b *bench) error {
	c, err := startChild()
	if err != nil {
		return err
	}
	defer c.end()
	base := b.opaqueLoad(b.server, "delay", overloadStreams)
	r, err := c.capacity(base)
	if err != nil {
		return err
	}
	capacity := r.FPS
	at := func(model string, streams int, rate float64) load.Config {
		cfg := with(b.opaqueLoad(b.server, model, streams), "policy", "latest")
		cfg.Rate = rate
		return cfg
	}
	for _, n := range streamCounts {
		cfg := at("delay", n, 2*capacity/float64(n))
		cfg.Duration *= time.Duration(1 + n/500) // so that each stream is answered several times
		if _, err := b.shares(c, fmt.Sprintf("delay at 2x, streams: %d", n), cfg); err != nil {
			return err
		}
	}
	// As many bursts as the model can answer frames; only the newest frame of each burst counts.
	bursty := at("delay", overloadStreams, burst*capacity/overloadStreams)
	bursty.Burst = burst
	if _, err := b.shares(c, fmt.Sprintf("delay at %dx, bursts of %d, streams: %d", burst, burst, overloadStreams),
		bursty); err != nil {
		return err
	}
	slow := 2 * capacity / (overloadStreams - 1 + greedyFactor)
	if _, err := b.shares(c, fmt.Sprintf("delay at 2x, streams: %d, one at %dx the others' rate", overloadStreams,
		greedyFactor),
		at("delay", overloadStreams-1, slow), at("delay", 1, greedyFactor*slow)); err != nil {
		return err
	}
	name := fmt.Sprintf("delay at 2x, streams: %d stateful beside %d stateless", overloadStreams, overloadStreams)
	all, err := b.shares(c, name, at("stateful", overloadStreams, 2*capacity/overloadStreams),
		at("delay", overloadStreams, 2*capacity/overloadStreams))
	if err != nil {
		return err
	}
	// fair among themselves, whatever the other model's share
	for i, which := range []string{"stateful", "stateless"} {
		b.add(Row{Name: name + ": answers of the " + which, Unit: "frames/s", Bare: capacity, Millrace: all[i].FPS,
			Ratio: all[i].FPS / capacity})
	}
	return nil
}

// shares runs loads at the same time and adds how evenly their streams were
// answered.
func (b *bench) shares(c *child, name string, cfgs ...load.Config) ([]*load.Report, error) {
	b.step(".")
	all, err := c.load(cfgs...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	var sum endings
	groups := map[string]*demand{}
	for i, r := range all {
		sum.add(r)
		g := groups[cfgs[i].Model]
		if g == nil {
			g = &demand{}
			groups[cfgs[i].Model] = g
		}
		g.add(r, cfgs[i].Rate)
	}
	var got []float64 // of the fair share
	for _, g := range groups {
		got = append(got, g.ofShare()...)
	}
	jain := Row{Name: name + ": Jain's index", Unit: "of 1", Millrace: load.Fairness(got),
		Limit: fmt.Sprintf(">= %.2f", minFairness)}
	jain.Met = jain.Millrace >= minFairness
	b.add(jain)
	b.add(Row{Name: name + ": least share", Unit: "of the fair one", Millrace: slices.Min(got)})
	b.add(sum.row(name + ": "))
	return all, nil
}

// demand has the frames offered and answered for each stream of one model.
type demand struct{ asked, got []float64 }

func (d *demand) add(r *load.Report, rate float64) {
	for _, n := range r.PerStream {
		d.asked, d.got = append(d.asked, rate*r.Measured), append(d.got, float64(n))
	}
}

// ofShare returns for each stream the answered frames divided by the fair share.
func (d *demand) ofShare() []float64 {
	sum := 0.
	for _, v := range d.got {
		sum += v
	}
	out := fairShares(d.asked, sum)
	for i, share := range out {
		out[i] = 0
		if share > 0 {
			out[i] = d.got[i] / share
		}
	}
	return out
}

// fairShares divides the capacity: a stream that asks for less than an equal share gets its demand, and the remaining
// streams share the rest equally.
//
// Bertsekas and Gallager, Data Networks, max-min flow control, 1992.
func fairShares(asked []float64, capacity float64) []float64 {
	order := make([]int, len(asked))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(asked[i], asked[j]) })
	out := make([]float64, len(asked))
	for done, i := range order {
		out[i] = min(asked[i], capacity/float64(len(order)-done))
		capacity -= out[i]
	}
	return out
}
