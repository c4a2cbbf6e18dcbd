package stream

import (
	"sync"
	"sync/atomic"
	"time"

	"millrace/stream/buf"
	"millrace/stream/rules"
)

// Options are the options for opening a stream.
type Options struct {
	Policy Policy // unset fields take the model's defaults
	Params Params // model parameters for frames without their own
	// OwnRefusals leaves counting of refused frames to the caller of Submit, who may send refused frames to another
	// stream, or tell the client something else (FrameCounts.Refuse).
	OwnRefusals bool
	OneShot     bool // carries the one-shot requests of one connection; not listed among the streams
	// Sequence is true when the client depends on the state. After loss of the state, because the first frame has no
	// result or the worker with the state is replaced, later frames fail and do not run with an empty state. The
	// stream is closed by its owner when idle, and by a swap of the model.
	Sequence bool

	// Version is the version of the model requested by the client; "" = none: the stream continues with another
	// version when its own is no longer served.
	Version string

	// Rules are the rules over the objects of the stream, for a model that applies rules (Model.AppliesRules); nil =
	// none. The owner of the stream may change the rules.
	Rules *rules.Handle

	Account  *Account     // of the client, for frames without their own
	Place    bool         // the stream holds one of the account's QuotaStreams until finished
	Protocol string       // of the frames, for traces: rest, ws, millrace.v1, native, streams and others
	Name     string       // of the stream, for traces; or ""
	Trace    TraceContext // for frames without their own
}

// Counts are the totals of one stream. Accepted = Results + Drops + Errors once nothing is in flight.
type Counts struct {
	Accepted, Results, Drops, Errors uint64
}

// Stream is one client's continuous input to one model: a mailbox, the order of results, freshness and the
// accounting. A stream has at most one token in its queue: not queued -> queued -> taken. The mailbox is checked
// again after each take.
//
// Submit, Close and the reading methods are safe for concurrent use. The worker that took the stream's token calls
// Take.
//
// Invariants, under mu:
//   - token == queued exactly when the queue holds the stream's token; the stream
//     may have ended since, and frees its place when the token is removed;
//   - order holds, oldest first, the accepted frames with endings not yet pushed:
//     frames in flight, then waiting frames, and in between any ended frames
//     before their turn;
//   - len(waiting) <= 1 in Latest (not counting Must frames), <= Window in Every.
type Stream struct {
	id           uint64
	sink         Sink
	policy       Policy                 // under mu
	policyCopy   atomic.Pointer[Policy] // the same, for readers without the lock
	opts         Options
	model        *Model
	clientGone   atomic.Bool
	waitingCount atomic.Int64                // of waiting, for readers without the lock: rows << 32 + length
	modelCounts  atomic.Pointer[FrameCounts] // of model; written under mu
	hasCache     atomic.Bool                 // results may be cached (Model.Cache); written under mu

	mu          sync.Mutex
	queue       Queue
	token       tokenState
	waiting     []*Request
	order       []*Request
	counts      Counts
	acceptUpTo  uint64 // total of frames allowed by an earlier, larger window
	closed      CloseReason
	closedWith  error // error of CloseWith
	paused      bool  // no frame is taken from waiting
	flushes     uint64
	finished    chan struct{}
	nextFrameAt Instant // MaxFPS: earlier frames are dropped
	lastActive  Instant
	states      states
	lost        error     // error for further frames of a Sequence after loss of the state
	affinity    any       // the worker with the state, for models with affinity
	assembler   Assembler // for a model whose requests are not single frames, or nil
	continuer   Continuer // sink as a Continuer, or nil
	pushed      bool      // something was pushed to continuer since the lock was taken
	level       Priority  // priority of the token; written before the token is queued
	expiry      expiry
}

