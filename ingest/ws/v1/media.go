package v1

import (
	"errors"
	"io"
	"time"

	"millrace/ingest/frames"
	"millrace/ingest/ws/conn"
	"millrace/internal/wire"
	"millrace/stream"
	"millrace/stream/buf"
)

// media handles one media message. An error ends the connection.
func (p *protocol) media(r io.Reader) error {
	in := &p.head
	n, _ := io.ReadFull(r, in.head[:]) // reading the rest returns the error again
	in.n, in.at, in.rest = n, 0, r
	lease, err := p.link.Lease(in)
	if errors.Is(err, buf.ErrBudget) {
		p.dropForMemory(in.head[:n])
		return p.link.Skip(r)
	}
	in.rest = nil
	if err != nil {
		return err
	}
	h, data, err := wire.ParseHeader(lease.Bytes(), wire.Client)
	if err != nil {
		lease.Release()
		p.malformed(err, wire.Kind(in.head[1]))
		return nil
	}
	if h.Kind == wire.KindConfig {
		if err := p.configure(&h, data); err != nil {
			p.session.send(frameError(&h, err))
		}
		lease.Release()
		return nil
	}
	c := p.receive(&h)
	if c == nil {
		lease.Release()
		return nil
	}
	if err := p.submit(c, &h, data, lease); err != nil {
		lease.Release()
		c.refuse(h.Seq, "", err)
		c.markLost()
	}
	if h.Flags&wire.FlagEnd != 0 {
		c.markLast()
	}
	return nil
}

// receive returns the stream of a frame, and counts the frame. nil: receive has answered the frame.
func (p *protocol) receive(h *wire.Header) *channel {
	c := p.session.channel(h.SID)
	if c == nil {
		err := stream.Errorf(stream.NotFound, "sid", "%d is not open: send open first", h.SID)
		p.sessions.noStream.Refuse("", err)
		p.session.send(frameError(h, err))
		return nil
	}
	first := c.window.Received() == 0
	last := c.lastSeq.Load()
	over := c.stream.Load().Policy().Mode == stream.Every && c.window.Received() >= c.window.Limit()
	c.window.Receive()
	if c.last.Load() {
		c.refuse(h.Seq, "", stream.Errorf(stream.Conflict, "flags",
			"of frame %d marked it as the last of the stream: open another stream", last))
		return nil
	}
	if !first && h.Seq <= last {
		c.refuse(h.Seq, "", stream.Errorf(stream.InvalidArgument, "seq",
			"%d is not above %d, the seq of the frame before it", h.Seq, last))
		return nil
	}
	c.lastSeq.Store(h.Seq)
	if over {
		c.markLost()
		c.refuse(h.Seq, "", stream.Errorf(stream.FlowControl, "credit",
			"%d frames may be sent by now, this is one more: wait for credit_limit to rise", c.window.Limit()))
		return nil
	}
	return c
}

// dropForMemory drops the frame of a header, if the header identifies the frame. The other parts of the header apply.
func (p *protocol) dropForMemory(head []byte) {
	h, _, err := wire.ParseHeader(head, wire.Client)
	var e *wire.Error
	switch {
	case errors.As(err, &e) && e.Fatal:
		p.link.End(conn.Malformed(err))
		return
	case e != nil: // the extension was not read
		h.SID, h.Seq = *e.SID, *e.Seq
	}
	if wire.Kind(head[1]) == wire.KindConfig {
		p.session.send(frameError(&h, stream.Errorf(stream.Overloaded, "memory.budget",
			"is used up: send the codec configuration again")))
		return
	}
	if c := p.receive(&h); c != nil {
		c.refuse(h.Seq, stream.Memory, nil)
		c.markLost()
		if wire.Flags(head[3])&wire.FlagEnd != 0 {
			c.markLast()
		}
	}
}

