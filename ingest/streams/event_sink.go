package streams

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"millrace/ingest/history"
	"millrace/ingest/sinks"
)

// countedSink counts the written lines of a sink, so that each line is sent, lost or waiting.
type countedSink struct {
	sinks.Sink
	written atomic.Uint64
}

// Write implements sinks.Sink.
func (s *countedSink) Write(line []byte) {
	s.written.Add(1)
	s.Sink.Write(line)
}

// Stats implements sinks.Sink.
func (s *countedSink) Stats() sinks.Stats {
	st := s.Sink.Stats()
	st.Waiting = max(s.written.Load(), st.Sent+st.Lost) - st.Sent - st.Lost
	return st
}

const (
	eventWindow = 500             // events with a sink, without an ending
	linesWindow = 800             // the same, with the lines of Write; below the queues of the sinks
	eventsRead  = 100             // events read at once
	eventGrace  = 2 * time.Second // of the sink, after the end of its context
	eventRetry  = time.Second     // between reads of a history that fails
)

// eventSink gives the events of the history to a sink, so that events wait on disk while the receiver is away. Other
// lines, written by Write, wait in memory.
type eventSink struct {
	sinks.Sink
	stream, name string
	history      *history.History
	log          *slog.Logger
	earlier      *eventSink // must end before this sink begins; nil = none

	settled chan struct{} // one slot: the sink has delivered or lost a line
	closed  chan struct{} // by Close
	ended   chan struct{} // the sink and feed have ended

	mu     sync.Mutex
	cursor *history.Cursor // nil = not begun
	given  []givenLine     // to the sink, without an ending
	done   uint64          // lines with an ending
	lost   uint64          // lines of Write
	over   bool            // no more lines go to the sink
}

// givenLine is a line with the sink: an event of the history, or a line of Write.
type givenLine struct {
	item history.Item
	own  bool // of Write
}

func newEventSink(k sinks.Settings, env sinks.Env, h *history.History, name string, earlier *eventSink) *eventSink {
	s := &eventSink{stream: env.Stream, name: name, history: h, log: env.Log, earlier: earlier,
		settled: make(chan struct{}, 1), closed: make(chan struct{}), ended: make(chan struct{})}
	if earlier == nil {
		s.cursor = h.Follow(env.Stream, name)
	}
	env.Keeps = true
	env.Settled = func() {
		select {
		case s.settled <- struct{}{}:
		default:
		}
	}
	s.Sink = sinks.Open(k, env)
	return s
}

// Write implements sinks.Sink, for lines that are not in the history.
func (s *eventSink) Write(line []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || len(s.given) >= linesWindow {
		s.lost++
		return
	}
	s.given = append(s.given, givenLine{own: true})
	s.Sink.Write(line)
}

// Close implements sinks.Sink.
func (s *eventSink) Close() { close(s.closed) }

// Run implements sinks.Sink: another goroutine calls feed.
func (s *eventSink) Run(ctx context.Context) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.settle()
		for _, g := range s.given {
			if g.own {
				s.lost++
			}
		}
		s.given = nil
		if s.cursor != nil {
			if n, _, _ := s.cursor.Stats(); n > 0 {
				s.log.Warn("events of a stream wait in the history for the next start of the stream", "stream",
					s.stream, "sink", s.name, "events", n)
			}
		}
		close(s.ended)
	}()
	s.Sink.Run(ctx)
}

// feed gives events to the sink until Close was called and all events are given, the receiver fails after Close, or
// two seconds after the end of ctx. feed closes the sink.
func (s *eventSink) feed(ctx context.Context) {
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.over = true
		s.Sink.Close()
	}()
	if s.earlier != nil {
		<-s.earlier.ended
		s.mu.Lock()
		s.cursor = s.history.Follow(s.stream, s.name)
		s.earlier = nil
		s.mu.Unlock()
	}
	grace, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(eventGrace, stop) })()
	closed := s.closed
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		more, err := s.give(grace)
		if err != nil {
			retry.Reset(eventRetry)
		}
		if closed == nil && (!more || err != nil || s.Sink.Stats().Error != "" || s.history.Stats().Err != nil) {
			return
		}
		select {
		case <-s.cursor.Wake():
		case <-s.settled:
		case <-retry.C:
		case <-closed:
			closed = nil
		case <-grace.Done():
			return
		}
	}
}

// give gives events to the sink within the window. more says that events are left in the history.
func (s *eventSink) give(ctx context.Context) (more bool, err error) {
	for {
		s.mu.Lock()
		s.settle()
		room := min(eventWindow-len(s.given), eventsRead)
		s.mu.Unlock()
		if room <= 0 {
			return true, nil
		}
		list, err := s.cursor.Next(ctx, room) // without the lock, which Write takes on a frame's path
		s.mu.Lock()
		for _, v := range list {
			s.given = append(s.given, givenLine{item: v})
			s.Sink.Write(v.Text)
		}
		s.mu.Unlock()
		if len(list) == 0 || err != nil {
			_, unread, _ := s.cursor.Stats()
			return unread > 0, err
		}
	}
}

// settle acknowledges the events that the sink has delivered or lost. s.mu is held.
func (s *eventSink) settle() {
	st := s.Sink.Stats()
	n := min(int(st.Sent+st.Lost-s.done), len(s.given))
	for _, g := range s.given[:n] {
		if !g.own {
			s.cursor.Done(g.item)
		}
	}
	s.done += uint64(n)
	s.given = s.given[n:]
}

// Stats implements sinks.Sink.
func (s *eventSink) Stats() sinks.Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	st := s.Sink.Stats()
	st.Lost += s.lost
	for _, g := range s.given {
		if g.own {
			st.Waiting++
		}
	}
	if s.cursor != nil {
		waiting, _, lost := s.cursor.Stats()
		st.Lost += lost
		st.Waiting += uint64(waiting)
	}
	return st
}
