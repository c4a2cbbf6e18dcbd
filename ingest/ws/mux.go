package ws

import (
	"crypto/rand"
	"encoding/base64"
	"maps"
	"slices"
	"sync"
	"time"

	"millrace/ingest"
	"millrace/internal/wire"
	"millrace/stream"
)

// mux is a millrace.v1 session: any number of streams over one connection at a
// time. When the connection is lost the session waits for another one; its
// streams, their state and what they answer meanwhile live on.
type mux struct {
	a       *Adapter
	id      string
	backend ingest.Backend
	box     *outbox

	keeper *keeper

	mu       sync.Mutex
	token    string              // resumes the session, once; under a.mu to change
	spent    string              // the one before, good until the client shows that it got token; under a.mu
	link     *session            // the connection; nil while there is none
	channels map[uint32]*channel // open, and those whose end is not told yet
	told     []*channel          // those whose end was, the newest last: a connection may have lost it
	expiry   *time.Timer         // while there is no connection
	greeted  bool                // the client was told of its session
	left     bool                // and that the server goes away
	over     bool
}

// The bounds of a session.
const (
	maxStreams = 256
	keepEnds   = 16 // streams that ended and whose frames' endings are kept
	resumeTime = 30 * time.Second
)

func newMux(a *Adapter, backend ingest.Backend, link *session) *mux {
	m := &mux{a: a, id: secret(9), backend: backend, box: a.newOutbox(), keeper: newKeeper(&a.kept), link: link, channels: map[uint32]*channel{}}
	a.mu.Lock()
	m.renew("")
	a.mu.Unlock()
	return m
}

// secret is n random bytes as text.
func secret(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// renew gives the session a new token in place of the one that was used. That
// one stays good for now: the answer with the new one may be lost with its
// connection. a.mu is held.
func (m *mux) renew(used string) {
	if used == m.spent {
		delete(m.a.muxes, m.token)
	} else {
		delete(m.a.muxes, m.spent)
		m.spent = used
	}
	m.token = secret(18)
	m.a.muxes[m.token] = m
}

func (m *mux) current() string {
	m.a.mu.Lock()
	defer m.a.mu.Unlock()
	return m.token
}

// confirm is called when the client has shown that it got its new token.
func (m *mux) confirm() {
	m.a.mu.Lock()
	defer m.a.mu.Unlock()
	delete(m.a.muxes, m.spent)
	m.spent = ""
}

// greet begins the session with its client.
func (m *mux) greet(ready wire.Message) {
	m.control(ready)
	m.mu.Lock()
	m.greeted = true
	m.mu.Unlock()
	m.a.mu.Lock()
	closing, until := m.a.closing, m.a.until
	m.a.mu.Unlock()
	if closing {
		m.goAway(until)
	}
}

// goAway tells the client, once, and after ready.
func (m *mux) goAway(until time.Time) {
	m.mu.Lock()
	tell := m.greeted && !m.left
	m.left = m.left || tell
	m.mu.Unlock()
	if tell {
		m.control(&wire.GoAway{TimeLeftMS: int(max(time.Until(until), 0).Milliseconds())})
	}
}

// push puts an entry into the outbox. It never blocks and may be called with a
// stream's lock held.
func (m *mux) push(e entry) {
	if !m.box.push(e) {
		m.a.slow(m)
	}
}

// slow ends a session whose outbox is full.
func (a *Adapter) slow(m *mux) {
	// The connection is told by a goroutine: a stream's lock is held here, and
	// whoever resumes the session holds the session's.
	a.group.run("slow", func() {
		m.mu.Lock()
		link := m.link
		m.mu.Unlock()
		if link != nil {
			link.end(ending{why: EndSlow})
			return
		}
		m.endIf(ending{why: EndSlow}, true)
	}, nil)
}

// open opens a stream.
func (m *mux) open(c *channel, version string, opts stream.Options) error {
	m.mu.Lock()
	if m.over {
		m.mu.Unlock()
		return stream.Errorf(stream.Draining, "", "the session is over")
	}
	_, taken := m.channels[c.sid]
	n := len(m.channels)
	if !taken && n < maxStreams {
		m.channels[c.sid] = c
		if i := slices.IndexFunc(m.told, func(old *channel) bool { return old.sid == c.sid }); i >= 0 {
			m.keeper.forget(m.told[i])
			m.told = slices.Delete(m.told, i, i+1)
		}
	}
	m.mu.Unlock()
	switch {
	case taken:
		return stream.Errorf(stream.Conflict, "open.sid", "%d is open already, or its end is not told yet", c.sid)
	case n >= maxStreams:
		return stream.Errorf(stream.Overloaded, "open.sid", "%d streams are open in this session, and that is the limit: close one, or open another session", n)
	}
	m.a.makeRoom()
	st, err := m.backend.Open(c.model, version, opts, c)
	if err != nil {
		m.forget(c)
		return err
	}
	c.opened(st)
	return nil
}

// channel returns an open stream of the session, nil when there is none.
func (m *mux) channel(sid uint32) *channel {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.channels[sid]
}

// forget is called when a stream could not be opened, or its end was told.
func (m *mux) forget(c *channel) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.channels[c.sid] == c {
		delete(m.channels, c.sid)
	}
}

