package load

import (
	"time"

	"millrace/internal/histogram"
	"millrace/stream"
)

// Report is the result of a run. Counts are of the whole run; rates and latencies leave out ramp-up and warm-up.
// Latencies count from the due time of a frame.
type Report struct {
	Loop        string  `json:"loop"` // open or closed
	Streams     int     `json:"streams"`
	Offered     float64 `json:"offered_fps"`      // frames per second that were due, on all streams together; 0 in a closed loop
	Seconds     float64 `json:"seconds"`          // from the start to the end of the measured time
	Measured    float64 `json:"measured_seconds"` // the measured time: without ramp-up and warm-up
	Interrupted bool    `json:"interrupted"`      // ended before its duration
	GivenUp     bool    `json:"given_up"`         // ended early by Config.GiveUp: the first frames all failed with one error
	DeadlineMS  float64 `json:"deadline_ms"`      // of goodput; 0 = none
	Sent        uint64  `json:"sent"`             // frames
	Unsent      uint64  `json:"unsent"`           // due, but the server did not accept them in time
	Answered    uint64  `json:"answered"`         // ended by a result
	Good        uint64  `json:"good"`             // of these, within the deadline
	Dropped     uint64  `json:"dropped"`          // ended by a drop
	Failed      uint64  `json:"failed"`           // ended by an error
	Partials    uint64  `json:"partials"`         // parts of results, which are not endings

	Drops  map[string]uint64 `json:"drops"`  // by reason
	Errors map[string]uint64 `json:"errors"` // by code
	// FirstErrors has the first message of each code in Errors, 500 characters at most.
	FirstErrors map[string]string `json:"first_errors"`

	// Faults of the server, 0 for a correct server: frames without an ending, endings without a frame, and failed
	// streams by error.
	Unaccounted int64             `json:"unaccounted"`
	Unexpected  uint64            `json:"unexpected"`
	Lost        map[string]uint64 `json:"lost"`

	FPS       float64 `json:"fps"`     // answers a second
	Goodput   float64 `json:"goodput"` // answers within the deadline, a second
	MeanBatch float64 `json:"mean_batch"`
	Fairness  float64 `json:"fairness"` // Jain's index of the answers of each stream
	// PerStream has the number of answers counted in FPS for each stream.
	PerStream []uint64 `json:"-"`

	Latency    Quantiles `json:"latency"`   // due to answered: the answer's age
	Service    Quantiles `json:"service"`   // sent to answered
	Lag        Quantiles `json:"lag"`       // due to sent: the client's and the connection's part
	DropNotice Quantiles `json:"drop_told"` // due to the notice of a drop

	Rows []Row `json:"rows"`
}

// Row is one second of a run.
type Row struct {
	At       float64 `json:"at"`      // the end of this second, in seconds since the start
	Seconds  float64 `json:"seconds"` // length
	Sent     uint64  `json:"sent"`
	Answered uint64  `json:"answered"`
	Good     uint64  `json:"good"`
	Dropped  uint64  `json:"dropped"`
	Failed   uint64  `json:"failed"`
	Open     int     `json:"open"` // frames without an ending at its end
	P50      float64 `json:"p50_ms"`
	P99      float64 `json:"p99_ms"`
	Max      float64 `json:"max_ms"`
	Batch    float64 `json:"mean_batch"`
}

// OK reports whether every frame had exactly one ending and no stream failed.
func (r *Report) OK() bool {
	return r.Unaccounted == 0 && r.Unexpected == 0 && len(r.Lost) == 0
}

func total[K comparable](m map[K]uint64) (n uint64) {
	for _, v := range m {
		n += v
	}
	return n
}

func texts[K ~string](m map[K]uint64) map[string]uint64 {
	out := make(map[string]uint64, len(m))
	for k, v := range m {
		out[string(k)] = v
	}
	return out
}

