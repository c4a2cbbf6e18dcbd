package stream

import (
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Options are what a stream is opened with.
type Options struct {
	Policy  Policy // unset fields take the model's defaults
	Params  Params // for the model: the same for every frame that brings none
	OneShot bool   // carries one-shot requests: not listed among the streams
}

// Counts are the totals of one stream. Accepted = Results + Drops + Errors once
// nothing is in flight.
type Counts struct {
	Accepted, Results, Drops, Errors uint64
}

// Stream is one client's continuous input to one model: a mailbox, the order of
// its results, freshness and the accounting. It has at most one token in its
// endpoint's queue: idle -> queued -> taken, rechecked after each take.
//
// Submit, Close and the reading methods are safe for concurrent use. Take is
// called by whoever took the stream's token.
//
// Invariants, under mu:
//   - token == queued exactly when the endpoint's queue holds the stream, which
//     may have ended since: its place is given back when the token comes out;
//   - a frame is in waiting, or in order with left == false, or ended;
//   - order holds, oldest first, the frames whose endings are pushed in turn and
//     are not pushed yet: all accepted ones in Every, those in flight in Latest;
//   - len(waiting) <= 1 in Latest (but for Must frames), <= Window in Every.
type Stream struct {
	sink         Sink
	policy       Policy                 // under mu
	policyCopy   atomic.Pointer[Policy] // the same, for readers without the lock
	opts         Options
	model        *Model
	clientGone   atomic.Bool
	waitingCount atomic.Int64 // of waiting, for readers without the lock: its rows << 32 + its length

	mu           sync.Mutex
	endpoint     Endpoint
	token        tokenState
	waiting      []*Request
	order        []*Request // accepted or taken, ending not yet pushed
	counts       Counts
	acceptUpTo   uint64 // so many frames may be accepted in all, whatever the window: a larger one allowed them
	closed       CloseReason
	paused       bool // nothing is taken from waiting
	flushes      uint64
	finished     chan struct{}
	nextFrameAt  Instant // MaxFPS: frames that come sooner are dropped
	lastActive   Instant
	state        any
	releaseState func(any)
	affinity     any     // the worker that has the state, for models with affinity
	cutter       *cutter // of a model with windows, once a frame has come
	held         int     // frames behind others: see Request.behind
}

type tokenState uint8

const (
	idle tokenState = iota
	queued
	taken // one frame of a stateful stream is in flight and holds it: no second token
)

// New makes a stream of model that feeds ep and answers to sink. The endpoint
// calls it from its own attach; adapters open streams by ingest.Backend.
func New(model *Model, ep Endpoint, sink Sink, opts Options) *Stream {
	policy := opts.Policy.WithDefaults(model.Policy)
	if opts.OneShot {
		policy.MaxFPS = 0 // its requests come from different callers, and are no frames of one source
	}
	s := &Stream{
		sink: sink, model: model, endpoint: ep, opts: opts, policy: policy,
		finished: make(chan struct{}), lastActive: Now(),
	}
	s.policyCopy.Store(&policy)
	return s
}

// Model returns the metadata of the model the stream feeds.
func (s *Stream) Model() *Model {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.model
}

// Policy returns the policy in force, defaults filled in.
func (s *Stream) Policy() Policy { return *s.policyCopy.Load() }

// Options returns what the stream was opened with.
func (s *Stream) Options() Options { return s.opts }

// Counts returns the stream's totals.
func (s *Stream) Counts() Counts {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts
}

// WaitingFrames returns how many frames wait in the mailbox.
func (s *Stream) WaitingFrames() int { return int(int32(s.waitingCount.Load())) }

// WaitingRows returns how many rows of a batch the frames in the mailbox need.
func (s *Stream) WaitingRows() int { return int(s.waitingCount.Load() >> 32) }

func weight(r *Request) int64 { return int64(r.Rows)<<32 + 1 }

// Finished is closed when the stream has closed, its last frame has ended and its
// sink's Done has returned.
func (s *Stream) Finished() <-chan struct{} { return s.finished }

// IsFinished says whether Finished is closed. It waits for a Done that is being
// called, so that the sink's Done must not call it.
func (s *Stream) IsFinished() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.finishedLocked()
}

