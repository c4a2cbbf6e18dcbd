package stream

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"millrace/stream/coded"
)

// FrameCounts counts the frames of one model and version, as their clients are told of them.
// Each frame is counted when it is accepted and when it has its ending, so that at every
// moment
//
//	accepted = results + drops by reason + errors by code + in flight
//
// A frame that is refused before a stream accepts it (for want of memory, above the
// window, malformed, after the end of its stream) has an ending as well: its client is
// told a drop or an error. It is counted as accepted and by that ending like any other,
// and in addition as refused.
//
// A frame is counted for the version that accepted it, also when a swap lets the next
// version answer it. Its methods are safe for concurrent use.
type FrameCounts struct {
	accepted atomic.Uint64
	_        [56]byte // accepted is written where frames are received, the rest where they end

	results    atomic.Uint64
	answering  atomic.Int64      // nanoseconds of the results
	failing    atomic.Int64      // and of the other endings
	last       atomic.Int64      // Instant at which a frame was received that has ended, to a millisecond
	drops      [16]atomic.Uint64 // by reasonIndex
	errors     [32]atomic.Uint64 // by codeIndex
	refused    [2][32]atomic.Uint64
	unsendable [32]atomic.Uint64 // by codeIndex

	cacheHits, cacheMisses      atomic.Uint64
	cacheHitTime, cacheMissTime atomic.Int64

	refusal atomic.Pointer[func(*Refusal)]
}

// Other is the reason or code under which those are counted that are not listed in
// Reasons or coded.Codes.
const Other = "other"

// Totals are a reading of FrameCounts. Their maps have an entry for every reason and code.
type Totals struct {
	Accepted uint64 // the sum of the next four
	Results  uint64
	Drops    map[Reason]uint64
	Errors   map[Code]uint64
	InFlight uint64

	// Refused is those of Drops and Errors that no stream has accepted, by their reason
	// or code.
	Refused map[string]uint64
	// Unsendable is those of Results that could not be encoded as their clients had
	// asked. The clients were told an error with this code.
	Unsendable map[Code]uint64

	// CacheHits is those of Results that were in the model's cache, CacheMisses the
	// requests that were looked up there and were not.
	CacheHits, CacheMisses uint64
	// The times of these look-ups: of hits with their results.
	CacheHitTime, CacheMissTime time.Duration

	// Answering is how long all frames took that were answered, from receipt to ending,
	// and Failing all others. Those that no stream accepted took no time; what could not
	// be encoded is with the others.
	Answering, Failing time.Duration
	Last               Instant // a frame that has ended was received; 0 = none
}

// Succeeded returns how many frames were answered with a result that could be encoded,
// and Failed how many have another ending.
func (t *Totals) Succeeded() uint64 { return t.Results - t.unsendable() }

// Failed is described at Succeeded.
func (t *Totals) Failed() uint64 { return t.Accepted - t.InFlight - t.Results + t.unsendable() }

func (t *Totals) unsendable() (n uint64) {
	for _, of := range t.Unsendable {
		n += of
	}
	return n
}

// accept counts a frame that a stream accepts.
func (c *FrameCounts) accept() { c.accepted.Add(1) }

// end counts the ending of a frame that a stream has accepted, which took so long.
func (c *FrameCounts) end(r *Result, after time.Duration) {
	took := int64(max(after, 0))
	if at := int64(r.Timing.Received); at-c.last.Load() >= int64(time.Millisecond) {
		c.last.Store(at)
	}
	if r.Outcome == Answered {
		c.answering.Add(took)
	} else {
		c.failing.Add(took)
	}
	switch r.Outcome {
	case Answered:
		c.results.Add(1)
	case Dropped:
		c.drops[reasonIndex(r.Reason)].Add(1)
	default:
		c.errors[codeIndex(CodeOf(r.Err))].Add(1)
	}
}

