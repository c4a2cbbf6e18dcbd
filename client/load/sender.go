package load

import (
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// sender is one stream with its schedule.
type sender struct {
	run      *run
	index    int
	conn     Conn
	shard    *shard
	rng      *rand.Rand
	slots    chan struct{} // closed loop: places in the window
	failed   chan struct{} // closed when the stream failed
	failOnce sync.Once

	sent   uint64 // used by the sender's goroutine only
	unsent uint64 // due, but not sent

	mu      sync.Mutex
	unended openFrames

	answered atomic.Uint64 // answers in the measured time
}

func newSender(r *run, i int) *sender {
	l := &sender{run: r, index: i, shard: r.shards[i%len(r.shards)], failed: make(chan struct{})}
	if r.cfg.Rate == 0 {
		l.slots = make(chan struct{}, r.cfg.Window)
	} else if r.cfg.Poisson {
		l.rng = rand.New(rand.NewPCG(r.cfg.Seed, uint64(i)))
	}
	return l
}

// begin returns when the stream's first frame is due. Streams with even gaps start at different times within one gap,
// to avoid bursts.
func (l *sender) begin() time.Duration {
	c, n := &l.run.cfg, float64(l.run.cfg.Streams)
	at := float64(c.RampUp) / n * float64(l.index)
	if c.Rate > 0 && !c.Poisson {
		at += float64(l.gap()) / n * float64(l.index)
	}
	return time.Duration(at)
}

// gap returns the time until the next frames are due.
func (l *sender) gap() time.Duration {
	mean := float64(time.Second) * float64(l.run.cfg.Burst) / l.run.cfg.Rate
	if l.rng != nil {
		mean *= l.rng.ExpFloat64()
	}
	return time.Duration(mean)
}

// more reports whether Config.Frames allows another frame.
func (l *sender) more() bool {
	return l.run.cfg.Frames == 0 || l.sent < uint64(l.run.cfg.Frames)
}

// send runs the stream until all its frames were sent or sending stops.
func (l *sender) send() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	if l.slots != nil {
		l.closedLoop(timer)
	} else {
		l.openLoop(timer)
	}
}

// until waits until the time at, if not past. until returns false when sending has stopped.
func (l *sender) until(at time.Duration, timer *time.Timer) bool {
	wait := at - l.run.now()
	if wait > 0 {
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-l.run.stop:
		case <-l.failed:
		}
	}
	select {
	case <-l.run.stop:
		return false
	case <-l.failed:
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
		case <-l.failed:
			return
		}
		if now := l.run.now(); now >= l.run.cfg.Duration || !l.sendOne(now, now) {
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
			if ok = ok && l.sendOne(due, l.run.now()); !ok {
				l.unsent++
			}
		}
		if !ok {
			l.missed(due)
			return
		}
	}
}

// missed counts unsent due frames after the last sent frame: up to now if sending was stopped, up to the end if the
// stream failed. With random gaps, missed counts the expected number.
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

// sendOne sends the frame due at the time due, and returns false when the stream has failed.
func (l *sender) sendOne(due, now time.Duration) bool {
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
	l.unended.markSent(seq, now) // Send may have waited for acceptance by the server
	l.mu.Unlock()
	l.shard.sent(due, now)
	return err == nil
}

// frame returns the payload of frame number seq. All streams send the payloads in order, each from a different start.
func (l *sender) frame(seq uint64) *Frame {
	list := l.run.frames
	n := uint64(len(list))
	return list[(uint64(l.index)*n/uint64(l.run.cfg.Streams)+seq)%n]
}

// ended handles an ending.
func (l *sender) ended(e Ending) {
	if e.Lost != nil {
		l.lost(e.Lost)
		return
	}
	now := l.run.now()
	// Counted under the lock, since the run is over when no frame is open.
	l.mu.Lock()
	m, ok := l.unended.get(e.Seq, !e.Partial)
	if l.shard.ended(&e, m, ok, now) {
		l.answered.Add(1)
	}
	l.mu.Unlock()
	if ok && !e.Partial {
		l.run.checkGiveUp(&e)
	}
	if ok && !e.Partial && l.slots != nil {
		<-l.slots
	}
}

// lost records that the stream failed.
func (l *sender) lost(err error) {
	l.failOnce.Do(func() {
		close(l.failed)
		l.run.lost(err)
	})
}

// open returns how many frames have no ending yet.
func (l *sender) open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unended.open
}
