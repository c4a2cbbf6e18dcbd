package v1

import (
	"crypto/rand"
	"maps"
	"slices"
	"sync"
	"time"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/ingest/ws/conn"
	"millrace/internal/wire"
	"millrace/stream"
)

// The bounds of a session.
const (
	maxStreams     = 256
	maxEndedReplay = 16 // ended streams with kept endings of frames
)

// link is the connection of a session.
type link struct {
	*conn.Conn
	detached chan struct{} // closed when the connection has lost the session
}

// session is any number of streams over one connection at a time. After the loss of the connection the session waits
// for another connection; the streams continue with their state, and their endings are kept.
type session struct {
	outlet
	id      string
	client  *ingest.Client
	account *access.Account // of client
	replay  *replayBuffer

	token string // resumes the session, once; under Sessions.mu
	// of the previous token, valid until the client has shown knowledge of the new token; under Sessions.mu
	spent digest

	mu       sync.Mutex
	link     *link               // nil without a connection
	channels map[uint32]*channel // open, or closed but with the end not sent yet
	ended    []*channel          // channels with a sent end, newest last: the end may be lost with a connection
	expiry   *time.Timer         // runs while the session has no connection
	greeted  bool                // the session message was sent
	left     bool                // the goaway message was sent
	over     bool
}

// newSession returns a session on a connection. The session takes over the connection's outbox.
func newSession(l *link, registry *conn.Registry, client *ingest.Client, opts *Options, memory *replayMemory) *session {
	return &session{
		outlet: outlet{opts: opts, registry: registry, outbox: l.Outbox}, id: rand.Text(), client: client,
		account: client.Account(),
		replay:  newReplayBuffer(memory), link: l, channels: map[uint32]*channel{},
	}
}

// greet sends the session message.
func (s *session) greet(token string) {
	s.send(&wire.Ready{
		Session: s.id, ResumeToken: token, ResumeMS: int(s.opts.Resume.Milliseconds()),
		Limits: wire.Limits{MaxMessage: s.opts.MaxMessage, MaxStreams: maxStreams, MaxWindow: stream.MaxWindow},
	})
	s.mu.Lock()
	s.greeted = true
	s.mu.Unlock()
}

// goAway tells the client once, after greet, that the server ends at until.
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

// markOver marks the session as ended, unless the session has already ended or, with waiting, has a connection.
// markOver reports whether the mark was set.
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

// add adds a channel, before the channel's stream is opened.
func (s *session) add(c *channel) error {
	c.outlet, c.replay, c.onEndSent = &s.outlet, s.replay, s.endSent
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return stream.Errorf(stream.Draining, "", "the session has ended")
	}
	if _, taken := s.channels[c.sid]; taken {
		return stream.Errorf(stream.Conflict, "open.sid", "%d is open already, or its end is not sent yet", c.sid)
	}
	if n := len(s.channels); n >= maxStreams {
		return stream.Errorf(stream.Overloaded, "open.sid",
			"%d streams are open in this session, and that is the limit: close one, or open another session", n)
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
	st, err := s.client.Open(c.model, version, opts, c)
	if err != nil {
		s.remove(c)
		return err
	}
	c.opened(st)
	return nil
}

// channel returns an open stream of the session, or nil.
func (s *session) channel(sid uint32) *channel {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.channels[sid]
}

// remove removes a channel whose stream could not be opened, or whose end was sent.
func (s *session) remove(c *channel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.channels, c.sid)
}

// endSent is called by the writer on sending a stream's end.
func (s *session) endSent(c *channel) {
	s.remove(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ended) == maxStreams {
		s.ended = slices.Delete(s.ended, 0, 1)
	}
	s.ended = append(s.ended, c)
	if n := len(s.ended); n > maxEndedReplay {
		s.replay.remove(&s.ended[n-1-maxEndedReplay].kept)
	}
}

func (s *session) list() []*channel {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.channels))
}

// listFor lists the streams for a client that resumes the session: open streams, and ended streams that the client
// considers open.
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

// addCredits adds the credits of the session's streams.
func (s *session) addCredits(st *Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.channels {
		if credit := c.window.Credit(); credit > 0 {
			st.Credits += credit
		} else {
			st.WithoutCredit++
		}
	}
}
