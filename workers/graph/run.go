package graph

import (
	"errors"
	"slices"
	"strings"
	"sync"

	"millrace/stream"
	"millrace/stream/buf"
	"millrace/stream/coded"
)

// run is one request on the way through the steps. Goroutines that end steps call run concurrently.
type run struct {
	w     *worker
	r     *stream.Request
	flow  *flow
	state *streamState // or nil
	begun stream.Instant

	mu        sync.Mutex
	values    []value
	waits     []int8 // by step: number of steps still to wait for
	steps     []stream.Step
	crops     []*cropRun // by step, of begun crops; nil in a graph without crops
	stepsLeft int        // number of steps not yet ended
	active    []*exchange
	busy      int   // crops being cut out
	failed    bool  // err, or a drop for reason, is the ending
	err       error // nil = a drop, or the request has ended already
	reason    stream.Reason
	over      bool // finish was called

	// Of a run with a decoupled step: the answers. The later steps run for each answer.
	parent   *run // of the run for one answer
	child    *run // for one answer, in progress
	partials []partial
	taken    chan struct{} // closed when an answer was taken from partials; nil: nobody waits
	split    bool          // the decoupled step has ended; its answers were the graph's

	// Of a request with a Call: the reply, and the body of the reply that ended the run.
	reply     *stream.Reply
	early     bool
	body      []stream.Tensor
	bodyLease *buf.Buf

	width, height int           // of the frame as sent; 0 = not known yet
	picture       *stream.Frame // the request's, decoded by the cutter; or nil

	// Storage for small graphs.
	values0 [6]value
	steps0  [4]stream.Step
	waits0  [4]int8
	active0 [4]*exchange
}

// value is a tensor during a run.
type value struct {
	tensor stream.Tensor
	lease  *buf.Buf // the memory of tensor, with a reference held by the run; or nil
	state  valueState
}

type valueState uint8

const (
	unknown valueState = iota
	present
	payload // the request's payload in place of tensors
	absent  // the step of the tensor did not run
)

// start starts the run of r. r has a place.
func (w *worker) start(r *stream.Request, f *flow) {
	p := w.plan
	n := &run{w: w, r: r, flow: f, begun: stream.Now(), stepsLeft: len(p.steps)}
	n.values = sized(n.values0[:], len(p.tensors))
	n.waits, n.steps, n.active = sized(n.waits0[:], len(p.steps)), sized(n.steps0[:], len(p.steps)), n.active0[:0]
	if p.crops {
		n.crops = make([]*cropRun, len(p.steps))
	}
	for i, s := range p.steps {
		n.waits[i] = int8(s.waits)
		n.steps[i].Name = s.set.title()
	}
	w.mu.Lock()
	w.active[n] = struct{}{}
	w.mu.Unlock()
	n.busy = 1 // for this call, so that the run does not finish before the first steps have begun
	defer n.endWait()
	defer n.recover()
	n.state = stateOf(r, p)
	if !r.OnEnd(func() { w.cancelLater(n) }) {
		n.fail("", nil)
	} else if err := n.setInputs(); err != nil {
		n.fail("", err)
	} else {
		n.width, n.height = r.SourceWidth, r.SourceHeight
		if n.width == 0 {
			n.width, n.height = r.Width, r.Height
		}
		for _, s := range p.first {
			n.launch(s, n.begun)
		}
	}
}

// sized returns a slice of n elements, from the storage if large enough.
func sized[T any](storage []T, n int) []T {
	if n <= len(storage) {
		return storage[:n]
	}
	return make([]T, n)
}

// recover turns a panic of the package into the end of one run.
func (n *run) recover() {
	if p := recover(); p != nil {
		n.w.env.Log.Error("a graph panicked", "model", n.w.env.Name, "panic", p)
		n.fail("", stream.Errorf(stream.Internal, "", "graph %s panicked on this frame: %v", n.w.env.Name, p))
	}
}

