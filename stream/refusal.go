package stream

// Refusal is a frame that no stream has accepted, and the ending that its client is told.
type Refusal struct {
	Frame   Frame
	Options *Options // of the stream that it was for
	Result  *Result  // Kept may be set
	At      Instant
}

// OnRefused sets a function that is called for each refused frame of which details are
// known. It must be quick and must not block: a stream's lock may be held. It is given
// data that is valid during the call only.
func (c *FrameCounts) OnRefused(f func(*Refusal)) {
	if c != nil {
		c.refusal.Store(&f)
	}
}

// RefuseFrame counts a frame as Refuse does, and returns its ending, with the ids of its
// trace. What is not known of the frame may be left out. It takes over no memory. It
// copies the frame, so that a caller's frame need not be on the heap.
func (c *FrameCounts) RefuseFrame(f *Frame, o *Options, why Reason, err error) *Result {
	c.Refuse(why, err)
	x := &Refusal{Frame: *f, Options: o, At: Now(), Result: &Result{Outcome: Dropped, Reason: why, Seq: f.Seq, CaptureUS: f.CaptureUS}}
	if err != nil {
		x.Result.Outcome, x.Result.Reason, x.Result.Err = Failed, "", err
	}
	x.Result.Span = x.Frame.TraceContext.allot(&o.Trace)
	x.Result.Trace = x.Frame.Trace
	if c != nil {
		if hook := c.refusal.Load(); hook != nil {
			(*hook)(x)
		}
	}
	return x.Result
}

// Refuse counts a frame that was not submitted to s, and returns its ending, as
// FrameCounts.RefuseFrame does.
func (s *Stream) Refuse(f *Frame, why Reason, err error) *Result {
	return s.modelCounts.Load().RefuseFrame(f, &s.opts, why, err)
}
