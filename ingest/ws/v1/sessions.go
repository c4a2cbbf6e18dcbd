package v1

import (
	"crypto/rand"
	"crypto/sha256"
	"maps"
	"slices"
	"sync"
	"time"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/ingest/decoders"
	"millrace/ingest/ws/conn"
	"millrace/stream"
)

// Sessions holds the sessions of all clients, with or without a connection. Sessions is safe for concurrent use.
type Sessions struct {
	opts     Options
	registry *conn.Registry
	decoders *decoders.Pool
	replay   replayMemory
	noStream stream.FrameCounts // frames for streams that are not open

	mu      sync.Mutex
	byToken map[digest]*session
	waiting []*session // sessions without a connection, longest waiting first
	closing bool       // the server is shutting down
	until   time.Time  // when closing: the end of the sessions' time
}

// digest is the hash of a token. Looking up sessions by hash keeps the duration of a lookup independent of the
// tokens.
type digest [sha256.Size]byte

func digestOf(token string) digest { return sha256.Sum256([]byte(token)) }

// NewSessions returns the sessions of the connections in registry; videos are decoded
// by pool.
func NewSessions(registry *conn.Registry, pool *decoders.Pool, o Options) *Sessions {
	ss := &Sessions{opts: o, registry: registry, decoders: pool, byToken: map[digest]*session{}}
	ss.replay.max = o.ReplayBytes
	return ss
}

// begin returns the first session of a connection, and sends the session message.
func (ss *Sessions) begin(l *link, client *ingest.Client) *session {
	s := newSession(l, ss.registry, client, &ss.opts, &ss.replay)
	s.overflow = func() { ss.slow(s) }
	ss.mu.Lock()
	ss.renew(s, digest{})
	token := s.token
	ss.mu.Unlock()
	s.greet(token)
	ss.mu.Lock()
	closing, until := ss.closing, ss.until
	ss.mu.Unlock()
	if closing {
		s.goAway(until)
	}
	return s
}

// renew gives a session a new token in place of the used token. The used token stays valid for now, because the reply
// with the new token may be lost with its connection. The caller holds ss.mu.
func (ss *Sessions) renew(s *session, used digest) {
	if used == s.spent {
		delete(ss.byToken, digestOf(s.token))
	} else {
		delete(ss.byToken, s.spent)
		s.spent = used
	}
	s.token = rand.Text()
	ss.byToken[digestOf(s.token)] = s
}

// token returns the token for resuming a session.
func (ss *Sessions) token(s *session) string {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return s.token
}

// confirm is called when the client has shown knowledge of the new token.
func (ss *Sessions) confirm(s *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	delete(ss.byToken, s.spent)
	s.spent = digest{}
}

// slow ends a session with a full outbox. slow uses a goroutine, because the caller holds a stream's lock, and the
// code resuming the session holds the session's lock.
func (ss *Sessions) slow(s *session) {
	ss.registry.Run("slow", func() {
		if l := s.connection(); l != nil {
			l.End(conn.Ending{Reason: conn.EndSlow})
			return
		}
		ss.endWaiting(s, conn.Ending{Reason: conn.EndSlow})
	}, nil)
}

// claim gives the session of a token to the connection l with the session own. The session's previous connection is
// ended, and claim waits for the end. claim returns nil when the token is unknown or used, when the token's session
// is own or belongs to another client than of, when the rights of of differ from the rights at the session's
// beginning, or when l has ended.
func (ss *Sessions) claim(token string, l *link, own *session, of *ingest.Client) *session {
	used := digestOf(token)
	ss.mu.Lock()
	s := ss.byToken[used]
	if s == nil || s == own || !of.SameAs(s.client) {
		ss.mu.Unlock()
		return nil
	}
	ss.renew(s, used)
	ss.mu.Unlock()
	for {
		s.mu.Lock()
		switch {
		case s.over:
			s.mu.Unlock()
			return nil
		case s.link == nil:
			s.expiry.Stop()
			s.link = l
			ss.notWaiting(s)
			s.mu.Unlock()
			return s
		}
		old := s.link
		s.mu.Unlock()
		old.End(takenOver())
		select {
		case <-old.detached:
		case <-l.Closing(): // old may be waiting for l
			return nil
		}
	}
}

// detach separates a session from its connection, whose writer has ended; the session then waits for another
// connection. detach returns false when the session has ended.
func (ss *Sessions) detach(s *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return false
	}
	s.link = nil
	ss.mu.Lock()
	ss.waiting = append(ss.waiting, s)
	tooMany := ss.takeWaiting(len(ss.waiting) - ss.opts.MaxSessions)
	ss.mu.Unlock()
	s.expiry = time.AfterFunc(ss.opts.Resume, func() { ss.expire(s) })
	for _, s := range tooMany {
		ss.expire(s)
	}
	return true
}

// notWaiting is called when a session has a connection again, or has ended.
func (ss *Sessions) notWaiting(s *session) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if i := slices.Index(ss.waiting, s); i >= 0 {
		ss.waiting = slices.Delete(ss.waiting, i, i+1)
	}
}