// setInputs sets the tensors of the request.
func (n *run) setInputs() error {
	p, r := n.w.plan, n.r
	if r.Codec != stream.Tensors {
		if len(p.inputs) > 1 {
			return stream.Errorf(stream.InvalidArgument, "codec",
				"a frame of %s fills one input, but graph %s has %s: send tensors", r.Codec, n.w.env.Name,
				p.names(p.inputs))
		}
		n.values[p.inputs[0]] = value{lease: retain(r.Lease), state: payload}
		return nil
	}
	given := 0
	for _, k := range p.inputs {
		name := p.tensors[k].name
		i := slices.IndexFunc(r.Inputs, func(t stream.Tensor) bool { return t.Name == name })
		if i < 0 && p.optional(k) {
			continue
		}
		if i < 0 {
			return stream.Errorf(stream.InvalidArgument, "inputs", "%q is missing: graph %s has %s", name,
				n.w.env.Name, p.names(p.inputs))
		}
		n.values[k] = value{r.Inputs[i], retain(r.Lease), present}
		given++
	}
	if len(r.Inputs) > given {
		return stream.Errorf(stream.InvalidArgument, "inputs", "%d tensors, graph %s has %s", len(r.Inputs),
			n.w.env.Name, p.names(p.inputs))
	}
	return nil
}

// optional reports whether a request may leave out an input.
func (p *plan) optional(tensor int) bool {
	spec := p.tensors[tensor].spec
	return spec != nil && spec.Optional
}

func (p *plan) names(tensors []int) string {
	var names []string
	for _, k := range tensors {
		names = append(names, p.tensors[k].name)
	}
	return strings.Join(names, ", ")
}

func retain(b *buf.Buf) *buf.Buf {
	if b != nil {
		b.Retain()
	}
	return b
}

// launch begins a step, whose inputs are present since now. mu is not held.
func (n *run) launch(s *step, now stream.Instant) {
	defer n.recover()
	n.mu.Lock()
	if n.failed {
		n.mu.Unlock()
		return
	}
	n.steps[s.index].From, n.steps[s.index].Span = now, stream.NewSpanID()
	runs, err := n.wanted(s)
	n.mu.Unlock()
	switch {
	case err != nil:
		n.fail(s.at, err)
	case !runs:
		n.stepDone(s, nil)
	case s.boxes >= 0:
		n.crop(s)
	case s.pixels && n.r.Codec != stream.Tensors && n.r.Call == nil:
		n.mu.Lock()
		n.busy++
		n.mu.Unlock()
		n.w.cutter.add(cutting{n, s, nil})
	default:
		n.send(s, nil, now)
	}
}

// send sends a step's frame, complete since now, to the step's model. pixels, if any, are the inputs made of the
// picture, by position; send takes ownership of their memory.
func (n *run) send(s *step, pixels []value, now stream.Instant) {
	f, err := n.frame(s, pixels)
	for i := range pixels {
		pixels[i].lease.Release()
	}
	if err == nil {
		err = n.submit(s, 0, f, now)
	}
	if err != nil {
		n.fail(s.at, err)
	}
}

// wanted reports whether a step has to run. mu is held.
func (n *run) wanted(s *step) (bool, error) {
	for _, k := range s.needs {
		if n.values[k].state == absent {
			return false, nil
		}
	}
	if s.when < 0 {
		return true, nil
	}
	t := &n.values[s.when].tensor
	holds, err := s.set.When.holds(t, dimsOf(t, n.w.plan.tensors[s.when].spec))
	if err != nil {
		return false, s.errorf(stream.InvalidArgument, "when", "%w", err)
	}
	return holds, nil
}

// dimsOf returns the dimensions of a tensor without the batch axis.
func dimsOf(t *stream.Tensor, spec *stream.TensorSpec) []int {
	if spec != nil && len(t.Shape) == len(spec.Shape)+1 || spec == nil && len(t.Shape) > 1 && t.Shape[0] == 1 {
		return t.Shape[1:]
	}
	return t.Shape
}