// Submit offers a frame. It takes f.Lease over in every case. A nil error means
// that the frame is accepted: exactly one ending will be pushed to the sink,
// perhaps before Submit returns (a frame the model does not take is accepted
// and ends as an error, in its turn; one that completes no window is answered
// without outputs). Otherwise the frame was refused with
// FlowControl (the window is full), or with the reason for which the stream is
// closed, and nothing will be pushed.
func (s *Stream) Submit(f Frame) error { return s.SubmitAt(f, Now()) }

// SubmitAt is Submit for a frame received at now.
func (s *Stream) SubmitAt(f Frame, now Instant) error {
	r := &Request{Frame: f, Stream: s}
	r.Timing.Received = now
	if r.Params == nil {
		r.Params = s.opts.Params
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != "" {
		f.Lease.Release()
		return s.closedError()
	}
	if n := s.outstanding(f.Must); n >= s.policy.Window && s.counts.Accepted >= s.acceptUpTo {
		if s.policy.Mode == Latest {
			s.cutter.reset() // newer frames do not wait for it to be sent again
		}
		f.Lease.Release()
		return Errorf(FlowControl, "window", "%d frames are in flight already: wait for results, or open the stream with a larger window", n)
	}
	if s.held >= MaxWindow {
		s.cutter.reset() // who sends live will not send it again
		f.Lease.Release()
		return Errorf(FlowControl, "window", "%d frames that complete no window wait behind one that is in flight: wait for results, or send larger frames", MaxWindow)
	}
	s.lastActive = now
	s.counts.Accepted++
	var err error
	if s.whole(s.model, &r.Frame) {
		r.Rows, r.Class, err = s.model.Check(&r.Frame)
	} else {
		r.Rows, err = s.cut(r)
	}
	r.Deadline = s.deadline(r, now)
	if s.policy.Mode == Every {
		s.order = append(s.order, r)
	}
	switch {
	case noMemory(err):
		s.endLocked(r, Dropped, Memory, nil)
		return nil
	case err != nil:
		s.endLocked(r, Failed, "", err)
		return nil
	case r.Rows == 0:
		s.fill(r)
		return nil
	case s.tooSoon(r, now):
		s.endLocked(r, Dropped, RateLimit, nil)
		return nil
	}
	if s.policy.Mode == Latest {
		s.supersede()
	}
	s.waiting = append(s.waiting, r)
	s.waitingCount.Add(weight(r))
	if s.token == idle && !s.paused {
		s.token = queued
		s.endpoint.Enqueue(s, s.affinity)
	}
	s.endpoint.Waiting(1)
	return nil
}

// outstanding returns how many frames count against the window of the next one.
func (s *Stream) outstanding(must bool) int {
	switch {
	case s.policy.Mode == Every:
		return len(s.order)
	case must:
		n := 0
		for _, w := range s.waiting {
			if w.Must { // the others will be superseded
				n++
			}
		}
		return n
	}
	return 0
}

func (s *Stream) deadline(r *Request, now Instant) Instant {
	if r.Must {
		return 0
	}
	d := time.Duration(0)
	for _, x := range [...]time.Duration{s.policy.MaxAge, s.policy.Deadline, r.Frame.Deadline} {
		if x > 0 && (d == 0 || x < d) {
			d = x
		}
	}
	if d == 0 || d > math.MaxInt64-time.Duration(now) {
		return 0
	}
	return now.Add(d)
}

// tooSoon keeps to MaxFPS. A frame may come a quarter of an interval early, so
// that a source that jitters around its own rate loses nothing.
func (s *Stream) tooSoon(r *Request, now Instant) bool {
	if s.policy.MaxFPS <= 0 || r.Must {
		return false
	}
	step := time.Duration(float64(time.Second) / s.policy.MaxFPS)
	if s.nextFrameAt != 0 && now < s.nextFrameAt.Add(-step/4) {
		return true
	}
	if now > s.nextFrameAt.Add(step) {
		s.nextFrameAt = now // first frame, or a pause: no burst is saved up
	}
	s.nextFrameAt = s.nextFrameAt.Add(step)
	return false
}

// supersede ends the waiting frames that a newer one replaces.
func (s *Stream) supersede() {
	kept := s.waiting[:0]
	for _, w := range s.waiting {
		if w.Must {
			kept = append(kept, w)
			continue
		}
		s.waitingCount.Add(-weight(w))
		s.endLocked(w, Dropped, Superseded, nil)
	}
	s.notifyWaiting(len(kept) - len(s.waiting))
	clear(s.waiting[len(kept):])
	s.waiting = kept
}

// Take binds the stream's next frame to a batch that has room for that many
// rows of that class (any class when class is nil), and would be answered after
// about predict. The caller must own the token, which Take gives up, unless kept
// says that the next frame needs more rows: then the caller still has it. Else a
// nil request means that the mailbox emptied, its frames were too late, or the
// next one is of another class, in which case the token is queued again.
func (s *Stream) Take(now Instant, room int, class *uint64, predict time.Duration) (r *Request, kept bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.token = taken // so that what ends below does not queue a second token
	for len(s.waiting) > 0 && !s.paused {
		r = s.waiting[0]
		if r.Deadline != 0 && now.Add(predict) > r.Deadline {
			s.pop()
			s.endLocked(r, Dropped, Stale, nil)
			continue
		}
		if class != nil && *class != r.Class {
			s.requeue()
			return nil, false
		}
		if r.Rows > room {
			s.token = queued
			return nil, true
		}
		s.pop()
		r.bound, r.holdsToken = true, s.model.Stateful
		r.Timing.Dequeued, r.Flushes = now, s.flushes
		r.result.Model = s.model
		if s.policy.Mode == Latest {
			s.order = append(s.order, r)
		}
		if r.holdsToken {
			return r, false
		}
		s.token = idle
		if len(s.waiting) > 0 {
			s.requeue()
		}
		return r, false
	}
	s.returnToken()
	return nil, false
}

// ReleaseToken gives the token up if no frame waits, and reports whether it did.
// The caller must own the token.
func (s *Stream) ReleaseToken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) > 0 && !s.paused {
		return false
	}
	s.returnToken()
	return true
}

