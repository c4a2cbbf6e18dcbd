package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"millrace/client/load"
)

// crowds are numbers of streams that share a model.
var crowds = []int{1, 10, 100, 1000}

const (
	greed      = 20   // times the rate of the others
	burst      = 10   // frames that are due at once
	fairEnough = 0.95 // Jain's index, at least
)

// fairness offers a model twice what it can do and looks at who is answered.
// What a stream got is compared with its fair share: as much as all others, or
// all that it asked for where that is less.
func fairness(b *bench) error {
	c, err := startChild()
	if err != nil {
		return err
	}
	defer c.end()
	base := b.pressing(b.server, "delay", crowd)
	r, err := c.capacity(base)
	if err != nil {
		return err
	}
	capacity := r.FPS
	at := func(model string, streams int, rate float64) load.Config {
		cfg := with(b.pressing(b.server, model, streams), "policy", "latest")
		cfg.Rate = rate
		return cfg
	}
	for _, n := range crowds {
		cfg := at("delay", n, 2*capacity/float64(n))
		cfg.Duration *= time.Duration(1 + n/500) // each is to be answered several times
		if _, err := b.shares(c, fmt.Sprintf("delay at 2x, streams: %d", n), cfg); err != nil {
			return err
		}
	}
	// As many bursts as the model answers frames: of each, the newest is what counts.
	bursty := at("delay", crowd, burst*capacity/crowd)
	bursty.Burst = burst
	if _, err := b.shares(c, fmt.Sprintf("delay at %dx, bursts of %d, streams: %d", burst, burst, crowd), bursty); err != nil {
		return err
	}
	slow := 2 * capacity / (crowd - 1 + greed)
	if _, err := b.shares(c, fmt.Sprintf("delay at 2x, streams: %d, one at %dx the others' rate", crowd, greed),
		at("delay", crowd-1, slow), at("delay", 1, greed*slow)); err != nil {
		return err
	}
	name := fmt.Sprintf("delay at 2x, streams: %d stateful beside %d stateless", crowd, crowd)
	all, err := b.shares(c, name, at("stateful", crowd, 2*capacity/crowd), at("delay", crowd, 2*capacity/crowd))
	if err != nil {
		return err
	}
	for i, which := range []string{"stateful", "stateless"} { // which are fair among themselves whatever the other model gets
		b.add(Row{Name: name + ": answers of the " + which, Unit: "frames/s", Bare: capacity, Millrace: all[i].FPS, Ratio: all[i].FPS / capacity})
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
	var sum account
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
	jain := Row{Name: name + ": Jain's index", Unit: "of 1", Millrace: load.Fairness(got), Limit: fmt.Sprintf(">= %.2f", fairEnough)}
	jain.Met = jain.Millrace >= fairEnough
	b.add(jain)
	b.add(Row{Name: name + ": least share", Unit: "of the fair one", Millrace: slices.Min(got)})
	b.add(sum.row(name + ": "))
	return all, nil
}

// demand is what the streams of one model asked for, and got.
type demand struct{ asked, got []float64 }

func (d *demand) add(r *load.Report, rate float64) {
	for _, n := range r.PerStream {
		d.asked, d.got = append(d.asked, rate*r.Measured), append(d.got, float64(n))
	}
}

// ofShare is what each got of its fair share of what all got.
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

// fairShares divides what there is among those who ask for some of it: whoever
// asks for less than an equal share gets that, and the others divide the rest.
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
