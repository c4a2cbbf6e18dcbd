package codec

import "encoding/binary"

// Only the orientation is needed, and the bytes are untrusted. A general EXIF
// library allocates maps of all tags of all directories for each frame; this reads
// the first directory in place, at most maxTags entries, follows no pointers, and
// treats a broken block as having no orientation.

const maxTags = 256

// exifOrientation reads the orientation (1 to 8) of a TIFF block; 1 for a broken block or without an orientation.
func exifOrientation(b []byte) int {
	if len(b) < 8 {
		return 1
	}
	var o binary.ByteOrder
	switch string(b[:4]) {
	case "II*\x00":
		o = binary.LittleEndian
	case "MM\x00*":
		o = binary.BigEndian
	default:
		return 1
	}
	at := uint64(o.Uint32(b[4:]))
	if at+2 > uint64(len(b)) {
		return 1
	}
	n := int(o.Uint16(b[at:]))
	b = b[at+2:]
	for range min(n, maxTags, len(b)/12) {
		const orientation, short = 0x0112, 3
		if o.Uint16(b) == orientation {
			if v := int(o.Uint16(b[8:])); o.Uint16(b[2:]) == short && v >= 1 && v <= 8 {
				return v
			}
			return 1
		}
		b = b[12:]
	}
	return 1
}
