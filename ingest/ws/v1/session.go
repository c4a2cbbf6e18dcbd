package v1

import (
	"crypto/rand"
	"maps"
	"slices"
	"sync"
	"time"

	"millrace/ingest"
	"millrace/ingest/ws/conn"
	"millrace/internal/wire"
	"millrace/stream"
)

// The bounds of a session.
const (
	maxStreams     = 256
	maxEndedReplay = 16 // streams that ended and whose frames' endings are kept
)

// link is a connection as a session sees it.
type link struct {
	*conn.Conn
	detached chan struct{} // closed when the connection has no session any more
}

// session is any number of streams over one connection at a time. When the connection is lost the session waits for another
// one; its streams, their state and what they answer meanwhile live on.
type session struct {
	outlet
	id      string
	backend ingest.Backend
	replay  *replayBuffer

	token string // resumes the session, once; under Sessions.mu
	spent string // the token before, good until the client shows that it got the new one; under Sessions.mu

	mu       sync.Mutex
	link     *link               // nil while there is no connection
	channels map[uint32]*channel // open, and those whose end is not told yet
	ended    []*channel          // those whose end was told, the newest last: a connection may have lost it
	expiry   *time.Timer         // while there is no connection
	greeted  bool                // the client was told of its session
	left     bool                // and that the server goes away
	over     bool
}

// newSession makes a session that has a connection, whose outbox becomes its own.
func newSession(l *link, registry *conn.Registry, backend ingest.Backend, opts *Options, memory *replayMemory) *session {
	return &session{
		outlet: outlet{opts: opts, registry: registry, outbox: l.Outbox}, id: rand.Text(), backend: backend,
		replay: newReplayBuffer(memory), link: l, channels: map[uint32]*channel{},
	}
}

// greet tells the client of its session.
func (s *session) greet(token string) {
	s.send(&wire.Ready{
		Session: s.id, ResumeToken: token, ResumeMS: int(s.opts.Resume.Milliseconds()),
		Limits: wire.Limits{MaxMessage: s.opts.MaxMessage, MaxStreams: maxStreams, MaxWindow: stream.MaxWindow},
	})
	s.mu.Lock()
	s.greeted = true
	s.mu.Unlock()
}

// goAway tells the client that the server ends at until: once, and after greet.
func (s *session) goAway(until time.Time) {
	s.mu.Lock()
	tell := s.greeted && !s.left
	s.left = s.left || tell
	s.mu.Unlock()
	if tell {
		s.send(&wire.GoAway{TimeLeftMS: int(max(time.Until(until), 0).Milliseconds())})
	}
}

// connection returns the session's connection, or nil.
func (s *session) connection() *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link
}

// markOver ends the session's life, where it has not ended; waiting: only if it has no connection.
func (s *session) markOver(waiting bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || waiting && s.link != nil {
		return false
	}
	s.over = true
	if s.expiry != nil {
		s.expiry.Stop()
	}
	return true
}

// add adds a channel, which is to be opened.
func (s *session) add(c *channel) error {
	c.outlet, c.replay, c.onTold = &s.outlet, s.replay, s.told
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return stream.Errorf(stream.Draining, "", "the session is over")
	}
	if _, taken := s.channels[c.sid]; taken {
		return stream.Errorf(stream.Conflict, "open.sid", "%d is open already, or its end is not told yet", c.sid)
	}
	if n := len(s.channels); n >= maxStreams {
		return stream.Errorf(stream.Overloaded, "open.sid", "%d streams are open in this session, and that is the limit: close one, or open another session", n)
	}
	s.channels[c.sid] = c
	if i := slices.IndexFunc(s.ended, func(old *channel) bool { return old.sid == c.sid }); i >= 0 {
		s.replay.remove(&s.ended[i].kept)
		s.ended = slices.Delete(s.ended, i, i+1)
	}
	return nil
}

// open opens a stream.
func (s *session) open(c *channel, version string, opts stream.Options) error {
	st, err := s.backend.Open(c.model, version, opts, c)
	if err != nil {
		s.remove(c)
		return err
	}
	c.opened(st)
	return nil
}

// channel returns an open stream of the session, nil when there is none.
func (s *session) channel(sid uint32) *channel {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.channels[sid]
}

// remove is called when a stream could not be opened, or its end was told.
func (s *session) remove(c *channel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.channels[c.sid] == c {
		delete(s.channels, c.sid)
	}
}

// told is called by the writer when it tells a stream's end.
func (s *session) told(c *channel) {
	s.remove(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ended) == maxStreams {
		s.ended = slices.Delete(s.ended, 0, 1)
	}
	s.ended = append(s.ended, c)
	if i := len(s.ended) - 1 - maxEndedReplay; i >= 0 {
		s.replay.remove(&s.ended[i].kept)
	}
}

func (s *session) list() []*channel {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.channels))
}

// listFor lists the streams for a client that takes the session up: those that are open, and those that have ended and that
// the client takes for open.
func (s *session) listFor(named []wire.AttachStream) []*channel {
	out := s.list()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.ended {
		if slices.ContainsFunc(named, func(st wire.AttachStream) bool { return st.SID == c.sid }) {
			out = append(out, c)
		}
	}
	return out
}

// closeStreams closes every stream and returns when the last frame has ended.
func (s *session) closeStreams(e conn.Ending) {
	all := s.list()
	for _, c := range all {
		if st := c.stream.Load(); st != nil {
			e.CloseStream(st)
		}
	}
	for _, c := range all {
		if st := c.stream.Load(); st != nil {
			<-st.Finished()
		}
	}
}
