package v1

import (
	"errors"
	"io"

	"millrace/ingest"
	"millrace/ingest/ws/conn"
	"millrace/internal/wire"
	"millrace/stream"
)

// New returns the protocol on c. model and trace are the defaults for open messages without a model and frames
// without a trace.
func (ss *Sessions) New(c *conn.Conn, client *ingest.Client, model, version string,
	trace stream.TraceContext) conn.Protocol {
	return &protocol{
		sessions: ss, link: &link{c, make(chan struct{})}, client: client, model: model, version: version, trace: trace,
	}
}

// Open implements conn.Protocol.
func (p *protocol) Open() error {
	p.session = p.sessions.begin(p.link, p.client)
	return nil
}

// Text implements conn.Protocol: text is a control message. Errors in the message are sent to the client.
func (p *protocol) Text(text []byte) {
	p.confirm()
	m, err := wire.ParseControl(text, wire.Client)
	var e *wire.Error
	switch {
	case err == nil:
		err = rename(p.handle(m), m)
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

// Close implements conn.Protocol. If the client may resume the session, the session continues without the connection.
func (p *protocol) Close(e conn.Ending) {
	defer close(p.link.detached)
	if p.session == nil {
		p.link.Drain(func() {})
		return
	}
	if e.Reason == conn.EndGone || e.Reason == conn.EndTakenOver {
		p.link.Cut()
		if p.sessions.detach(p.session) {
			return
		}
	}
	p.link.Drain(func() { p.sessions.end(p.session, e) })
}
