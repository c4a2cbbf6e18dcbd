package v1

import (
	"millrace/ingest/decoders"
	"millrace/internal/wire"
	"millrace/stream"
)

func isVideo(c stream.Codec) bool { return c >= stream.H264 && c <= stream.AV1 }

// openDecoder returns the decoder of a stream of inter-coded video, and opens the decoder if necessary. For single
// pictures the decoder is nil. The reader calls openDecoder.
func (p *protocol) openDecoder(c *channel, codec stream.Codec) (*decoders.Decoder, error) {
	d := c.decoder.Load()
	switch {
	case !isVideo(codec):
		return nil, nil
	case d != nil && d.Codec() != codec:
		return nil, stream.Errorf(stream.Conflict, "codec", "is %s and cannot become %s: open another stream",
			d.Codec(), codec)
	case d != nil:
		return d, nil
	}
	st := c.stream.Load()
	if m := st.Model(); m.Image == nil && !m.AcceptsAnyInput {
		return nil, stream.Errorf(stream.Unsupported, "codec",
			"model %s takes tensors, not %s frames: see the inputs in the metadata of model %s", m.Name, codec, m.Name)
	}
	d, err := p.sessions.decoders.Open(codec, st, p.client.Memory(), decoders.Client{
		Account:  p.client.Core(),
		Share:    p.link.Share(),
		KeyFrame: func() { c.send(&wire.Advise{SID: c.sid, KeyFrame: true}) },
		Refused:  func(f *stream.Frame, err error) { c.clips.Refused(f.Seq); c.fail(f.Seq, err) },
		Clips:    c.clips,
	})
	if err != nil {
		return nil, err
	}
	c.decoder.Store(d)
	if st.IsFinished() { // the stream's Done came before the decoder
		d.Close()
	}
	return d, nil
}

// markLost records that a frame did not reach the stream: windows start again, and video decoding resumes at the next
// key frame.
func (c *channel) markLost() {
	c.stream.Load().MarkDiscontinuity()
	if d := c.decoder.Load(); d != nil {
		d.SkipToKeyFrame()
	}
}

// flush drops the frames not yet in a batch.
func (c *channel) flush(st *stream.Stream) {
	st.Flush()
	if d := c.decoder.Load(); d != nil {
		d.Flush()
	}
}

// close closes the stream at the client's request. The reader calls close.
func (c *channel) close(st *stream.Stream) {
	if d := c.decoder.Load(); d != nil {
		if c.reader.closing {
			return
		}
		c.reader.closing = true
		for _, f := range d.Close() {
			if err := st.SubmitEnded(f, stream.Now(), stream.Closed, nil); err != nil {
				c.fail(f.Seq, err)
			}
		}
		// A frame may be in flight from ffmpeg to the stream.
		if c.registry.Run("close", func() { <-d.Finished(); st.Close(stream.ByClient) }, nil) {
			return
		}
	}
	st.Close(stream.ByClient)
}
