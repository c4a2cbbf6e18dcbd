package process

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"millrace/batching"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/workers"
)

// pollInterval is the interval at which a run checks its time limit and whether any client still waits.
const pollInterval = 25 * time.Millisecond

// Run sends a batch to the child and answers the batch's requests. Two goroutines may call Run at once.
func (w *Worker) Run(ctx context.Context, b *batching.Batch) error {
	s := <-w.slots
	defer func() { w.slots <- s }()
	select {
	case <-w.proc.ended:
		return w.notBegun()
	default:
	}
	defer w.history.settle(b.Requests)
	if !w.refuse(b) {
		return w.runRange(ctx, s, b, 0, len(b.Requests))
	}
	for i, r := range b.Requests {
		if r.Outcome() != stream.Pending {
			continue
		}
		extend(b, w.env.Limit) // each has the limit of a run
		switch err := w.runRange(ctx, s, b, i, i+1); {
		case err == nil:
		case errors.Is(err, workers.ErrNotStarted):
			return err
		case errors.Is(err, workers.ErrBroken):
			r.Fail(err)
			if i+1 < len(b.Requests) {
				return w.notBegun() // the next child runs the remaining requests
			}
			return err
		default:
			r.Fail(err)
		}
	}
	return nil
}

// extend gives the run of b more time.
func extend(b *batching.Batch, d time.Duration) {
	if b.Extend != nil {
		b.Extend(d)
	}
}

// refuse ends the requests of b known to end the program, and reports whether the remaining requests have to run one
// by one.
func (w *Worker) refuse(b *batching.Batch) (alone bool) {
	if w.history.known.Load() == 0 && w.history.open.Load() == 0 {
		return false
	}
	now := stream.Now()
	for _, r := range b.Requests {
		if err := w.history.refused(r, now); err != nil {
			if w.spec.ServerProgram != nil { // a program of the server has no setting refuse
				err = stream.Errorf(stream.InvalidArgument, "", "an equal request ended the process of model %s a "+
					"short time ago, and such input is refused for %v: send other input", w.env.Name, w.history.refuse)
			}
			r.Fail(err)
		}
		alone = alone || r.Outcome() != stream.Pending || w.history.trialOf(r).alone
	}
	return alone && len(b.Requests) > 1 || allEnded(b.Requests)
}

func allEnded(of []*stream.Request) bool {
	for _, r := range of {
		if r.Outcome() == stream.Pending {
			return false
		}
	}
	return true
}

// runRange runs the requests from lo to hi.
func (w *Worker) runRange(ctx context.Context, s *slot, b *batching.Batch, lo, hi int) error {
	s.lo, s.hi = lo, hi
	if err := w.send(s, b); err != nil || len(s.sent) == 0 {
		return err
	}
	return w.wait(ctx, s, b)
}

// send writes the batch to the child. Requests with undecodable pictures end here, and the remaining requests are in
// s.sent.
func (w *Worker) send(s *slot, b *batching.Batch) error {
	defer s.wasSent()
	if err := w.compose(s, b); err != nil {
		if !errors.Is(err, buf.ErrBudget) {
			return err
		}
		s.sent = s.sent[:0]
		for _, r := range b.Requests[s.lo:s.hi] {
			r.Drop(stream.Memory)
		}
		return nil
	}
	if len(s.sent) == 0 {
		return nil
	}
	p := w.proc
	p.writing.Lock()
	defer p.writing.Unlock()
	if err := checkSizes(s.text, s.data); err != nil {
		return err
	}
	w.releaseStates(w.patience()) // before a new state of a released stream
	s.began.Store(0)
	s.waited = 0
	p.mu.Lock()
	select {
	case <-p.lost: // a given-up child, or a child with a closed connection, does not begin the batch
		p.mu.Unlock()
		return nil
	default:
	}
	if s.begunReceived = false; len(p.queue) == 0 {
		s.began.Store(int64(stream.Now()))
	}
	p.queue = append(p.queue, s)
	p.health.idle = 0
	p.mu.Unlock()
	if err := p.sendLocked(s.text, s.data, -1, w.patience()); errors.Is(err, os.ErrDeadlineExceeded) {
		p.giveUp("timeout", w.tooLong("did not read a batch", w.patience()))
	}
	return nil // wait notices when the child has gone
}

