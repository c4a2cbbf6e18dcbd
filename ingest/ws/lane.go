package ws

import (
	"sync"
	"sync/atomic"

	"millrace/stream"
)

// lane joins one stream to its session: it is the stream's sink, counts frames
// against replies, and puts endings that never reached the stream into their
// turn. A session has a lane for its binary messages, and another while it
// pulls a video.
//
// One goroutine feeds a lane. Every seq gets exactly one entry in the outbox.
type lane struct {
	s      *session
	stream *stream.Stream
	every  bool // endings go out in the order of seq
	window int  // in every: frames fed and not yet replied to
	seq    uint64
	pulled *pull // or nil

	unwritten atomic.Int32  // frames fed whose reply is not written
	room      chan struct{} // one slot: unwritten fell

	mu   sync.Mutex // in every
	next uint64     // all seqs below it have ended
	held []*stream.Result
}

var _ stream.Sink = (*lane)(nil)

func newLane(s *session) *lane { return &lane{s: s, room: make(chan struct{}, 1)} }

// opened is called once, before the lane is fed.
func (l *lane) opened(st *stream.Stream) {
	l.stream = st
	p := st.Policy()
	l.every, l.window = p.Mode == stream.Every, p.Window
}

// take counts one frame in and returns its seq.
func (l *lane) take() uint64 {
	l.unwritten.Add(1)
	n := l.seq
	l.seq++
	return n
}

// full says that the reader has to wait for room.
func (l *lane) full() bool { return l.every && int(l.unwritten.Load()) >= l.window }

// submit hands a frame on, or ends it when the stream takes none any more.
func (l *lane) submit(f stream.Frame) {
	seq := f.Seq
	if err := l.stream.Submit(f); err != nil {
		l.fail(seq, err)
	}
}

// fail and drop end a frame that the stream does not see.
func (l *lane) fail(seq uint64, err error) {
	l.local(&stream.Result{Outcome: stream.Failed, Err: err, Seq: seq})
}

func (l *lane) drop(seq uint64, why stream.Reason) {
	l.local(&stream.Result{Outcome: stream.Dropped, Reason: why, Seq: seq})
}

func (l *lane) local(r *stream.Result) {
	if !l.every {
		l.emit(r)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = append(l.held, r)
	l.release()
}

// release sends the held endings whose turn it is.
func (l *lane) release() {
	for len(l.held) > 0 && l.held[0].Seq == l.next {
		l.emit(l.held[0])
		l.held[0] = nil
		l.held = l.held[1:]
		l.next++
	}
	if len(l.held) == 0 {
		l.held = nil
	}
}

// Push implements stream.Sink.
func (l *lane) Push(r *stream.Result) {
	if !l.every || r.Partial {
		l.emit(r)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.emit(r)
	l.next = r.Seq + 1
	l.release()
}

// Done implements stream.Sink.
func (l *lane) Done(why stream.CloseReason) {
	l.s.a.streamEnds.add(string(why))
	if l.pulled != nil {
		l.pulled.done(why)
		return
	}
	if e, ok := doneEnding(why, l.s.model); ok {
		l.s.end(e)
	}
}

func (l *lane) emit(r *stream.Result) {
	if l.pulled != nil && r.Outcome == stream.Dropped {
		l.pulled.dropped.Add(1)
	}
	if !l.s.box.push(entry{result: r, lane: l}) {
		l.s.end(ending{why: EndSlow})
	}
}

// written is called when an entry of the lane has left the outbox.
func (l *lane) written() {
	l.unwritten.Add(-1)
	select {
	case l.room <- struct{}{}:
	default:
	}
}

// wait returns when the lane has fewer than n unwritten frames, or false when
// the session ends.
func (l *lane) wait(n int, stop <-chan struct{}) bool {
	for int(l.unwritten.Load()) >= n {
		select {
		case <-l.room:
		case <-stop:
			return false
		}
	}
	return true
}
