// Package plain is plain mode: a connection is one stream, each binary message is a frame, and each frame gets one
// reply. A text message is a frame for a model with tensor inputs; for other models a text message makes the server
// pull a video.
package plain

import (
	"errors"
	"io"

	"millrace/ingest"
	"millrace/ingest/frames"
	"millrace/ingest/ws/conn"
	"millrace/ingest/ws/pull"
	"millrace/ingest/ws/query"
	"millrace/ingest/ws/replies"
	"millrace/internal/wire"
	"millrace/stream"
	"millrace/stream/buf"
)

// errPulling is the ending of a frame received during a pull.
var errPulling = stream.Errorf(stream.Conflict, "", `a video is being pulled: send {"stop":true} before frames`)

type protocol struct {
	conn     *conn.Conn
	client   *ingest.Client
	query    query.Options
	makeRoom func()
	sink     *replies.Sink // of the client's frames
	puller   pull.Puller
}

// New returns plain mode on c, with the options in q. makeRoom is called before the stream is opened.
func New(c *conn.Conn, client *ingest.Client, q query.Options, limits *pull.Limits, makeRoom func()) conn.Protocol {
	p := &protocol{conn: c, client: client, query: q, makeRoom: makeRoom}
	p.sink = replies.New(c, replies.Call{}, func(e *conn.Encoder, r *stream.Result) ([]byte, bool, error) {
		return result(e, r, &q, nil)
	}, p.streamDone)
	p.sink.Traced = q.Traced
	p.puller = pull.Puller{Conn: c, Client: client, Limits: limits, Policy: q.Policy, Trace: q.Trace, Traced: q.Traced,
		Result: func(e *conn.Encoder, r *stream.Result, from *pull.Source) ([]byte, bool, error) {
			return result(e, r, &q, from)
		}}
	return p
}

// streamDone ends the connection after the end of the stream. The caller holds the stream's lock.
func (p *protocol) streamDone(why stream.CloseReason) {
	if err := ingest.ClosedError(why, p.query.Model); err != nil {
		p.conn.End(conn.StreamEnding(why, err))
	}
}

// Open implements conn.Protocol.
func (p *protocol) Open() error {
	p.makeRoom()
	st, err := p.client.Open(p.query.Model, p.query.Version, stream.Options{Policy: p.query.Policy, Protocol: "ws",
		Trace: p.query.Trace}, p.sink)
	if err != nil {
		return err
	}
	p.sink.Opened(st)
	return nil
}

// Binary implements conn.Protocol: the message is a frame, with a seq and exactly one reply. In `every`, Binary
// returns when the window has room for the next frame.
func (p *protocol) Binary(r io.Reader) error { return p.message(r, false) }

// TakesText implements conn.TextFrames.
func (p *protocol) TakesText() bool {
	st := p.sink.Stream()
	return st != nil && frames.TakesText(st.Model())
}

// TextFrame implements conn.TextFrames: the message is a frame, as for Binary.
func (p *protocol) TextFrame(r io.Reader) error { return p.message(r, true) }

func (p *protocol) message(r io.Reader, text bool) error {
	err := p.frame(r, text)
	for err == nil && p.sink.Full() && p.sink.WaitForRoom(p.conn.Closing()) {
		p.conn.ExtendDeadline() // without reads no sign of life was noticed
	}
	return err
}

func (p *protocol) frame(r io.Reader, text bool) error {
	seq := p.sink.Take()
	lease, err := p.conn.Lease(r)
	switch {
	case errors.Is(err, buf.ErrBudget):
		p.sink.Drop(seq, stream.Memory)
		p.sink.Stream().MarkDiscontinuity()
		return p.conn.Skip(r)
	case err != nil:
		p.sink.Abort() // the frame did not arrive completely
		return err
	}
	if p.puller.Running() {
		lease.Release()
		p.sink.Fail(seq, errPulling)
		return nil
	}
	f := stream.Frame{
		Seq: seq, Codec: p.query.Codec, Width: p.query.Width, Height: p.query.Height,
		Region: p.query.Region, Payload: lease.Bytes(), Lease: lease, Arrived: p.conn.Arrived(),
	}
	p.submit(f, text)
	return nil
}

// submit submits a frame, or ends the frame with an error if its content is not understood.
func (p *protocol) submit(f stream.Frame, text bool) {
	var err error
	if m := p.sink.Stream().Model(); text && frames.TakesText(m) && len(f.Payload) > 0 {
		err = frames.Text(&f, m, p.client.Memory(), p.conn.Turns())
	} else {
		err = frames.Recognise(&f, m)
	}
	switch {
	case errors.Is(err, buf.ErrBudget):
		f.Lease.Release()
		p.sink.Drop(f.Seq, stream.Memory)
		p.sink.Stream().MarkDiscontinuity()
	case err != nil:
		f.Lease.Release()
		p.sink.Fail(f.Seq, err)
	default:
		p.sink.Submit(f)
	}
}

// Text implements conn.Protocol.
func (p *protocol) Text(msg []byte) {
	if st := p.sink.Stream(); st.Model().AcceptsAnyInput && isValue(msg) {
		p.value(msg)
		return
	}
	o, err := parseOrder(msg)
	if err == nil {
		err = p.execute(o)
	}
	if err != nil {
		p.conn.Push(conn.Entry{Text: replies.Error(replies.Call{}, err)})
	}
}

// value makes a frame of a text message to a model for any content.
func (p *protocol) value(msg []byte) {
	seq := p.sink.Take()
	lease, err := p.client.Memory().Copy(msg)
	switch {
	case err != nil:
		p.sink.Drop(seq, stream.Memory)
		p.sink.Stream().MarkDiscontinuity()
	case p.puller.Running():
		lease.Release()
		p.sink.Fail(seq, errPulling)
	default:
		p.submit(stream.Frame{Seq: seq, Codec: stream.Opaque, Payload: lease.Bytes(), Lease: lease,
			Arrived: p.conn.Arrived()}, false)
	}
	if p.sink.Full() && p.sink.WaitForRoom(p.conn.Closing()) {
		p.conn.ExtendDeadline()
	}
}

func (p *protocol) execute(o wire.PullOrder) error {
	if o.Stop {
		return p.puller.Stop()
	}
	if p.query.Region != (stream.Region{}) {
		return stream.Errorf(stream.Unsupported, "roi",
			"is for pictures that clients send: a pulled video is scaled before it is read")
	}
	what := pull.Order{URL: o.URL, Model: o.Model}
	if o.Model == "" || o.Model == p.query.Model {
		what.Model, what.Version = p.query.Model, p.query.Version
	}
	return p.puller.Start(what)
}

// Close implements conn.Protocol.
func (p *protocol) Close(e conn.Ending) {
	p.conn.Drain(func() {
		p.puller.Close()
		if st := p.sink.Stream(); st != nil {
			e.CloseStream(st)
			<-st.Finished()
		}
	})
}
