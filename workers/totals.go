package workers

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"millrace/batching"
	"millrace/stream"
)

// The bounds on unloaded models in reports.
const (
	keepEnded = 5 * time.Minute // long enough for several scrapes to see the last counts
	maxEnded  = 32              // models and versions
)

// totals are the counters of one model and version, shared by the groups of the model and version (in sequence, or at
// the same time during a swap), so that reported counters never decrease.
type totals struct {
	frames    stream.FrameCounts
	restarts  atomic.Uint64
	batches   [batching.Causes]atomic.Uint64 // by batching.Cause
	rows      atomic.Uint64
	capacity  atomic.Uint64
	shadow    shadowCounts // of this version as a shadow
	ran       ran
	processes Processes

	// Under ledger.mu:
	model  *stream.Model // of the newest group
	groups map[*Group]struct{}
	users  int            // groups that start, serve or end
	served bool           // a group has served
	ended  stream.Instant // when the last group had ended
}

// ledger has the totals of all models that are loaded or were a short time ago.
type ledger struct {
	mu  sync.Mutex
	all map[modelVersion]*totals
}

type modelVersion struct{ model, version string }

// use returns the totals of a model and version for a starting group. Each use needs a drop.
func (l *ledger) use(model, version string) *totals {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := modelVersion{model, version}
	t := l.all[key]
	if t == nil {
		if l.all == nil {
			l.all = map[modelVersion]*totals{}
		}
		t = &totals{model: &stream.Model{Name: model, Version: version}, groups: map[*Group]struct{}{}}
		l.all[key] = t
	}
	t.users++
	return t
}

// add lists a serving group.
func (l *ledger) add(t *totals, g *Group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.model, t.served = g.model, true
	t.groups[g] = struct{}{}
}

// drop ends the use of t by an ended group, even if g was never listed. The totals are kept for a while, so that the
// group's last counts are seen.
func (l *ledger) drop(t *totals, g *Group, now stream.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(t.groups, g)
	t.users--
	t.ended = now
	l.forget(now)
}

// forget removes the totals of models that ended long ago, and the oldest totals above maxEnded. mu is held.
func (l *ledger) forget(now stream.Instant) {
	var ended []modelVersion
	for key, t := range l.all {
		switch {
		case t.users > 0:
		case !t.served: // the load failed
			delete(l.all, key)
		default:
			ended = append(ended, key)
		}
	}
	slices.SortFunc(ended, func(a, b modelVersion) int { return cmp.Compare(l.all[b].ended, l.all[a].ended) })
	for i, key := range ended {
		if i >= maxEnded || now.Sub(l.all[key].ended) >= keepEnded {
			delete(l.all, key)
		}
	}
}

// stats returns the statistics of each model and version, sorted by both.
func (l *ledger) stats(now stream.Instant) []GroupStats {
	type entry struct {
		t      *totals
		model  *stream.Model
		groups []*Group
	}
	l.mu.Lock()
	l.forget(now)
	list := make([]entry, 0, len(l.all))
	for _, t := range l.all {
		list = append(list, entry{t, t.model, slices.Collect(maps.Keys(t.groups))})
	}
	l.mu.Unlock()
	slices.SortFunc(list, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.model.Name, b.model.Name), cmp.Compare(a.model.Version, b.model.Version))
	})
	out := make([]GroupStats, len(list))
	for i, e := range list {
		st := &out[i]
		st.Model, st.State = e.model, StateUnloaded
		for _, g := range e.groups {
			st.add(g.current(now))
		}
		e.t.read(st)
	}
	return out
}

// live returns when a model accepted a frame above priority low at last; 0 = never.
func (l *ledger) live() (at stream.Instant) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.all {
		at = max(at, t.frames.Live())
	}
	return at
}

// read sets the fields of st that the groups of a model and version share.
func (t *totals) read(st *GroupStats) {
	st.Restarts, st.Rows, st.Capacity = t.restarts.Load(), t.rows.Load(), t.capacity.Load()
	st.BatchesBy = make(map[string]uint64, len(t.batches))
	for i := range t.batches {
		n := t.batches[i].Load()
		st.BatchesBy[batching.Cause(i).String()] = n
		st.Batches += n
	}
	st.Frames = t.frames.Totals()
	st.Shadow = t.shadow.read()
	st.RunTotals = t.ran.read()
	st.Processes = t.processes.stats()
}

// add adds the present state of another group of the same model and version. State becomes the state of a group that
// can serve, if any.
func (st *GroupStats) add(other GroupStats) {
	if st.State == StateUnloaded || other.State == StateReady {
		st.State, st.Reason = other.State, other.Reason
	}
	st.Workers += other.Workers
	st.Busy += other.Busy
	st.Quarantined += other.Quarantined
	st.Streams += other.Streams
	st.PlacesUsed += other.PlacesUsed
	st.Waiting += other.Waiting
	st.Oldest = max(st.Oldest, other.Oldest)
	st.Buffers += other.Buffers
	st.BuffersFree += other.BuffersFree
	st.CacheResults += other.CacheResults
	st.CacheBytes += other.CacheBytes
}
