package ws

import (
	"errors"
	"io"
	"time"

	"millrace/ingest"
	"millrace/internal/buf"
	"millrace/internal/oip"
	"millrace/internal/wire"
	"millrace/stream"
)

// opening is a message whose header was read ahead, so that a frame for which
// there is no memory can still be told from others.
type opening struct {
	head [wire.HeaderLen]byte
	n    int // bytes of head that are there
	at   int // and were read again
	rest io.Reader
}

// Read implements io.Reader.
func (o *opening) Read(p []byte) (int, error) {
	if o.at < o.n {
		n := copy(p, o.head[o.at:o.n])
		o.at += n
		return n, nil
	}
	return o.rest.Read(p)
}

// media takes one binary message of millrace.v1. The error is the connection's.
func (s *session) media(r io.Reader) error {
	s.begun = true
	s.heard()
	o := &s.opening
	n, err := io.ReadFull(r, o.head[:])
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return err
	}
	o.n, o.at, o.rest = n, 0, r
	lease, err := s.fill(o)
	if errors.Is(err, buf.ErrBudget) {
		s.noMemory(o.head[:n])
		return s.skip(r)
	}
	o.rest = nil
	if err != nil {
		return err
	}
	h, payload, err := wire.ParseHeader(lease.Bytes(), wire.Client)
	if err != nil {
		lease.Release()
		s.badMedia(err, wire.Kind(o.head[1]))
		return nil
	}
	if h.Kind == wire.KindConfig {
		if err := s.configure(&h, payload); err != nil {
			s.reply(frameError(&h, err))
		}
		lease.Release()
		return nil
	}
	c := s.address(&h)
	if c == nil {
		lease.Release()
		return nil
	}
	if err := s.feed(c, &h, payload, lease); err != nil {
		lease.Release()
		c.fail(h.Seq, err)
		c.lost()
	}
	if h.Flags&wire.FlagEnd != 0 {
		c.lastCame()
	}
	return nil
}

// address returns the stream of a frame, and counts the frame in. It returns nil
// when the frame has had its answer.
func (s *session) address(h *wire.Header) *channel {
	c := s.mux.channel(h.SID)
	if c == nil {
		s.reply(frameError(h, stream.Errorf(stream.NotFound, "sid", "%d is not open: send open first", h.SID)))
		return nil
	}
	first := c.received.Load() == 0
	last := c.lastSeq.Load()
	over := c.stream.Load().Policy().Mode == stream.Every && c.received.Load() >= c.limit()
	c.received.Add(1)
	if c.last.Load() {
		c.fail(h.Seq, stream.Errorf(stream.Conflict, "flags", "of frame %d said that it is the last of the stream: open another one", last))
		return nil
	}
	if !first && h.Seq <= last {
		c.fail(h.Seq, stream.Errorf(stream.InvalidArgument, "seq", "%d is not above %d, that of the frame before it", h.Seq, last))
		return nil
	}
	c.lastSeq.Store(h.Seq)
	if over {
		c.lost()
		c.fail(h.Seq, stream.Errorf(stream.FlowControl, "credit", "%d frames may be sent by now, this is one more: wait for credit_limit to rise", c.limit()))
		return nil
	}
	return c
}

// noMemory drops the frame of a header, if it can be told which one it is. What
// else the header says holds.
func (s *session) noMemory(head []byte) {
	h, _, err := wire.ParseHeader(head, wire.Client)
	var e *wire.Error
	switch {
	case errors.As(err, &e) && e.Fatal:
		s.end(malformed(protocolError(err)))
		return
	case e != nil && e.SID != nil && e.Seq != nil: // its extension is not there
		h.SID, h.Seq = *e.SID, *e.Seq
	}
	if wire.Kind(head[1]) == wire.KindConfig {
		s.reply(frameError(&h, stream.Errorf(stream.Overloaded, "memory.budget", "is used up: send the codec configuration again")))
		return
	}
	if c := s.address(&h); c != nil {
		c.drop(h.Seq, stream.Memory)
		c.lost()
		if wire.Flags(head[3])&wire.FlagEnd != 0 {
			c.lastCame()
		}
	}
}

// badMedia answers a message that is not as the protocol has it.
func (s *session) badMedia(err error, kind wire.Kind) {
	var e *wire.Error
	if !errors.As(err, &e) || e.Fatal || e.SID == nil || e.Seq == nil {
		s.end(malformed(protocolError(err)))
		return
	}
	if kind == wire.KindConfig { // no frame
		s.reply(frameError(&wire.Header{SID: *e.SID, Seq: *e.Seq}, protocolError(err)))
		return
	}
	if c := s.address(&wire.Header{SID: *e.SID, Seq: *e.Seq}); c != nil {
		c.fail(*e.Seq, protocolError(err))
		c.lost()
	}
}

