package client

import (
	"context"
	"fmt"
	"time"

	"github.com/gorilla/websocket"

	"millrace/internal/wire"
	"millrace/stream"
)

// ChannelOptions are what a stream of a session is opened with. Zero fields are
// the model's defaults.
type ChannelOptions struct {
	Version       string
	Codec         string        // of frames that do not say; "" = pictures are recognised by content
	Width, Height int           // pixels, of rgb24 and nv12; both or none
	Policy        stream.Policy // Mode, MaxAge, Deadline, MaxFPS and Window
	Outputs       Outputs
	Params        stream.Params // for the model; values are strings, int64, float64 or bool

	// OnReply, when set, is called with each reply in place of the channel, from
	// one goroutine for the whole session, in the order of arrival. It must not
	// block for long, for it holds up the session's other channels; it may call
	// TrySend, but not Send, Drain, Close or Open.
	OnReply func(Reply)
	// Buffer is the room of the channel of replies; 0 = 64. Replies that nobody
	// takes hold up the session, until the server gives up on it.
	Buffer int
	// OnAdvice is called when the server, or the channel itself after a loss, asks
	// for frames of another kind. As OnReply.
	OnAdvice func(Advice)
	// OnError is called when the server refuses what is no frame: Configure,
	// Update, Pause, Resume or Flush. As OnReply.
	OnError func(error)
	// OnStats is called every few seconds while there are results. As OnReply.
	OnStats func(Stats)
}

// Advice asks the sender to send otherwise. 0 = as it is.
type Advice struct {
	FPS           float64 // more than that is dropped
	Width, Height int     // pixels
	Quality       int     // of JPEG and WebP, 1 to 100
	KeyFrame      bool    // the next frame should be one
}

// Totals are the frames of a stream that came to the server, and by how they ended:
// Received = Results + Drops + Errors and, in Stats, those on their way.
type Totals struct {
	Received uint64 // Accepted, and those that were refused: each ended as an error or a drop
	Accepted uint64
	Results  uint64
	Drops    uint64
	Errors   uint64
}

func totals(c wire.Counts) Totals { return Totals(c) }

// Stats tells how a stream fares at the server.
type Stats struct {
	Totals  Totals
	Waiting int           // frames not yet bound to a batch
	FPS     float64       // results a second, of late
	Age     time.Duration // from receipt to result, of late
}

// maxWaiting bounds the frames of a channel that have not ended: what the
// server coalesces and the reader of replies leaves lying.
const maxWaiting = 4096

type channelState uint8

const (
	opening channelState = iota
	open
	closed
)

// Channel is one stream of a session: it sends frames to one model and receives
// exactly one ending for each. All methods may be called concurrently.
type Channel struct {
	s       *Session
	model   string
	opts    ChannelOptions
	codec   wire.Codec
	replies chan Reply
	done    chan struct{} // closed when the last ending was handed over
	quit    chan struct{} // replies are not waited for any more

	// Under s.mu.
	sid     uint32
	state   channelState
	want    stream.Policy // asked for; of opts, then of Update
	policy  stream.Policy // in force
	err     error
	totals  Totals
	changed chan struct{} // closed at the next change; nil when nobody waits
	paused  bool
	closing bool // Close was called, or the last frame sent
	given   bool // quit is closed
	flush   bool // was asked for while there was no connection
	config  *message

	seq     uint64 // of the next frame
	waiting []waiting
	live    int    // of waiting, those that may be at the server
	busy    bool   // replies are being handed over
	sent    uint64 // frames that count against limit
	limit   uint64 // the server's credit
	ended   uint64 // frames that the server has ended, as far as is known
	gap     bool   // frames are missing before the next one
}

// waiting is a frame that has not ended.
type waiting struct {
	seq  uint64
	sent time.Time
	lost bool // it ends as lost, in its turn
}

