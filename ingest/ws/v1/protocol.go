package v1

import (
	"errors"
	"io"

	"millrace/ingest"
	"millrace/ingest/ws/conn"
	"millrace/internal/oip"
	"millrace/internal/wire"
	"millrace/stream"
)

// protocol is millrace.v1 on one connection. Everything is the reader goroutine's.
type protocol struct {
	sessions *Sessions
	link     *link
	backend  ingest.Backend
	model    string // of open messages that name none; may be ""
	version  string // of model

	session     *session // nil before Open
	begun       bool     // a message has come
	unconfirmed bool     // the session was resumed, and nothing has come since

	head    headReader
	request oip.InferRequest
}

// New returns the protocol on c, whose streams are of model where their open message names none.
func (ss *Sessions) New(c *conn.Conn, backend ingest.Backend, model, version string) conn.Protocol {
	return &protocol{sessions: ss, link: &link{c, make(chan struct{})}, backend: backend, model: model, version: version}
}

// Open implements conn.Protocol.
func (p *protocol) Open() error {
	p.session = p.sessions.begin(p.link, p.backend)
	return nil
}

// Text implements conn.Protocol: the message is a control message. What is wrong with it is told to the client.
func (p *protocol) Text(text []byte) {
	p.confirm()
	m, err := wire.ParseControl(text, wire.Client)
	var e *wire.Error
	switch {
	case err == nil:
		err = p.handle(m)
	case errors.As(err, &e) && e.Fatal:
		p.link.End(conn.Malformed(err))
		return
	}
	p.begun = true
	if err != nil {
		t := errorMessage(err)
		if t.SID = sidOf(m); e != nil {
			t.SID = e.SID
		}
		p.session.send(t)
	}
}

// Binary implements conn.Protocol: the message is media.
func (p *protocol) Binary(r io.Reader) error {
	p.begun = true
	p.confirm()
	return p.media(r)
}

// confirm is called for each message: the first one after a resumption shows that the client has its new token.
func (p *protocol) confirm() {
	if p.unconfirmed {
		p.unconfirmed = false
		p.sessions.confirm(p.session)
	}
}

// Close implements conn.Protocol. The session goes on without the connection if the client may come back to it.
func (p *protocol) Close(e conn.Ending) {
	defer close(p.link.detached)
	if p.session == nil {
		p.link.Drain(func() {})
		return
	}
	if e.Why == conn.EndGone || e.Why == conn.EndTakenOver {
		p.link.Cut()
		if p.sessions.detach(p.session, p.link) {
			return
		}
	}
	p.link.Drain(func() { p.sessions.end(p.session, e) })
}

// attach resumes a session. What the client missed is sent again.
func (p *protocol) attach(m *wire.Attach) error {
	if p.begun {
		return stream.Errorf(stream.Conflict, "attach", "is the first message of a connection, or none")
	}
	own := p.session
	s := p.sessions.claim(m.Token, p.link, own)
	if s == nil {
		return stream.Errorf(stream.NotFound, "attach.token", "is not known, or of this very session: it was used, or its session has ended. Open the streams again")
	}
	named := s.listFor(m.Streams)
	attached := &wire.Attached{
		Session: s.id, ResumeToken: p.sessions.token(s), ResumeMS: int(s.opts.Resume.Milliseconds()), Streams: attachedStreams(named),
	}
	if !p.link.SwitchOutbox(s.outbox, func(w *conn.Writer) { s.resume(w, attached, named, m.Streams) }) {
		p.sessions.detach(s, p.link)
		return nil
	}
	p.session, p.unconfirmed = s, true
	p.sessions.end(own, conn.Ending{Why: conn.EndClient})
	own.outbox.Close()
	return nil
}