// compose writes the message of a batch, after the messages required before.
func (w *Worker) compose(s *slot, b *batching.Batch) error {
	s.text, s.after, s.sent, s.cancels, s.emitted = s.text[:0], 0, s.sent[:0], s.cancels[:0], s.emitted[:0]
	if w.shared {
		if err := w.size(s, b); err != nil {
			return err
		}
	}
	s.id = w.ids.Add(1)
	s.text = append(s.text, `{"type":"batch","id":`...)
	s.text = strconv.AppendUint(s.text, s.id, 10)
	if s.out != nil {
		s.text = append(s.text, `,"results":{`...)
		s.text = append(appendPlace(s.text, dataLocation{s.out.id, 0, s.out.size()}), '}')
	}
	x := writer{w: w, s: s}
	s.batch = 0
	dense := len(b.Inputs) > 0
	if dense {
		if err := w.inputs(&x, b); err != nil {
			return err
		}
	}
	s.text = append(s.text, `,"requests":[`...)
	now := stream.Now()
	for i := s.lo; i < s.hi; i++ {
		r, before := b.Requests[i], len(s.text)
		if len(s.sent) > 0 {
			s.text = append(s.text, ',')
		}
		if err := w.request(&x, r, dense, now); err != nil {
			s.text = s.text[:before]
			if errors.Is(err, buf.ErrBudget) {
				r.Drop(stream.Memory)
			} else {
				r.Fail(err)
			}
			continue
		}
		s.sent, s.cancels, s.emitted = append(s.sent, i), append(s.cancels, false), append(s.emitted, false)
	}
	s.text = append(s.text, `]}`...)
	s.used = x.at
	return nil
}

// inputs writes the inputs of a dense batch, for the slot's requests.
func (w *Worker) inputs(x *writer, b *batching.Batch) error {
	s := x.s
	seg, err := w.segmentID(b.Segment())
	if err != nil {
		return err
	}
	s.batch = seg
	first := b.Offsets[s.lo]
	last := b.Offsets[s.hi-1] + b.Requests[s.hi-1].Rows
	s.text = append(s.text, `,"inputs":[`...)
	// with the rows of padding
	if w.spec.ServerProgram != nil && w.model.Axis == stream.FixedAxis && last-first == b.Rows {
		last = first + w.model.MaxBatch
	}
	for k := range b.Inputs {
		t := &b.Inputs[k]
		if k > 0 {
			s.text = append(s.text, ',')
		}
		row := len(t.Data) / t.Shape[0]
		data := t.Data[first*row : last*row]
		var at dataLocation
		if o := b.Offset(k); o >= 0 && seg > 0 {
			at = dataLocation{seg, o + first*row, len(data)}
		} else {
			at = x.put(data)
		}
		s.text = appendTensor(s.text, t.Name, t.Datatype, last-first, t.Shape[1:], at)
	}
	s.text = append(s.text, ']')
	return nil
}

// request writes one request, with the data if the batch is ragged.
func (w *Worker) request(x *writer, r *stream.Request, dense bool, now stream.Instant) error {
	s := x.s
	if dense {
		s.text = append(w.newState(appendRequest(s.text, r, now), r), '}')
		return nil
	}
	if !w.isPicture(r) {
		s.text = w.newState(appendRequest(s.text, r, now), r)
		if r.Codec != stream.Tensors {
			s.text = append(s.text, `,"payload":{`...)
			s.text = append(appendPlace(s.text, x.put(r.Payload)), '}', '}')
			return nil
		}
		s.text = append(s.text, `,"inputs":[`...)
		for k := range r.Inputs {
			t := &r.Inputs[k]
			if k > 0 {
				s.text = append(s.text, ',')
			}
			s.text = appendTensor(s.text, t.Name, t.Datatype, w.missingRows(r, t), t.Shape, x.put(t.Data))
		}
		s.text = append(s.text, `]}`...)
		return nil
	}
	if !r.Codec.Picture() && r.Codec != stream.Opaque {
		return stream.Errorf(stream.Unsupported, "codec",
			"model %s takes pictures, not %s: send jpeg, png, webp, rgb24 or nv12", w.env.Name, r.Codec)
	}
	width, height, ok := w.pictureSize(r)
	if !ok {
		if err := workers.DecodePicture(s.decoder, r, w.target, nil); err != nil {
			return err
		}
		return stream.Errorf(stream.InvalidArgument, "frame", "is not a picture that can be decoded")
	}
	at := x.at
	width, height = w.target.Dims(width, height)
	dst, where, err := x.allocate(w.target.Size(width, height))
	if err != nil {
		return err
	}
	if err := workers.DecodePicture(s.decoder, r, w.target, dst); err != nil {
		x.at = at
		return err
	}
	shape := [3]int{height, width, w.channels}
	if w.target.Layout == planar {
		shape = [3]int{w.channels, height, width}
	}
	s.text = w.newState(appendRequest(s.text, r, now), r)
	s.text = append(s.text, `,"inputs":[`...)
	s.text = appendTensor(s.text, w.model.Inputs[0].Name, stream.Uint8, 0, shape[:], where)
	s.text = append(s.text, `]}`...)
	return nil
}