// Open opens a stream to a model and waits until the server has. It waits for a
// connection, too. Errors are those of Stream.
func (s *Session) Open(ctx context.Context, model string, opts ChannelOptions) (*Channel, error) {
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
	if _, err := wire.Params(opts.Params).MarshalJSON(); err != nil {
		return nil, stream.Errorf(stream.InvalidArgument, "", "%w", err)
	}
	if opts.Outputs == "" {
		opts.Outputs = Binary
	}
	if opts.Buffer <= 0 {
		opts.Buffer = defaultBuffer
	}
	ch := &Channel{
		s: s, model: model, opts: opts, codec: wire.Codec(codec), want: opts.Policy,
		replies: make(chan Reply, opts.Buffer), done: make(chan struct{}), quit: make(chan struct{}),
	}
	s.write.Lock()
	s.mu.Lock()
	if s.closed {
		err := s.over()
		s.mu.Unlock()
		s.write.Unlock()
		return nil, err
	}
	ch.sid = s.newSID()
	s.channels[ch.sid] = ch
	l := s.link
	s.mu.Unlock()
	s.say(l, ch.openMessage())
	s.write.Unlock()

	err := ch.await(ctx, func() bool { return ch.state != opening })
	if err != nil {
		ch.abandon()
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if ch.state == closed && ch.err != nil {
		return nil, ch.err
	}
	return ch, nil
}

// over is why nothing can be asked of a session that has ended. s.mu is held.
func (s *Session) over() error {
	if s.err != nil {
		return s.err
	}
	return errClosed()
}

// newSID is a number that no channel has. s.mu is held.
func (s *Session) newSID() uint32 {
	for {
		s.next++
		if s.channels[s.next] == nil {
			return s.next
		}
	}
}

// openMessage asks for the stream as it is wanted now.
func (ch *Channel) openMessage() *wire.Open {
	o := &ch.opts
	return &wire.Open{
		SID: ch.sid, Model: ch.model, Version: o.Version, Codec: o.Codec, Width: o.Width, Height: o.Height,
		Policy: wirePolicy(ch.want), Outputs: string(o.Outputs), Params: wire.Params(o.Params),
	}
}

func wirePolicy(p stream.Policy) wire.Policy {
	return wire.Policy{Mode: string(p.Mode), MaxAgeMS: millis(p.MaxAge), DeadlineMS: millis(p.Deadline), MaxFPS: p.MaxFPS, Window: p.Window}
}

// changeOf replaces the fields that p sets.
func changeOf(p stream.Policy) (c wire.PolicyChange) {
	w := wirePolicy(p)
	c.Mode = w.Mode
	setting(&c.MaxAgeMS, w.MaxAgeMS)
	setting(&c.DeadlineMS, w.DeadlineMS)
	setting(&c.MaxFPS, w.MaxFPS)
	setting(&c.Window, w.Window)
	return c
}

func setting[T int | float64](to **T, value T) {
	if value != 0 {
		*to = &value
	}
}

func policyOf(p wire.Policy) stream.Policy {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	return stream.Policy{Mode: stream.Mode(p.Mode), MaxAge: ms(p.MaxAgeMS), Deadline: ms(p.DeadlineMS), MaxFPS: p.MaxFPS, Window: p.Window}
}

// wake is called after a change, with s.mu held.
func (ch *Channel) wake() {
	if ch.changed != nil {
		close(ch.changed)
		ch.changed = nil
	}
}

// change returns what is closed at the next change. s.mu is held.
func (ch *Channel) change() <-chan struct{} {
	if ch.changed == nil {
		ch.changed = make(chan struct{})
	}
	return ch.changed
}

// await waits until ok, which is called with s.mu held.
func (ch *Channel) await(ctx context.Context, ok func() bool) error {
	for {
		ch.s.mu.Lock()
		if ok() {
			ch.s.mu.Unlock()
			return nil
		}
		changed := ch.change()
		ch.s.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("client: %w", context.Cause(ctx))
		}
	}
}