// Refuse counts a frame that no stream has accepted and whose client is told that it was
// dropped for why, or that it failed when err is set. Every adapter calls it for the
// endings that it gives itself. c may be nil, where no model is known.
func (c *FrameCounts) Refuse(why Reason, err error) {
	if c == nil {
		return
	}
	c.accepted.Add(1)
	if err == nil {
		i := reasonIndex(why)
		c.refused[0][i].Add(1)
		c.drops[i].Add(1)
		return
	}
	i := codeIndex(CodeOf(err))
	c.refused[1][i].Add(1)
	c.errors[i].Add(1)
}

// CountUnsendable counts a result that its adapter could not encode and whose client is
// told err instead. Parts of a result are not counted.
func (r *Result) CountUnsendable(err error) {
	if !r.Partial && r.counts != nil {
		took := int64(r.Timing.took())
		r.counts.answering.Add(-took)
		r.counts.failing.Add(took)
		r.counts.unsendable[codeIndex(CodeOf(err))].Add(1)
	}
}

// Totals reads the counts. Endings are read before what was accepted, so that a frame
// that ends meanwhile is in flight.
func (c *FrameCounts) Totals() Totals {
	t := Totals{Drops: map[Reason]uint64{}, Errors: map[Code]uint64{}, Refused: map[string]uint64{}, Unsendable: map[Code]uint64{}}
	read := func(name string, refused, ended *atomic.Uint64) (uint64, bool) {
		r, n := refused.Load(), ended.Load()
		if name == Other && n == 0 {
			return 0, false
		}
		t.Refused[name] += r
		t.Accepted += n
		return n, true
	}
	for i, why := range append(slices.Clip(Reasons), Other) {
		if n, ok := read(string(why), &c.refused[0][i], &c.drops[i]); ok {
			t.Drops[why] = n
		}
	}
	for i, code := range append(slices.Clip(coded.Codes), Other) {
		if n, ok := read(string(code), &c.refused[1][i], &c.errors[i]); ok {
			t.Errors[code] = n
		}
		if n := c.unsendable[i].Load(); n > 0 || code != Other {
			t.Unsendable[code] = n
		}
	}
	t.CacheHits, t.CacheMisses = c.cacheHits.Load(), c.cacheMisses.Load()
	t.CacheHitTime, t.CacheMissTime = time.Duration(c.cacheHitTime.Load()), time.Duration(c.cacheMissTime.Load())
	t.Answering, t.Failing, t.Last = time.Duration(c.answering.Load()), time.Duration(c.failing.Load()), Instant(c.last.Load())
	t.Results = c.results.Load()
	t.Accepted += t.Results
	accepted := c.accepted.Load()
	t.InFlight, t.Accepted = accepted-t.Accepted, accepted
	return t
}

// Add adds other to t.
func (t *Totals) Add(other Totals) {
	t.Accepted += other.Accepted
	t.Results += other.Results
	t.InFlight += other.InFlight
	t.CacheHits += other.CacheHits
	t.CacheMisses += other.CacheMisses
	t.CacheHitTime += other.CacheHitTime
	t.CacheMissTime += other.CacheMissTime
	t.Answering += other.Answering
	t.Failing += other.Failing
	t.Last = max(t.Last, other.Last)
	addAll(&t.Drops, other.Drops)
	addAll(&t.Errors, other.Errors)
	addAll(&t.Refused, other.Refused)
	addAll(&t.Unsendable, other.Unsendable)
}

func addAll[K comparable](to *map[K]uint64, from map[K]uint64) {
	if *to == nil {
		*to = maps.Clone(from)
		return
	}
	for k, n := range from {
		(*to)[k] += n
	}
}

// reasonIndex returns the place of why in Reasons, or the one after the last.
func reasonIndex(why Reason) int {
	if i := slices.Index(Reasons, why); i >= 0 {
		return i
	}
	return len(Reasons)
}

// codeIndex returns the place of code in coded.Codes, or the one after the last.
func codeIndex(code Code) int {
	if i := slices.Index(coded.Codes, code); i >= 0 {
		return i
	}
	return len(coded.Codes)
}
