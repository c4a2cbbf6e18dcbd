// Package request reads the options and body parameters of a REST request, but not its frame. The package must not
// know connections or the backend.
package request

import (
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"millrace/stream"
)

// Forms of the outputs in a reply.
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
	Data          string // the output whose data are the whole reply; "" = none
}

// datatypes are the datatypes allowed in an option.
var datatypes = []stream.Datatype{
	stream.Bool, stream.Uint8, stream.Uint16, stream.Uint32, stream.Uint64, stream.Int8, stream.Int16, stream.Int32,
	stream.Int64,
	stream.Float16, stream.BFloat, stream.Float32, stream.Float64, stream.Bytes,
}

// maxDeadline is the longest deadline of a request.
const maxDeadline = time.Hour

// Reset clears all options, and keeps the memory of the shape for reuse.
func (o *Options) Reset() { *o = Options{Shape: o.Shape[:0]} }

// Names are the options.
var Names = []string{"codec", "width", "height", "roi", "datatype", "shape", "deadline_ms", "outputs", "data"}

// InferOnly returns the name of a set option that only infer supports, or "".
func (o *Options) InferOnly() string {
	switch {
	case o.HasCodec:
		return "codec"
	case o.Width != 0:
		return "width"
	case o.Height != 0:
		return "height"
	case o.Region != stream.Region{}:
		return "roi"
	case o.Datatype != "":
		return "datatype"
	case o.HasShape:
		return "shape"
	case o.Outputs == AsJSON || o.Outputs == AsBinary:
		return "outputs"
	case o.Data != "":
		return "data"
	}
	return ""
}

// Set sets one option. An unknown option is an error. Set keeps neither key nor value: both may be views into memory
// that changes later.
func (o *Options) Set(key, value string) (err error) {
	bad := func(want string) error {
		return stream.Errorf(stream.InvalidArgument, strings.Clone(key), "%.64q is not %s", value, want)
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
		at := slices.Index(datatypes, stream.Datatype(value))
		if at < 0 {
			return bad("a datatype, such as FP32")
		}
		o.Datatype = datatypes[at]
	case "shape":
		o.Shape, o.HasShape = o.Shape[:0], true
		rest := value
		for more := value != ""; more; { // "" is a scalar
			var part string
			part, rest, more = strings.Cut(rest, ",")
			n, err := strconv.Atoi(strings.TrimSpace(part))
			if err != nil || n < -1 || len(o.Shape) == 64 {
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
		switch value {
		case AsJSON:
			o.Outputs = AsJSON
		case AsBinary:
			o.Outputs = AsBinary
		case AsNone:
			o.Outputs = AsNone
		default:
			return bad("json, binary or none")
		}
	case "data":
		if value == "" || len(value) > 256 || strings.ContainsFunc(value, unicode.IsControl) {
			return bad("the name of an output")
		}
		o.Data = strings.Clone(value)
	default:
		return stream.Errorf(stream.InvalidArgument, strings.Clone(key), "is not a query option of infer: the "+
			"options are codec, width, height, roi, datatype, shape, deadline_ms, outputs and data")
	}
	return nil
}
