package rest

import (
	"errors"
	"sync"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest/frames"
	"millrace/ingest/inference"
	"millrace/ingest/rest/request"
	"millrace/internal/accept"
	"millrace/internal/httpd"
	"millrace/internal/oip"
	"millrace/internal/processors"
	"millrace/stream"
)

// headerLength is the name of the header with the length of the JSON before binary
// tensors.
const headerLength = "Inference-Header-Content-Length"

func (a *Adapter) infer(c *fiber.Ctx) error {
	s, err := a.requests.Begin()
	if err != nil {
		a.noModel.Refuse("", err)
		return err
	}
	defer a.requests.End()
	k := calls.Get().(*call)
	// The handler owns the call and its memory until the handover to the reply.
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

// call is the state of an infer request besides its frame. Calls are reused. The frame's tensors are separate,
// because a worker may read the tensors after the end of the request.
type call struct {
	inference.Call
	opt    request.Options
	strict bool // the body is a request in JSON, with optional binary tensors

	isBinary func(i int) bool // k.binary
	room     httpd.ReceiveBuffer
	alloc    func(n int) []byte
	turns    *processors.Turns // of long texts

	head   []byte             // the JSON of the reply, or the JSON between large tensors
	pieces oip.ChunkedEncoder // the whole JSON in pieces
	piece  []byte             // memory for one piece after the other; nil = head is the whole JSON
	parts  [][]byte           // the bytes after the JSON
	size   int
	timing []byte
}

// maxKept is the size of the largest JSON buffer that a call keeps for its next request.
const maxKept = 2 * maxGathered

var calls = sync.Pool{New: func() any {
	k := new(call)
	k.isBinary, k.room, k.alloc = k.binary, k.ReceiveBody, k.LeaseTensor
	return k
}}

// free releases all memory and returns the call to the pool.
func (k *call) free() {
	k.Reset()
	clear(k.parts)
	k.parts, k.size = k.parts[:0], 0
	k.pieces.Reset()
	k.piece = nil
	k.opt.Reset()
	k.strict = false
	if cap(k.head) > maxKept {
		k.head = nil
	}
	calls.Put(k)
}

// run handles the request until the reply is ready to be written.
func (k *call) run(a *Adapter, s *service, c *fiber.Ctx) error {
	model, version, f, err := k.read(a, s, c)
	if err != nil {
		k.refuse(s, c, &f, err)
		return err
	}
	if k.Result, err = s.oneShot.InferIn(a.http.Context(c, s.ctx), client(c), k.Sequence, model, version,
		f); err != nil {
		k.traceresponse(c)
		return inference.InRequest(err, k.Request.Inputs)
	}
	if err = k.write(c); err != nil {
		k.Result.CountUnsendable(err)
	}
	return err
}

// refuse counts a request refused with err, unless the request arrived incompletely.
func (k *call) refuse(s *service, c *fiber.Ctx, f *stream.Frame, err error) {
	if errors.Is(err, httpd.ErrIncomplete) {
		return
	}
	k.Result = s.oneShot.Refuse(client(c), pathValue(c, "model"), pathValue(c, "version"), f, err)
	k.traceresponse(c)
}

// read makes a frame from the request, and returns the model's name and version.
func (k *call) read(a *Adapter, s *service, c *fiber.Ctx) (name, version string, f stream.Frame, err error) {
	return k.readWith(a, s, c, k.frame)
}

// readWith is read with a custom function for reading the body.
func (k *call) readWith(a *Adapter, s *service, c *fiber.Ctx,
	frame func(*Adapter, *fiber.Ctx, *stream.Model) (stream.Frame, error)) (name, version string, f stream.Frame,
	err error) {
	var h frames.TraceHeaders
	c.Request().Header.VisitAll(h.Add)
	f.TraceContext = a.contexts.Request(&h)
	if err = k.readOptions(a, c); err != nil {
		return "", "", f, err
	}
	version = pathValue(c, "version")
	model, _, err := inference.Find(s.models(c), pathValue(c, "model"), version)
	if err != nil {
		return "", "", f, err
	}
	if version != "" {
		version = model.Version // unlike the path, valid after the handler
	}
	k.turns = a.http.Turns()
	k.Use(s.gate.Memory(), accept.MemoryOf(c.Context().Conn()))
	context := f.TraceContext
	f, err = frame(a, c, model)
	f.TraceContext = context
	if err != nil {
		return "", "", f, err
	}
	if f.Priority == stream.DefaultPriority && httpd.IsInternal(c) {
		f.Priority = stream.Low // the request is a task, and live frames come first
	}
	f.Deadline = k.opt.Deadline
	f.Arrived = stream.InstantOf(c.Context().Time())
	return model.Name, version, f, nil
}
