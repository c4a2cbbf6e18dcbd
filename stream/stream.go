package stream

import (
	"sync"
	"sync/atomic"
	"time"
)

// Options are what a stream is opened with.
type Options struct {
	Policy  Policy // unset fields take the model's defaults
	Params  Params // for the model: the same for every frame that brings none
	OneShot bool   // carries the one-shot requests of one connection; not listed among the streams
}

// Counts are the totals of one stream. Accepted = Results + Drops + Errors once
// nothing is in flight.
type Counts struct {
	Accepted, Results, Drops, Errors uint64
}

// Stream is one client's continuous input to one model: a mailbox, the order of
// its results, freshness and the accounting. It has at most one token in its
// endpoint's queue: idle -> queued -> taken, and the mailbox is looked at again after
// each take.
//
// Submit, Close and the reading methods are safe for concurrent use. Take is
// called by whoever took the stream's token.
//
// Invariants, under mu:
//   - token == queued exactly when the endpoint's queue holds the stream, which
//     may have ended since: its place is given back when the token comes out;
//   - order holds, oldest first, the accepted frames whose endings are not pushed:
//     those in flight, then those in waiting, and between them any that have ended
//     and whose turn has not come;
//   - len(waiting) <= 1 in Latest (but for Must frames), <= Window in Every.
type Stream struct {
	sink         Sink
	policy       Policy                 // under mu
	policyCopy   atomic.Pointer[Policy] // the same, for readers without the lock
	opts         Options
	model        *Model
	clientGone   atomic.Bool
	waitingCount atomic.Int64 // of waiting, for readers without the lock: its rows << 32 + its length

	mu          sync.Mutex
	endpoint    Endpoint
	token       tokenState
	waiting     []*Request
	order       []*Request
	counts      Counts
	acceptUpTo  uint64 // so many frames may be accepted in all, whatever the window: a larger one allowed them
	closed      CloseReason
	paused      bool // nothing is taken from waiting
	flushes     uint64
	finished    chan struct{}
	nextFrameAt Instant // MaxFPS: frames that come sooner are dropped
	lastActive  Instant
	states      states
	affinity    any       // the worker that has the state, for models with affinity
	assembler   Assembler // of a model whose requests are not single frames, or nil
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
		finished: make(chan struct{}), lastActive: Now(), assembler: model.newAssembler(opts.OneShot),
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

// Head is what is known of a stream's next frame before it is taken.
type Head struct {
	Class    uint64
	Received Instant
	Deadline Instant // the nearest of all frames that wait; 0 = none has one
}

// Head describes the next frame; ok is false when none waits.
func (s *Stream) Head() (h Head, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 || s.paused {
		return h, false
	}
	r := s.waiting[0]
	h = Head{Class: r.Class, Received: r.Timing.Received, Deadline: r.Deadline}
	for _, w := range s.waiting[1:] {
		if w.Deadline != 0 && (h.Deadline == 0 || w.Deadline < h.Deadline) {
			h.Deadline = w.Deadline
		}
	}
	return h, true
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
