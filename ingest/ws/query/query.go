// Package query parses the options in the address of a connection. Every protocol of package ws receives Options; the
// protocols' table in package ws lists the options of each protocol.
package query

import (
	"strconv"

	"millrace/ingest/ws/conn"
	"millrace/internal/setting"
	"millrace/stream"
)

// Options are the options of a stream in an address.
type Options struct {
	Model         string
	Version       string // only in the path
	Codec         stream.Codec
	Width, Height int           // of rgb24 and nv12
	Region        stream.Region // of each picture
	Policy        stream.Policy
	Outputs       conn.Outputs
	Traceparent   string              // for clients without control over headers
	Trace         stream.TraceContext // for frames without a trace of their own; from Traceparent and the headers
	Traced        bool                // replies contain the frame's trace
}

// names lists the options, for messages.
const names = "codec, width, height, roi, policy, max_age_ms, deadline_ms, max_fps, window, outputs, traceparent, " +
	"trace, model"

// maxSide is the largest width and height: 16 bits in the protocol.
const maxSide = 65535

// Set sets one option. An error names the option.
func (o *Options) Set(key, value string) (err error) {
	switch key {
	case "model":
		o.Model = value
	case "codec":
		if o.Codec, err = stream.ParseCodec(value); err != nil {
			return err
		}
		switch o.Codec {
		case stream.Auto, stream.Opaque, stream.JPEG, stream.PNG, stream.WebP, stream.RGB24, stream.NV12, stream.PCM16,
			stream.PCMFloat:
		default:
			return stream.Errorf(stream.Unsupported, "codec",
				"%s is not possible here: want auto, opaque, jpeg, png, webp, rgb24, nv12, pcm16 or pcmf32", o.Codec)
		}
	case "width":
		o.Width, err = count(key, value, maxSide)
	case "height":
		o.Height, err = count(key, value, maxSide)
	case "roi":
		o.Region, err = stream.ParseRegion(value)
	case "policy", "max_age_ms", "deadline_ms", "max_fps", "window":
		err = setting.TableOf("", &o.Policy).Set(key, value)
	case "outputs":
		if value == "" {
			return stream.Errorf(stream.InvalidArgument, key, "is empty: want json, binary or none")
		}
		o.Outputs, err = conn.ParseOutputs(value)
	case "traceparent":
		o.Traceparent = value
	case "trace":
		if o.Traced, err = strconv.ParseBool(value); err != nil {
			return stream.Errorf(stream.InvalidArgument, key, "%q is not known: want true or false", conn.Clip(value))
		}
	default:
		return stream.Errorf(stream.InvalidArgument, conn.Clip(key), "is not an option: the options are %s", names)
	}
	return err
}

// Check is called when every option is set.
func (o *Options) Check() error {
	raw := o.Codec == stream.RGB24 || o.Codec == stream.NV12
	switch {
	case raw && (o.Width == 0 || o.Height == 0):
		return stream.Errorf(stream.InvalidArgument, "width", "and height are needed with codec=%s", o.Codec)
	case !raw && (o.Width != 0 || o.Height != 0):
		return stream.Errorf(stream.InvalidArgument, "width", "and height go with codec=rgb24 or nv12 only")
	}
	return o.Policy.Validate()
}

func count(key, value string, most int) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > most {
		return 0, stream.Errorf(stream.InvalidArgument, key, "%q is not a whole number between 1 and %d",
			conn.Clip(value), most)
	}
	return n, nil
}