func ratio(a, b uint64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

func rowOf(t *counts, at, length time.Duration) Row {
	return Row{
		At: at.Seconds(), Seconds: length.Seconds(), Sent: t.sentN, Answered: t.answered, Good: t.good,
		Dropped: total(t.drops), Failed: total(t.errors), Batch: ratio(t.batchSum, t.batchN),
		P50: millis(t.latency.Quantile(0.5)), P99: millis(t.latency.Quantile(0.99)), Max: millis(t.latency.Max()),
	}
}

// report is called when everything has ended.
func (r *run) report() *Report {
	t := newCounts()
	var last time.Duration
	first := map[stream.Code]firstError{}
	for _, s := range r.shards {
		s.mu.Lock()
		t.merge(&s.counts)
		s.mergeFirst(first)
		last = max(last, s.latest)
		s.mu.Unlock()
	}
	c := &r.cfg
	rep := &Report{
		Loop: "closed", Streams: c.Streams, Interrupted: r.interrupted, GivenUp: r.givenUp.Load(),
		DeadlineMS: millis(c.Deadline),
		Answered:   t.answered, Good: t.good, Dropped: total(t.drops), Failed: total(t.errors), Partials: t.partials,
		Drops: texts(t.drops), Errors: texts(t.errors), FirstErrors: make(map[string]string, len(first)),
		Unexpected: t.unexpected, Lost: r.lostBy,
		MeanBatch: ratio(t.batchSum, t.batchN),
		Latency:   quantilesOf(&t.latency), Service: quantilesOf(&t.service), Lag: quantilesOf(&t.lag),
		DropNotice: quantilesOf(&t.dropAge),
		Rows:       r.rows,
	}
	for code, e := range first {
		rep.FirstErrors[string(code)] = e.text
	}
	if c.Rate > 0 {
		rep.Loop, rep.Offered = "open", c.Rate*float64(c.Streams)
	}
	rep.PerStream = make([]uint64, 0, len(r.senders))
	short := c.Frames > 0 || r.interrupted || rep.GivenUp // may have ended before Duration
	for _, l := range r.senders {
		rep.Sent += l.sent
		rep.Unsent += l.unsent
		rep.PerStream = append(rep.PerStream, l.answered.Load())
	}
	rep.Fairness = Fairness(rep.PerStream)
	rep.Unaccounted = int64(rep.Sent) - int64(rep.Answered+rep.Dropped+rep.Failed)
	end := c.Duration
	if short {
		end = min(end, last)
	}
	rep.Seconds = end.Seconds()
	rep.Measured = max(end-c.measureFrom(), 0).Seconds()
	if rep.Measured > 0 {
		rep.FPS = float64(t.measured) / rep.Measured
		rep.Goodput = float64(t.measuredGood) / rep.Measured
	}
	return rep
}

// Quantiles is the summary of a histogram, in milliseconds.
type Quantiles struct {
	Count uint64  `json:"count"`
	Mean  float64 `json:"mean_ms"`
	Min   float64 `json:"min_ms"`
	P50   float64 `json:"p50_ms"`
	P90   float64 `json:"p90_ms"`
	P95   float64 `json:"p95_ms"`
	P99   float64 `json:"p99_ms"`
	P999  float64 `json:"p999_ms"`
	Max   float64 `json:"max_ms"`
}

func quantilesOf(h *histogram.Durations) Quantiles {
	return Quantiles{
		Count: h.Count(), Mean: millis(h.Mean()), Min: millis(h.Min()), P50: millis(h.Quantile(0.5)),
		P90: millis(h.Quantile(0.9)),
		P95: millis(h.Quantile(0.95)), P99: millis(h.Quantile(0.99)), P999: millis(h.Quantile(0.999)),
		Max: millis(h.Max()),
	}
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Fairness returns Jain's index of the streams' numbers of answers: 1 when all n streams got the same number, 1/n
// when a single stream got all. Fairness is 1 without answers.
//
// Jain, Chiu and Hawe, A Quantitative Measure of Fairness, DEC TR-301, 1984.
func Fairness[T uint64 | float64](got []T) float64 {
	var sum, squares float64
	for _, g := range got {
		sum += float64(g)
		squares += float64(g) * float64(g)
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(got)) * squares)
}
