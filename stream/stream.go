package stream

import (
	"sync"
	"sync/atomic"
	"time"

	"millrace/stream/buf"
)

// Options are what a stream is opened with.
type Options struct {
	Policy Policy // fields that are not set take the model's defaults
	Params Params // for the model: of every frame that has none of its own
	// OwnRefusals says that the caller counts the frames that Submit refuses, since it may
	// send them to another stream, or tells its client something else (FrameCounts.Refuse).
	OwnRefusals bool
	OneShot     bool // carries the one-shot requests of one connection; it is not listed among the streams
	// Sequence says that the client counts on the state: when it is lost, because the first
	// frame has no result, or the worker that had it is replaced, the frames that follow
	// fail, and are not run with an empty one. Its owner closes the stream when it is idle,
	// and a swap of the model does.
	Sequence bool

	// Version is the version of the model that the client named; "" = it named none, and
	// the stream goes on with another when its own is not served any more.
	Version string

	Account  *Account     // of the client, for frames that have none of their own
	Place    bool         // it holds one of the account's QuotaStreams, which it gives back when it has finished
	Protocol string       // by which its frames come, for traces: rest, ws, millrace.v1, native, streams and others
	Name     string       // of the stream, for traces; or ""
	Trace    TraceContext // of frames that have none of their own
}

// Counts are the totals of one stream. Accepted = Results + Drops + Errors once
// nothing is in flight.
type Counts struct {
	Accepted, Results, Drops, Errors uint64
}

// Stream is one client's continuous input to one model: a mailbox, the order of
// its results, freshness and the accounting. It has at most one token in its
// queue: not queued -> queued -> taken, and the mailbox is checked again after each
// take.
//
// Submit, Close and the reading methods are safe for concurrent use. Take is called by
// the worker that took the stream's token.
//
// Invariants, under mu:
//   - token == queued exactly when the queue holds the stream's token; the stream
//     may have ended since, and its place is freed when the token is taken out;
//   - order holds, oldest first, the accepted frames whose endings are not pushed:
//     those in flight, then those in waiting, and between them any that have ended
//     and whose turn has not come;
//   - len(waiting) <= 1 in Latest (not counting Must frames), <= Window in Every.
type Stream struct {
	id           uint64
	sink         Sink
	policy       Policy                 // under mu
	policyCopy   atomic.Pointer[Policy] // the same, for readers without the lock
	opts         Options
	model        *Model
	clientGone   atomic.Bool
	waitingCount atomic.Int64                // of waiting, for readers without the lock: its rows << 32 + its length
	modelCounts  atomic.Pointer[FrameCounts] // of model; written under mu
	hasCache     atomic.Bool                 // the results of its frames may be kept (Model.Cache); written under mu

	mu          sync.Mutex
	queue       Queue
	token       tokenState
	waiting     []*Request
	order       []*Request
	counts      Counts
	acceptUpTo  uint64 // total of frames that a larger window, now replaced, allowed
	closed      CloseReason
	closedWith  error // as CloseWith was given it
	paused      bool  // no frame is taken from waiting
	flushes     uint64
	finished    chan struct{}
	nextFrameAt Instant // MaxFPS: frames that come before are dropped
	lastActive  Instant
	states      states
	lost        error     // of a Sequence whose state is lost: that of further frames
	affinity    any       // the worker that has the state, for models with affinity
	assembler   Assembler // of a model whose requests are not single frames, or nil
	continuer   Continuer // sink, if it is one
	pushed      bool      // something was pushed to continuer since the lock was taken
	level       Priority  // of its token; written before the token is queued
	expiry      expiry
}

// Queue is where a stream's token waits for a worker; a worker group implements it. Its
// methods are called with the stream's lock held and must not block or call the stream.
type Queue interface {
	// Enqueue adds the stream's token; affinity is the worker that has the stream's
	// state (Stream.SetAffinity), or nil. It cannot fail, because the place was
	// reserved when the stream was attached.
	Enqueue(s *Stream, affinity any)
	// Admit says that one more frame waits, or returns the reason why it may not. With
	// inPlace it waits in place of an older one, and there is none.
	Admit(inPlace bool) error
	// AddWaiting says that n more frames wait (fewer when n < 0). 0 says that the
	// stream has ended while its token is queued.
	AddWaiting(n int)
	// Ended is called once for each accepted frame, when it has its ending.
	Ended(r *Request)
	// Detach frees the stream's place: it has ended and its token is not queued.
	Detach(s *Stream)
}