// expire ends a session that was not resumed in time.
func (ss *Sessions) expire(s *session) {
	ss.registry.Run("expiry", func() { ss.endWaiting(s, conn.Ending{Reason: conn.EndGone}) }, nil)
}

// MakeRoom is called before a connection opens a stream. Waiting sessions count towards limits.max_sessions like
// connections, since their memory must be bounded. To make room for connections, MakeRoom ends waiting sessions:
// first the longest waiting session of the account with the most waiting sessions, so that no client can end the
// sessions of other clients. Waiting sessions count towards the quota of an account in the same way. A new connection
// alone ends no session, because the client may be about to resume a session.
func (ss *Sessions) MakeRoom(of *access.Account) {
	conns := ss.registry.Count()
	own, most := of.Core().Holds(stream.QuotaSessions)
	ss.mu.Lock()
	var out []*session
	if most > 0 {
		out = ss.removeOldest(of, own+ss.waitingOf()[of]-most)
	}
	out = append(out, ss.takeWaiting(conns+len(ss.waiting)-ss.opts.MaxSessions)...)
	ss.mu.Unlock()
	for _, s := range out {
		ss.expire(s)
	}
}

// waitingOf returns the number of waiting sessions per account. The caller holds ss.mu.
func (ss *Sessions) waitingOf() map[*access.Account]int {
	of := map[*access.Account]int{}
	for _, s := range ss.waiting {
		of[s.account]++
	}
	return of
}

// takeWaiting removes n waiting sessions from the list, each the oldest of the account with the most waiting sessions.
// The caller holds ss.mu.
func (ss *Sessions) takeWaiting(n int) (out []*session) {
	if n <= 0 {
		return nil
	}
	of := ss.waitingOf()
	for ; n > 0 && len(ss.waiting) > 0; n-- {
		most := slices.Max(slices.Collect(maps.Values(of)))
		i := slices.IndexFunc(ss.waiting, func(s *session) bool { return of[s.account] == most })
		of[ss.waiting[i].account]--
		out = append(out, ss.waiting[i])
		ss.waiting = slices.Delete(ss.waiting, i, i+1)
	}
	return out
}

// removeOldest removes the n oldest waiting sessions of an account from the list. The caller holds ss.mu.
func (ss *Sessions) removeOldest(of *access.Account, n int) (out []*session) {
	ss.waiting = slices.DeleteFunc(ss.waiting, func(s *session) bool {
		if s.account != of || len(out) >= n {
			return false
		}
		out = append(out, s)
		return true
	})
	return out
}

// end ends a session, and returns when every frame has ended. The session's connection writes the queued messages, or
// discards them.
func (ss *Sessions) end(s *session, e conn.Ending) {
	if s.markOver(false) {
		ss.close(s, e)
	}
}

// endWaiting ends a session without a connection.
func (ss *Sessions) endWaiting(s *session, e conn.Ending) {
	if s.markOver(true) {
		ss.close(s, e)
		s.outbox.Close()
	}
}

// close removes an ended session and closes the session's streams.
func (ss *Sessions) close(s *session, e conn.Ending) {
	ss.mu.Lock()
	delete(ss.byToken, digestOf(s.token))
	delete(ss.byToken, s.spent)
	ss.mu.Unlock()
	ss.notWaiting(s)
	s.replay.close()
	s.closeStreams(e)
}

// GoAway tells every client that the server shuts down at until.
func (ss *Sessions) GoAway(until time.Time) {
	ss.mu.Lock()
	ss.closing, ss.until = true, until
	ss.mu.Unlock()
	for _, s := range ss.list() {
		s.goAway(until)
	}
}

// EndWaiting ends the sessions without a connection, when the server shuts down.
func (ss *Sessions) EndWaiting() {
	for _, s := range ss.list() {
		ss.endWaiting(s, conn.Draining())
	}
}

// list lists every session, some of them twice.
func (ss *Sessions) list() []*session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	all := make([]*session, 0, len(ss.byToken))
	for _, s := range ss.byToken {
		all = append(all, s)
	}
	return all
}

// Stats is a snapshot of the sessions.
type Stats struct {
	Sessions    int   // with or without a connection
	Waiting     int   // sessions without a connection
	ReplayBytes int64 // of kept endings

	Credits       int // frames that clients may send without waiting, over all streams
	WithoutCredit int // streams whose clients must wait
}

// Stats returns a snapshot of the counters.
func (ss *Sessions) Stats() Stats {
	st := Stats{ReplayBytes: ss.replay.used.Load()}
	seen := map[*session]bool{}
	for _, s := range ss.list() {
		if !seen[s] {
			seen[s] = true
			s.addCredits(&st)
		}
	}
	st.Sessions = len(seen)
	ss.mu.Lock()
	defer ss.mu.Unlock()
	st.Waiting = len(ss.waiting)
	return st
}

// Refused returns the counts of the frames refused because their stream was not open.
func (ss *Sessions) Refused() stream.Totals { return ss.noStream.Totals() }
