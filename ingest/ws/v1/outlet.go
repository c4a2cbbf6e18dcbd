package v1

import (
	"log/slog"
	"time"

	"millrace/ingest"
	"millrace/ingest/clips"
	"millrace/ingest/frames"
	"millrace/ingest/ws/conn"
	"millrace/internal/wire"
)

// Options are the settings of all sessions. Every number must be above 0.
type Options struct {
	ingest.Limits

	ReplayBytes int64         // most bytes of endings kept for all resumable sessions
	AdviseEvery time.Duration // least time between two advices to a stream
	StatsEvery  time.Duration // least time between two statistics of a stream
	Contexts    *frames.Contexts
	Clips       *clips.Clients // of the streams with rules; nil = none
	Log         *slog.Logger
}

// outlet is the destination of a session's messages: the outbox. The outbox's writer changes with the connection.
type outlet struct {
	opts     *Options
	registry *conn.Registry
	outbox   *conn.Outbox
	overflow func() // called when the outbox is full; must not block
}

// push puts an entry into the outbox. push never blocks, and the caller may hold a stream's lock.
func (o *outlet) push(e conn.Entry) {
	if !o.outbox.Push(e) {
		o.overflow()
	}
}

// send sends a message.
func (o *outlet) send(m wire.Message) {
	if text := o.code(m); text != nil {
		o.push(conn.Entry{Text: text})
	}
}

// write writes a message immediately. Only the writer calls write.
func (o *outlet) write(w *conn.Writer, m wire.Message) {
	if text := o.code(m); text != nil {
		w.Text(text)
	}
}

func (o *outlet) code(m wire.Message) []byte {
	text, err := wire.AppendControl(nil, m)
	if err != nil {
		o.opts.Log.Error("a message could not be coded", "type", m.Type(), "error", err)
		return nil
	}
	return text
}
