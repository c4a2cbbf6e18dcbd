package wire

import (
	"encoding/binary"
	"fmt"
	"math"
)

// HeaderLen is the size of a media header in bytes, without its extension.
const HeaderLen = 32

// Version is the only version of the header.
const Version = 1

// Side is the sender of a message.
type Side uint8

// The sides.
const (
	Client Side = iota + 1
	Server
)

// Kind is the kind of a media message.
type Kind uint8

// The kinds.
const (
	KindFrame  Kind = iota + 1 // a picture, an access unit of video, or opaque bytes
	KindConfig                 // a video codec's parameters, before its first frame
	KindResult                 // from the server: tensors, see SplitTensors
	KindTensor                 // a frame of tensors, see SplitTensors
	KindAudio                  // samples
)

// Codec is the codec of the payload, with the numbers of stream.Codec.
type Codec uint8

// The codecs.
const (
	Opaque Codec = iota
	JPEG
	PNG
	WebP
	H264 // Annex B
	VP8
	VP9
	AV1
	RGB24
	NV12
	PCM16    // signed, little-endian
	PCMFloat // 32 bits, little-endian
	Tensors
)

var codecNames = [...]string{
	"opaque", "jpeg", "png", "webp", "h264", "vp8", "vp9", "av1", "rgb24", "nv12", "pcm16", "pcmf32", "tensor",
}

// String returns the codec's name in stream.ParseCodec and `open`.
func (c Codec) String() string {
	if int(c) < len(codecNames) {
		return codecNames[c]
	}
	return "unknown"
}

// Flags are bits of a media header.
type Flags uint8

// The flags.
const (
	FlagKey           Flags = 1 << iota // decoding needs no earlier frame
	FlagDiscontinuity                   // frames are missing before this frame
	FlagMust                            // must be processed: not dropped for a newer frame
	FlagEnd                             // the last of its stream

	allFlags = FlagKey | FlagDiscontinuity | FlagMust | FlagEnd
)

// Header is the header of a media message.
type Header struct {
	Kind          Kind
	Codec         Codec
	Flags         Flags
	SID           uint32
	Seq           uint64
	CaptureUS     int64  // microseconds by the client's clock; repeated in the result
	Width, Height uint16 // pixels; 0 = not given
	DeadlineMS    uint16 // from receipt; 0 = the policy's
	Ext           Ext
}

// ParseHeader splits a media message sent by from into header and payload, both views into msg. Only an error, an
// *Error, needs memory.
func ParseHeader(msg []byte, from Side) (h Header, payload []byte, err error) {
	if len(msg) < HeaderLen {
		return Header{}, nil, fatal(ErrShort, codeInvalid, "header",
			fmt.Sprintf("the message has %d bytes, a header has %d", len(msg), HeaderLen))
	}
	if msg[0] != Version {
		return Header{}, nil, fatal(ErrVersion, codeVersion, "version", fmt.Sprintf("is %d: want %d", msg[0], Version))
	}
	h.fixed(msg)
	ext, payload, fault := h.split(msg, from)
	if fault == nil && len(ext) > 0 {
		fault = h.Ext.parse(ext)
	}
	if fault != nil {
		fault.SID, fault.Seq = new(h.SID), new(h.Seq)
		return Header{}, nil, fault
	}
	return h, payload, nil
}

// fixed reads the fields present in every header.
func (h *Header) fixed(msg []byte) {
	le := binary.LittleEndian
	h.Kind, h.Codec, h.Flags = Kind(msg[1]), Codec(msg[2]), Flags(msg[3])
	h.SID = le.Uint32(msg[4:])
	h.Seq = le.Uint64(msg[8:])
	h.CaptureUS = int64(le.Uint64(msg[16:]))
	h.Width, h.Height = le.Uint16(msg[24:]), le.Uint16(msg[26:])
	h.DeadlineMS = le.Uint16(msg[30:])
}

