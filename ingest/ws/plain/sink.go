package plain

import (
	"sync"
	"sync/atomic"

	"millrace/ingest"
	"millrace/ingest/frames"
	"millrace/ingest/ws/conn"
	"millrace/stream"
)

// sink is the sink of a stream with one reply per frame. sink numbers the frames, counts frames and replies, and puts
// the endings of frames refused before the stream into the order of the replies. A connection has a sink for the
// client's frames, and another for the pulled video.
//
// One goroutine feeds a sink. Every seq gets exactly one entry in the outbox.
type sink struct {
	conn   *conn.Conn
	result encodeResult
	done   func(stream.CloseReason)
	call   callID
	traced bool // replies about drops and errors contain the frame's trace

	stream *stream.Stream // nil before opened
	every  bool           // endings are sent in the order of seq

	window  *ingest.Window // bounds the frames fed in every
	dropped atomic.Uint64

	mu   sync.Mutex // in every
	next uint64     // all lower seqs have ended
	held []*stream.Result
}

// encodeResult encodes a result, and says whether the message is binary. The message is valid until the encoder is used
// again or r is released.
type encodeResult func(e *conn.Encoder, r *stream.Result) (msg []byte, isBinary bool, err error)

var (
	_ stream.Sink = (*sink)(nil)
	_ conn.Source = (*sink)(nil)
)

// newSink returns a sink with replies to c. done is called after the end of the stream, with the stream's lock held.
func newSink(c *conn.Conn, call callID, result encodeResult, done func(stream.CloseReason)) *sink {
	return &sink{conn: c, call: call, result: result, done: done, window: ingest.NewWindow()}
}

// opened is called once, before the sink is fed.
func (s *sink) opened(st *stream.Stream) {
	s.stream = st
	p := st.Policy()
	s.every = p.Mode == stream.Every
	s.window.Resize(p.Window)
}

// take counts a frame and returns the frame's seq.
func (s *sink) take() uint64 { return s.window.Receive() }

// frames returns how many frames were taken.
func (s *sink) frames() uint64 { return s.window.Received() }

// abort is for a counted frame that did not arrive completely: the frame gets no reply.
func (s *sink) abort() { s.window.Answer(1) }

// full reports whether unanswered frames fill the window.
func (s *sink) full() bool { return s.every && s.window.Full() }

// waitForRoom returns true when the window has room, or false when stop is closed
// first.
func (s *sink) waitForRoom(stop <-chan struct{}) bool { return s.window.WaitForRoom(stop) }

// waitUntilWritten returns true when every reply was written, or false when stop is
// closed first.
func (s *sink) waitUntilWritten(stop <-chan struct{}) bool { return s.window.Wait(1, stop) }

// submit submits a frame to the stream, or ends the frame if the stream has closed.
func (s *sink) submit(f stream.Frame) {
	seq := f.Seq
	if err := s.stream.Submit(f); err != nil { // the stream has counted the frame
		s.local(&stream.Result{Outcome: stream.Failed, Err: err, Seq: seq})
	}
}

// fail ends a frame with an error, without submitting the frame to the stream.
func (s *sink) fail(seq uint64, err error) {
	s.local(s.stream.Refuse(&stream.Frame{Seq: seq}, "", err))
}

// drop ends a frame as dropped, without submitting the frame to the stream.
func (s *sink) drop(seq uint64, why stream.Reason) {
	s.local(s.stream.Refuse(&stream.Frame{Seq: seq}, why, nil))
}

func (s *sink) local(r *stream.Result) {
	if !s.every {
		s.emit(r)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = append(s.held, r)
	s.release()
}

// release sends the held endings that are next in order.
func (s *sink) release() {
	for len(s.held) > 0 && s.held[0].Seq == s.next {
		s.emit(s.held[0])
		s.held[0] = nil
		s.held = s.held[1:]
		s.next++
	}
	if len(s.held) == 0 {
		s.held = nil
	}
}

// Push implements stream.Sink.
func (s *sink) Push(r *stream.Result) {
	if !s.every || r.Partial {
		s.emit(r)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.emit(r)
	s.next = r.Seq + 1
	s.release()
}

// Done implements stream.Sink.
func (s *sink) Done(why stream.CloseReason) {
	s.conn.StreamEnded(why)
	s.done(why)
}

func (s *sink) emit(r *stream.Result) {
	if r.Outcome == stream.Dropped {
		s.dropped.Add(1)
	}
	s.conn.Push(conn.Entry{Source: s, Result: r})
}

// Write implements conn.Source.
func (s *sink) Write(w *conn.Writer, r *stream.Result) {
	if !w.Sends() {
		return
	}
	w.Message(s.encode(w.Encoder(), r))
}

func (s *sink) encode(e *conn.Encoder, r *stream.Result) (msg []byte, isBinary bool) {
	err := r.Err
	switch r.Outcome {
	case stream.Dropped:
		e.Text = s.trace(appendDrop(e.Text[:0], s.call, r.Seq, r.Reason), r)
		return e.Text, false
	case stream.Answered:
		if msg, isBinary, err = s.result(e, r); err == nil {
			return msg, isBinary
		}
		err = conn.Unsendable(err)
		r.CountUnsendable(err)
	}
	e.Text = s.trace(appendFailed(e.Text[:0], s.call, r.Seq, err), r)
	return e.Text, false
}

// trace adds the trace of an ending to an object.
func (s *sink) trace(text []byte, r *stream.Result) []byte {
	if !s.traced || r.Trace == (stream.TraceID{}) {
		return text
	}
	text = frames.AppendTraceresponse(append(text[:len(text)-1], `,"traceresponse":"`...), r)
	return append(text, '"', '}')
}

// Released implements conn.Source.
func (s *sink) Released(partial bool) {
	if !partial {
		s.window.Answer(1)
	}
}
