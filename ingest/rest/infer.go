package rest

import (
	"sync"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest/frames"
	"millrace/ingest/rest/request"
	"millrace/internal/oip"
	"millrace/stream"
	"millrace/stream/buf"
)

// headerLength is the name of the header with the length of the JSON in front of
// binary tensors.
const headerLength = "Inference-Header-Content-Length"

// infer answers one inference request.
func (a *Adapter) infer(c *fiber.Ctx) error {
	s, err := a.begin()
	if err != nil {
		return err
	}
	defer a.end()
	k := calls.Get().(*call)
	// Until the reply holds it, the call and its memory are this handler's.
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

// call is what one infer request needs besides its frame. It is used again and
// again; the frame's tensors are not part of it, because a worker may look at
// them after their request has ended.
type call struct {
	pool *buf.Pool
	body *buf.Buf   // the request's body
	old  *buf.Buf   // the lease before it, while a body of unknown length grows
	data []*buf.Buf // one for each tensor that came in JSON
	err  error      // of the last lease

	req    oip.InferRequest
	opt    request.Options
	strict bool // the client can read what it asked for only

	res      *stream.Result
	resp     oip.InferResponse
	isBinary func(i int) bool // k.binary
	lease    func(n int) ([]byte, error)
	alloc    func(n int) []byte
	raw      bool // every output goes as raw bytes

	head   []byte   // the reply's JSON
	parts  [][]byte // and the bytes behind it
	size   int
	timing []byte
	at     int // Read's position: which part, counting head, ...
	off    int // ... and where in it
}

// maxKept bounds the JSON buffer that a call keeps for its next request.
const maxKept = 4 << 20

var calls = sync.Pool{New: func() any {
	k := new(call)
	k.isBinary, k.lease, k.alloc = k.binary, k.leaseBody, k.leaseTensor
	return k
}}

// free gives everything back, the call itself included.
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
	k.opt, k.raw, k.strict, k.err, k.pool = request.Options{}, false, false, nil, nil
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

// leaseBody is the memory that the body is read into.
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

// leaseTensor is the memory for a tensor that is decoded from JSON.
func (k *call) leaseTensor(n int) []byte {
	b, err := k.pool.Lease(n)
	if err != nil {
		return nil
	}
	k.data = append(k.data, b)
	return b.Bytes()
}

// run does the request up to the point where its reply can be written.
func (k *call) run(a *Adapter, s *service, c *fiber.Ctx) (err error) {
	if k.opt, err = readOptions(c); err != nil {
		return err
	}
	version := pathValue(c, "version")
	model, _, err := s.backend.Models().Model(pathValue(c, "model"), version)
	if err != nil {
		return err
	}
	if version != "" {
		version = model.Version // which, unlike the path, outlives the handler
	}
	k.pool = s.backend.Memory()
	f, err := k.frame(a, c, model)
	if err != nil {
		return err
	}
	f.Deadline = k.opt.Deadline
	frames.TraceContext(&f, c.Request().Header.Peek("traceparent"))
	if k.res, err = s.oneShot.Infer(s.ctx, model.Name, version, f); err != nil {
		return err
	}
	return k.write(c)
}
