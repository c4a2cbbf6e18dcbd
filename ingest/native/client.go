package native

import (
	"cmp"
	"context"
	"sync/atomic"

	"millrace/ingest"
	"millrace/ingest/access"
	"millrace/internal/role"
	"millrace/stream"
	"millrace/stream/buf"
)

// Infer sends tensors to a model and waits for the result. The caller must release the result after reading the
// outputs, and must not change the inputs until the release. Errors are coded (stream.CodeOf).
func (c *Client) Infer(ctx context.Context, model string, inputs []stream.Tensor) (*stream.Result, error) {
	return c.Do(ctx, model, "", stream.Frame{Codec: stream.Tensors, Inputs: inputs})
}

// InferBytes sends an encoded picture, or bytes for a model that takes BYTES. The data must not change until the
// result is released.
func (c *Client) InferBytes(ctx context.Context, model string, codec stream.Codec,
	data []byte) (*stream.Result, error) {
	return c.Do(ctx, model, "", stream.Frame{Codec: codec, Payload: data})
}

// Do sends any frame as a one-shot request, and takes over f.Lease. Do checks tensors against their shapes.
func (c *Client) Do(ctx context.Context, model, version string, f stream.Frame) (*stream.Result, error) {
	s, err := c.use()
	if err != nil {
		c.noModel.Refuse("", err)
		f.Lease.Release()
		return nil, err
	}
	by, err := c.begin(s, access.Need{Role: role.Infer, Model: model, Scope: access.ClientScope})
	if err != nil {
		f.Lease.Release()
		return nil, err
	}
	if f.Call != nil && !c.isOwner() {
		call := *f.Call
		call.User, f.Call = by.Name(), &call
	}
	if err := check(&f); err != nil {
		s.oneShot.Refuse(by, model, version, &f, err)
		f.Lease.Release()
		return nil, err
	}
	if c.opts.TraceContext != nil && f.TraceContext == (stream.TraceContext{}) {
		f.TraceContext = c.opts.TraceContext(ctx)
	}
	r, err := s.oneShot.Infer(ctx, by, model, version, f)
	if err != nil {
		return nil, err
	}
	return r.Detach(), nil // the caller may keep the result, and release it twice
}

func check(f *stream.Frame) error {
	for i := range f.Inputs {
		if err := f.Inputs[i].CheckSize("inputs."); err != nil {
			return err
		}
	}
	return nil
}

// Future is a result that is not ready yet.
type Future struct {
	done chan struct{}
	res  *stream.Result
	err  error
}

// Go is Infer without waiting for the result.
func (c *Client) Go(ctx context.Context, model string, inputs []stream.Tensor) *Future {
	f := &Future{done: make(chan struct{}), err: errPanic}
	call := func() {
		defer close(f.done)
		f.res, f.err = c.Infer(ctx, model, inputs)
	}
	if !c.calls.Go("call", call, nil) {
		f.err = ingest.ErrDraining
		close(f.done)
	}
	return f
}

// errPanic is the result of a call that ended in a panic.
var errPanic = stream.Errorf(stream.Internal, "", "the call ended in a panic: the log has the details")

// Done is closed when the result is ready.
func (f *Future) Done() <-chan struct{} { return f.done }

// Wait returns the result. Call Wait at most once, and release the result.
func (f *Future) Wait() (*stream.Result, error) {
	<-f.done
	return f.res, f.err
}

// Stream opens a stream. Different goroutines call on with each frame's ending, in order and never two at once. on
// must not block or call the stream; the result is released when on returns. done, which may be nil, is called last.
func (c *Client) Stream(model string, opts stream.Options, on func(*stream.Result),
	done func(stream.CloseReason)) (*Stream, error) {
	s, err := c.use()
	if err != nil {
		return nil, err
	}
	by, err := c.begin(s, access.Need{Role: role.Infer, Model: model, Scope: access.ClientScope})
	if err != nil {
		return nil, err
	}
	opts.Protocol = cmp.Or(opts.Protocol, protocol)
	k := &sink{on: on, done: done, pushed: make(chan struct{}, 1)}
	st, err := by.Open(model, "", opts, k)
	if err != nil {
		return nil, err
	}
	k.endWith(by, st)
	return &Stream{Stream: st, pushed: k.pushed, mem: s.gate.Memory(), share: by.Core().Memory()}, nil
}

