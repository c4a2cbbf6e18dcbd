package codec

import "bytes"

// Container returns "WebM" or "MP4" for bytes that begin like a piece of one of these containers, for example from a
// browser's MediaRecorder, and "" for other bytes.
func Container(b []byte) string {
	switch {
	case bytes.HasPrefix(b, []byte{0x1A, 0x45, 0xDF, 0xA3}), bytes.HasPrefix(b, []byte{0x1F, 0x43, 0xB6, 0x75}):
		return "WebM"
	case len(b) >= 8:
		switch string(b[4:8]) {
		case "ftyp":
			if bytes.HasPrefix(b[8:], []byte("hei")) || bytes.HasPrefix(b[8:], []byte("hev")) ||
				bytes.HasPrefix(b[8:], []byte("mif1")) || bytes.HasPrefix(b[8:], []byte("avi")) {
				return "" // pictures
			}
			return "MP4"
		case "styp", "moov", "moof", "sidx":
			return "MP4"
		}
	}
	return ""
}

// ContainerHint says what to send instead of pieces of a container.
func ContainerHint(name string) string {
	return name + " pieces, as a browser's MediaRecorder makes them, are not taken: send each chunk of a " +
		"VideoEncoder (codec h264, vp8, vp9 or av1) or single pictures; `millrace stream FILE` sends a recording"
}