// ForgetToken tells the stream that ep removed its token from the queue without
// taking a frame.
func (s *Stream) ForgetToken(ep Endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.endpoint == ep && s.token == queued {
		s.returnToken()
	}
}

// returnToken gives up a token that is in no queue. A stream that ended while the
// token was queued gives its place back as well.
func (s *Stream) returnToken() {
	s.token = idle
	if s.finishedLocked() {
		s.endpoint.Detach(s)
	}
}

func (s *Stream) finishedLocked() bool {
	select {
	case <-s.finished:
		return true
	default:
		return false
	}
}

// Head returns the class of the next frame and when it was received; ok is false
// when none waits.
func (s *Stream) Head() (class uint64, received Instant, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 || s.paused {
		return 0, 0, false
	}
	r := s.waiting[0]
	return r.Class, r.Timing.Received, true
}

func (s *Stream) pop() {
	s.waitingCount.Add(-weight(s.waiting[0]))
	copy(s.waiting, s.waiting[1:])
	s.waiting[len(s.waiting)-1] = nil
	s.waiting = s.waiting[:len(s.waiting)-1]
	s.endpoint.Waiting(-1)
}

// notifyWaiting tells the endpoint that n more frames wait.
func (s *Stream) notifyWaiting(n int) {
	if n != 0 {
		s.endpoint.Waiting(n)
	}
}

func (s *Stream) requeue() {
	s.token = queued
	s.endpoint.Enqueue(s, s.affinity)
}
