package stream

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"millrace/stream/coded"
)

// FrameCounts counts the frames of one version of a model, by the endings sent to the clients. Each frame is counted
// when accepted and when ended, so that at every moment
//
//	accepted = results + drops by reason + errors by code + in flight
//
// A frame refused before acceptance by a stream (for want of memory, above the window, malformed, after the end of
// its stream) has an ending as well: the client gets a drop or an error. Such a frame counts as accepted, by its
// ending, and also as refused.
//
// A frame counts for the version that accepted the frame, also when the next version answers after a swap. The
// methods are safe for concurrent use.
type FrameCounts struct {
	accepted atomic.Uint64
	live     atomic.Int64 // see Live
	_        [48]byte     // receivers write accepted and live; endings write the rest

	results    atomic.Uint64
	answering  atomic.Int64      // nanoseconds of the results
	failing    atomic.Int64      // of all other endings
	last       atomic.Int64      // latest receipt of an ended frame, an Instant in ms
	drops      [16]atomic.Uint64 // by reasonIndex
	errors     [32]atomic.Uint64 // by codeIndex
	refused    [2][32]atomic.Uint64
	unsendable [32]atomic.Uint64 // by codeIndex

	cacheHits, cacheMisses      atomic.Uint64
	cacheHitTime, cacheMissTime atomic.Int64

	refusal atomic.Pointer[func(*Refusal)]
}

// Other is the reason or code for endings not listed in Reasons or coded.Codes.
const Other = "other"

// Totals are a reading of FrameCounts. Their maps have an entry for every reason and code.
type Totals struct {
	Accepted uint64 // the sum of the next four
	Results  uint64
	Drops    map[Reason]uint64
	Errors   map[Code]uint64
	InFlight uint64

	// Refused counts the drops and errors of frames not accepted by a stream, by reason or code.
	Refused map[string]uint64
	// Unsendable counts results that could not be encoded in the client's format. The client got an error with the
	// code instead.
	Unsendable map[Code]uint64

	// CacheHits counts results from the model's cache, CacheMisses requests not found in the cache.
	CacheHits, CacheMisses uint64
	// The times of these look-ups: of hits with their results.
	CacheHitTime, CacheMissTime time.Duration

	// Answering is the sum of the times from receipt to ending of all answered frames, Failing of all other frames.
	// Frames not accepted by a stream took no time; frames with an unencodable result count in Failing.
	Answering, Failing time.Duration
	Last               Instant // receipt of the last ended frame; 0 = none
}

// Succeeded returns the number of frames answered with an encodable result, and Failed the number of frames with
// another ending.
func (t *Totals) Succeeded() uint64 { return t.Results - t.unsendable() }

// Failed is described at Succeeded.
func (t *Totals) Failed() uint64 { return t.Accepted - t.InFlight - t.Results + t.unsendable() }

func (t *Totals) unsendable() (n uint64) {
	for _, of := range t.Unsendable {
		n += of
	}
	return n
}

// liveStep is the precision of Live: few frames write the time.
const liveStep = 10 * time.Millisecond

// accept counts a frame of a priority accepted by a stream at now.
func (c *FrameCounts) accept(p Priority, now Instant) {
	c.accepted.Add(1)
	if p < Low && now.Sub(Instant(c.live.Load())) >= liveStep {
		c.live.Store(int64(now))
	}
}

// Live returns when a frame above priority Low was accepted at last, 10 ms early at most; 0 = never.
func (c *FrameCounts) Live() Instant { return Instant(c.live.Load()) }

// end counts the ending of an accepted frame, and the time from receipt to ending.
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

// Refuse counts a frame not accepted by a stream, whose client gets a drop for why or, if err is set, an error. Every
// adapter calls Refuse for the endings made by the adapter itself. c may be nil if the model is unknown.
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

// CountUnsendable counts a result that the adapter could not encode; the client gets err instead. Parts of a result
// do not count.
func (r *Result) CountUnsendable(err error) {
	if !r.Partial && r.counts != nil {
		took := int64(r.Timing.elapsed())
		r.counts.answering.Add(-took)
		r.counts.failing.Add(took)
		r.counts.unsendable[codeIndex(CodeOf(err))].Add(1)
	}
}

// Totals reads the counts. Totals reads the endings before the accepted frames, so that a frame ending meanwhile
// counts as in flight.
func (c *FrameCounts) Totals() Totals {
	t := Totals{Drops: map[Reason]uint64{}, Errors: map[Code]uint64{}, Refused: map[string]uint64{},
		Unsendable: map[Code]uint64{}}
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
	t.Answering, t.Failing, t.Last = time.Duration(c.answering.Load()), time.Duration(c.failing.Load()),
		Instant(c.last.Load())
	t.Results = c.results.Load()
	t.Accepted += t.Results
	accepted := c.accepted.Load()
	t.InFlight, t.Accepted = accepted-t.Accepted, accepted
	return t
}

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

// reasonIndex returns the index of why in Reasons, or len(Reasons).
func reasonIndex(why Reason) int {
	if i := slices.Index(Reasons, why); i >= 0 {
		return i
	}
	return len(Reasons)
}

// codeIndex returns the index of code in coded.Codes, or len(coded.Codes).
func codeIndex(code Code) int {
	if i := slices.Index(coded.Codes, code); i >= 0 {
		return i
	}
	return len(coded.Codes)
}
