package plain

import (
	"errors"
	"io"

	"millrace/ingest"
	"millrace/ingest/frames"
	"millrace/ingest/ws/conn"
	"millrace/ingest/ws/query"
	"millrace/internal/wire"
	"millrace/stream"
	"millrace/stream/buf"
)

// errPulling is the ending of a frame received during a pull.
var errPulling = stream.Errorf(stream.Conflict, "", `a video is being pulled: send {"stop":true} before frames`)

// plainMode is plain mode on one connection.
type plainMode struct {
	conn     *conn.Conn
	client   *ingest.Client
	query    query.Options
	makeRoom func()
	sink     *sink // of the client's frames
	puller   puller
}

// New returns plain mode on c, with the options in q. makeRoom is called before the stream is opened.
func New(c *conn.Conn, client *ingest.Client, q query.Options, limits *PullLimits, makeRoom func()) conn.Protocol {
	p := &plainMode{conn: c, client: client, query: q, makeRoom: makeRoom}
	p.sink = newSink(c, callID{}, func(e *conn.Encoder, r *stream.Result) ([]byte, bool, error) {
		return plainResult(e, r, &q, nil)
	}, p.streamDone)
	p.sink.traced = q.Traced
	p.puller = puller{conn: c, client: client, limits: limits, policy: q.Policy, trace: q.Trace, traced: q.Traced,
		result: func(e *conn.Encoder, r *stream.Result, from *videoInfo) ([]byte, bool, error) {
			return plainResult(e, r, &q, from)
		}}
	return p
}

// streamDone ends the connection after the end of the stream. The caller holds the stream's lock.
func (p *plainMode) streamDone(why stream.CloseReason) {
	if err := ingest.ClosedError(why, p.query.Model); err != nil {
		p.conn.End(conn.StreamEnding(why, err))
	}
}

// Open implements conn.Protocol.
func (p *plainMode) Open() error {
	p.makeRoom()
	st, err := p.client.Open(p.query.Model, p.query.Version, stream.Options{Policy: p.query.Policy, Protocol: "ws",
		Trace: p.query.Trace}, p.sink)
	if err != nil {
		return err
	}
	p.sink.opened(st)
	return nil
}

// Binary implements conn.Protocol: the message is a frame, with a seq and exactly one reply. In `every`, Binary
// returns when the window has room for the next frame.
func (p *plainMode) Binary(r io.Reader) error { return p.message(r, false) }

// TakesText implements conn.TextFrames.
func (p *plainMode) TakesText() bool {
	st := p.sink.stream
	return st != nil && frames.TakesText(st.Model())
}

// TextFrame implements conn.TextFrames: the message is a frame, as for Binary.
func (p *plainMode) TextFrame(r io.Reader) error { return p.message(r, true) }

func (p *plainMode) message(r io.Reader, text bool) error {
	err := p.frame(r, text)
	for err == nil && p.sink.full() && p.sink.waitForRoom(p.conn.Closing()) {
		p.conn.ExtendDeadline() // without reads no sign of life was noticed
	}
	return err
}

func (p *plainMode) frame(r io.Reader, text bool) error {
	seq := p.sink.take()
	lease, err := p.conn.Lease(r)
	switch {
	case errors.Is(err, buf.ErrBudget):
		p.sink.drop(seq, stream.Memory)
		p.sink.stream.MarkDiscontinuity()
		return p.conn.Skip(r)
	case err != nil:
		p.sink.abort() // the frame did not arrive completely
		return err
	}
	if p.puller.running() {
		lease.Release()
		p.sink.fail(seq, errPulling)
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
func (p *plainMode) submit(f stream.Frame, text bool) {
	var err error
	if m := p.sink.stream.Model(); text && frames.TakesText(m) && len(f.Payload) > 0 {
		err = frames.Text(&f, m, p.client.Memory(), p.conn.Turns())
	} else {
		err = frames.Recognise(&f, m)
	}
	switch {
	case errors.Is(err, buf.ErrBudget):
		f.Lease.Release()
		p.sink.drop(f.Seq, stream.Memory)
		p.sink.stream.MarkDiscontinuity()
	case err != nil:
		f.Lease.Release()
		p.sink.fail(f.Seq, err)
	default:
		p.sink.submit(f)
	}
}

// Text implements conn.Protocol.
func (p *plainMode) Text(msg []byte) {
	if st := p.sink.stream; st.Model().AcceptsAnyInput && isValue(msg) {
		p.value(msg)
		return
	}
	o, err := parseOrder(msg)
	if err == nil {
		err = p.execute(o)
	}
	if err != nil {
		p.conn.Push(conn.Entry{Text: errorText(callID{}, err)})
	}
}

// value makes a frame of a text message to a model for any content.
func (p *plainMode) value(msg []byte) {
	seq := p.sink.take()
	lease, err := p.client.Memory().Copy(msg)
	switch {
	case err != nil:
		p.sink.drop(seq, stream.Memory)
		p.sink.stream.MarkDiscontinuity()
	case p.puller.running():
		lease.Release()
		p.sink.fail(seq, errPulling)
	default:
		p.submit(stream.Frame{Seq: seq, Codec: stream.Opaque, Payload: lease.Bytes(), Lease: lease,
			Arrived: p.conn.Arrived()}, false)
	}
	if p.sink.full() && p.sink.waitForRoom(p.conn.Closing()) {
		p.conn.ExtendDeadline()
	}
}

func (p *plainMode) execute(o wire.PullOrder) error {
	if o.Stop {
		return p.puller.stop()
	}
	if p.query.Region != (stream.Region{}) {
		return stream.Errorf(stream.Unsupported, "roi",
			"is for pictures that clients send: a pulled video is scaled before it is read")
	}
	what := pullOrder{URL: o.URL, Model: o.Model}
	if o.Model == "" || o.Model == p.query.Model {
		what.Model, what.Version = p.query.Model, p.query.Version
	}
	return p.puller.start(what)
}

// Close implements conn.Protocol.
func (p *plainMode) Close(e conn.Ending) {
	p.conn.Drain(func() {
		p.puller.close()
		if st := p.sink.stream; st != nil {
			e.CloseStream(st)
			<-st.Finished()
		}
	})
}