// Queue is where a stream's token waits for a worker; a worker group implements Queue. The methods are called with
// the stream's lock held and must not block or call the stream.
type Queue interface {
	// Enqueue adds the stream's token; affinity is the worker with the stream's state (Stream.SetAffinity), or nil.
	// Enqueue cannot fail, because attaching the stream reserved a place.
	Enqueue(s *Stream, affinity any)
	// Admit admits one more waiting frame, or returns the reason for a refusal. With inPlace the frame replaces a
	// waiting frame, and Admit returns nil.
	Admit(inPlace bool) error
	// AddWaiting adds n to the number of waiting frames; n may be negative. 0 announces that the stream has ended
	// while its token is queued.
	AddWaiting(n int)
	// Ended is called once for each accepted frame, at its ending.
	Ended(r *Request)
	// Detach frees the place of an ended stream whose token is not queued.
	Detach(s *Stream)
}

type tokenState uint8

const (
	notQueued tokenState = iota
	queued
	taken // held by a frame in flight of a stateful stream: no second token
)

// New makes a stream of model with the queue q for the token and sink for the endings. workers.Group calls New to
// attach a stream; adapters open streams by ingest.Backend.
func New(model *Model, q Queue, sink Sink, opts Options) *Stream {
	policy := opts.Policy.WithDefaults(model.Policy)
	if opts.OneShot || opts.Sequence {
		policy.MaxFPS = 0 // requests are not samples of one source
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

// ID is unique among all streams of this process, past and present.
func (s *Stream) ID() uint64 { return s.id }

// unlock releases mu, and calls Continue if a result was pushed to a Continuer.
func (s *Stream) unlock() {
	pushed := s.pushed
	s.pushed = false
	s.mu.Unlock()
	if pushed && s.continuer != nil {
		s.continuer.Continue()
	}
}

// useCounts makes the stream use the counts and the cache of m.
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

// Options returns the options given to New.
func (s *Stream) Options() Options { return s.opts }

// Rules returns Options.Rules.
func (s *Stream) Rules() *rules.Handle { return s.opts.Rules }

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

// Finished is closed after the stream has closed, the last frame has ended and the sink's Done has returned.
func (s *Stream) Finished() <-chan struct{} { return s.finished }

// IsFinished reports whether Finished is closed. IsFinished waits for a running Done, so the sink's Done must not
// call IsFinished.
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

// requeue queues the stream's token at the priority of the next frame.
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

// TokenPriority returns the priority of the stream's token. Only the queue may call TokenPriority, for a token being
// enqueued or held by the queue.
func (s *Stream) TokenPriority() Priority { return s.level }

// TokenCaller returns the caller that waits for the next frame, or nil. Only Queue.Enqueue may call TokenCaller.
func (s *Stream) TokenCaller() *Caller { return s.waiting[0].By }

func weight(r *Request) int64 { return int64(r.Rows)<<32 + 1 }

// Request is one unit of inference, made from one accepted frame. A Request is not reused before the worker and the
// holder of the result have called Recycle, so that a late ending, from a hung worker, finds the Request ended and
// changes nothing.
//
// One step of processing at a time reads and writes the fields; Emit, Finish, Fail and Drop may be called from any
// goroutine, and only the first ending counts.
type Request struct {
	Frame
	Stream   *Stream
	By       *Caller // waits for the ending, and may run batches; nil = none
	Rows     int     // needed rows of a batch
	Class    uint64  // frames of one class have equal shapes and can share a batch
	Deadline Instant // an answer after Deadline is stale; 0 = never
	Flushes  uint64  // number of the stream's flushes before binding
	Timing   Timing

	// The size of the frame as sent, upright, and the position in the model's picture: boxes map back by
	// x*MapX[0]+MapX[1]. Set by the code that decodes the frame.
	SentWidth, SentHeight int
	MapX, MapY            [2]float64
	BatchSize             int

	Cost time.Duration // estimated time to decode the pictures (Model.Cost); 0 = unknown
	Row  *buf.Buf      // input row with pictures decoded before joining a batch; or nil

	Assembled *Assembled // an Assembler's result for several frames, or nil
	Span      SpanID     // of the request in the trace
	Bytes     int        // of the frame as submitted, payload or inputs: of video, the decoded picture
	Gated     bool       // answered by the gate
	Cached    bool       // answered from the model's cache
	Decoding  Decoding   // of the picture
	Steps     []Step     // of a request that ran through other models

	watch watch

	outcome  atomic.Uint32 // Outcome, set once
	runStart atomic.Int64  // see Begin; 0 = Timing.Started holds
	counts   *FrameCounts  // counts of the frame's acceptance
	first    bool          // first frame of the stream
	bound    bool          // a batch holds the memory; under the stream's lock
	// gathered is the time of the gathering that bound the request, the same for all requests of a batch. Guarded by
	// the stream's lock.
	gathered Instant
	delayed  bool // exceeded its queue time-out; under the stream's lock
	// For a stateful model, under the stream's lock:
	holdsToken     bool    // holds the stream's token and state
	detached       bool    // holds the token, but its state has left the stream: see DetachState
	detachedStates *states // of a detached or ended request, until its run has returned; or nil

	users  atomic.Int32  // see Recycle
	onEnd  func()        // see OnEnd; under the stream's lock
	early  *earlyResults // partial results emitted before the turn, or nil; under the stream's lock
	result Result
	single [1]Tensor // storage for the common single output
}

// Outcome returns how the request ended, or Pending.
func (r *Request) Outcome() Outcome { return Outcome(r.outcome.Load()) }

// Timed reports whether the frame has a capture time.
func (r *Request) Timed() bool { return r.Captured || r.CaptureUS != 0 }

// Time returns the frame's time: the client's capture time, or the time of receipt.
func (r *Request) Time() time.Duration {
	if !r.Timed() {
		return time.Duration(r.Timing.Received)
	}
	return time.Duration(r.CaptureUS) * time.Microsecond
}

// Begin sets the begin of the request's run to now, later than Timing.Started: the request has waited in its worker.
// The worker may call Begin while another goroutine ends the request.
func (r *Request) Begin(now Instant) { r.runStart.Store(int64(now)) }

// SetResultParam sets a parameter of the result; value is a string, int64, float64 or bool. Only code about to end
// the request may call SetResultParam.
func (r *Request) SetResultParam(key string, value any) {
	if r.result.Params == nil {
		r.result.Params = Params{}
	}
	r.result.Params[key] = value
}

// SetReply sets the response to the frame's Call, except for the body. Only code about to end the request, or to emit
// the first part, may call SetReply.
func (r *Request) SetReply(p *Reply) { r.result.Reply = p }

// Wanted reports whether the result still has a receiver: false once the request has ended or the client has gone.
// Long-running workers may call Wanted.
func (r *Request) Wanted() bool {
	return r.Outcome() == Pending && !r.Stream.clientGone.Load()
}

// Result returns the ending, for Queue.Ended and hooks, read-only and valid during the call.
func (r *Request) Result() *Result { return &r.result }

// TakeLease makes the caller the holder of the request's memory: a worker that answers with its input passes the
// memory on without a copy.
func (r *Request) TakeLease() *buf.Buf {
	l := r.Lease
	r.Lease = nil
	return l
}

// Step is a request's passage through one of several models.
type Step struct {
	Name     string
	Span     SpanID
	From, To Instant // 0: not reached
	Outcome  Outcome // Pending: not run
	Reason   Reason  // of a drop
	Err      error   // of a failure
}

// OnEnd sets a function called if the stream ends the request, as overtaken or abandoned, before the worker does. The
// function is called with the stream's lock held. OnEnd returns false when the request has already ended.
func (r *Request) OnEnd(f func()) bool {
	s := r.Stream
	s.mu.Lock()
	defer s.mu.Unlock()
	r.onEnd = f
	return r.Outcome() == Pending
}

// Decoding holds the times of decoding a picture; zero = no decoding. For a window of pictures, Decoding holds the
// begin of the first and the sums of the durations.
type Decoding struct {
	Started        Instant
	Decode, Resize time.Duration
}

// Add adds one picture with its whole decoding time, including resize at the end.
func (d *Decoding) Add(begun Instant, whole, resize time.Duration) {
	if d.Started == 0 {
		d.Started = begun
	}
	d.Decode, d.Resize = d.Decode+whole-resize, d.Resize+resize
}

// Unbind releases the memory of a bound request. The batch calls Unbind when Run has returned, even if the request
// has already ended.
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
	if own := r.detachedStates; own != nil {
		r.detachedStates = nil
		own.drop()
	}
}
