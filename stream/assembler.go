package stream

// Assembly makes the assemblers of a model whose requests are not single frames:
// package stream/window has the one that cuts windows.
type Assembly interface {
	// NewAssembler returns what assembles for one stream of m. The frames of a
	// one-shot stream have nothing to do with each other.
	NewAssembler(m *Model, oneShot bool) Assembler
}

// Assembler makes requests of the frames that one stream sends, before they get to
// the mailbox, so that a dropped request leaves no gap in those behind it. The
// stream calls it with its lock held: an Assembler needs none, must not block and
// must not call the stream.
type Assembler interface {
	// Whole says whether f is a request by itself. It is not assembled then.
	Whole(f *Frame) bool
	// Assemble adds r's frame to what came before it and makes r a request, of that
	// many rows, for what it completes. params are the result's; nobody writes to
	// them. With 0 rows it completes nothing: it is answered without a run, in its
	// turn. After an error r's frame is missing, and nothing is kept. An error that
	// wraps buf.ErrBudget drops the frame for want of memory.
	Assemble(r *Request) (rows int, params Params, err error)
	// Reset forgets what came: the next frame is the first.
	Reset()
	// Adopt says whether what was assembled for the present model is right for m,
	// and goes on for m then.
	Adopt(m *Model) bool
}

// Assembled is what an Assembler has made of several frames, or of parts of them.
type Assembled struct {
	Stride int     // bytes from one row of the only input to the next: rows may overlap
	Frames []Frame // or the pictures of the only row, the oldest first; the last is the request's own
}

// release gives the frames' memory back. That of the last is the request's own.
func (a *Assembled) release() {
	if a == nil || len(a.Frames) == 0 {
		return
	}
	for _, f := range a.Frames[:len(a.Frames)-1] {
		f.Lease.Release()
	}
	a.Frames = nil
}

// newAssembler returns what a stream of m needs to assemble its requests, or nil.
func (m *Model) newAssembler(oneShot bool) Assembler {
	if m.Assembly == nil {
		return nil
	}
	return m.Assembly.NewAssembler(m, oneShot)
}

// MarkDiscontinuity tells that what comes next does not follow on what came: no
// request is assembled of frames from both sides.
func (s *Stream) MarkDiscontinuity() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.resetAssembler()
}

func (s *Stream) resetAssembler() {
	if s.assembler != nil {
		s.assembler.Reset()
	}
}

// prepare makes r a request for the model, of r.Rows rows. With none there is
// nothing to run.
func (s *Stream) prepare(r *Request) (err error) {
	if s.assembler == nil || s.assembler.Whole(&r.Frame) {
		r.Rows, r.Class, err = s.model.Check(&r.Frame)
		return err
	}
	r.Rows, r.result.Params, err = s.assembler.Assemble(r)
	return err
}

// recheck is prepare for a frame that has waited for another model. adopted says
// that what was assembled for that one is right for the present one.
func (s *Stream) recheck(r *Request, adopted bool) (err error) {
	m := s.model
	switch {
	case r.Assembled != nil && adopted && r.Rows <= m.MaxBatch:
		return nil
	case r.Assembled == nil && (s.assembler == nil || s.assembler.Whole(&r.Frame)):
		r.Rows, r.Class, err = m.Check(&r.Frame)
		return err
	}
	return Errorf(Conflict, "window", "model %s was replaced by one with another window: go on with the next frame", m.Name)
}
