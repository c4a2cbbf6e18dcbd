package rest

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"millrace/ingest/frames"
	"millrace/internal/httpd"
	"millrace/internal/oip"
	"millrace/stream"
)

// form is how a request's body is read.
type form uint8

const (
	asMessage form = iota // JSON, optionally followed by binary tensors
	asTensor              // the bytes of one tensor
	asFrame               // a picture, or bytes for a BYTES model
)

// frame reads the body and makes a frame that owns all its memory.
func (k *call) frame(a *Adapter, c *fiber.Ctx, m *stream.Model) (f stream.Frame, err error) {
	jsonLen, err := jsonLength(c)
	if err != nil {
		return f, err
	}
	body, err := a.http.ReadBody(c, 0, k.room)
	if err != nil {
		return f, err
	}
	if len(body) == 0 {
		return f, stream.Errorf(stream.InvalidArgument, "",
			"the body is empty: send an inference request in JSON, a tensor's bytes or a picture")
	}
	k.ResizeBody(len(body))
	what, kind, err := k.form(c, m, jsonLen, body)
	if err != nil {
		return f, err
	}
	k.strict = what == asMessage
	if what == asFrame {
		f = stream.Frame{Codec: kind, Width: k.opt.Width, Height: k.opt.Height, Region: k.opt.Region, Payload: body}
		if err := frames.Recognise(&f, m); err != nil {
			return f, err
		}
		k.Request.ID = "" // clears the id of the last message
		f.Lease = k.TakeBody()
		return f, nil
	}
	switch what {
	case asTensor:
		if err = k.oneTensor(m, body, a.opts.Limits); err != nil && jsonLen < 0 && !k.opt.HasCodec &&
			k.opt.Datatype == "" && !k.opt.HasShape {
			err = noTensor(m, body, err)
		}
	default:
		err = k.decode(body, jsonLen, a.opts.Limits)
	}
	if err != nil {
		return f, err
	}
	if k.Shares() {
		k.Share(a.opts.SharedMemory, sharing(c))
	}
	if f, err = k.Frame(m); err != nil || k.opt.Region == (stream.Region{}) {
		return f, err
	}
	if !f.Codec.Picture() {
		f.Lease.Release()
		f.Lease = nil
		return f, stream.Errorf(stream.InvalidArgument, "roi",
			"needs a picture: send one, as jpeg, png, webp, rgb24 or nv12")
	}
	f.Region = k.opt.Region
	return f, nil
}

// decode reads a message of the inference protocol.
func (k *call) decode(body []byte, jsonLen int, limits oip.Limits) error {
	n := jsonLen
	if n < 0 {
		n = len(body)
	}
	if k.turns.Begin(n) {
		defer k.turns.End()
	}
	return oip.DecodeRequest(&k.Request, body, jsonLen, k.alloc, limits)
}

// jsonLength reads headerLength, or returns -1 without the header.
func jsonLength(c *fiber.Ctx) (int, error) {
	h := c.Request().Header.Peek(headerLength)
	if len(h) == 0 {
		return -1, nil
	}
	n, err := strconv.ParseUint(string(h), 10, 31)
	if err != nil {
		return 0, stream.Errorf(stream.InvalidArgument, headerLength, "%.32q is not a length in bytes", h)
	}
	return int(n), nil
}

