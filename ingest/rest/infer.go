package rest

import (
	"fmt"
	"strings"
	"sync"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest/frames"
	"millrace/ingest/rest/request"
	"millrace/internal/oip"
	"millrace/stream"
	"millrace/stream/buf"
	"millrace/stream/coded"
)

// headerLength is the name of the header with the length of the JSON before binary
// tensors.
const headerLength = "Inference-Header-Content-Length"

// infer answers one inference request.
func (a *Adapter) infer(c *fiber.Ctx) error {
	s, err := a.begin()
	if err != nil {
		a.noModel.Refuse("", err)
		return err
	}
	defer a.end()
	k := calls.Get().(*call)
	// The handler owns the call and its memory until the reply does.
	handed := false
	defer func() {
		if !handed {
			k.free()
		}
	}()
	if err := k.run(a, s, c); err != nil {
		return err
	}
	handed = true
	k.send(c)
	return nil
}

// call is what one infer request needs besides its frame. It is reused; the frame's
// tensors are not part of it, because a worker may read them after their request has
// ended.
type call struct {
	pool *buf.Pool
	body *buf.Buf   // the request's body
	old  *buf.Buf   // the lease before it, while a body of unknown length grows
	data []*buf.Buf // one for each tensor that was sent in JSON
	err  error      // of the last lease

	req    oip.InferRequest
	opt    request.Options
	strict bool // the client can read only the form that it asked for

	res      *stream.Result
	resp     oip.InferResponse
	isBinary func(i int) bool // k.binary
	lease    func(n int) ([]byte, error)
	alloc    func(n int) []byte
	raw      bool // every output is sent as raw bytes

	head   []byte   // the reply's JSON
	parts  [][]byte // and the bytes after it
	size   int
	timing []byte
	at     int // Read's position: which part, counting head, ...
	off    int // ... and where in it
}

// maxKept is the largest JSON buffer that a call keeps for its next request.
const maxKept = 4 << 20

var calls = sync.Pool{New: func() any {
	k := new(call)
	k.isBinary, k.lease, k.alloc = k.binary, k.leaseBody, k.leaseTensor
	return k
}}

// free releases all memory and returns the call to the pool.
func (k *call) free() {
	k.releaseLeases()
	if k.res != nil {
		k.res.Release()
		k.res = nil
	}
	k.req.Reset()
	clear(k.resp.Outputs) // their shapes are the worker's
	k.resp.Outputs, k.resp.Params = k.resp.Outputs[:0], k.resp.Params[:0]
	clear(k.parts)
	k.parts, k.size, k.at, k.off = k.parts[:0], 0, 0, 0
	k.opt.Reset()
	k.raw, k.strict, k.err, k.pool = false, false, nil, nil
	if cap(k.head) > maxKept {
		k.head = nil
	}
	calls.Put(k)
}

func (k *call) releaseLeases() {
	k.body.Release()
	k.old.Release()
	k.body, k.old = nil, nil
	for i, b := range k.data {
		b.Release()
		k.data[i] = nil
	}
	k.data = k.data[:0]
}

// leaseBody leases the memory that the body is read into.
func (k *call) leaseBody(n int) ([]byte, error) {
	k.old.Release()
	k.old = k.body
	b, err := k.pool.Lease(n)
	k.body = b
	if err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// leaseTensor leases the memory for a tensor that is decoded from JSON.
func (k *call) leaseTensor(n int) []byte {
	b, err := k.pool.Lease(n)
	if err != nil {
		return nil
	}
	k.data = append(k.data, b)
	return b.Bytes()
}

// run handles the request up to the point where its reply can be written.
func (k *call) run(a *Adapter, s *service, c *fiber.Ctx) error {
	model, version, f, err := k.read(a, s, c)
	if err != nil {
		k.res = s.oneShot.Refuse(pathValue(c, "model"), pathValue(c, "version"), &f, err)
		k.traceresponse(c)
		return err
	}
	if k.res, err = s.oneShot.Infer(s.ctx, model, version, f); err != nil {
		k.traceresponse(c)
		return inRequest(err, k.req.Inputs)
	}
	if err = k.write(c); err != nil {
		k.res.CountUnsendable(err)
	}
	return err
}

// read makes a frame from the request, for the model and version that it returns.
func (k *call) read(a *Adapter, s *service, c *fiber.Ctx) (name, version string, f stream.Frame, err error) {
	var h frames.TraceHeaders
	c.Request().Header.VisitAll(h.Add)
	f.TraceContext = a.contexts.Request(&h)
	if err = k.readOptions(c); err != nil {
		return "", "", f, err
	}
	version = pathValue(c, "version")
	model, _, err := s.backend.Models().Model(pathValue(c, "model"), version)
	if err != nil {
		return "", "", f, err
	}
	if version != "" {
		version = model.Version // which, unlike the path, stays valid after the handler
	}
	k.pool = s.backend.Memory()
	context := f.TraceContext
	f, err = k.frame(a, c, model)
	f.TraceContext = context
	if err != nil {
		return "", "", f, err
	}
	f.Deadline = k.opt.Deadline
	f.Arrived = stream.InstantOf(c.Context().Time())
	return model.Name, version, f, nil
}

// inRequest returns err with the place in the request of the input that it is about:
// inputs[0].shape for what the core calls inputs.NAME.shape.
func inRequest(err error, inputs []oip.Tensor) error {
	return coded.RenameFunc(err, func(field string) string {
		for i := range inputs {
			if rest, ok := strings.CutPrefix(field, "inputs."+inputs[i].Name+"."); ok {
				return fmt.Sprintf("inputs[%d].%s", i, rest)
			}
		}
		return field
	})
}