// missingRows returns the batch axis of an input sent without the batch axis of the model; otherwise 0.
func (w *Worker) missingRows(r *stream.Request, t *stream.Tensor) int {
	if w.model.AcceptsAnyInput || w.model.Axis != stream.FreeAxis {
		return 0
	}
	for i := range w.model.Inputs {
		if spec := &w.model.Inputs[i]; spec.Name == t.Name && len(spec.Shape) == len(t.Shape) {
			return r.Rows
		}
	}
	return 0
}

// wait waits for the result of a batch and answers the batch's requests.
func (w *Worker) wait(ctx context.Context, s *slot, b *batching.Batch) error {
	p := w.proc
	s.timer.Reset(pollInterval)
	defer s.timer.Stop()
	for {
		select {
		case m := <-s.answers:
			if done, err := w.take(s, b, m); done {
				return err
			}
		case <-p.ended:
			for { // messages sent before the end
				select {
				case m := <-s.answers:
					if done, err := w.take(s, b, m); done {
						return err
					}
					continue
				default:
				}
				return w.ended(s, b)
			}
		case <-s.timer.C:
			switch began := stream.Instant(s.began.Load()); {
			case began == 0: // the time limit has not begun
				extend(b, pollInterval)
			case stream.Now().Sub(began)-s.waited > w.env.Limit+w.answerGrace() && w.env.Limit > 0:
				p.giveUp("timeout", w.tooLong("did not answer a batch", w.env.Limit))
			}
			w.cancel(s, b)
			s.timer.Reset(pollInterval)
		case <-ctx.Done(): // the group has abandoned the run
			p.giveUp("timeout", w.tooLong("did not answer a batch", w.env.Limit))
			<-p.ended
			return w.ended(s, b)
		}
	}
}

// answerGrace returns how long after limits.run the child may answer.
func (w *Worker) answerGrace() time.Duration {
	if w.spec.ServerProgram == nil {
		return 0
	}
	return w.spec.ServerProgram.Late
}

// cancel tells the child which requests have no waiting client any more.
func (w *Worker) cancel(s *slot, b *batching.Batch) {
	for k, i := range s.sent {
		if s.cancels[k] || b.Requests[i].Wanted() {
			continue
		}
		var memory [64]byte
		text := append(memory[:0], `{"type":"cancel","id":`...)
		text = strconv.AppendUint(text, s.id, 10)
		text = append(appendInt(text, "request", int64(k)), '}')
		if !w.tryPost(text) {
			return
		}
		s.cancels[k] = true
	}
}

// take handles a part or the result of a batch, and reports whether the batch is done.
func (w *Worker) take(s *slot, b *batching.Batch, m *message) (done bool, err error) {
	defer w.proc.giveBack(m)
	switch m.kind {
	case isPart:
		err = w.part(s, b, m)
	case isDecode:
		err = w.decode(s, b, m)
	default:
		w.ran(s, b, m)
		err = w.answer(s, b, m)
	}
	if err != nil {
		err = brokeProtocol(err)
		w.proc.giveUpBy(s.id, "protocol", err)
		return true, broken(err)
	}
	if m.ends != "" {
		err := fmt.Errorf("the program ends after a failure: %s", m.ends)
		w.log.Error("the program is replaced", "model", w.env.Name, "error", err)
		return true, broken(err)
	}
	return m.kind == isResult, nil
}

func (w *Worker) tooLong(what string, limit time.Duration) error {
	field := "limits.run"
	if limit != w.env.Limit {
		field = ""
	}
	return stream.Errorf(stream.Timeout, field, "the program of model %s %s within %v and is replaced", w.env.Name,
		what, limit)
}