// ended is called by the writer when it tells a stream's end.
func (m *mux) ended(c *channel, why stream.CloseReason) {
	m.forget(c)
	c.why = why
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.told) == maxStreams {
		m.told = slices.Delete(m.told, 0, 1)
	}
	m.told = append(m.told, c)
	if i := len(m.told) - 1 - keepEnds; i >= 0 {
		m.keeper.forget(m.told[i])
	}
}

func (m *mux) list() []*channel {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Values(m.channels))
}

// listFor lists the streams for a client that takes the session up: what is open,
// and what has ended and the client takes for open.
func (m *mux) listFor(named []wire.AttachStream) []*channel {
	out := m.list()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.told {
		if slices.ContainsFunc(named, func(st wire.AttachStream) bool { return st.SID == c.sid }) {
			out = append(out, c)
		}
	}
	return out
}

// leave takes link, whose writer has ended, off the session, which then waits for
// another connection. It reports false when the session is over.
func (m *mux) leave(link *session) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over || m.link != link {
		return m.link != link
	}
	m.link = nil
	m.a.mu.Lock()
	m.a.waiting = append(m.a.waiting, m)
	m.a.mu.Unlock()
	m.expiry = time.AfterFunc(m.a.opts.Resume, func() { m.a.giveUp(m) })
	return true
}

// giveUp ends a session to which no connection has come.
func (a *Adapter) giveUp(m *mux) {
	a.group.run("expiry", func() { m.endIf(ending{why: EndGone}, true) }, nil)
}

// makeRoom is called before a session opens a stream. Sessions that wait for their
// clients count as those with a connection do (limits.max_sessions), and give way to
// them, the one that waits longest first: what they hold would else have no bound.
// A connection alone drives none out, for it may be that of a client that returns.
func (a *Adapter) makeRoom() {
	a.mu.Lock()
	n := max(len(a.sessions)-a.refusing+len(a.waiting)-a.opts.MaxSessions, 0)
	out := slices.Clone(a.waiting[:min(n, len(a.waiting))])
	a.waiting = slices.Delete(a.waiting, 0, len(out))
	a.mu.Unlock()
	for _, m := range out {
		a.giveUp(m)
	}
}

// cameBack is called when a session has a connection again, or is over. a.mu is held.
func (a *Adapter) cameBack(m *mux) {
	if i := slices.Index(a.waiting, m); i >= 0 {
		a.waiting = slices.Delete(a.waiting, i, i+1)
	}
}

// claim gives the session of a token to a new connection. The one that had it is
// ended and waited for; nil means that the token is none, was used, or is of the
// connection's own session, and that the connection itself ended meanwhile.
func (a *Adapter) claim(token string, link *session) *mux {
	a.mu.Lock()
	m := a.muxes[token]
	if m == nil || token == "" || m == link.mux {
		a.mu.Unlock()
		return nil
	}
	m.renew(token)
	a.mu.Unlock()
	for {
		m.mu.Lock()
		switch {
		case m.over:
			m.mu.Unlock()
			return nil
		case m.link == nil:
			m.expiry.Stop()
			m.link = link
			a.mu.Lock()
			a.cameBack(m)
			a.mu.Unlock()
			m.mu.Unlock()
			return m
		}
		old := m.link
		m.mu.Unlock()
		old.end(takenOver())
		select {
		case <-old.detached:
		case <-link.closing: // it may be waited for itself, by old
			return nil
		}
	}
}

// end closes every stream and waits until the last frame has ended. Whoever has
// the session writes what is left, or throws it away.
func (m *mux) end(e ending) { m.endIf(e, false) }

// endIf is end, or, for alone, leaves a session as it is that has a connection.
func (m *mux) endIf(e ending, alone bool) {
	m.mu.Lock()
	if m.over || alone && m.link != nil {
		m.mu.Unlock()
		return
	}
	m.over = true
	if m.expiry != nil {
		m.expiry.Stop()
	}
	link := m.link
	m.mu.Unlock()
	m.a.mu.Lock()
	delete(m.a.muxes, m.token)
	delete(m.a.muxes, m.spent)
	m.a.cameBack(m)
	m.a.mu.Unlock()
	m.keeper.close()
	all := m.list()
	for _, c := range all {
		if st := c.stream.Load(); st != nil {
			if e.why == EndDraining {
				st.CloseWith(stream.ByDrain, e.err)
			} else {
				st.Close(e.stream())
			}
		}
	}
	for _, c := range all {
		if st := c.stream.Load(); st != nil {
			<-st.Finished()
		}
	}
	if link == nil {
		m.box.close()
	}
}

// endDetached ends the sessions without a connection, when the server ends.
func (a *Adapter) endDetached() {
	a.mu.Lock()
	var all []*mux
	for _, m := range a.muxes {
		all = append(all, m)
	}
	a.mu.Unlock()
	for _, m := range all {
		m.endIf(draining(), true)
	}
}
