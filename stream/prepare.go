package stream

// MarkDiscontinuity declares a gap before the next frame: no request is assembled of frames from both sides.
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

// prepare makes r a request for the model, of r.Rows rows; 0 rows need no run.
func (s *Stream) prepare(r *Request) (err error) {
	if err = s.form(r); err == nil {
		s.estimate(r)
	}
	return err
}

// estimate sets r.Cost.
func (s *Stream) estimate(r *Request) {
	if r.Cost = 0; s.model.Cost != nil && r.Codec.Picture() && r.Call == nil && r.Rows > 0 {
		r.Cost = s.model.Cost(r)
	}
}

// form sets r.Rows, r.Class and r.Assembled.
func (s *Stream) form(r *Request) (err error) {
	if s.assembler == nil || r.Call != nil || s.assembler.IsRequest(&r.Frame) {
		r.Rows, r.Class, err = s.model.Check(&r.Frame)
		return err
	}
	r.Rows, r.Assembled, r.result.Params, err = s.assembler.Assemble(&r.Frame)
	return err
}

// recheck repeats prepare for a frame that has waited for another model. adopted is true if the present model can use
// the frames assembled for the other model.
func (s *Stream) recheck(r *Request, adopted bool) (err error) {
	m := s.model
	switch {
	case r.Assembled != nil && adopted && r.Rows <= m.MaxBatch:
		s.estimate(r)
		return nil
	case r.Assembled == nil && (s.assembler == nil || r.Call != nil || s.assembler.IsRequest(&r.Frame)):
		if r.Rows, r.Class, err = m.Check(&r.Frame); err == nil {
			s.estimate(r)
		}
		return err
	}
	return Errorf(Conflict, "", "model %s was replaced by one with another window: continue with the next frame",
		m.Name)
}
