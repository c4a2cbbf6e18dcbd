package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"millrace/stream"
)

// Outputs says how results come back.
type Outputs string

// The forms of results.
const (
	JSON   Outputs = "json"
	Binary Outputs = "binary" // raw tensors; the default
	None   Outputs = "none"   // acknowledged only, with timing
)

// StreamOptions are what a stream is opened with. Zero fields are the model's
// defaults.
type StreamOptions struct {
	Version       string
	Codec         string        // jpeg, png, webp, rgb24, nv12 or opaque; "" = recognised by content
	Width, Height int           // pixels, of rgb24 and nv12
	Policy        stream.Policy // Mode, MaxAge, Deadline, MaxFPS and Window
	Outputs       Outputs

	// OnReply, when set, is called with each reply in place of the channel, from
	// one goroutine, in the order of arrival. It must neither block for long nor
	// call Drain or Close.
	OnReply func(Reply)
	// Buffer is the room of the channel of replies; 0 = 64. Replies that nobody
	// takes hold the connection back, until the server gives up on it.
	Buffer int
}

const (
	defaultBuffer = 64
	closeWait     = 2 * time.Second
	handshakeTime = 10 * time.Second
	bufferSize    = 32 << 10
)

// Stream sends frames to one model and receives exactly one ending for each.
// Send, Drain, Close and the other methods may be called concurrently.
type Stream struct {
	conn    *websocket.Conn
	opts    StreamOptions
	replies chan Reply
	closing chan struct{} // Close was called
	done    chan struct{} // the reader has ended
	settled chan struct{} // one slot: nothing is on its way any more
	release func() bool   // of the context's hook

	write sync.Mutex // one writer

	mu     sync.Mutex
	next   uint64
	sent   map[uint64]time.Time // frames on their way
	told   error                // what the server said of the session's end
	err    error
	closed bool
	shut   sync.Once
}

// Stream opens a stream of frames to a model. ctx is for the whole stream: when
// it ends, the connection is closed. Errors are those of Infer.
func (c *Client) Stream(ctx context.Context, model string, opts StreamOptions) (*Stream, error) {
	query, err := opts.query()
	if err != nil {
		return nil, err
	}
	conn, err := c.dial(ctx, &websocket.Dialer{}, c.url(query, modelPath(model, opts.Version, "stream")...), nil)
	if err != nil {
		return nil, err
	}
	if opts.Buffer <= 0 {
		opts.Buffer = defaultBuffer
	}
	s := &Stream{
		conn: conn, opts: opts, replies: make(chan Reply, opts.Buffer), closing: make(chan struct{}), done: make(chan struct{}),
		settled: make(chan struct{}, 1), sent: map[uint64]time.Time{},
	}
	s.release = context.AfterFunc(ctx, func() {
		s.fail(fmt.Errorf("client: %w", context.Cause(ctx)))
		_ = conn.Close()
	})
	go s.read() // ends with the connection; Close waits for it
	return s, nil
}

// dial makes a WebSocket connection. A refusal is an error with the server's
// code.
func (c *Client) dial(ctx context.Context, d *websocket.Dialer, u *url.URL, header http.Header) (*websocket.Conn, error) {
	u.Scheme = map[string]string{"http": "ws", "https": "wss"}[u.Scheme]
	d.ReadBufferSize, d.WriteBufferSize, d.HandshakeTimeout = bufferSize, bufferSize, handshakeTime
	conn, resp, err := d.DialContext(ctx, u.String(), header)
	if err != nil {
		if resp != nil && ctx.Err() == nil {
			body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
			return nil, toldBy(resp.StatusCode, body)
		}
		return nil, c.unreachable(ctx, err)
	}
	return conn, nil
}

func (o *StreamOptions) query() (url.Values, error) {
	if err := o.Policy.Validate(); err != nil {
		return nil, err
	}
	if o.Outputs == "" {
		o.Outputs = Binary
	}
	q := url.Values{"outputs": {string(o.Outputs)}}
	set := func(key string, n int) {
		if n != 0 {
			q.Set(key, strconv.Itoa(n))
		}
	}
	if o.Codec != "" {
		q.Set("codec", o.Codec)
	}
	set("width", o.Width)
	set("height", o.Height)
	if o.Policy.Mode != "" {
		q.Set("policy", string(o.Policy.Mode))
	}
	set("max_age_ms", millis(o.Policy.MaxAge))
	set("deadline_ms", millis(o.Policy.Deadline))
	set("window", o.Policy.Window)
	if o.Policy.MaxFPS > 0 {
		q.Set("max_fps", strconv.FormatFloat(o.Policy.MaxFPS, 'f', -1, 64))
	}
	return q, nil
}

// millis rounds up, so that a short time is not none.
func millis(d time.Duration) int { return int((d + time.Millisecond - 1) / time.Millisecond) }

// Send sends one frame, whose memory is the caller's again when it returns, and
// returns the number that its replies carry. Frames are numbered from 0 in the
// order of sending. With the policy "every" it waits while the stream's window
// is full.
func (s *Stream) Send(frame []byte) (seq uint64, err error) {
	s.write.Lock()
	defer s.write.Unlock()
	s.mu.Lock()
	if s.closed {
		err := s.err
		s.mu.Unlock()
		if err == nil {
			err = stream.Errorf(stream.Canceled, "", "the stream is closed")
		}
		return 0, err
	}
	seq = s.next
	s.next++
	s.sent[seq] = time.Now()
	s.mu.Unlock()
	if err := s.conn.WriteMessage(websocket.BinaryMessage, frame); err != nil {
		// The reader learns why: the server may have said so.
		_ = s.conn.SetReadDeadline(time.Now().Add(closeWait))
		<-s.done
		if err := s.Err(); err != nil {
			return 0, err
		}
		return 0, stream.Errorf(stream.Unavailable, "", "the frame cannot be sent: %w", err)
	}
	return seq, nil
}