// Send sends one frame, whose memory is the caller's again when it returns, and
// returns the number that its replies carry. Frames are numbered from 0 in the
// order of sending. It waits for a connection, and with the policy "every" for
// the server's credit; in "latest" the server lets the newest frame win. A frame
// whose number was returned ends exactly once.
func (ch *Channel) Send(ctx context.Context, f Frame) (seq uint64, err error) {
	for {
		seq, wait, err := ch.send(&f, ch.latest())
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

// TrySend is Send for frames that are not worth waiting for: ok is false, and
// nothing was sent, when there is no connection or no credit now.
func (ch *Channel) TrySend(f Frame) (seq uint64, ok bool, err error) {
	seq, wait, err := ch.send(&f, false)
	return seq, err == nil && wait == nil, err
}

func (ch *Channel) latest() bool {
	ch.s.mu.Lock()
	defer ch.s.mu.Unlock()
	return ch.policy.Mode == stream.Latest
}

// send sends f if it may be sent now; otherwise wait says when to try again.
func (ch *Channel) send(f *Frame, overdraw bool) (seq uint64, wait <-chan struct{}, err error) {
	m, err := f.message(&ch.opts)
	if err != nil {
		return 0, nil, err
	}
	s := ch.s
	s.write.Lock()
	defer s.write.Unlock()
	s.mu.Lock()
	if err := ch.refuses(m.size); err != nil {
		s.mu.Unlock()
		return 0, nil, err
	}
	credit := overdraw || ch.sent < ch.limit && ch.live < ch.policy.Window
	if s.link == nil || ch.state != open || !credit || len(ch.waiting) >= maxWaiting {
		wait = ch.change()
		s.mu.Unlock()
		return 0, wait, nil
	}
	seq = ch.seq
	ch.seq++
	ch.sent++
	ch.live++
	ch.waiting = append(ch.waiting, waiting{seq: seq, sent: time.Now()})
	m.head.SID, m.head.Seq = ch.sid, seq
	if ch.gap {
		m.head.Flags |= wire.FlagDiscontinuity
		ch.gap = false
	}
	ch.closing = ch.closing || f.Last
	l := s.link
	s.mu.Unlock()
	// What happens to the connection from here on happens to the frame: its ending tells.
	if err := s.put(l, &m); err != nil {
		_ = l.Close()
	}
	return seq, nil, nil
}

// refuses says why a frame cannot be sent at all. s.mu is held.
func (ch *Channel) refuses(size int) error {
	switch most := ch.s.limits.MaxMessage; {
	case ch.err != nil:
		return ch.err
	case ch.s.closed:
		return ch.s.over()
	case ch.state == closed || ch.closing:
		return stream.Errorf(stream.Canceled, "", "the channel is closed")
	case most > 0 && size > most:
		return stream.Errorf(stream.TooLarge, "limits.max_message", "the frame's message would have %d bytes: the server takes %d", size, most)
	}
	return nil
}

// put writes a media message. s.write is held.
func (s *Session) put(l *link, m *message) error {
	w, err := l.NextWriter(websocket.BinaryMessage)
	if err != nil {
		return err
	}
	s.head = wire.AppendHeader(s.head[:0], &m.head)
	if m.json != nil {
		s.head = wire.AppendTensorsPrefix(s.head, m.json)
	}
	if _, err = w.Write(s.head); err != nil {
		return err
	}
	for _, b := range m.body {
		if _, err = w.Write(b); err != nil {
			return err
		}
	}
	return w.Close()
}

// Replies returns the channel of replies. It is closed when the stream has
// ended; Err then says why. With OnReply nothing comes here.
func (ch *Channel) Replies() <-chan Reply { return ch.replies }

// Done is closed when the stream has ended and each frame with it.
func (ch *Channel) Done() <-chan struct{} { return ch.done }

// Err says why the stream ended: nil while it has not, and after Close.
func (ch *Channel) Err() error {
	ch.s.mu.Lock()
	defer ch.s.mu.Unlock()
	return ch.err
}

// Policy is what holds for the stream, the model's defaults filled in.
func (ch *Channel) Policy() stream.Policy {
	ch.s.mu.Lock()
	defer ch.s.mu.Unlock()
	return ch.policy
}

// Waiting is the number of frames sent that have not ended.
func (ch *Channel) Waiting() int {
	ch.s.mu.Lock()
	defer ch.s.mu.Unlock()
	return len(ch.waiting)
}

// Drain waits until every frame sent has ended, and all replies are in the
// channel or handed to OnReply. It fails when ctx ends before.
func (ch *Channel) Drain(ctx context.Context) error {
	return ch.await(ctx, func() bool { return len(ch.waiting) == 0 && !ch.busy })
}

// Close ends the stream: frames that wait at the server are dropped, those in a
// batch are answered. It returns when all have ended, with the server's count of
// them, which is empty when it was lost with a connection or starts at the
// newest LinkReopened. When ctx ends before, replies that nobody takes are
// thrown away. It may be called again.
func (ch *Channel) Close(ctx context.Context) (Totals, error) {
	_ = ch.order(func() { ch.closing = true; ch.wake() }, func() wire.Message { return &wire.Close{SID: ch.sid} })
	select {
	case <-ch.done:
	case <-ctx.Done():
		ch.abandon()
		return Totals{}, fmt.Errorf("client: %d frames have not ended: %w", ch.Waiting(), context.Cause(ctx))
	}
	ch.s.mu.Lock()
	defer ch.s.mu.Unlock()
	return ch.totals, ch.err
}

// abandon has the stream end without anybody waiting for it.
func (ch *Channel) abandon() {
	ch.s.mu.Lock()
	if !ch.given {
		ch.given = true
		close(ch.quit)
	}
	already := ch.closing
	ch.s.mu.Unlock()
	if !already {
		_ = ch.order(func() { ch.closing = true }, func() wire.Message { return &wire.Close{SID: ch.sid} })
	}
}