// frame makes the frame for a step's model.
func (n *run) frame(s *step, pixels []value) (f stream.Frame, err error) {
	f = n.header(s)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.r.Call != nil {
		return n.callFrame(s, f)
	}
	if first := &n.values[s.in[0].tensor]; first.state == payload && pixels == nil {
		if len(s.in) > 1 {
			return f, s.errorf(stream.InvalidArgument, "input."+s.in[1].name,
				"is a second input beside a frame of %s: send tensors", n.r.Codec)
		}
		n.setPayload(&f)
		f.Lease = retain(first.lease)
		return f, nil
	}
	f.Codec, f.Inputs = stream.Tensors, make([]stream.Tensor, 0, len(s.in))
	if pixels != nil { // boxes in such a picture are mapped to the picture as sent
		f.Width, f.Height = n.pictureSize()
	}
	var leases []*buf.Buf
	for i, in := range s.in {
		v := &n.values[in.tensor]
		if in.pixels && pixels != nil {
			v = &pixels[i]
		} else if in.pixels && v.state == present && v.tensor.Datatype != stream.Uint8 {
			return f, s.errorf(stream.InvalidArgument, "input."+in.name,
				"needs the picture, but the request has tensors: send the picture as JPEG, PNG, WebP, RGB24 or NV12")
		}
		if v.state == unknown { // omitted by the request
			continue
		}
		if v.state == payload {
			return f, s.errorf(stream.InvalidArgument, "input."+in.name,
				"is a frame of %s beside tensors: send tensors", n.r.Codec)
		}
		t := v.tensor
		t.Name = in.name
		if shape := v.tensor.Shape; in.noAxis && in.spec != nil && len(shape) == len(in.spec.Shape)+1 && shape[0] == 1 {
			t.Shape = shape[1:]
		}
		f.Inputs = append(f.Inputs, t)
		if v.lease != nil && !slices.Contains(leases, v.lease) {
			leases = append(leases, v.lease)
		}
	}
	for _, l := range leases {
		l.Retain()
	}
	f.Lease = buf.Join(leases...)
	return f, nil
}

// pictureSize returns the size of the run's decoded picture; of the source if the picture was scaled.
func (n *run) pictureSize() (width, height int) {
	f := n.picture
	if f == nil {
		f = &n.r.Frame
	}
	if f.SourceWidth > 0 {
		return f.SourceWidth, f.SourceHeight
	}
	return f.Width, f.Height
}

// header makes the common part of all frames of the request.
func (n *run) header(s *step) stream.Frame {
	r := n.r
	f := stream.Frame{Seq: r.Seq, CaptureUS: r.CaptureUS, Captured: r.Captured, Must: r.Must, Params: r.Params,
		Priority: r.Priority, Account: r.Account}
	// otherwise the model's own
	if p := r.Stream.Policy().Priority; f.Priority == stream.DefaultPriority && p != stream.Normal {
		f.Priority = p
	}
	f.TraceContext = r.TraceContext
	f.Parent = n.steps[s.index].Span
	return f
}

// setPayload makes f the frame of the request.
func (n *run) setPayload(f *stream.Frame) {
	r := &n.r.Frame
	f.Codec, f.Payload, f.Region, f.Discontinuity = r.Codec, r.Payload, r.Region, r.Discontinuity
	f.Width, f.Height, f.SourceWidth, f.SourceHeight = r.Width, r.Height, r.SourceWidth, r.SourceHeight
}

// submit sends a frame, complete since now, to the model of a step, and takes ownership of f.Lease.
func (n *run) submit(s *step, box int, f stream.Frame, now stream.Instant) error {
	if n.r.Deadline != 0 {
		f.Deadline = n.r.Deadline.Sub(now)
		if f.Deadline <= 0 {
			f.Lease.Release()
			n.drop(s, stream.Stale)
			return nil
		}
	}
	retain(f.Lease) // so that an exchange with an ended stream can be replaced
	for {
		x, used, err := n.exchange(s)
		if err != nil {
			f.Lease.Release()
			f.Lease.Release()
			return err
		}
		x.run, x.step, x.box, x.over = n, s, box, false
		if n.r.Call != nil {
			x.call.Store(n.r)
		} else if s.decoupled {
			x.target.Store(&target{n, s})
		}
		n.mu.Lock()
		if n.failed {
			n.mu.Unlock()
			f.Lease.Release()
			f.Lease.Release()
			n.giveBack(x, false)
			return nil
		}
		n.active = append(n.active, x)
		n.mu.Unlock()
		err = x.stream.SubmitBy(f, n.r.By, now)
		if err == nil {
			f.Lease.Release()
			return nil
		}
		n.remove(x)
		if x.singleStream {
			n.state.exchanges[s.index] = nil
		}
		if used && stream.CodeOf(err) != stream.FlowControl { // the exchange's stream is from before an unload
			retain(f.Lease)
			continue
		}
		x.stream.Refuse(&f, "", err)
		x.stream.Close(stream.ByClient)
		f.Lease.Release()
		return err
	}
}