type tokenState uint8

const (
	notQueued tokenState = iota
	queued
	taken // a frame in flight of a stateful stream holds it: there is no second token
)

// New makes a stream of model that puts its token into q and its endings into sink.
// workers.Group calls it when a stream is attached; adapters open streams by
// ingest.Backend.
func New(model *Model, q Queue, sink Sink, opts Options) *Stream {
	policy := opts.Policy.WithDefaults(model.Policy)
	if opts.OneShot || opts.Sequence {
		policy.MaxFPS = 0 // its requests are not samples of one source
	}
	s := &Stream{
		id: lastStream.Add(1), sink: sink, model: model, queue: q, opts: opts, policy: policy,
		finished: make(chan struct{}), lastActive: Now(), assembler: model.newAssembler(opts.OneShot),
	}
	s.policyCopy.Store(&policy)
	s.continuer, _ = sink.(Continuer)
	s.useCounts(model)
	return s
}

// lastStream is the number of the newest stream.
var lastStream atomic.Uint64

// ID tells the stream from every other one that this process has had.
func (s *Stream) ID() uint64 { return s.id }

// unlock releases mu, and lets a Continuer go on if something was pushed to it.
func (s *Stream) unlock() {
	pushed := s.pushed
	s.pushed = false
	s.mu.Unlock()
	if pushed && s.continuer != nil {
		s.continuer.Continue()
	}
}

// useCounts makes the stream count its frames for m, and use its cache.
func (s *Stream) useCounts(m *Model) {
	c := m.Counts
	if c == nil {
		c = &FrameCounts{}
	}
	s.modelCounts.Store(c)
	s.hasCache.Store(m.Cache != nil && s.opts.OneShot)
}

// Model returns the metadata of the stream's model.
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

// Finished is closed when the stream has closed, its last frame has ended and its
// sink's Done has returned.
func (s *Stream) Finished() <-chan struct{} { return s.finished }

// IsFinished reports whether Finished is closed. It waits for a Done that is being
// called, so that the sink's Done must not call it.
func (s *Stream) IsFinished() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.finishedLocked()
}

func (s *Stream) finishedLocked() bool {
	select {
	case <-s.finished:
		return true
	default:
		return false
	}
}

// notifyWaiting tells the queue that n more frames wait.
func (s *Stream) notifyWaiting(n int) {
	if n != 0 {
		s.queue.AddWaiting(n)
	}
}

// requeue queues the stream's token, at the priority of its next frame.
func (s *Stream) requeue() {
	level, next := s.policy.Priority, s.waiting[0]
	switch {
	case next.delayed:
		level = Delayed
	case next.Priority != DefaultPriority:
		level = min(next.Priority, Low)
	}
	s.requeueAt(level)
}

func (s *Stream) requeueAt(level Priority) {
	s.token, s.level = queued, level
	s.queue.Enqueue(s, s.affinity)
}

// TokenPriority returns the priority of the stream's token. Only the queue may call it,
// for a token that is being queued or is in its hands.
func (s *Stream) TokenPriority() Priority { return s.level }

func weight(r *Request) int64 { return int64(r.Rows)<<32 + 1 }