// protocolError codes what package wire says.
func protocolError(err error) error {
	var e *wire.Error
	if !errors.As(err, &e) {
		return err
	}
	return &stream.Error{Code: stream.Code(e.Code), Field: e.Field, Msg: e.Msg, Err: err}
}

// feed hands a frame to its stream, which takes the lease over. An error leaves
// the lease here, and the frame without an ending.
func (s *session) feed(c *channel, h *wire.Header, payload []byte, lease *buf.Buf) (err error) {
	st := c.stream.Load()
	f := stream.Frame{
		Seq: h.Seq, CaptureUS: h.CaptureUS, Codec: stream.Codec(h.Codec), Must: h.Flags&wire.FlagMust != 0, Discontinuity: h.Flags&wire.FlagDiscontinuity != 0,
		Width: int(h.Width), Height: int(h.Height), Deadline: time.Duration(h.DeadlineMS) * time.Millisecond,
		Payload: payload, Lease: lease,
		Region: stream.Region{X: h.Ext.ROI[0], Y: h.Ext.ROI[1], Width: h.Ext.ROI[2], Height: h.Ext.ROI[3]},
	}
	if h.Ext.HasROI {
		c.regions.Store(true)
	}
	switch {
	case h.Ext.HasROI && h.Kind != wire.KindFrame:
		return stream.Errorf(stream.InvalidArgument, "ext.roi", "is a part of a picture: send it with frames (kind 1)")
	case h.Ext.HasROI && (h.Ext.ROI[2] == 0 || h.Ext.ROI[3] == 0):
		return stream.Errorf(stream.InvalidArgument, "ext.roi", "is empty, %d x %d pixels: leave it out for the whole picture", h.Ext.ROI[2], h.Ext.ROI[3])
	case isVideo(f.Codec):
		f.Width, f.Height = 0, 0
	case h.Kind == wire.KindTensor:
		if f.Inputs, err = s.tensors(payload); err != nil {
			return err
		}
		f.Payload = nil
	default:
		if f.Width == 0 {
			f.Width, f.Height = c.width, c.height
		}
		if f.Codec == stream.Opaque && c.codec == stream.Auto && st.Model().Image != nil {
			f.Codec = stream.Auto // recognised by its content
		}
		if err := recognise(&f, st.Model()); err != nil {
			return err
		}
		if f.Codec != stream.RGB24 && f.Codec != stream.NV12 {
			f.Width, f.Height = 0, 0
		}
	}
	if len(h.Ext.Params) > 0 {
		p, err := wire.ParseParams(h.Ext.Params)
		if err != nil {
			return protocolError(err)
		}
		f.Params = stream.Params(p)
	} else if c.params != nil {
		f.Params = c.params
	}
	ingest.TraceContext(&f, h.Ext.Traceparent)
	if isVideo(f.Codec) {
		return s.decode(c, f)
	}
	if err := st.Submit(f); err != nil {
		c.fail(h.Seq, err) // the stream has released the lease
	}
	return nil
}

// tensors reads the payload of kind tensor. Their data are views into it.
func (s *session) tensors(payload []byte) ([]stream.Tensor, error) {
	json, _, err := wire.SplitTensors(payload)
	if err != nil {
		return nil, protocolError(err)
	}
	nothing := func(int) []byte { return nil }
	if err := oip.DecodeRequest(&s.request, payload[wire.TensorsPrefixLen:], len(json), nothing, oip.Limits{}); err != nil {
		var e *stream.Error
		switch {
		case errors.Is(err, oip.ErrMemory):
			return nil, stream.Errorf(stream.InvalidArgument, "inputs", "have data in JSON: send them raw behind it, with binary_data_size")
		case errors.As(err, &e):
			return nil, stream.Errorf(stream.InvalidArgument, e.Field, "%s", e.Msg)
		}
		return nil, err
	}
	from := s.request.Inputs
	dims := 0
	for i := range from {
		dims += len(from[i].Shape)
	}
	out, shapes := make([]stream.Tensor, len(from)), make([]int, 0, dims)
	for i := range from {
		t, n := &from[i], len(shapes)
		shapes = append(shapes, t.Shape...)
		out[i] = stream.Tensor{Name: t.Name, Datatype: stream.Datatype(t.Datatype), Shape: shapes[n:len(shapes):len(shapes)], Data: t.Data}
	}
	return out, nil
}