// exchange returns an exchange with the model of a step, and whether the exchange was used before.
func (n *run) exchange(s *step) (x *exchange, used bool, err error) {
	if s.keeps && n.state != nil && s.boxes < 0 {
		if x = n.state.exchanges[s.index]; x != nil && !x.ended.Load() {
			return x, true, nil
		}
		if x, err = open(n.w.env.Models, s, n.w.version(s), n.r.Stream); err == nil {
			n.state.exchanges[s.index] = x
		}
		return x, false, err
	}
	version := n.w.version(s)
	if x = n.w.pools[s.index].take(version); x != nil {
		return x, true, nil
	}
	x, err = open(n.w.env.Models, s, version, nil)
	return x, false, err
}

// version returns the version of a step's model for the next frame.
func (w *worker) version(s *step) string {
	if s.set.Version != "" {
		return s.set.Version
	}
	return w.env.Models.Choose(s.set.Model)
}

// giveBack makes an exchange available again.
func (n *run) giveBack(x *exchange, stateful bool) {
	if !x.singleStream {
		n.w.pools[x.step.index].put(x, stateful)
	}
}

// remove takes an exchange out of the active exchanges.
func (n *run) remove(x *exchange) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i := slices.Index(n.active, x); i >= 0 {
		n.active = slices.Delete(n.active, i, i+1)
	}
}

// answered goes on after a frame of a step has ended.
func (n *run) answered(x *exchange, res *stream.Result) {
	s, box := x.step, x.box
	n.mu.Lock()
	if i := slices.Index(n.active, x); i >= 0 {
		n.active = slices.Delete(n.active, i, i+1)
	}
	if n.width == 0 && res.Width > 0 {
		n.width, n.height = res.Width, res.Height
	}
	failed, over := n.failed, x.over
	n.busy++
	n.mu.Unlock()
	defer n.endWait()
	defer n.recover()
	parts := x.parts.Swap(false)
	if !over { // otherwise the exchange's stream is being closed
		n.giveBack(x, res.Model != nil && res.Model.Stateful)
	}
	switch {
	case failed:
		res.Release()
	case res.Outcome == stream.Failed:
		err := res.Err
		if res.Reply != nil { // has the status for the error
			n.mu.Lock()
			n.reply = res.Reply
			n.mu.Unlock()
		}
		res.Release()
		n.fail(s.at, err)
	case res.Outcome == stream.Dropped:
		why := res.Reason
		res.Release()
		n.drop(s, why)
	case parts:
		res.Release()
		n.fail(s.at, stream.Errorf(stream.Unsupported, "",
			"model %s answers in several parts, but does not say so (decoupled) when it is loaded", s.set.Model))
	case s.decoupled && n.r.Call == nil:
		n.partsEnded(s, res)
	case s.boxes >= 0:
		res.Remember()
		n.cropped(s, box, res)
	default:
		if n.r.Call != nil && n.replied(s, res) {
			return
		}
		res.Remember()
		n.stepDone(s, res)
	}
}

// stepDone takes a step's outputs from the result, and begins the steps that waited for the step. Without a result
// the step did not run, and the outputs are absent.
func (n *run) stepDone(s *step, res *stream.Result) {
	var outputs []stream.Tensor
	var lease *buf.Buf
	none := res == nil
	if res != nil {
		outputs, lease, res.Lease = res.Outputs, res.Lease, nil
		none = len(outputs) == 0 && len(s.out) > 0 // the frame completed no window
	}
	outcome := stream.Answered
	if res == nil {
		outcome = stream.Pending
	}
	if none {
		lease.Release()
		outputs, lease = nil, nil
	}
	n.made(s, outputs, lease, outcome, res)
}