// Replies returns the channel of replies. It is closed when the stream has
// ended; Err then says why. With OnReply nothing comes here.
func (s *Stream) Replies() <-chan Reply { return s.replies }

// Err says why the stream ended: nil while it has not, and after Close.
func (s *Stream) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Done is closed when the stream has ended.
func (s *Stream) Done() <-chan struct{} { return s.done }

// Waiting is the number of frames sent that have not ended.
func (s *Stream) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sent)
}

// Drain waits until every frame sent has ended, and all replies are in the
// channel or handed to OnReply. It fails when ctx or the stream ends before.
func (s *Stream) Drain(ctx context.Context) error {
	for s.Waiting() > 0 {
		select {
		case <-s.settled:
		case <-s.done:
			if n := s.Waiting(); n > 0 {
				if err := s.Err(); err != nil {
					return err
				}
				return stream.Errorf(stream.Canceled, "", "the stream was closed with %d frames on their way", n)
			}
			return nil
		case <-ctx.Done():
			return fmt.Errorf("client: %d frames have not ended: %w", s.Waiting(), context.Cause(ctx))
		}
	}
	s.wakeDrain() // for another one that waits
	return nil
}

func (s *Stream) wakeDrain() {
	select {
	case s.settled <- struct{}{}:
	default:
	}
}

// Close ends the stream; replies to frames on their way are lost, so Drain
// before. It returns when the stream has ended and may be called again.
func (s *Stream) Close() error {
	s.fail(nil)
	s.shut.Do(func() {
		close(s.closing)
		msg := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
		_ = s.conn.WriteControl(websocket.CloseMessage, msg, time.Now().Add(closeWait))
		_ = s.conn.SetReadDeadline(time.Now().Add(closeWait))
	})
	<-s.done
	return nil
}

// fail notes why the stream ends; the first one counts.
func (s *Stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.closed, s.err = true, err
	}
}

func (s *Stream) read() {
	defer close(s.done)
	defer close(s.replies)
	defer s.release()
	defer func() { _ = s.conn.Close() }()
	var buf bytes.Buffer
	for {
		kind, r, err := s.conn.NextReader()
		if err == nil {
			buf.Reset()
			_, err = buf.ReadFrom(r)
		}
		if err != nil {
			s.fail(s.endedBy(err))
			return
		}
		if err := s.message(kind, buf.Bytes()); err != nil {
			s.fail(err)
			return
		}
	}
}

// message takes one message of the server, whose memory is used again.
func (s *Stream) message(kind int, msg []byte) error {
	var (
		r       Reply
		ofFrame = true
		err     error
	)
	if kind == websocket.BinaryMessage {
		r, _, err = parseBinary(bytes.Clone(msg))
	} else {
		r, ofFrame, err = parseText(msg)
	}
	if err != nil {
		return err
	}
	if !ofFrame {
		s.mu.Lock()
		s.told = r.Err
		s.mu.Unlock()
		return nil
	}
	r.Got = time.Now()
	s.mu.Lock()
	r.Sent = s.sent[r.Seq]
	s.mu.Unlock()
	if s.opts.OnReply != nil {
		s.opts.OnReply(r)
	} else {
		select {
		case s.replies <- r:
		case <-s.closing:
		}
	}
	if r.Partial {
		return nil
	}
	// Only now, so that after Drain every reply has been handed over.
	s.mu.Lock()
	delete(s.sent, r.Seq)
	if len(s.sent) == 0 {
		s.wakeDrain()
	}
	s.mu.Unlock()
	return nil
}

// endedBy says why the connection ended: in the server's words where there are
// any.
func (s *Stream) endedBy(err error) error {
	s.mu.Lock()
	told := s.told
	s.mu.Unlock()
	if told != nil {
		return told
	}
	return brokenBy(err)
}

// brokenBy says what ended a connection, nil for a normal end.
func brokenBy(err error) error {
	var closed *websocket.CloseError
	if !errors.As(err, &closed) {
		return stream.Errorf(stream.Unavailable, "", "the connection to the server broke: %w", err)
	}
	code := stream.Internal
	switch closed.Code {
	case websocket.CloseNormalClosure:
		return nil
	case websocket.CloseGoingAway, 4503:
		code = stream.Draining
	case websocket.ClosePolicyViolation, 4400:
		code = stream.InvalidArgument
	case websocket.CloseMessageTooBig:
		code = stream.TooLarge
	case websocket.CloseTryAgainLater, 4429:
		code = stream.Overloaded
	case websocket.CloseAbnormalClosure:
		code = stream.Unavailable
	case 4401:
		code = stream.Unauthenticated
	case 4404:
		code = stream.NotFound
	case 4408:
		code = stream.Timeout
	case 4409:
		code = stream.Conflict
	}
	return stream.Errorf(code, "", "the server ended the stream: %w", closed)
}
