package video

import "fmt"

// newMP4Header returns the header of a video of H.264 with a decoder configuration (ISO/IEC 14496-15, 5.3.3).
func newMP4Header(w, h int, config []byte) (*MP4Header, error) {
	if len(config) < 7 || config[0] != 1 || config[4]&3 != 3 {
		return nil, fmt.Errorf("%w: a decoder configuration of %d bytes", errFLV, len(config))
	}
	var box boxWriter
	box.box("avcC", func() { box.b = append(box.b, config...) })
	name := muxerNames[H264]
	return &MP4Header{Bytes: movieHeader(name, box.b, w, h, ivfTick), Codec: name, scale: ivfTick,
		mime: fmt.Sprintf(`video/mp4; codecs="avc1.%02X%02X%02X"`, config[1], config[2], config[3])}, nil
}

// MIME returns the type of a video of an Encoder, with profile and level.
func (h *MP4Header) MIME() string { return h.mime }
