package load

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"millrace/internal/histogram"
	"millrace/stream"
)

// lane is one stream with what it sends.
type lane struct {
	run   *run
	index int
	conn  Conn
	shard *shard
	rng   *rand.Rand
	slots chan struct{} // closed loop: places in the window
	gone  chan struct{} // closed when the stream broke
	broke sync.Once

	sent   uint64 // by the sender only
	unsent uint64 // due, but not sent

	mu      sync.Mutex
	pending pending

	answered atomic.Uint64 // of measured frames
}

func newLane(r *run, i int) *lane {
	l := &lane{run: r, index: i, shard: r.shards[i%len(r.shards)], gone: make(chan struct{})}
	if r.cfg.Rate == 0 {
		l.slots = make(chan struct{}, r.cfg.Window)
	} else if r.cfg.Poisson {
		l.rng = rand.New(rand.NewPCG(r.cfg.Seed, uint64(i)))
	}
	return l
}

// begin is when the stream's first frame is due. Streams at an even rate are
// spread over their common interval: all at once would be a burst.
func (l *lane) begin() time.Duration {
	c, n := &l.run.cfg, float64(l.run.cfg.Streams)
	at := float64(c.RampUp) / n * float64(l.index)
	if c.Rate > 0 && !c.Poisson {
		at += float64(l.gap()) / n * float64(l.index)
	}
	return time.Duration(at)
}

// gap is the time between two moments at which frames are due.
func (l *lane) gap() time.Duration {
	mean := float64(time.Second) * float64(l.run.cfg.Burst) / l.run.cfg.Rate
	if l.rng != nil {
		mean *= l.rng.ExpFloat64()
	}
	return time.Duration(mean)
}

// more says whether the stream's count allows another frame.
func (l *lane) more() bool {
	return l.run.cfg.Frames == 0 || l.sent < uint64(l.run.cfg.Frames)
}

// send runs the stream until its frames or the time are over.
func (l *lane) send() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	if l.slots != nil {
		l.closedLoop(timer)
	} else {
		l.openLoop(timer)
	}
}

// until waits for a moment; false means that sending is over. A moment that is
// past is not waited for.
func (l *lane) until(at time.Duration, timer *time.Timer) bool {
	wait := at - l.run.now()
	if wait > 0 {
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-l.run.stop:
		case <-l.gone:
		}
	}
	select {
	case <-l.run.stop:
		return false
	case <-l.gone:
		return false
	default:
		return true
	}
}

func (l *lane) closedLoop(timer *time.Timer) {
	if !l.until(l.begin(), timer) {
		return
	}
	for l.more() {
		select {
		case l.slots <- struct{}{}:
		case <-l.run.stop:
			return
		case <-l.gone:
			return
		}
		if now := l.run.now(); now >= l.run.cfg.Duration || !l.one(now, now) {
			return
		}
	}
}

func (l *lane) openLoop(timer *time.Timer) {
	c := &l.run.cfg
	for due := l.begin(); due < c.Duration && l.more(); due += l.gap() {
		ok := l.until(due, timer)
		for range c.Burst {
			if !l.more() {
				return
			}
			if ok = ok && l.one(due, l.run.now()); !ok {
				l.unsent++
			}
		}
		if !ok {
			l.missed(due)
			return
		}
	}
}

// missed counts what would have been due after the moment at which sending
// ended: up to now when it was stopped, to the end when the stream broke. With
// random gaps it is the number to be expected.
func (l *lane) missed(due time.Duration) {
	c := &l.run.cfg
	end := c.Duration
	select {
	case <-l.run.stop:
		end = min(end, l.run.now())
	default:
	}
	gap := float64(time.Second) * float64(c.Burst) / c.Rate
	n := max(math.Ceil(float64(end-due)/gap)-1, 0) * float64(c.Burst)
	if c.Frames > 0 {
		n = min(n, float64(c.Frames)-float64(l.sent+l.unsent))
	}
	l.unsent += uint64(max(n, 0))
}

// one sends a frame that was due at a moment. It reports false when the stream
// is over.
func (l *lane) one(due, now time.Duration) bool {
	l.mu.Lock()
	seq := l.pending.next
	l.pending.put(due, now)
	l.mu.Unlock()
	err := l.conn.Send(seq, l.frame(seq))
	if err != nil {
		l.mu.Lock()
		undone := l.pending.undo()
		l.mu.Unlock()
		l.lost(err)
		if undone {
			return false
		}
	}
	l.sent++
	now = l.run.now()
	l.mu.Lock()
	l.pending.handed(seq, now) // Send may have waited for the server to take it
	l.mu.Unlock()
	l.shard.sent(due, now)
	return err == nil
}