// broken turns err into an error with ErrBroken, for which the group replaces the instance.
func broken(err error) error {
	out := &stream.Error{Code: stream.CodeOf(err), Msg: err.Error(), Err: workers.ErrBroken}
	var e *stream.Error
	if errors.As(err, &e) {
		out.Field, out.Msg = e.Field, e.Msg
	}
	return out
}

// ended returns the error of a batch whose child has ended: for the running batch, the reason of the end. The
// requests may then run again.
func (w *Worker) ended(s *slot, b *batching.Batch) error {
	p := w.proc
	p.mu.Lock()
	runs := p.suspectID == s.id || p.suspectID == 0 && len(p.queue) > 0 && p.queue[0] == s &&
		!(p.begins && s.notBegun())
	cause := p.cause
	p.mu.Unlock()
	err := broken(p.err)
	if w.spec.ServerProgram != nil && cause != "timeout" {
		err = broken(w.spec.ServerProgram.Ended(p.err))
	}
	if !runs {
		for k, i := range s.sent {
			if s.emitted[k] { // clients have seen a part
				b.Requests[i].Fail(err)
			}
		}
		if allEnded(b.Requests[s.lo:s.hi]) {
			return err
		}
		return w.notBegun()
	}
	again := 0
	for k, i := range s.sent {
		r := b.Requests[i]
		switch {
		case r.Outcome() != stream.Pending:
		case s.emitted[k]: // clients have seen a part
			r.Fail(err)
		case cause == "timeout" && w.spec.Settings.Idempotent && !w.history.trialOf(r).retried:
			w.history.noteRetry(r, func(t *trial) { t.retried = true })
			again++
		case !byInput(cause):
		case len(s.sent) > 1:
			w.history.noteRetry(r, func(t *trial) { t.alone = true })
			again++
		case cause != "killed":
			w.history.remember(r, stream.Now())
		}
	}
	if again > 0 {
		return w.notBegun()
	}
	return err
}

// reserved are the first bytes of the memory for results, without outputs: a child that reports the begin of a batch
// writes the batch's id there.
const reserved = 64

// notBegun reports whether a child that reports the begin of batches has not begun this batch: by the id in the
// memory for results, or without shared memory by a message.
func (s *slot) notBegun() bool {
	if s.out != nil && s.out.size() >= reserved && binary.LittleEndian.Uint64(s.out.bytes) == s.id {
		return false
	}
	return !s.begunReceived
}

// byInput reports whether the program's computation may be the cause of the end.
func byInput(cause string) bool {
	switch cause {
	case "exit", "signal", "oom", "killed":
		return true
	}
	return false
}

// notBegun returns the error of a batch that the child has not begun, or that runs again. notBegun waits for the end
// of a given-up child.
func (w *Worker) notBegun() error {
	<-w.proc.ended
	return fmt.Errorf("%w: %w", workers.ErrNotStarted, w.proc.err)
}

// ran records that the child has computed a batch.
func (w *Worker) ran(s *slot, b *batching.Batch, m *message) {
	now, began := stream.Now(), stream.Instant(s.began.Load())
	b.Begin(began)
	p := w.proc
	p.mu.Lock()
	why := p.health.ran(len(s.sent), now.Sub(began))
	if len(p.queue) == 0 {
		p.health.idle = now
	}
	p.mu.Unlock()
	if why != nil {
		w.replaceBy(why)
	}
	// The child may have begun before the read of the child's previous result: the spans must end before now.
	zero := began
	for i := range m.spans {
		zero = min(zero, now.Add(-time.Duration(m.spans[i].end)*time.Microsecond))
	}
	for i := range m.spans {
		w.span(s, b, &m.spans[i], zero, began)
	}
}

// span adds a span of the program to the traces of the requests. p counts from zero, and is cut to begin with the
// run.
func (w *Worker) span(s *slot, b *batching.Batch, p *span, zero, began stream.Instant) {
	at := func(us int) stream.Instant { return max(began, zero.Add(time.Duration(us)*time.Microsecond)) }
	for k, i := range s.sent {
		r := b.Requests[i]
		if p.request >= 0 && p.request != k || r.Outcome() != stream.Pending {
			continue
		}
		r.Steps = append(r.Steps, stream.Step{Name: p.name, Span: stream.NewSpanID(), From: at(p.start),
			To: at(max(p.start, p.end)), Outcome: stream.Answered})
	}
}
