package overlay

import (
	"encoding/binary"
	"math/bits"
	"time"
)

// ffmpeg reads the pictures as Matroska, because raw video on a pipe has no timestamps: uncompressed RGBA, one
// cluster a picture, in microseconds. RFC 8794 (EBML) and RFC 9559 (Matroska) define the elements.
const (
	idEBML, idDocType                              = 0x1A45DFA3, 0x4282
	idSegment, idInfo, idScale                     = 0x18538067, 0x1549A966, 0x2AD7B1
	idTracks, idEntry, idNumber, idUID             = 0x1654AE6B, 0xAE, 0xD7, 0x73C5
	idType, idCodec, idLength                      = 0x83, 0x86, 0x23E383
	idVideo, idWidth, idHeight, idColourSpace      = 0xE0, 0xB0, 0xBA, 0x2EB524
	idCluster, idTime, idSimpleBlock               = 0x1F43B675, 0xE7, 0xA3
	trackVideo                                uint = 1
	keyFrame                                  byte = 0x80
	unknownSize                                    = 0xFF
)

// appendID appends an element's id; the first bits encode the id's length.
func appendID(b []byte, id uint32) []byte {
	for n := (bits.Len32(id) + 7) / 8; n > 0; n-- {
		b = append(b, byte(id>>(8*(n-1))))
	}
	return b
}

// appendSize appends a size in eight bytes.
func appendSize(b []byte, n int) []byte { return binary.BigEndian.AppendUint64(b, 1<<56|uint64(n)) }

func appendBytes(b []byte, id uint32, v []byte) []byte {
	return append(appendSize(appendID(b, id), len(v)), v...)
}

func appendUint(b []byte, id uint32, v uint) []byte {
	return appendBytes(b, id, binary.BigEndian.AppendUint64(nil, uint64(v)))
}

// matroskaHeader returns the header of a video; each picture lasts each.
func matroskaHeader(width, height int, each time.Duration) []byte {
	video := appendUint(nil, idWidth, uint(width))
	video = appendUint(video, idHeight, uint(height))
	video = appendBytes(video, idColourSpace, []byte("RGBA"))

	track := appendUint(nil, idNumber, 1)
	track = appendUint(track, idUID, 1)
	track = appendUint(track, idType, trackVideo)
	track = appendBytes(track, idCodec, []byte("V_UNCOMPRESSED"))
	track = appendUint(track, idLength, uint(each.Nanoseconds()))
	track = appendBytes(track, idVideo, video)

	b := appendBytes(nil, idEBML, appendBytes(nil, idDocType, []byte("matroska")))
	b = append(appendID(b, idSegment), unknownSize)
	b = appendBytes(b, idInfo, appendUint(nil, idScale, 1000))
	return appendBytes(b, idTracks, appendBytes(nil, idEntry, track))
}

// appendPicture appends the element headers of a picture of size bytes.
func appendPicture(b []byte, at time.Duration, size int) []byte {
	time := appendUint(nil, idTime, uint(at.Microseconds()))
	block := []byte{0x81, 0, 0, keyFrame} // track 1, at the cluster's time
	head := appendSize(appendID(nil, idSimpleBlock), len(block)+size)
	b = appendSize(appendID(b, idCluster), len(time)+len(head)+len(block)+size)
	b = append(b, time...)
	b = append(b, head...)
	return append(b, block...)
}