// Stream is an open stream. Send, Submit, Finish and Close are safe for concurrent use. Close drops waiting frames;
// Finish waits for their results before closing. When the credentials of the client become invalid, or the client's
// rights have changed, the stream is closed (stream.ByError): waiting and later frames fail with the reason.
type Stream struct {
	*stream.Stream
	pushed <-chan struct{} // has a value when the sink got an ending not yet seen by Finish
	mem    *buf.Pool
	share  *buf.ClientShare // the share charged for copies; nil = none
}

// Send submits a copy of data as a frame with the number seq.
func (s *Stream) Send(seq uint64, codec stream.Codec, data []byte) error {
	l, err := s.mem.CopyFor(s.share, data)
	if err != nil {
		s.Refuse(&stream.Frame{Seq: seq, Codec: codec}, stream.Memory, nil)
		return err
	}
	return s.Submit(stream.Frame{Seq: seq, Codec: codec, Payload: l.Bytes(), Lease: l})
}

// Finish waits until every accepted frame has its ending, closes the stream, and returns nil when done has returned,
// whatever the reason for the closing. Call Finish after the last Send or Submit, and not in on or done. When ctx
// ends first, Finish closes the stream, drops waiting frames, and returns the error of ctx; frames in flight end
// later (Finished).
func (s *Stream) Finish(ctx context.Context) error {
	for c := s.Counts(); c.Accepted > c.Results+c.Drops+c.Errors; c = s.Counts() {
		select {
		case <-s.pushed:
		case <-s.Finished():
			return nil
		case <-ctx.Done():
			s.Close(stream.ByClient)
			return context.Cause(ctx)
		}
	}
	s.Close(stream.ByClient)
	<-s.Finished()
	return nil
}

type sink struct {
	on      func(*stream.Result)
	done    func(stream.CloseReason)
	pushed  chan struct{}          // for Stream.Finish
	removed atomic.Pointer[func()] // the result of Client.OnEnd; nil = OnEnd was not called
}

// endWith closes the stream st, whose sink is s, when the client's credentials become invalid.
func (s *sink) endWith(of *ingest.Client, st *stream.Stream) {
	removed := of.OnEnd(func(err error) { st.CloseWith(stream.ByError, err) })
	s.removed.Store(&removed)
	if st.IsFinished() { // Done may have been called before
		removed()
	}
}

// Push implements stream.Sink.
func (s *sink) Push(r *stream.Result) {
	s.on(r)
	r.Release()
	select {
	case s.pushed <- struct{}{}:
	default:
	}
}

// Done implements stream.Sink.
func (s *sink) Done(why stream.CloseReason) {
	if removed := s.removed.Load(); removed != nil {
		(*removed)()
	}
	if s.done != nil {
		s.done(why)
	}
}

// Models lists the models the client may use, loaded or only known. The list is empty before the server runs, and for
// a client without the right to call Models.
func (c *Client) Models() []ingest.Entry {
	s, err := c.use()
	if err != nil {
		return nil
	}
	by, err := c.begin(s, access.Need{Role: role.Infer, Scope: access.ClientScope})
	if err != nil {
		return nil
	}
	return by.Models().Index()
}

// manage makes and audits a call that manages a model.
func (c *Client) manage(method, model string, do func(by *ingest.Client) error) error {
	s, err := c.use()
	var by *ingest.Client
	if err == nil {
		by, err = c.begin(s, access.Need{Role: role.Manage, Model: model, Scope: access.ClientScope})
	}
	if err == nil {
		err = do(by)
	}
	c.audit(s, method, model, by, err)
	return err
}

// Model returns a loaded model's metadata, and whether the model is ready.
func (c *Client) Model(name string) (*stream.Model, bool, error) {
	s, err := c.use()
	if err != nil {
		return nil, false, err
	}
	by, err := c.begin(s, access.Need{Role: role.Infer, Model: name, Scope: access.ClientScope})
	if err != nil {
		return nil, false, err
	}
	return by.Models().Model(name, "")
}

// Load loads a model, and returns the endpoint and the effect of the load. A principal needs the role manage.
func (c *Client) Load(ctx context.Context, name string, params stream.Params) (loaded ingest.Loaded, err error) {
	err = c.manage("Load", name, func(by *ingest.Client) error {
		loaded, err = by.Models().Load(ctx, name, ingest.Load{Params: params})
		return err
	})
	return loaded, err
}

// Unload removes one worker of an endpoint; removing the last worker removes the endpoint. A principal needs the role
// manage.
func (c *Client) Unload(ctx context.Context, endpoint string) error {
	return c.manage("Unload", endpoint, func(by *ingest.Client) error {
		return by.Models().Unload(ctx, endpoint, ingest.Unload{})
	})
}