// made takes ownership of the outputs of a step, in res unless res is nil, and begins the steps that waited for the
// step. Without outputs the step's tensors are absent.
func (n *run) made(s *step, outputs []stream.Tensor, lease *buf.Buf, outcome stream.Outcome, res *stream.Result) {
	now := stream.Instant(0)
	if res != nil {
		now = res.Timing.Done
	}
	if now == 0 {
		now = stream.Now()
	}
	values := make([]value, 0, 4)
	for _, out := range s.out {
		if len(outputs) == 0 {
			values = append(values, value{state: absent})
			continue
		}
		i := slices.IndexFunc(outputs, func(t stream.Tensor) bool { return t.Name == out.name })
		if i < 0 {
			lease.Release()
			for _, v := range values {
				v.lease.Release()
			}
			n.fail(s.at, s.errorf(stream.Internal, "output."+out.name,
				"is not in the answer of model %s, which has %s", s.set.Model, tensorNames(outputs)))
			res.Recycle()
			return
		}
		t := outputs[i]
		t.Name = n.w.plan.tensors[out.tensor].name
		values = append(values, value{t, retain(lease), present})
	}
	lease.Release()
	res.Recycle()
	n.complete(s, outcome, values, now)
}

// complete sets the outputs that a step made at now, takes ownership of the outputs' leases, and begins the steps that
// waited for the step.
func (n *run) complete(s *step, outcome stream.Outcome, values []value, now stream.Instant) {
	n.mu.Lock()
	st := &n.steps[s.index]
	if !n.failed {
		st.To, st.Outcome = now, outcome
	}
	for i, out := range s.out {
		n.values[out.tensor] = values[i]
	}
	n.stepsLeft--
	failed := n.failed
	var ready [maxSteps]*step
	next := ready[:0]
	if !failed {
		for _, k := range s.next {
			if n.waits[k.index]--; n.waits[k.index] == 0 {
				next = append(next, k)
			}
		}
	}
	n.mu.Unlock()
	if !failed {
		n.w.env.Step(st)
	}
	for _, k := range next {
		n.launch(k, now)
	}
}

func tensorNames(ts []stream.Tensor) string {
	var names []string
	for _, t := range ts {
		names = append(names, t.Name)
	}
	return strings.Join(names, ", ")
}

// endWait ends a wait of the run, and finishes the run if nothing else is in progress.
func (n *run) endWait() {
	n.mu.Lock()
	n.busy--
	n.mu.Unlock()
	n.finishIfDone()
}

// fail ends the run with err, or only gives up what is active if err is nil: then the
// request has ended. field names the step at fault, or is empty.
func (n *run) fail(field string, err error) {
	if field != "" {
		err = prefixStep(field, err)
	}
	n.end(field, err, "")
}

// prefixStep puts the step in front of an error.
func prefixStep(field string, err error) error {
	var e *stream.Error
	if !errors.As(err, &e) {
		return stream.Errorf(stream.CodeOf(err), field, "%w", err)
	}
	if e.Field == field || strings.HasPrefix(e.Field, field+".") {
		return err
	}
	return coded.PrefixField(field, err)
}

// drop ends the run for the reason of a step's dropped frame.
func (n *run) drop(s *step, why stream.Reason) { n.end(s.at, nil, why) }

// end gives up all active frames and lets the run finish with err or as dropped.
func (n *run) end(field string, err error, why stream.Reason) { n.endWith(field, err, why, false) }

// endWith is end; early means that the run ends with the reply of the step.
func (n *run) endWith(field string, err error, why stream.Reason, early bool) {
	n.mu.Lock()
	if n.failed || n.over {
		n.mu.Unlock()
		return
	}
	n.failed, n.err, n.reason, n.early = true, err, why, early
	now := stream.Now()
	var ended []*stream.Step
	for i := range n.steps {
		st := &n.steps[i]
		if st.From == 0 || st.To != 0 {
			continue
		}
		st.To = now
		if stepField(st.Name) == field {
			st.Err, st.Reason = err, why
			switch st.Outcome = stream.Failed; {
			case early:
				st.Outcome = stream.Answered
			case err == nil:
				st.Outcome = stream.Dropped
			}
			ended = append(ended, st)
		}
	}
	child := n.child
	n.wakeRoom()
	n.mu.Unlock()
	for _, st := range ended {
		n.w.env.Step(st)
	}
	if child != nil {
		child.end("", nil, "")
	}
	n.abandon(func(x *exchange) bool { return !x.singleStream })
	n.finishIfDone()
}

