package grpc

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"millrace/ingest"
	"millrace/ingest/inference"
	"millrace/internal/inferencepb"
	"millrace/internal/oip"
	"millrace/internal/setting"
	"millrace/stream"
	"millrace/stream/coded"
)

// Limits of one call of ModelStreamInfer.
const (
	// defaultWindow is the default maximum number of unanswered requests. At the limit, the server reads no further
	// request until the client has received answers.
	defaultWindow = 64
	// latestWindow is the default for a call with the policy latest. Such a call drops older requests, and
	// latestWindow limits the drops waiting for the client.
	latestWindow = 256
	// maxFeeds is how many models without state the requests of a call may name.
	maxFeeds = 16
	// maxParts is the maximum number of partial results waiting for the client. A separate maxParts applies to the
	// request whose turn it is, because this request must not wait for later requests. A worker further ahead waits,
	// at most maxPartsWait for all partial results of a request together. maxPartsWait is less than the time limit of
	// a run, so that the worker is not considered hung.
	maxParts     = 64
	maxPartsWait = 10 * time.Second
)

// turn is the place of a request in the order of a ModelStreamInfer call.
type turn struct {
	after      *call // the next request of the call
	behind     *call // the next request of the call to the same model
	seq        uint64
	results    []*stream.Result
	sent       int // number of results taken
	done       bool
	partial    bool          // the request has had partial results
	unordered  bool          // the answers wait for no earlier request, since the model is decoupled; under x.mu
	failed     error         // error of a partial result, sent to the client as the last answer
	waited     time.Duration // time the worker waited for room
	refusal    error
	sendLast   bool                 // an empty ending is sent too
	sequence   *ingest.SequenceCall // of a request of a sequence
	early      *stream.Result       // the ending, when it comes before sequence is set
	singleFeed *feed                // a feed for this request only
}

// session is one call of ModelStreamInfer. The call's handler writes the answers in the order of the requests; a
// second goroutine reads the requests.
type session struct {
	*service
	grpc.ServerStream
	ctx      context.Context
	client   *ingest.Client
	trace    stream.TraceContext
	policy   stream.Policy
	declared bool  // the metadata or the first request declare the call one stream of frames
	started  bool  // a request has come
	wrong    error // of the options in the first request
	errors   bool  // the first error ends the call
	window   *ingest.Window
	stop     chan struct{} // closed when no request is read any more
	wake     chan struct{} // one slot: the handler has work
	revoked  chan error    // one slot: why the client may not go on
	in, out  int

	submitting sync.Mutex // held while a request gets its turn; before mu

	mu          sync.Mutex
	first, last *call // the unanswered requests, in their order
	feeds       []*feed
	readErr     error // why no request is read any more; io.EOF = the client has sent all
	parts       int   // number of waiting partial results
	held        int   // number of workers waiting for room
	room        chan struct{}
	gone        bool // the handler has ended
}

// feed is the stream of a call's requests to one model, and the stream's sink. Unless the call is one stream of
// frames, each request to a stateful model has its own feed, so that the request gets no state from earlier requests.
type feed struct {
	x              *session
	model, version string
	chosen         string // by weights, unless the requests name a version
	single         bool
	further        bool // the call has a feed to another version of the model, chosen before
	stream         *stream.Stream
	first, last    *call  // unended requests; under x.mu
	seq            uint64 // of the last request
	ended          bool   // the stream was closed; under x.mu
}

var _ stream.Pacer = (*feed)(nil)

