package stream

// Refusal is a frame not accepted by any stream, and the ending sent to the client.
type Refusal struct {
	Frame   Frame
	Options *Options // of the intended stream
	Result  *Result  // Kept may be set
	At      Instant
}

// OnRefused sets a function that is called for each refused frame with known details. The function must be quick and
// must not block: a stream's lock may be held. The Refusal is valid only during the call.
func (c *FrameCounts) OnRefused(f func(*Refusal)) {
	if c != nil {
		c.refusal.Store(&f)
	}
}

// RefuseFrame counts a frame as Refuse does, and returns the frame's ending with the ids of the trace. Unknown fields
// of the frame may be zero. RefuseFrame takes over no memory, and copies the frame, so that a caller's frame need not
// be on the heap.
func (c *FrameCounts) RefuseFrame(f *Frame, o *Options, why Reason, err error) *Result {
	c.Refuse(why, err)
	x := &Refusal{Frame: *f, Options: o, At: Now(), Result: &Result{Outcome: Dropped, Reason: why, Seq: f.Seq,
		CaptureUS: f.CaptureUS}}
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

// Refuse counts a frame not submitted to s, and returns the frame's ending, as FrameCounts.RefuseFrame does.
func (s *Stream) Refuse(f *Frame, why Reason, err error) *Result {
	return s.modelCounts.Load().RefuseFrame(f, &s.opts, why, err)
}