// malformed answers a message in violation of the protocol.
func (p *protocol) malformed(err error, kind wire.Kind) {
	var e *wire.Error
	if !errors.As(err, &e) || e.Fatal { // a non-fatal error names the frame
		p.link.End(conn.Malformed(err))
		return
	}
	h := wire.Header{SID: *e.SID, Seq: *e.Seq}
	if kind == wire.KindConfig { // not a frame
		p.session.send(frameError(&h, err))
		return
	}
	if c := p.receive(&h); c != nil {
		c.refuse(h.Seq, "", err)
		c.markLost()
	}
}

// configure passes on the parameter sets of a video. Parameter sets are not a frame and have no ending.
func (p *protocol) configure(h *wire.Header, sets []byte) error {
	c := p.session.channel(h.SID)
	if c == nil {
		return stream.Errorf(stream.NotFound, "sid", "%d is not open: send open first", h.SID)
	}
	d, err := p.openDecoder(c, stream.Codec(h.Codec))
	if err != nil {
		return err
	}
	return d.Configure(sets)
}

// submit submits a frame to its stream; the stream takes over the lease. After an error the caller keeps the lease,
// and the frame has no ending.
func (p *protocol) submit(c *channel, h *wire.Header, data []byte, lease *buf.Buf) (err error) {
	st := c.stream.Load()
	f := stream.Frame{
		Seq: h.Seq, CaptureUS: h.CaptureUS, Codec: stream.Codec(h.Codec), Must: h.Flags&wire.FlagMust != 0,
		Discontinuity: h.Flags&wire.FlagDiscontinuity != 0,
		Width:         int(h.Width), Height: int(h.Height), Deadline: time.Duration(h.DeadlineMS) * time.Millisecond,
		Payload: data, Lease: lease, Arrived: p.link.Arrived(),
		Region: stream.Region{X: h.Ext.ROI[0], Y: h.Ext.ROI[1], Width: h.Ext.ROI[2], Height: h.Ext.ROI[3]},
	}
	if h.Ext.HasROI {
		c.regions.Store(true)
	}
	switch {
	case h.Ext.HasROI && h.Kind != wire.KindFrame:
		return stream.Errorf(stream.InvalidArgument, "ext.roi", "is for frames (kind 1)")
	case h.Ext.HasROI && (h.Ext.ROI[2] == 0 || h.Ext.ROI[3] == 0):
		return stream.Errorf(stream.InvalidArgument, "ext.roi",
			"is empty, %d x %d pixels: leave it out for the whole picture", h.Ext.ROI[2], h.Ext.ROI[3])
	case isVideo(f.Codec):
		f.Width, f.Height = 0, 0
	case h.Kind == wire.KindTensor:
		text, _, err := wire.SplitTensors(data)
		if err != nil {
			return err
		}
		if f.Inputs, err = frames.FromRequest(&p.request, data[wire.TensorsPrefixLen:], len(text)); err != nil {
			return err
		}
		f.Payload = nil
	default:
		if f.Width == 0 {
			f.Width, f.Height = c.width, c.height
		}
		if f.Codec == stream.Opaque && c.codec == stream.Auto && st.Model().Image != nil {
			f.Codec = stream.Auto // recognised by content
		}
		if err := frames.Recognise(&f, st.Model()); err != nil {
			return err
		}
		if f.Codec != stream.RGB24 && f.Codec != stream.NV12 {
			f.Width, f.Height = 0, 0
		}
	}
	if len(h.Ext.Params) > 0 {
		params, err := wire.ParseParams(h.Ext.Params)
		if err != nil {
			return err
		}
		f.Params = stream.Params(params)
	} else if c.reader.params != nil {
		f.Params = c.reader.params
	}
	if h.Ext.Traceparent != nil {
		p.sessions.opts.Contexts.Frame(&f, h.Ext.Traceparent)
	}
	if isVideo(f.Codec) {
		d, err := p.openDecoder(c, f.Codec)
		if err != nil {
			return err
		}
		d.Feed(f, stream.Now())
		before := c.reader.discarded
		c.reader.discarded = d.Discarded()
		p.link.Discarded(c.reader.discarded - before)
		return nil
	}
	if err := st.Submit(f); err != nil {
		c.fail(h.Seq, err) // the stream has released the lease
	}
	return nil
}