// modelStreamInfer is the handler of ModelStreamInfer.
func modelStreamInfer(srv any, ss grpc.ServerStream) (err error) {
	s := srv.(*service)
	begun := time.Now()
	x := &session{service: s, ServerStream: ss, ctx: ss.Context(), window: ingest.NewWindow(),
		stop: make(chan struct{}), wake: make(chan struct{}, 1), revoked: make(chan error, 1),
		room: make(chan struct{})}
	defer func() {
		if v := recover(); v != nil {
			err = s.panicked(inferencepb.GRPCInferenceService_ModelStreamInfer_FullMethodName, v)
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		s.called(inferencepb.GRPCInferenceService_ModelStreamInfer_FullMethodName, "", err, begun, x.in, x.out)
	}()
	x.trace, _ = x.ctx.Value(headersKey{}).(stream.TraceContext)
	if err := x.options(); err != nil {
		return statusError(err)
	}
	x.client = client(x.ctx)
	release, err := x.client.Hold()
	if err != nil {
		return statusError(err)
	}
	defer release()
	if !s.routines.Go("requests", x.readAll, func() { x.endRead(errFailed) }) {
		return statusError(ingest.ErrDraining)
	}
	defer func() { x.end(err) }()
	defer s.endsWithCredentials(x.ctx, x.revoked)()
	err = x.answerAll()
	select { // the reason for the end of x.ctx, and of a write that waited for the client
	case why := <-x.revoked:
		return statusError(why)
	default:
		return err
	}
}

// optionPrefix begins the names of metadata entries that make the call one stream of frames. inference.StreamOption
// does so for parameters.
const optionPrefix = "millrace-stream-"

// options reads the metadata of the call.
func (x *session) options() error {
	md, _ := metadata.FromIncomingContext(x.ctx)
	for name, values := range md {
		option, ok := strings.CutPrefix(name, optionPrefix)
		if !ok {
			continue
		}
		if len(values) != 1 {
			return stream.Errorf(stream.InvalidArgument, name, "is given %d times: want it once", len(values))
		}
		if err := x.option(name, strings.ReplaceAll(option, "-", "_"), values[0]); err != nil {
			return err
		}
	}
	if err := x.usePolicy(); err != nil {
		return err
	}
	switch v := md.Get("triton_grpc_error"); {
	case len(v) == 0:
	case len(v) == 1 && (v[0] == "true" || v[0] == "false"):
		x.errors = v[0] == "true"
	default:
		return stream.Errorf(stream.InvalidArgument, "triton_grpc_error", "%.32q is not known: want true or false",
			strings.Join(v, ","))
	}
	return nil
}

// option sets an option of the stream. name is the client's name for the option.
func (x *session) option(name, option, value string) error {
	if err := setting.TableOf("", &x.policy).Set(option, value); err != nil {
		return coded.RenameFunc(err, func(string) string { return name })
	}
	x.declared = true
	return nil
}

// usePolicy sets the call's policy from the options.
func (x *session) usePolicy() error {
	if err := x.policy.Validate(); err != nil {
		return err
	}
	if !x.declared {
		x.policy = stream.Policy{Mode: stream.Every, Window: defaultWindow}
	}
	x.policy = x.policy.WithDefaults(stream.Policy{})
	x.window.Resize(x.policy.Window)
	if x.policy.Mode == stream.Latest {
		x.window.Resize(latestWindow)
	}
	return nil
}

// optionsOf takes the options of the stream from the parameters of the first request.
func (x *session) optionsOf(ps oip.Params) (left oip.Params, err error) {
	byMetadata, policy := x.declared, x.policy
	x.policy = stream.Policy{}
	found := false
	for _, p := range ps {
		option, ok := strings.CutPrefix(p.Key, inference.StreamOption)
		if !ok {
			left = append(left, p)
			continue
		}
		found = true
		if err == nil && byMetadata {
			err = stream.Errorf(stream.InvalidArgument, "parameters."+p.Key,
				"the metadata %s* of the call have the options of its stream: leave it out", optionPrefix)
		} else if err == nil {
			err = x.option("parameters."+p.Key, option, fmt.Sprint(p.Value()))
		}
	}
	if !found {
		x.policy = policy
		return ps, nil
	}
	if err == nil {
		err = x.usePolicy()
	}
	return left, err
}

// readAll reads the requests until the client has sent all, the call ends or stop is closed.
func (x *session) readAll() {
	for x.window.WaitForRoom(x.stop) {
		k := newCall()
		if err := x.receive(x.ctx, x.ServerStream.RecvMsg, k, false); err != nil {
			k.free()
			x.endRead(err)
			return
		}
		x.window.Receive()
		x.submit(k)
	}
}

// endRead marks the end of reading requests.
func (x *session) endRead(err error) {
	x.mu.Lock()
	x.readErr = err
	x.mu.Unlock()
	x.signal()
}

func (x *session) signal() {
	select {
	case x.wake <- struct{}{}:
	default:
	}
}

// submit gives a request its turn and sends the frame to the stream of the model.
func (x *session) submit(k *call) {
	x.submitting.Lock()
	defer x.submitting.Unlock()
	if !x.started { // before the handler can see the request
		x.started = true
		k.Request.Params, x.wrong = x.optionsOf(k.Request.Params)
	}
	x.mu.Lock()
	if x.gone {
		x.mu.Unlock()
		k.free()
		return
	}
	x.in += k.in
	if x.last == nil {
		x.first = k
	} else {
		x.last.after = k
	}
	x.last = k
	x.mu.Unlock()
	f := stream.Frame{TraceContext: x.trace}
	err := x.wrong
	if x.closing.Load() {
		err = ingest.ErrDraining
	}
	k.Several = true
	if err == nil {
		err = k.takeSendLast()
	}
	m, err := x.frame(x.ctx, k, &f, err)
	if err == nil && m.Decoupled && !x.declared {
		x.mu.Lock()
		k.unordered = true
		x.mu.Unlock()
		x.signal() // later requests may have been answered
	}
	if err == nil && k.Sequence.ID != (ingest.SequenceID{}) {
		x.submitInSequence(k, m, f)
		return
	}
	if err == nil && !x.declared {
		err = x.client.Charge(m.Name, &f)
	}
	var fd *feed
	if err == nil {
		if fd, err = x.feedFor(m, k.Request.ModelVersion); err == nil && fd.single {
			k.singleFeed = fd
		}
	}
	if err != nil {
		x.oneShot.Refuse(x.client, k.Request.ModelName, k.Request.ModelVersion, &f, err)
		f.Lease.Release()
		x.refuse(k, err)
		return
	}
	fd.submit(k, f)
}

// submitInSequence sends the frame of a sequence request to the stream of the sequence, shared with other calls.
func (x *session) submitInSequence(k *call, m *stream.Model, f stream.Frame) {
	var err error
	switch {
	case x.declared:
		err = stream.Errorf(stream.InvalidArgument, "parameters.sequence_id",
			"the call is one stream of frames, by its options %s*, with its own state: leave sequence_id out",
			optionPrefix)
	case m.Decoupled:
		err = stream.Errorf(stream.Unsupported, "parameters.sequence_id",
			"model %s may answer a request more than once, which is not supported in sequences: leave sequence_id out",
			m.Name)
	}
	if err != nil {
		x.oneShot.Refuse(x.client, m.Name, k.Request.ModelVersion, &f, err)
		f.Lease.Release()
		x.refuse(k, err)
		return
	}
	c, _, err := x.client.Sequences().Submit(x.oneShot, x.client, m.Name, k.Request.ModelVersion, k.Sequence, f,
		func(r *stream.Result) {
			x.mu.Lock()
			defer x.mu.Unlock()
			if k.sequence == nil {
				k.early = r
				return
			}
			x.endInSequence(k, r)
		})
	if err != nil {
		x.refuse(k, err)
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if k.sequence = c; k.early != nil {
		x.endInSequence(k, k.early)
	}
}

// endInSequence ends the turn of a request of a sequence. x.mu is held.
func (x *session) endInSequence(k *call, r *stream.Result) {
	k.results, k.done = append(k.results, r), true
	if x.isDue(k) {
		x.signal()
	}
}

// isDue reports whether the answers of a request may be sent now. Answers of decoupled models are sent on arrival,
// other answers in the order of the requests. x.mu is held.
func (x *session) isDue(k *call) bool {
	if k.unordered {
		return true
	}
	for of := x.first; of != nil; of = of.after {
		if !of.unordered {
			return of == k
		}
	}
	return false
}

// takeSendLast removes the parameter that asks for an ending without outputs from the request's parameters. The
// remaining parameters are for the model.
func (k *call) takeSendLast() error {
	for i := range k.Request.Params {
		p := &k.Request.Params[i]
		if p.Key != sendLastKey {
			continue
		}
		if p.Kind != oip.Boolean {
			return stream.Errorf(stream.InvalidArgument, "parameters."+sendLastKey, "is not a bool: set bool_param")
		}
		k.sendLast = p.Bool
		k.Request.Params = slices.Delete(k.Request.Params, i, i+1)
		return nil
	}
	return nil
}

// refuse ends the turn of a request refused by its stream.
func (x *session) refuse(k *call, err error) {
	x.mu.Lock()
	k.refusal, k.done = err, true
	first := x.isDue(k)
	x.mu.Unlock()
	if first {
		x.signal()
	}
}

// feedFor returns the stream of a request to a model. x.submitting is held.
func (x *session) feedFor(m *stream.Model, version string) (*feed, error) {
	own, chosen := (m.Stateful || m.Decoupled) && !x.declared, version // answers of a stream come in order
	if version == "" && !x.declared {
		chosen = x.client.Models().Choose(m.Name)
	}
	x.mu.Lock()
	x.feeds = slices.DeleteFunc(x.feeds, func(f *feed) bool { return f.ended })
	var other, same *feed // to the model; to the version
	names, shared := 0, 0
	for _, o := range x.feeds {
		if o.single {
			continue
		}
		if !own && o.model == m.Name && o.version == version {
			if other = o; o.chosen == chosen {
				same = o
			}
		}
		shared++
		if !o.further {
			names++
		}
	}
	x.mu.Unlock()
	// A stream with an unloaded version continues with another version.
	if same != nil && (chosen == version || same.stream.Model().Version == chosen) {
		return same, nil
	}
	switch {
	case other != nil && shared >= 2*maxFeeds:
		return other, nil
	case !own && other == nil && names == maxFeeds:
		return nil, stream.Errorf(stream.InvalidArgument, "model_name",
			"the requests of one call name more than %d models: use another call", maxFeeds)
	}
	f := &feed{x: x, model: m.Name, version: version, single: own, chosen: chosen, further: other != nil}
	s, err := x.client.OpenHeld(m.Name, chosen, stream.Options{
		Policy: x.policy, OneShot: !x.declared, OwnRefusals: true, Protocol: "grpc", Trace: x.trace, Version: version,
	}, f)
	if err != nil {
		return nil, err
	}
	f.stream = s
	x.mu.Lock()
	defer x.mu.Unlock()
	x.feeds = append(x.feeds, f)
	return f, nil
}

func (f *feed) submit(k *call, frame stream.Frame) {
	x := f.x
	x.mu.Lock()
	if f.last == nil {
		f.first = k
	} else {
		f.last.behind = k
	}
	f.last = k
	f.seq++
	k.seq, frame.Seq = f.seq, f.seq
	x.mu.Unlock()
	err := f.stream.Submit(frame)
	if err == nil {
		return
	}
	f.stream.Refuse(&frame, "", err)
	x.mu.Lock()
	if f.first == k {
		f.first, f.last = nil, nil
	} else {
		before := f.first // earlier requests may have ended since
		for before.behind != k {
			before = before.behind
		}
		before.behind, f.last = nil, before
	}
	x.mu.Unlock()
	x.refuse(k, err)
}

// Push implements stream.Sink. In a stream with the policy latest, the drop of a request may come before the endings
// of older requests.
func (f *feed) Push(r *stream.Result) {
	x := f.x
	x.mu.Lock()
	var before *call
	k := f.first
	for k.seq != r.Seq {
		before, k = k, k.behind
	}
	if r.Partial {
		x.parts++
	} else {
		if before == nil {
			f.first = k.behind
		} else {
			before.behind = k.behind
		}
		if f.last == k {
			f.last = before
		}
		k.behind, k.done = nil, true
	}
	k.results = append(k.results, r)
	first := x.isDue(k)
	x.mu.Unlock()
	if first {
		x.signal()
	}
}

// Done implements stream.Sink.
func (f *feed) Done(stream.CloseReason) {
	f.x.mu.Lock()
	f.ended = true
	f.x.mu.Unlock()
}

// WaitForRoom implements stream.Pacer. After the end of the call there is always room, because the stream refuses
// further results.
func (f *feed) WaitForRoom() error {
	x := f.x
	for {
		x.mu.Lock()
		k := f.first // the request whose turn it is in the stream
		if k == nil || x.gone || x.parts < maxParts || x.isDue(k) && len(k.results)-k.sent < maxParts {
			x.mu.Unlock()
			return nil
		}
		seq, left, room := k.seq, maxPartsWait-k.waited, x.room
		if left <= 0 {
			x.mu.Unlock()
			return stream.Errorf(stream.FlowControl, "",
				"the client does not take its partial results: %d of them waited for %v", maxParts, maxPartsWait)
		}
		x.held++
		x.mu.Unlock()
		began, limit := time.Now(), time.NewTimer(left)
		select {
		case <-room:
		case <-limit.C:
		}
		limit.Stop()
		x.mu.Lock()
		if k := f.first; k != nil && k.seq == seq {
			k.waited += time.Since(began)
		}
		x.mu.Unlock()
	}
}
