package batching

import "millrace/stream"

// gatherSingle forms the next batch without pending batches when a single frame waits, the usual case while workers
// are idle. The batch is the batch that Gather would form. Otherwise gatherSingle moves any token taken from a ring to
// a pending batch, and returns no batch.
func (in *Intake) gatherSingle(idle int) (*Batch, error) {
	x := in.common
	s, priority := x.popFirst()
	if s == nil {
		return nil, nil
	}
	frames, rows := s.WaitingFrames(), s.WaitingRows() // perhaps changed meanwhile by the end of a frame
	if priority != stream.High && priority != stream.Normal || frames != 1 || rows == 0 || x.queued() > 0 {
		in.add(x, s, priority)
		return nil, nil
	}
	v := View{Rows: rows, Idle: idle, Deadline: NoDeadline, Predict: in.predict}
	take, _ := in.batcher.Decide(v)
	var b *Batch
	var err error
	if take > 0 {
		b, err = in.pool.Take()
	}
	if b == nil {
		in.add(x, s, priority)
		return nil, err
	}
	predicted, probe := in.times.Predict(in.now, take)
	if probe {
		predicted = 0
	}
	b.Gathered, b.Cause, in.heavy.batch = in.now, in.cause(v, take), b
	r, kept, separate := s.TakeFiltered(in.now, in.model.MaxBatch, nil, predicted, in.heavy.isSeparate)
	switch {
	case kept:
		in.add(x, s, priority)
	case separate:
		in.heavy.add(s, x, s.TokenPriority())
	}
	if r == nil || kept {
		in.pool.Put(b)
		return nil, nil
	}
	in.heavy.note(r.Account, in.now)
	b.bind(r)
	in.urgent = in.now
	return b, nil
}

// popFirst takes the next token from the rings, or returns nil.
func (x *Inbox) popFirst() (*stream.Stream, stream.Priority) {
	for _, priority := range x.order() {
		if s, ok := x.pop(priority); ok {
			return s, priority
		}
	}
	return nil, 0
}

// collects reports whether a token or a partial batch is in a pending batch.
func (x *Inbox) collects() bool {
	for _, p := range x.pending {
		if p.batch != nil || !p.empty() {
			return true
		}
	}
	return false
}
