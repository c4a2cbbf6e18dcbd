package client

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"millrace/internal/wire"
	"millrace/stream"
	"millrace/stream/coded"
	"millrace/stream/rules"
)

// Outputs is the form of results on the wire.
type Outputs string

// The forms of results.
const (
	JSON   Outputs = "json"
	Binary Outputs = "binary" // raw tensors; the default
	None   Outputs = "none"   // no outputs, only the timing
)

// StreamOptions are the options of a stream. Zero fields are the model's defaults.
type StreamOptions struct {
	Version       string
	Codec         string        // of frames without a Codec; "" = pictures are recognised by their content
	Width, Height int           // pixels, of rgb24 and nv12; both or none
	Policy        stream.Policy // Mode, MaxAge, Deadline, MaxFPS and Window
	Outputs       Outputs
	Params        stream.Params // for the model; values are strings, int64, float64 or bool
	Rules         *rules.Rules  // lines and zones, for a model with tracks: results have an output events

	// OnReply, if set, is called with each reply, instead of the channel. A single goroutine calls OnReply for the
	// whole session, in the order of arrival. OnReply must not block for long, since replies of the session's other
	// streams wait. OnReply may call TrySend, but not Send, Drain, Close or Open.
	OnReply func(Reply)
	// Buffer is the capacity of the channel of replies; 0 = 64. When the channel is full, the session stops reading,
	// and the server closes the connection after a while.
	Buffer int
	// OnAdvice is called when the server, or the stream itself after a loss, asks for other frames. OnAdvice is
	// called like OnReply.
	OnAdvice func(Advice)
	// OnError is called when the server refuses a Configure, Update, Pause, Resume or Flush. OnError is called like
	// OnReply.
	OnError func(error)
	// OnStats is called every few seconds while results arrive. OnStats is called like OnReply.
	OnStats func(Stats)
}

// Advice asks the sender for other frames. 0 = no change.
type Advice struct {
	FPS           float64 // frames above this rate are dropped
	Width, Height int     // pixels
	Quality       int     // of JPEG and WebP, 1 to 100
	KeyFrame      bool    // the next frame should be a key frame
}

// Totals are the numbers of a stream's frames received by the server, and of their endings: Received = Results +
// Drops + Errors and, in Stats, frames in flight.
type Totals struct {
	Received uint64 // Accepted, and frames refused with an error or a drop
	Accepted uint64
	Results  uint64
	Drops    uint64
	Errors   uint64
}

// Stats are statistics of a stream at the server.
type Stats struct {
	Totals  Totals
	Waiting int           // frames not yet in a batch
	FPS     float64       // recent results per second
	Age     time.Duration // recent time from receipt to result
}

const (
	defaultBuffer = 64
	// maxUnended bounds the frames of a stream without an ending: endings combined by the server, or not yet received
	// by the reader of replies.
	maxUnended = 4096
)

type streamState uint8

const (
	opening streamState = iota
	open
	closed
)

// Stream sends frames to one model and receives exactly one ending for each frame. All methods may be called
// concurrently.
type Stream struct {
	s           *Session
	ownsSession bool // the only stream of the session, which ends with the stream
	model       string
	opts        StreamOptions
	codec       wire.Codec
	replies     chan Reply
	done        chan struct{} // closed when the last ending was delivered
	quit        chan struct{} // closed to discard unreceived replies

	// The fields below are guarded by s.mu.
	sid       uint32
	state     streamState
	update    Update        // all changes by Update
	updated   bool          // Update was called since the open message was sent
	policy    stream.Policy // in force
	err       error
	totals    Totals
	changed   chan struct{} // closed at the next change; nil when no goroutine waits
	paused    bool
	closing   bool // Close was called, or the last frame sent
	abandoned bool // quit is closed
	flush     bool // Flush was called while disconnected
	config    *message

	nextSeq       uint64
	unended       []unended
	atServer      int    // number of unended frames possibly at the server
	delivering    bool   // replies are being delivered
	sent          uint64 // frames that count against limit
	limit         uint64 // the server's credit
	ended         uint64 // frames ended by the server, by its newest message
	discontinuity bool   // a gap precedes the next frame
}

// unended is a frame without an ending.
type unended struct {
	seq  uint64
	sent time.Time
	lost bool // ends as lost after all earlier frames
}

// Stream opens a stream to a model in a new session, which ends with the stream. When ctx ends, at any time, the
// stream is closed. Errors are as for Infer.
func (c *Client) Stream(ctx context.Context, model string, opts StreamOptions) (*Stream, error) {
	s, err := c.Session(ctx, SessionOptions{})
	if err != nil {
		return nil, err
	}
	st, err := s.open(ctx, model, opts, true)
	if err != nil {
		_ = s.Close()
		return nil, err
	}
	return st, nil
}

