package rest

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"millrace/stream"
)

// Ways of sending outputs back.
const (
	asRequested = ""
	asJSON      = "json"
	asBinary    = "binary"
	asNone      = "none" // no outputs at all: for measuring, and for models with effects
)

// options are the query options of an infer request.
type options struct {
	codec         stream.Codec
	hasCodec      bool
	width, height int
	region        stream.Region
	datatype      stream.Datatype
	shape         []int
	hasShape      bool
	deadline      time.Duration
	outputs       string
}

const maxDeadline = time.Hour

// readOptions reads the query. An option that is not known is refused: what is
// misspelt would otherwise be silently without effect.
func readOptions(c *fiber.Ctx) (o options, err error) {
	args := c.Context().QueryArgs()
	if args.Len() == 0 {
		return o, nil
	}
	args.VisitAll(func(k, v []byte) {
		if err == nil {
			err = o.set(string(k), string(v))
		}
	})
	return o, err
}

func (o *options) set(key, value string) (err error) {
	bad := func(want string) error {
		return stream.Errorf(stream.InvalidArgument, key, "%.64q is not %s", value, want)
	}
	switch key {
	case "codec":
		o.codec, err = stream.ParseCodec(value)
		o.hasCodec = true
		return err
	case "width", "height":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > 1<<16-1 {
			return bad("a number of pixels between 1 and 65535")
		}
		if key == "width" {
			o.width = n
		} else {
			o.height = n
		}
	case "roi":
		o.region, err = stream.ParseRegion(value)
		return err
	case "datatype":
		o.datatype = stream.Datatype(value)
		if !o.datatype.Valid() {
			return bad("a datatype, such as FP32")
		}
	case "shape":
		o.shape, o.hasShape = nil, true
		if value == "" {
			return nil // a scalar
		}
		for i, part := range strings.Split(value, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(part))
			if err != nil || n < -1 || i == 64 {
				return bad("a shape, such as 1,3,-1")
			}
			o.shape = append(o.shape, n)
		}
	case "deadline_ms":
		ms, err := strconv.ParseFloat(value, 64)
		o.deadline = time.Duration(ms * float64(time.Millisecond))
		if err != nil || !(ms > 0 && ms <= float64(maxDeadline/time.Millisecond)) || o.deadline == 0 {
			return bad("a number of milliseconds above 0 and at most 3600000")
		}
	case "outputs":
		o.outputs = value
		if value != asJSON && value != asBinary && value != asNone {
			return bad("json, binary or none")
		}
	default:
		return stream.Errorf(stream.InvalidArgument, key, "is no query option of infer: there are codec, width, height, roi, datatype, shape, deadline_ms and outputs")
	}
	return nil
}

// pathValue is a parameter of the route. It lies in the request's memory: copy
// what outlives the handler.
func pathValue(c *fiber.Ctx, name string) string {
	v := c.Params(name)
	if strings.IndexByte(v, '%') >= 0 {
		if plain, err := url.PathUnescape(v); err == nil {
			return plain
		}
	}
	return v
}
