package plain

import (
	"math"
	"strconv"
	"time"

	"millrace/ingest/ws/encode"
	"millrace/stream"
)

// Query is the options that a stream is opened with: those in its URL.
type Query struct {
	Model         string
	Version       string // is in the path only
	Codec         stream.Codec
	Width, Height int           // of rgb24 and nv12
	Region        stream.Region // of each picture
	Policy        stream.Policy
	Outputs       encode.Outputs
}

const optionNames = "codec, width, height, roi, policy, max_age_ms, deadline_ms, max_fps, window, outputs, model"

// maxSide bounds width and height, which are 16 bits in the protocol.
const maxSide = 65535

// Set takes one option. The error names it.
func (q *Query) Set(key, value string) (err error) {
	switch key {
	case "model":
		q.Model = value
	case "codec":
		if q.Codec, err = stream.ParseCodec(value); err != nil {
			return err
		}
		switch q.Codec {
		case stream.Auto, stream.Opaque, stream.JPEG, stream.PNG, stream.WebP, stream.RGB24, stream.NV12, stream.PCM16, stream.PCMFloat:
		default:
			return stream.Errorf(stream.Unsupported, "codec", "%s is not possible here: want auto, opaque, jpeg, png, webp, rgb24, nv12, pcm16 or pcmf32", q.Codec)
		}
	case "width":
		q.Width, err = count(key, value, maxSide)
	case "height":
		q.Height, err = count(key, value, maxSide)
	case "roi":
		q.Region, err = stream.ParseRegion(value)
	case "policy":
		if value == "" {
			return stream.Errorf(stream.InvalidArgument, key, "is empty: want latest or every")
		}
		q.Policy.Mode = stream.Mode(value)
	case "max_age_ms":
		q.Policy.MaxAge, err = millis(key, value)
	case "deadline_ms":
		q.Policy.Deadline, err = millis(key, value)
	case "max_fps":
		f, e := strconv.ParseFloat(value, 64)
		if e != nil || math.IsNaN(f) || f <= 0 {
			return stream.Errorf(stream.InvalidArgument, key, "%q is not a rate: want a number above 0", encode.Clip(value))
		}
		q.Policy.MaxFPS = f
	case "window":
		q.Policy.Window, err = count(key, value, stream.MaxWindow)
	case "outputs":
		if value == "" {
			return stream.Errorf(stream.InvalidArgument, key, "is empty: want json, binary or none")
		}
		q.Outputs, err = encode.ParseOutputs(value)
	default:
		return stream.Errorf(stream.InvalidArgument, encode.Clip(key), "is no option: there are %s", optionNames)
	}
	return err
}

// Check is called when every option is set.
func (q *Query) Check() error {
	raw := q.Codec == stream.RGB24 || q.Codec == stream.NV12
	switch {
	case raw && (q.Width == 0 || q.Height == 0):
		return stream.Errorf(stream.InvalidArgument, "width", "and height are needed with codec=%s", q.Codec)
	case !raw && (q.Width != 0 || q.Height != 0):
		return stream.Errorf(stream.InvalidArgument, "width", "and height go with codec=rgb24 or nv12 only")
	}
	return q.Policy.Validate()
}

func count(key, value string, most int) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > most {
		return 0, stream.Errorf(stream.InvalidArgument, key, "%q is not a whole number between 1 and %d", encode.Clip(value), most)
	}
	return n, nil
}

func millis(key, value string) (time.Duration, error) {
	n, err := count(key, value, 3600_000)
	return time.Duration(n) * time.Millisecond, err
}