// Open opens a stream to a model and waits for the server to open the stream, and for a connection if disconnected.
// Errors are as for Infer.
func (s *Session) Open(ctx context.Context, model string, opts StreamOptions) (*Stream, error) {
	return s.open(ctx, model, opts, false)
}

func (s *Session) open(ctx context.Context, model string, opts StreamOptions, alone bool) (*Stream, error) {
	st, err := newStream(s, model, opts)
	if err != nil {
		return nil, err
	}
	st.ownsSession = alone
	s.write.Lock()
	s.mu.Lock()
	if s.closed {
		err := s.endError()
		s.mu.Unlock()
		s.write.Unlock()
		return nil, err
	}
	st.sid = s.newSID()
	s.streams[st.sid] = st
	conn, m := s.conn, st.openMessage()
	s.mu.Unlock()
	s.sendControl(conn, m)
	s.write.Unlock()

	if err := st.waitUntil(ctx, func() bool { return st.state != opening }); err != nil {
		st.abandon()
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if st.state == closed && st.err != nil {
		return nil, st.err
	}
	return st, nil
}

func newStream(s *Session, model string, opts StreamOptions) (*Stream, error) {
	if err := opts.Policy.Validate(); err != nil {
		return nil, err
	}
	codec := stream.Auto
	if opts.Codec != "" {
		var err error
		if codec, err = stream.ParseCodec(opts.Codec); err != nil {
			return nil, err
		}
	}
	if err := checkParams(opts.Params); err != nil {
		return nil, err
	}
	if opts.Rules != nil {
		if err := opts.Rules.Validate(); err != nil {
			return nil, coded.PrefixField("rules", err)
		}
	}
	if opts.Outputs == "" {
		opts.Outputs = Binary
	}
	if opts.Buffer <= 0 {
		opts.Buffer = defaultBuffer
	}
	return &Stream{
		s: s, model: model, opts: opts, codec: wire.Codec(codec),
		replies: make(chan Reply, opts.Buffer), done: make(chan struct{}), quit: make(chan struct{}),
	}, nil
}

func checkParams(p stream.Params) error {
	if _, err := wire.Params(p).MarshalJSON(); err != nil {
		return stream.Errorf(stream.InvalidArgument, "", "%w", err)
	}
	return nil
}

// openMessage returns the message that opens the stream, with the options and all changes by Update. s.mu is held.
func (st *Stream) openMessage() *wire.Open {
	st.updated = false
	o := &st.opts
	p := st.update.applyTo(o.Policy)
	m := &wire.Open{
		SID: st.sid, Model: st.model, Version: o.Version, Codec: o.Codec, Width: o.Width, Height: o.Height,
		Policy: wire.Policy{Mode: string(p.Mode), MaxAgeMS: millis(p.MaxAge), DeadlineMS: millis(p.Deadline),
			MaxFPS: p.MaxFPS, Window: p.Window},
		Outputs: string(o.Outputs), Params: wire.Params(maps.Clone(o.Params)),
	}
	if !o.Rules.Empty() {
		text, err := json.Marshal(o.Rules)
		if err != nil {
			panic(err) // the rules have only numbers and texts
		}
		m.Rules = text
	}
	if st.update.Outputs != "" {
		m.Outputs = string(st.update.Outputs)
	}
	if st.update.Params != nil {
		m.Params = wire.Params(st.update.Params)
	}
	return m
}

// millis rounds up, so that a short time does not become 0.
func millis(d time.Duration) int { return int((d + time.Millisecond - 1) / time.Millisecond) }

// notifyChange wakes the goroutines that wait for a change. s.mu is held.
func (st *Stream) notifyChange() {
	if st.changed != nil {
		close(st.changed)
		st.changed = nil
	}
}

// nextChange returns a channel that is closed at the next change. s.mu is held.
func (st *Stream) nextChange() <-chan struct{} {
	if st.changed == nil {
		st.changed = make(chan struct{})
	}
	return st.changed
}

// waitUntil waits until ok, called with s.mu held, returns true.
func (st *Stream) waitUntil(ctx context.Context, ok func() bool) error {
	for {
		st.s.mu.Lock()
		if ok() {
			st.s.mu.Unlock()
			return nil
		}
		changed := st.nextChange()
		st.s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("client: %w", context.Cause(ctx))
		}
	}
}

// Send sends one frame, and returns the frame's number for its replies. Frames are numbered from 0 in the order of
// sending. Send does not keep the frame's memory. Send waits for a connection and, with the policy "every", for
// credit; with "latest" Send does not wait for credit, since the server drops older frames. A frame with a returned
// number ends exactly once.
func (st *Stream) Send(ctx context.Context, f Frame) (seq uint64, err error) {
	for {
		seq, wait, err := st.send(&f, st.latest())
		if err != nil || wait == nil {
			return seq, err
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return 0, fmt.Errorf("client: %w", context.Cause(ctx))
		}
	}
}