// frame is what the stream sends as its number seq: all go through the payloads
// in order, each from a place of its own.
func (l *lane) frame(seq uint64) *Frame {
	list := l.run.frames
	n := uint64(len(list))
	return list[(uint64(l.index)*n/uint64(l.run.cfg.Streams)+seq)%n]
}

// ended takes an ending from the connection.
func (l *lane) ended(e Ending) {
	if e.Lost != nil {
		l.lost(e.Lost)
		return
	}
	now := l.run.now()
	l.mu.Lock()
	m, ok := l.pending.get(e.Seq, !e.Partial)
	l.mu.Unlock()
	if l.shard.ended(&e, m, ok, now) {
		l.answered.Add(1)
	}
	if ok && !e.Partial && l.slots != nil {
		<-l.slots
	}
}

// lost notes that the stream broke.
func (l *lane) lost(err error) {
	l.broke.Do(func() {
		close(l.gone)
		l.run.lost(err)
	})
}

// open is how many frames have no ending yet.
func (l *lane) open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pending.open
}

// shard is the account of some of the streams: one lock for all of them would
// be in the way.
type shard struct {
	cfg *Config
	mu  sync.Mutex
	tally
	row    tally // of this second
	latest time.Duration
}

// tally counts endings.
type tally struct {
	sentN, answered, good, partials, unexpected uint64
	measured, measuredGood                      uint64 // endings within the time that rates are taken over
	batchSum, batchN                            uint64
	drops                                       map[stream.Reason]uint64
	errors                                      map[stream.Code]uint64
	latency, service, lag, told                 histogram.Durations
}

func (t *tally) reset() {
	clear(t.drops)
	clear(t.errors)
	for _, h := range []*histogram.Durations{&t.latency, &t.service, &t.lag, &t.told} {
		h.Reset()
	}
	*t = tally{drops: t.drops, errors: t.errors, latency: t.latency, service: t.service, lag: t.lag, told: t.told}
}

func newTally() tally {
	return tally{drops: map[stream.Reason]uint64{}, errors: map[stream.Code]uint64{}}
}

func (t *tally) merge(o *tally) {
	t.sentN += o.sentN
	t.answered += o.answered
	t.good += o.good
	t.partials += o.partials
	t.unexpected += o.unexpected
	t.measured += o.measured
	t.measuredGood += o.measuredGood
	t.batchSum += o.batchSum
	t.batchN += o.batchN
	for k, n := range o.drops {
		t.drops[k] += n
	}
	for k, n := range o.errors {
		t.errors[k] += n
	}
	t.latency.Merge(&o.latency)
	t.service.Merge(&o.service)
	t.lag.Merge(&o.lag)
	t.told.Merge(&o.told)
}

func (s *shard) sent(due, at time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sentN++
	s.row.sentN++
	if due >= s.cfg.measureFrom() {
		s.lag.Add(at - due)
	}
}

// ended counts an ending, and reports whether it was an answer that counts for
// the rates.
func (s *shard) ended(e *Ending, m moment, known bool, now time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !known:
		s.unexpected++
		return false
	case e.Partial:
		s.partials++
		return false
	}
	s.latest = max(s.latest, now)
	from, age := s.cfg.measureFrom(), now-m.due
	good := s.cfg.Deadline == 0 || age <= s.cfg.Deadline
	inside := false
	for _, t := range []*tally{&s.tally, &s.row} {
		switch e.Outcome {
		case stream.Dropped:
			t.drops[e.Reason]++
		case stream.Failed:
			t.errors[e.Code]++
		default:
			t.answered++
			if good {
				t.good++
			}
			if e.Batch > 0 {
				t.batchSum += uint64(e.Batch)
				t.batchN++
			}
			if inside = now >= from && now <= s.cfg.Duration; inside {
				t.measured++
				if good {
					t.measuredGood++
				}
			}
			if m.due >= from {
				t.latency.Add(age)
			}
			if m.due >= from && t == &s.tally {
				t.service.Add(now - m.sent)
			}
		}
		if e.Outcome == stream.Dropped && m.due >= from && t == &s.tally {
			t.told.Add(age)
		}
	}
	return inside
}