// form returns how to read the body. The headers and options decide, and otherwise the content. kind is the codec of
// a frame, or stream.Auto if frames.Recognise has to find the codec.
func (k *call) form(c *fiber.Ctx, m *stream.Model, jsonLen int, body []byte) (what form, kind stream.Codec, err error) {
	switch {
	case jsonLen > 0:
		return asMessage, 0, nil
	case jsonLen == 0 && m.Image != nil:
		return bytesForm(m, body)
	case jsonLen == 0:
		return asTensor, 0, nil
	case k.opt.HasCodec && k.opt.Codec == stream.Tensors:
		return asTensor, 0, nil
	case k.opt.HasCodec:
		return asFrame, k.opt.Codec, nil
	case k.opt.Datatype != "" || k.opt.HasShape:
		return asTensor, 0, nil
	}
	switch media := mediaType(c.Request().Header.ContentType()); {
	case media == fiber.MIMEApplicationJSON || strings.HasSuffix(media, "+json"):
		return asMessage, 0, nil
	case strings.HasPrefix(media, "image/"):
		kind, err = frames.Picture(body)
		return asFrame, kind, err
	case media == fiber.MIMEOctetStream:
		return bytesForm(m, body)
	case media == "", media == fiber.MIMEApplicationForm, media == fiber.MIMETextPlain:
		// Default content types of clients: curl's -d and --data-binary.
		if kind, err := frames.Picture(body); err == nil {
			return asFrame, kind, nil
		}
		return asMessage, 0, nil
	default:
		return 0, 0, httpd.WithStatus(fiber.StatusUnsupportedMediaType,
			stream.Errorf(stream.Unsupported, "Content-Type",
				"%q is not supported: send application/json, application/octet-stream, or image/jpeg, image/png or "+
					"image/webp", media))
	}
}

// bytesForm returns how to read bytes of no particular type for a model.
func bytesForm(m *stream.Model, body []byte) (form, stream.Codec, error) {
	switch {
	case m.AcceptsAnyInput, m.Image == nil && m.TakesBytes():
		return asFrame, stream.Auto, nil
	case m.Image != nil:
		if kind, err := frames.Picture(body); err == nil {
			return asFrame, kind, nil
		}
	}
	return asTensor, 0, nil
}

func mediaType(b []byte) string {
	if i := bytes.IndexByte(b, ';'); i >= 0 {
		b = b[:i]
	}
	if string(b) == fiber.MIMEApplicationJSON {
		return fiber.MIMEApplicationJSON // the common case allocates no string
	}
	return strings.ToLower(strings.TrimSpace(string(b)))
}

// oneTensor uses the body as the model's only input. The options set the properties left open by the model.
func (k *call) oneTensor(m *stream.Model, body []byte, lim oip.Limits) error {
	name, datatype, shape := "input", string(k.opt.Datatype), k.opt.Shape
	switch {
	case m.AcceptsAnyInput:
		if datatype == "" || !k.opt.HasShape {
			return stream.Errorf(stream.InvalidArgument, "datatype",
				"model %s takes any tensor: set the options datatype and shape", m.Name)
		}
	case len(m.Inputs) != 1:
		return stream.Errorf(stream.InvalidArgument, "inputs", "Raw request must only have 1 input (found 1) to be "+
			"deduced but got %d inputs in '%s' model configuration: send JSON with binary tensors", len(m.Inputs),
			m.Name)
	default:
		spec := &m.Inputs[0]
		name = spec.Name
		if datatype == "" {
			datatype = string(spec.Datatype)
		}
		if !k.opt.HasShape {
			shape = openShape(m, spec)
		}
	}
	return oip.RawRequest(&k.Request, body, name, datatype, shape, k.alloc, lim)
}

// noTensor returns the error for a body of no declared type; err says why the body is no tensor of the model. If the
// model takes pictures or the body is a picture, the error is about pictures.
func noTensor(m *stream.Model, body []byte, err error) error {
	kind, pictureErr := frames.Picture(body)
	switch {
	case m.Image != nil:
		return stream.Errorf(stream.InvalidArgument, "frame",
			"is not a JPEG, PNG or WebP picture, nor as long as a tensor of model %s", m.Name)
	case pictureErr == nil:
		_, _, err = m.Check(&stream.Frame{Codec: kind})
	}
	return err
}

// openShape returns the shape of an input. If nothing else sets the number of rows, the number follows from the
// number of bytes.
func openShape(m *stream.Model, spec *stream.TensorSpec) []int {
	if m.Axis == stream.NoAxis {
		return spec.Shape
	}
	for _, d := range spec.Shape {
		if d < 0 {
			return spec.Shape
		}
	}
	return append([]int{-1}, spec.Shape...)
}