// TrySend is Send without waiting: without a connection or credit, TrySend sends nothing and ok is false.
func (st *Stream) TrySend(f Frame) (seq uint64, ok bool, err error) {
	seq, wait, err := st.send(&f, false)
	return seq, err == nil && wait == nil, err
}

func (st *Stream) latest() bool {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	return st.policy.Mode == stream.Latest
}

// send sends f if possible now; otherwise send returns wait, closed when send may be tried again.
func (st *Stream) send(f *Frame, ignoreCredit bool) (seq uint64, wait <-chan struct{}, err error) {
	m, err := f.message(&st.opts)
	if err != nil {
		return 0, nil, err
	}
	s := st.s
	s.write.Lock()
	defer s.write.Unlock()
	s.mu.Lock()
	if err := st.sendError(m.size); err != nil {
		s.mu.Unlock()
		return 0, nil, err
	}
	if s.conn == nil || st.state != open || !ignoreCredit && !st.hasCredit() || len(st.unended) >= maxUnended {
		wait = st.nextChange()
		s.mu.Unlock()
		return 0, wait, nil
	}
	seq = st.nextSeq
	st.nextSeq++
	st.sent++
	st.atServer++
	st.unended = append(st.unended, unended{seq: seq, sent: time.Now()})
	m.head.SID, m.head.Seq = st.sid, seq
	if st.discontinuity {
		m.head.Flags |= wire.FlagDiscontinuity
		st.discontinuity = false
	}
	st.closing = st.closing || f.Last
	conn := s.conn
	s.mu.Unlock()
	s.sendMedia(conn, &m) // on a failure, the frame ends as lost
	return seq, nil, nil
}

// hasCredit reports whether another frame may be sent. s.mu is held.
func (st *Stream) hasCredit() bool {
	window := st.policy.Window // 0 = the model's window, which bounds the credit
	return st.sent < st.limit && (window == 0 || st.atServer < window)
}

// sendError returns an error if no frame, or none of this size, can be sent. s.mu is held.
func (st *Stream) sendError(size int) error {
	switch most := st.s.limits.MaxMessage; {
	case st.err != nil:
		return st.err
	case st.s.closed:
		return st.s.endError()
	case st.state == closed || st.closing:
		return stream.Errorf(stream.Canceled, "", "the stream is closed")
	case most > 0 && size > most:
		return stream.Errorf(stream.TooLarge, "limits.max_message",
			"the frame's message would have %d bytes: the server accepts %d", size, most)
	}
	return nil
}

// Replies returns the channel of replies. The channel is closed when the stream has ended; Err then returns the
// reason. With OnReply the channel stays empty.
func (st *Stream) Replies() <-chan Reply { return st.replies }

// Done is closed when the stream and all its frames have ended.
func (st *Stream) Done() <-chan struct{} { return st.done }

// Err returns the reason of the stream's end: nil before the end, and after Close.
func (st *Stream) Err() error {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	return st.err
}

// Policy returns the policy in force, with the model's defaults. A field reset to the model's default by Update is 0.
func (st *Stream) Policy() stream.Policy {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	return st.policy
}

// Waiting returns the number of sent frames without an ending.
func (st *Stream) Waiting() int {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	return len(st.unended)
}

// Drain waits until every sent frame has ended and every reply is in the channel or was passed to OnReply. When the
// stream ends, its frames end as lost. Drain fails when ctx ends first.
func (st *Stream) Drain(ctx context.Context) error {
	if err := st.waitUntil(ctx, func() bool { return len(st.unended) == 0 && !st.delivering }); err != nil {
		return fmt.Errorf("%d frames have not ended: %w", st.Waiting(), err)
	}
	return nil
}

// Close ends the stream: frames waiting at the server are dropped, and frames in a batch are answered. Close returns
// when all frames have ended, with the totals of the server. The totals are zero if lost with a connection, and count
// from the last ConnectionReopened, if any. A frame ends when its reply is received: while nobody receives from
// Replies, Close waits for ctx, which should have a deadline then. When ctx ends first, unreceived replies are
// discarded. Close may be called again.
func (st *Stream) Close(ctx context.Context) (Totals, error) {
	_ = st.control(func() {
		st.closing = true
		st.notifyChange()
	}, func() wire.Message { return &wire.Close{SID: st.sid} })
	var late error
	select {
	case <-st.done:
	case <-ctx.Done():
		late = fmt.Errorf("%d frames have not ended: %w", st.Waiting(), context.Cause(ctx))
		st.abandon()
	}
	if st.ownsSession {
		_ = st.s.Close()
	}
	if late != nil {
		return Totals{}, late
	}
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	return st.totals, st.err
}

// abandon closes the stream without waiting for its end.
func (st *Stream) abandon() {
	st.s.mu.Lock()
	if !st.abandoned {
		st.abandoned = true
		close(st.quit)
	}
	already := st.closing
	st.s.mu.Unlock()
	if !already {
		_ = st.control(func() { st.closing = true }, func() wire.Message { return &wire.Close{SID: st.sid} })
	}
}
