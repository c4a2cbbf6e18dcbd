package stream

import (
	"strings"
	"time"

	"millrace/stream/buf"
)

// Codec says how a frame's payload is coded. The numbers are those of the
// protocol's binary header.
type Codec uint8

// The codecs. Raw pictures have no padding between rows. A model that takes any input gets
// the frames of video as NV12, whoever decoded it; one with a picture as its input gets that.
const (
	Opaque Codec = iota // bytes for a model that takes BYTES
	JPEG
	PNG
	WebP
	H264
	VP8
	VP9
	AV1
	RGB24 // Height rows of Width pixels, each R, G and B
	// NV12 is Width * Height bytes of luma, then (Height+1)/2 rows of (Width+1)/2 pairs of Cb
	// and Cr. The matrix is BT.601 and the range limited, luma 16 to 235 and chroma 16 to 240,
	// whatever the video had.
	NV12
	PCM16
	PCMFloat
	Tensors       // named tensors in Inputs
	Auto    Codec = 255
)

var codecNames = map[Codec]string{
	Opaque: "opaque", JPEG: "jpeg", PNG: "png", WebP: "webp", H264: "h264", VP8: "vp8", VP9: "vp9", AV1: "av1",
	RGB24: "rgb24", NV12: "nv12", PCM16: "pcm16", PCMFloat: "pcmf32", Tensors: "tensor", Auto: "auto",
}

// String returns the codec's name as options spell it.
func (c Codec) String() string {
	if n, ok := codecNames[c]; ok {
		return n
	}
	return "unknown"
}

// ParseCodec returns the codec of a name. Auto means "recognise pictures by
// their content".
func ParseCodec(name string) (Codec, error) {
	for c, n := range codecNames {
		if n == name {
			return c, nil
		}
	}
	if low := strings.ToLower(name); strings.Contains(low, "webm") || strings.Contains(low, "mp4") || strings.Contains(low, "matroska") {
		return 0, Errorf(InvalidArgument, "codec", "%q is a container, which a browser's MediaRecorder makes: send each chunk of a VideoEncoder, with codec h264, vp8, vp9 or av1, or single pictures; `millrace stream FILE` sends a recording", name)
	}
	return 0, Errorf(InvalidArgument, "codec", "%q is not a codec: want auto, opaque, jpeg, png, webp, rgb24, nv12, pcm16, pcmf32 or tensor", name)
}

// Picture reports whether the codec is a still picture or a raw video frame, which
// a model with an image input takes.
func (c Codec) Picture() bool {
	switch c {
	case JPEG, PNG, WebP, RGB24, NV12, Auto:
		return true
	}
	return false
}

// Frame is one input of a stream as the client sent it. It stays compressed
// until it is bound to a batch.
type Frame struct {
	Seq           uint64        // the client's number, or counted by the adapter
	CaptureUS     int64         // the client's clock in microseconds, echoed verbatim; 0 = not given
	Codec         Codec         // how Payload is coded
	Must          bool          // must be processed: never superseded, overtaken or dropped as stale
	Discontinuity bool          // the frame does not follow on the frame before it
	Priority      Priority      // in the queue, when it is the next of its stream; 0 = the stream's policy
	Late          bool          // of a source that was read when a newer frame was there already; for adapters, which may drop it
	Width         int           // pixels, needed for RGB24 and NV12, otherwise 0
	Height        int           // pixels
	SourceWidth   int           // of the picture that an RGB24 or NV12 frame was scaled from; 0 = the frame's own width
	SourceHeight  int           // the same, of the height; both or neither are set
	Region        Region        // the part of the picture to look at, in its pixels before it was scaled; zero = all of it
	Deadline      time.Duration // from receipt; 0 = the stream's policy
	QueueTimeout  time.Duration // longest wait for a worker, where the model allows requests to set it; 0 = the model's (QueuePolicy)
	Payload       []byte        // the coded bytes, in Lease's memory; nil when Inputs are given
	Inputs        []Tensor      // named tensors, in Lease's memory
	Params        Params        // parameters for the model, or nil
	Call          *Call         // the HTTP request to a route of the model's program that the frame was made of, or nil
	TraceContext                // as the client sent it, or zero; in a Request, with the ids that were allotted
	Arrived       Instant       // its first byte was read; 0 = not known, or the same as Timing.Received
	Account       *Account      // of the client who sent it; nil = that of the stream
	Lease         *buf.Buf      // the memory under Payload and Inputs; nil when the garbage collector owns it
}

// Params are a request's parameters: each value is a string, int64, float64 or
// bool.
type Params map[string]any

// size returns the bytes of the payload, or of the inputs.
func (f *Frame) size() int {
	n := len(f.Payload)
	for i := range f.Inputs {
		n += len(f.Inputs[i].Data)
	}
	return n
}
