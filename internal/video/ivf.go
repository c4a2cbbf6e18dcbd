package video

import "encoding/binary"

// appendIVFHeader appends the header of an IVF file of w by h pixels. One tick lasts 1/perSecond s.
func appendIVFHeader(b []byte, fourcc string, w, h, perSecond int) []byte {
	b = append(append(b, "DKIF\x00\x00\x20\x00"...), fourcc...)
	b = binary.LittleEndian.AppendUint16(b, uint16(w))
	b = binary.LittleEndian.AppendUint16(b, uint16(h))
	b = binary.LittleEndian.AppendUint32(b, uint32(perSecond))
	b = binary.LittleEndian.AppendUint32(b, 1)
	return append(b, make([]byte, 8)...)
}

// putIVFFrame writes the header of a frame of n bytes, in 12 bytes.
func putIVFFrame(head []byte, n int, time uint64) {
	binary.LittleEndian.PutUint32(head, uint32(n))
	binary.LittleEndian.PutUint64(head[4:], time)
}
