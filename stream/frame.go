package stream

import (
	"strings"
	"time"

	"millrace/stream/buf"
)

// Codec is the encoding of a frame's payload. The numbers are those of the protocol's binary header.
type Codec uint8

// The codecs. Raw pictures have no padding between rows. A model that takes any input gets video frames as NV12,
// whoever decoded the video; for a model with an ImageSpec, the server converts video frames to the input tensor.
const (
	Opaque Codec = iota // bytes for a model with a BYTES input
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

// String returns the codec's name as spelled in options.
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
	if low := strings.ToLower(name); strings.Contains(low, "webm") || strings.Contains(low, "mp4") ||
		strings.Contains(low, "matroska") {
		return 0, Errorf(InvalidArgument, "codec", "%q is a container, which a browser's MediaRecorder makes: send "+
			"each chunk of a VideoEncoder, with codec h264, vp8, vp9 or av1, or single pictures; `millrace stream "+
			"FILE` sends a recording", name)
	}
	return 0, Errorf(InvalidArgument, "codec",
		"%q is not a codec: want auto, opaque, jpeg, png, webp, rgb24, nv12, pcm16, pcmf32 or tensor", name)
}

// Picture reports whether the codec is a still picture or a raw video frame, for a model with an image input.
func (c Codec) Picture() bool {
	switch c {
	case JPEG, PNG, WebP, RGB24, NV12, Auto:
		return true
	}
	return false
}

// Frame is one input of a stream as sent by the client. A frame stays compressed until bound to a batch.
type Frame struct {
	Seq           uint64   // the client's number, or counted by the adapter
	CaptureUS     int64    // the client's clock in microseconds, echoed verbatim; 0 = not given, except if Captured
	Captured      bool     // CaptureUS is given, also if 0: the first picture of a video
	Codec         Codec    // how Payload is coded
	Must          bool     // must be processed: never superseded, overtaken or dropped as stale
	Discontinuity bool     // the frame does not continue the previous frame
	Priority      Priority // priority in the queue when the frame is next; 0 = the stream's policy
	Late          bool     // a source had a newer frame already; for adapters, which may drop the frame
	Width         int      // pixels, needed for RGB24 and NV12, otherwise 0
	Height        int      // pixels
	SourceWidth   int      // width before scaling to an RGB24 or NV12 frame; 0 = the frame's own width
	SourceHeight  int      // the same, of the height; both or neither are set
	// region of interest, in pixels of the picture before scaling; zero = the whole picture
	Region   Region
	Deadline time.Duration // from receipt; 0 = the stream's policy
	// longest wait for a worker, if the model lets requests choose; 0 = the model's (QueuePolicy)
	QueueTimeout time.Duration
	Payload      []byte   // the coded bytes, in Lease's memory; nil when Inputs are given
	Inputs       []Tensor // named tensors, in Lease's memory
	Params       Params   // parameters for the model, or nil
	Call         *Call    // the HTTP request behind the frame, for a route of the model's program, or nil
	TraceContext          // as sent by the client, or zero; in a Request, with the allotted ids
	Arrived      Instant  // receipt of the first byte; 0 = unknown, or the same as Timing.Received
	Account      *Account // of the sending client; nil = the stream's account
	Lease        *buf.Buf // the memory under Payload and Inputs; nil for garbage-collected memory
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
