package ws

import (
	"math"
	"strconv"
	"strings"
	"time"

	"millrace/stream"
)

// outputs says how results are sent.
type outputs uint8

const (
	asJSON   outputs = iota // text: tensors as JSON
	asBinary                // a binary message of kind 3
	asNone                  // text: no tensors
	asReply                 // text: an Open Inference Protocol reply
)

// query is what a session is opened with: the options in its URL.
type query struct {
	model         string
	codec         stream.Codec
	width, height int           // of rgb24 and nv12
	region        stream.Region // of each picture
	policy        stream.Policy
	outputs       outputs
	calls         bool // of /models/infer: text messages only, each names its model
}

const optionNames = "codec, width, height, roi, policy, max_age_ms, deadline_ms, max_fps, window, outputs, model"

// maxSide bounds width and height, which are 16 bits in the protocol.
const maxSide = 65535

// set takes one option. The error names it.
func (q *query) set(key, value string) (err error) {
	switch key {
	case "model":
		q.model = value
	case "codec":
		if q.codec, err = stream.ParseCodec(value); err != nil {
			return err
		}
		switch q.codec {
		case stream.Auto, stream.Opaque, stream.JPEG, stream.PNG, stream.WebP, stream.RGB24, stream.NV12, stream.PCM16, stream.PCMFloat:
		default:
			return stream.Errorf(stream.Unsupported, "codec", "%s is not possible here: want auto, opaque, jpeg, png, webp, rgb24, nv12, pcm16 or pcmf32", q.codec)
		}
	case "width":
		q.width, err = count(key, value, maxSide)
	case "height":
		q.height, err = count(key, value, maxSide)
	case "roi":
		q.region, err = stream.ParseRegion(value)
	case "policy":
		if value == "" {
			return stream.Errorf(stream.InvalidArgument, key, "is empty: want latest or every")
		}
		q.policy.Mode = stream.Mode(value)
	case "max_age_ms":
		q.policy.MaxAge, err = millis(key, value)
	case "deadline_ms":
		q.policy.Deadline, err = millis(key, value)
	case "max_fps":
		f, e := strconv.ParseFloat(value, 64)
		if e != nil || math.IsNaN(f) || f <= 0 {
			return stream.Errorf(stream.InvalidArgument, key, "%q is not a rate: want a number above 0", clip(value))
		}
		q.policy.MaxFPS = f
	case "window":
		q.policy.Window, err = count(key, value, stream.MaxWindow)
	case "outputs":
		switch value {
		case "json":
			q.outputs = asJSON
		case "binary":
			q.outputs = asBinary
		case "none":
			q.outputs = asNone
		default:
			return stream.Errorf(stream.InvalidArgument, key, "%q is not known: want json, binary or none", clip(value))
		}
	default:
		return stream.Errorf(stream.InvalidArgument, clip(key), "is no option: there are %s", optionNames)
	}
	return err
}

// check is called when every option is set.
func (q *query) check() error {
	raw := q.codec == stream.RGB24 || q.codec == stream.NV12
	switch {
	case raw && (q.width == 0 || q.height == 0):
		return stream.Errorf(stream.InvalidArgument, "width", "and height are needed with codec=%s", q.codec)
	case !raw && (q.width != 0 || q.height != 0):
		return stream.Errorf(stream.InvalidArgument, "width", "and height go with codec=rgb24 or nv12 only")
	}
	return q.policy.Validate()
}

func count(key, value string, most int) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > most {
		return 0, stream.Errorf(stream.InvalidArgument, key, "%q is not a whole number between 1 and %d", clip(value), most)
	}
	return n, nil
}

func millis(key, value string) (time.Duration, error) {
	n, err := count(key, value, 3600_000)
	return time.Duration(n) * time.Millisecond, err
}

// clip keeps what a client sent from filling an error message.
func clip(s string) string {
	const most = 64
	if len(s) > most {
		s = s[:most] + "..."
	}
	return strings.ToValidUTF8(s, "?")
}
