package v1

import (
	"millrace/ingest"
	"millrace/internal/oip"
	"millrace/stream"
)

// protocol is millrace.v1 on one connection. Only the reader goroutine uses protocol.
type protocol struct {
	sessions *Sessions
	link     *link
	client   *ingest.Client
	model    string              // of open messages without a model; may be ""
	version  string              // of model
	trace    stream.TraceContext // for frames without a trace of their own

	session     *session // nil before Open
	begun       bool     // a message was received
	unconfirmed bool     // the session was resumed, and no message was received since

	head    headReader
	request oip.InferRequest
}

// confirm is called for each message: the first message after a resumption shows that the client has the new token.
func (p *protocol) confirm() {
	if p.unconfirmed {
		p.unconfirmed = false
		p.sessions.confirm(p.session)
	}
}
