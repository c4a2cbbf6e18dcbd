package load

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// sender is one stream with what it sends.
type sender struct {
	run       *run
	index     int
	conn      Conn
	shard     *shard
	rng       *rand.Rand
	slots     chan struct{} // closed loop: places in the window
	broken    chan struct{} // closed when the stream broke
	breakOnce sync.Once

	sent   uint64 // by the sender only
	unsent uint64 // due, but not sent

	mu      sync.Mutex
	unended unended

	answered atomic.Uint64 // of measured frames
}

func newSender(r *run, i int) *sender {
	l := &sender{run: r, index: i, shard: r.shards[i%len(r.shards)], broken: make(chan struct{})}
	if r.cfg.Rate == 0 {
		l.slots = make(chan struct{}, r.cfg.Window)
	} else if r.cfg.Poisson {
		l.rng = rand.New(rand.NewPCG(r.cfg.Seed, uint64(i)))
	}
	return l
}

// begin is when the stream's first frame is due. Streams at an even rate are
// spread over their common interval: all at once would be a burst.
func (l *sender) begin() time.Duration {
	c, n := &l.run.cfg, float64(l.run.cfg.Streams)
	at := float64(c.RampUp) / n * float64(l.index)
	if c.Rate > 0 && !c.Poisson {
		at += float64(l.gap()) / n * float64(l.index)
	}
	return time.Duration(at)
}

// gap is the time between two moments at which frames are due.
func (l *sender) gap() time.Duration {
	mean := float64(time.Second) * float64(l.run.cfg.Burst) / l.run.cfg.Rate
	if l.rng != nil {
		mean *= l.rng.ExpFloat64()
	}
	return time.Duration(mean)
}

// more says whether the stream's count allows another frame.
func (l *sender) more() bool {
	return l.run.cfg.Frames == 0 || l.sent < uint64(l.run.cfg.Frames)
}

// send runs the stream until its frames or the time are over.
func (l *sender) send() {
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
func (l *sender) until(at time.Duration, timer *time.Timer) bool {
	wait := at - l.run.now()
	if wait > 0 {
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-l.run.stop:
		case <-l.broken:
		}
	}
	select {
	case <-l.run.stop:
		return false
	case <-l.broken:
		return false
	default:
		return true
	}
}

func (l *sender) closedLoop(timer *time.Timer) {
	if !l.until(l.begin(), timer) {
		return
	}
	for l.more() {
		select {
		case l.slots <- struct{}{}:
		case <-l.run.stop:
			return
		case <-l.broken:
			return
		}
		if now := l.run.now(); now >= l.run.cfg.Duration || !l.one(now, now) {
			return
		}
	}
}

func (l *sender) openLoop(timer *time.Timer) {
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
func (l *sender) missed(due time.Duration) {
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
func (l *sender) one(due, now time.Duration) bool {
	l.mu.Lock()
	seq := l.unended.next
	l.unended.put(due, now)
	l.mu.Unlock()
	err := l.conn.Send(seq, l.frame(seq))
	if err != nil {
		l.mu.Lock()
		undone := l.unended.undo()
		l.mu.Unlock()
		l.lost(err)
		if undone {
			return false
		}
	}
	l.sent++
	now = l.run.now()
	l.mu.Lock()
	l.unended.markSent(seq, now) // Send may have waited for the server to take it
	l.mu.Unlock()
	l.shard.sent(due, now)
	return err == nil
}

// frame is what the stream sends as its number seq: all go through the payloads
// in order, each from a place of its own.
func (l *sender) frame(seq uint64) *Frame {
	list := l.run.frames
	n := uint64(len(list))
	return list[(uint64(l.index)*n/uint64(l.run.cfg.Streams)+seq)%n]
}

// ended takes an ending from the connection.
func (l *sender) ended(e Ending) {
	if e.Lost != nil {
		l.lost(e.Lost)
		return
	}
	now := l.run.now()
	l.mu.Lock()
	m, ok := l.unended.get(e.Seq, !e.Partial)
	l.mu.Unlock()
	if l.shard.ended(&e, m, ok, now) {
		l.answered.Add(1)
	}
	if ok && !e.Partial && l.slots != nil {
		<-l.slots
	}
}

// lost notes that the stream broke.
func (l *sender) lost(err error) {
	l.breakOnce.Do(func() {
		close(l.broken)
		l.run.lost(err)
	})
}

// open is how many frames have no ending yet.
func (l *sender) open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unended.open
}