// Request is one unit of inference, made of one accepted frame. It is never reused, so
// that a late ending, from a worker that hung, finds it ended and changes nothing.
//
// One step of processing at a time reads and writes the fields; Emit, Finish, Fail and
// Drop may be called from any goroutine, and only the first ending counts.
type Request struct {
	Frame
	Stream   *Stream
	Rows     int     // rows of a batch that it takes
	Class    uint64  // frames of one class have equal shapes and can share a batch
	Deadline Instant // when answered later than this, it is stale; 0 = never
	Flushes  uint64  // how often its stream was flushed before it was bound
	Timing   Timing

	// The size of the frame as sent, upright, and its position in the model's picture:
	// boxes map back by x*MapX[0]+MapX[1]. The code that decodes the frame sets them.
	SentWidth, SentHeight int
	MapX, MapY            [2]float64
	BatchSize             int

	Cost time.Duration // about how long decoding its pictures takes (Model.Cost); 0 = not known
	Row  *buf.Buf      // its row of the model's input, where its pictures were decoded before it joined a batch; or nil

	Assembled *Assembled // what an Assembler made of several frames, or nil
	Span      SpanID     // of the request in its trace
	Bytes     int        // of the frame as submitted, its payload or its inputs: of video, the decoded picture
	Gated     bool       // the gate has answered it
	Cached    bool       // the model's cache has answered it
	Decoding  Decoding   // of its picture
	Steps     []Step     // of a request that ran through other models

	watch watch

	outcome atomic.Uint32 // Outcome, set once
	begun   atomic.Int64  // see Begin; 0 = Timing.Started holds
	counts  *FrameCounts  // that have counted it as accepted
	first   bool          // its stream had none before
	bound   bool          // a batch holds its memory; under the stream's lock
	// gathered is the time of the gathering that bound the request: requests of a batch share it. Under the stream's lock.
	gathered Instant
	delayed  bool // it has waited longer than its queue time-out; under the stream's lock
	// For a stateful model, under the stream's lock:
	holdsToken bool    // it holds the stream's token and state
	detached   bool    // it holds the token, and its state is no longer the stream's: see DetachState
	own        *states // of a detached or ended request, until its run has returned; or nil

	onEnd  func() // see OnEnd; under the stream's lock
	early  *early // what it emitted before its turn, or nil; under the stream's lock
	result Result
	single [1]Tensor // storage for the common single output
}

// Outcome returns how the request ended, or Pending.
func (r *Request) Outcome() Outcome { return Outcome(r.outcome.Load()) }

// Begin says that the request's run begins now, later than Timing.Started says: it has
// waited in its worker. The worker may call it while others end the request.
func (r *Request) Begin(now Instant) { r.begun.Store(int64(now)) }

// SetResultParam sets a parameter of the result; value is a string, int64, float64 or
// bool. Only code that is about to end the request may call it.
func (r *Request) SetResultParam(key string, value any) {
	if r.result.Params == nil {
		r.result.Params = Params{}
	}
	r.result.Params[key] = value
}

// SetReply says what the response to the frame's Call is besides its body. Only code that is
// about to end the request, or to emit its first part, may call it.
func (r *Request) SetReply(p *Reply) { r.result.Reply = p }

// Wanted reports whether somebody still waits for the result: false once the request
// has ended or its client has gone. Long-running workers may call it.
func (r *Request) Wanted() bool {
	return r.Outcome() == Pending && !r.Stream.clientGone.Load()
}

// Result returns the ending, for Queue.Ended and hooks. It must only be read, and only
// during the call.
func (r *Request) Result() *Result { return &r.result }

// TakeLease hands the request's memory to the caller, who becomes its holder: a worker
// that answers with its input passes it on without a copy.
func (r *Request) TakeLease() *buf.Buf {
	l := r.Lease
	r.Lease = nil
	return l
}

// Step is what happened to a request in one of the models through which it ran.
type Step struct {
	Name     string
	Span     SpanID
	From, To Instant // 0: it was not reached
	Outcome  Outcome // Pending: it did not run
	Reason   Reason  // of a drop
	Err      error   // of a failure
}

// OnEnd sets a function that is called if the request is ended by its stream, as
// overtaken or abandoned, before its worker ends it. It is called with the stream's lock
// held. OnEnd reports false when the request has ended already.
func (r *Request) OnEnd(f func()) bool {
	s := r.Stream
	s.mu.Lock()
	defer s.mu.Unlock()
	r.onEnd = f
	return r.Outcome() == Pending
}

// Decoding holds the times of decoding a picture; zero = there was none. For a window of
// pictures it holds the begin of the first one and the sums of the durations.
type Decoding struct {
	Begun          Instant
	Decode, Resize time.Duration
}

// Add adds one picture, of which whole was the time and resize its last part.
func (d *Decoding) Add(begun Instant, whole, resize time.Duration) {
	if d.Begun == 0 {
		d.Begun = begun
	}
	d.Decode, d.Resize = d.Decode+whole-resize, d.Resize+resize
}

// Unbind releases the memory of a bound request. The batch calls it when Run has
// returned, even if the request has ended before.
func (r *Request) Unbind() {
	r.NotifyUnbound()
	l := r.Lease
	r.Lease, r.Payload, r.Inputs = nil, nil, nil
	l.Release()
	if row := r.Row; row != nil {
		r.Row = nil
		row.Release()
	}
	r.Assembled.release()
	if own := r.own; own != nil {
		r.own = nil
		own.drop()
	}
}