// abandon gives up the active frames selected by which. Giving up a frame of a stream's own exchange would lose the
// model's state of the stream.
func (n *run) abandon(which func(*exchange) bool) {
	n.mu.Lock()
	var list []*exchange
	for _, x := range n.active {
		if which(x) && !x.over {
			x.over = true
			list = append(list, x)
		}
	}
	child := n.child
	n.mu.Unlock()
	if child != nil {
		child.abandon(which)
	}
	for _, x := range list {
		x.stream.Abandon(errGivenUp)
	}
}

var errGivenUp = stream.Errorf(stream.Canceled, "", "the graph's frame has ended before its step")

// cancel ends a run after the end of the run's request.
func (n *run) cancel() {
	defer n.recover()
	n.end("", nil, "")
	n.abandon(func(*exchange) bool { return true })
	n.finishIfDone()
}

// expire ends the run if the run or a step has passed its limit.
func (n *run) expire(now stream.Instant) {
	defer n.recover()
	if limit := n.w.env.Limit; now.Sub(n.begun) > limit {
		n.end("", stream.Errorf(stream.Timeout, "limits.run", "graph %s did not answer within %v", n.w.env.Name,
			limit), "")
		n.abandon(func(*exchange) bool { return true })
		n.finishIfDone()
		return
	}
	n.mu.Lock()
	var late *step
	for _, x := range n.active {
		if t := x.step.set.Timeout; t > 0 && now.Sub(n.steps[x.step.index].From) > t {
			late = x.step
			break
		}
	}
	child := n.child
	n.mu.Unlock()
	if child != nil {
		child.expire(now)
	}
	if late != nil {
		n.fail(late.at, late.errorf(stream.Timeout, "timeout", "model %s did not answer within %v", late.set.Model,
			late.set.Timeout))
		n.abandon(func(x *exchange) bool { return x.step == late })
		n.finishIfDone()
	}
}

// finishIfDone ends the request when nothing is active: with the outputs when all steps have ended, otherwise with
// the failure.
func (n *run) finishIfDone() {
	n.mu.Lock()
	if n.over || n.busy > 0 || len(n.active) > 0 || n.child != nil ||
		(n.stepsLeft > 0 || len(n.partials) > 0) && !n.failed {
		n.mu.Unlock()
		return
	}
	n.over = true
	n.mu.Unlock() // from here on, no other goroutine uses the run
	if n.parent != nil {
		n.endPart()
	} else {
		n.endRequest()
	}
	for i := range n.values {
		n.values[i].lease.Release()
	}
	for _, p := range n.partials {
		p.lease.Release()
	}
	for _, cr := range n.crops {
		if cr != nil {
			cr.release()
		}
	}
	if n.picture != nil {
		n.picture.Lease.Release()
	}
	n.bodyLease.Release()
	if n.parent != nil {
		n.parent.childEnded()
	} else {
		n.w.finished(n)
	}
}

// endRequest ends the request as the run has ended.
func (n *run) endRequest() {
	r := n.r
	r.Steps = n.steps
	switch {
	case n.early:
		n.finishEarly()
	case n.failed && n.err != nil:
		if r.Call != nil {
			r.SetReply(n.reply)
		}
		r.Fail(n.err)
	case n.failed && n.reason != "":
		r.Drop(n.reason)
	case n.failed: // the stream has ended the request
	case n.split:
		r.FinishParams(nil, nil, nil)
	default:
		n.answer()
	}
	n.w.env.Done(r)
	if r.Call != nil || n.w.plan.decoupled { // parts of a step's result may come later, for the client of r
		r.Unbind()
		return
	}
	r.Recycle()
}