func (h *Header) split(msg []byte, from Side) (ext, payload []byte, fault *Error) {
	if fault := h.checkFixed(from); fault != nil {
		return nil, nil, fault
	}
	end := HeaderLen + int(binary.LittleEndian.Uint16(msg[28:]))
	if end > len(msg) {
		return nil, nil, invalid(ErrExtLen, "ext_len", fmt.Sprintf("is %d, but %d bytes follow the header",
			end-HeaderLen, len(msg)-HeaderLen))
	}
	return msg[HeaderLen:end:end], msg[end:], nil
}

// Check returns the *Error that ParseHeader would return for h from this side.
func (h *Header) Check(from Side) error {
	if err := h.checkFixed(from); err != nil {
		return err
	}
	if err := h.Ext.check(); err != nil {
		return err
	}
	return nil
}

func (h *Header) checkFixed(from Side) *Error {
	switch {
	case h.Kind < KindFrame || h.Kind > KindAudio:
		return unsupported(ErrKind, "kind", fmt.Sprintf("%d is unknown: want 1 to %d", h.Kind, KindAudio))
	case h.Codec > Tensors:
		return unsupported(ErrCodec, "codec", fmt.Sprintf("%d is unknown: want 0 to %d", h.Codec, Tensors))
	case h.Flags&^allFlags != 0:
		return unsupported(ErrFlags, "flags", fmt.Sprintf("%#02x has unknown bits: want none but %#02x",
			uint8(h.Flags), uint8(allFlags)))
	case !h.paired():
		return invalid(ErrPairing, "codec", fmt.Sprintf("%d (%s) does not go with kind %d", h.Codec, h.Codec, h.Kind))
	case (h.Kind == KindResult) != (from == Server):
		if from == Server {
			return invalid(ErrDirection, "kind", fmt.Sprintf("a server does not send kind %d: want %d, result", h.Kind,
				KindResult))
		}
		return invalid(ErrDirection, "kind", fmt.Sprintf("a client does not send kind %d, result", h.Kind))
	}
	return nil
}

// paired reports whether kind and codec may be combined.
func (h *Header) paired() bool {
	switch h.Kind {
	case KindFrame:
		return h.Codec <= NV12
	case KindConfig:
		return h.Codec >= H264 && h.Codec <= AV1
	case KindAudio:
		return h.Codec == PCM16 || h.Codec == PCMFloat
	}
	return h.Codec == Tensors
}

// Size returns the size of h in bytes, including its extension.
func (h *Header) Size() int { return HeaderLen + h.Ext.size() }

// PutHeader writes h to the first h.Size() bytes of dst and returns their number. PutHeader panics if dst is shorter,
// or if the length of the extension does not fit the length field; Check reports the latter.
func PutHeader(dst []byte, h *Header) int {
	ext := h.Ext.size()
	if ext > math.MaxUint16 {
		panic(fmt.Sprintf("wire: an extension of %d bytes: Check was not called", ext))
	}
	_ = dst[HeaderLen+ext-1]
	le := binary.LittleEndian
	dst[0], dst[1], dst[2], dst[3] = Version, byte(h.Kind), byte(h.Codec), byte(h.Flags)
	le.PutUint32(dst[4:], h.SID)
	le.PutUint64(dst[8:], h.Seq)
	le.PutUint64(dst[16:], uint64(h.CaptureUS))
	le.PutUint16(dst[24:], h.Width)
	le.PutUint16(dst[26:], h.Height)
	le.PutUint16(dst[28:], uint16(ext))
	le.PutUint16(dst[30:], h.DeadlineMS)
	h.Ext.put(dst[HeaderLen : HeaderLen+ext])
	return HeaderLen + ext
}

// AppendHeader appends h. AppendHeader panics like PutHeader.
func AppendHeader(dst []byte, h *Header) []byte {
	n := len(dst)
	for range h.Size() {
		dst = append(dst, 0)
	}
	PutHeader(dst[n:], h)
	return dst
}
