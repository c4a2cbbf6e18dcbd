// Package request reads the parts of a REST request other than its frame: the options
// of its query and the parameters of its body. It must not know connections or the
// backend.
package request

import (
	"strconv"
	"strings"
	"time"

	"millrace/stream"
)

// Forms in which outputs are sent.
const (
	AsRequested = ""
	AsJSON      = "json"
	AsBinary    = "binary"
	AsNone      = "none" // no outputs: for measurements, and for models with side effects
)

// Options are the query options of an infer request.
type Options struct {
	Codec         stream.Codec
	HasCodec      bool
	Width, Height int
	Region        stream.Region
	Datatype      stream.Datatype
	Shape         []int
	HasShape      bool
	Deadline      time.Duration
	Outputs       string
}

// maxDeadline is the longest deadline of a request.
const maxDeadline = time.Hour

// Set sets one option. An unknown one is refused, since a misspelt option would
// otherwise silently have no effect.
func (o *Options) Set(key, value string) (err error) {
	bad := func(want string) error {
		return stream.Errorf(stream.InvalidArgument, key, "%.64q is not %s", value, want)
	}
	switch key {
	case "codec":
		o.Codec, err = stream.ParseCodec(value)
		o.HasCodec = true
		return err
	case "width", "height":
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > 1<<16-1 {
			return bad("a number of pixels between 1 and 65535")
		}
		if key == "width" {
			o.Width = n
		} else {
			o.Height = n
		}
	case "roi":
		o.Region, err = stream.ParseRegion(value)
		return err
	case "datatype":
		o.Datatype = stream.Datatype(value)
		if !o.Datatype.Valid() {
			return bad("a datatype, such as FP32")
		}
	case "shape":
		o.Shape, o.HasShape = nil, true
		if value == "" {
			return nil // a scalar
		}
		for i, part := range strings.Split(value, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(part))
			if err != nil || n < -1 || i == 64 {
				return bad("a shape, such as 1,3,-1")
			}
			o.Shape = append(o.Shape, n)
		}
	case "deadline_ms":
		ms, err := strconv.ParseFloat(value, 64)
		o.Deadline = time.Duration(ms * float64(time.Millisecond))
		if err != nil || !(ms > 0 && ms <= float64(maxDeadline/time.Millisecond)) || o.Deadline == 0 {
			return bad("a number of milliseconds above 0 and at most 3600000")
		}
	case "outputs":
		o.Outputs = value
		if value != AsJSON && value != AsBinary && value != AsNone {
			return bad("json, binary or none")
		}
	default:
		return stream.Errorf(stream.InvalidArgument, key, "is not a query option of infer: the options are codec, width, height, roi, datatype, shape, deadline_ms and outputs")
	}
	return nil
}
