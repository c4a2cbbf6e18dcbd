package codec

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// maxScans bounds the scans of a progressive JPEG. Usual pictures have about ten scans; hundreds of nearly empty
// scans would make a small file take minutes.
const maxScans = 100

// jpegHeader reads the segments up to the frame header. jpegHeader refuses pictures that either JPEG library cannot
// decode, so that both builds behave alike.
func jpegHeader(b []byte, info *Info) (minBytes int, err error) {
	adobe := false
	for i := 2; ; {
		// Skip fill bytes, and garbage between segments, as decoders do.
		for i < len(b) && b[i] != 0xff {
			i++
		}
		for i < len(b) && b[i] == 0xff {
			i++
		}
		if i >= len(b) {
			return 0, truncatedHeader(JPEG)
		}
		m := b[i]
		i++
		if m == 0 || m == 0x01 || (m >= 0xd0 && m <= 0xd8) {
			continue // no length follows
		}
		if m == 0xd9 || m == 0xda {
			return 0, fmt.Errorf("codec: jpeg header: %w: no frame header before marker %#x", ErrCorrupt, m)
		}
		if i+2 > len(b) {
			return 0, truncatedHeader(JPEG)
		}
		n := int(binary.BigEndian.Uint16(b[i:]))
		if n < 2 {
			return 0, fmt.Errorf("codec: jpeg header: %w: segment %#x of length %d", ErrCorrupt, m, n)
		}
		if i+n > len(b) {
			return 0, truncatedHeader(JPEG)
		}
		seg := b[i+2 : i+n]
		i += n
		switch {
		case m == 0xe1 && len(seg) > 6 && string(seg[:6]) == "Exif\x00\x00":
			info.Orientation = exifOrientation(seg[6:])
		case m == 0xee && len(seg) >= 12 && string(seg[:5]) == "Adobe":
			adobe = true
		case m >= 0xc0 && m <= 0xcf && m != 0xc4 && m != 0xc8 && m != 0xcc:
			adobeLater, inScan := followingSegments(b[i:])
			return jpegFrame(b, m, seg, adobe || adobeLater, inScan, info)
		}
	}
}

// followingSegments looks for the Adobe segment between frame header and pixels (where some writers put the segment),
// and for the number of components in the first scan.
func followingSegments(b []byte) (adobe bool, inScan int) {
	for len(b) >= 5 && b[0] == 0xff {
		n := 2 + int(binary.BigEndian.Uint16(b[2:]))
		if b[1] == 0xda {
			return adobe, int(b[4])
		}
		if n < 4 || n > len(b) {
			break
		}
		if b[1] == 0xee && n >= 16 && string(b[4:9]) == "Adobe" {
			adobe = true
		}
		b = b[n:]
	}
	return adobe, 0
}

func jpegFrame(b []byte, m byte, seg []byte, adobe bool, inScan int, info *Info) (minBytes int, err error) {
	if m > 0xc2 {
		return 0, fmt.Errorf("codec: jpeg header: %w: lossless, hierarchical or arithmetic coding (marker %#x): "+
			"send baseline or progressive", ErrUnsupported, m)
	}
	if len(seg) < 6 {
		return 0, fmt.Errorf("codec: jpeg header: %w: short frame header", ErrCorrupt)
	}
	if seg[0] != 8 {
		return 0, fmt.Errorf("codec: jpeg header: %w: %d bits a sample: send 8", ErrUnsupported, seg[0])
	}
	info.Height = int(binary.BigEndian.Uint16(seg[1:]))
	info.Width = int(binary.BigEndian.Uint16(seg[3:]))
	info.components = int(seg[5])
	info.progressive = m == 0xc2
	if info.components != 1 && info.components != 3 && info.components != 4 {
		return 0, fmt.Errorf("codec: jpeg header: %w: %d components: send 1, 3 or 4", ErrUnsupported, info.components)
	}
	if len(seg) < 6+3*info.components {
		return 0, fmt.Errorf("codec: jpeg header: %w: short frame header", ErrCorrupt)
	}
	if info.components == 4 && !adobe {
		return 0, fmt.Errorf("codec: jpeg header: %w: four components without an Adobe segment: send RGB",
			ErrUnsupported)
	}
	hm, vm := 1, 1
	for c := range info.components {
		hm, vm = max(hm, int(seg[7+3*c]>>4)), max(vm, int(seg[7+3*c]&15))
	}
	if info.components == 3 {
		info.sparseChroma = seg[7]>>4 >= 4*(seg[10]>>4) || seg[7]&15 >= 4*(seg[10]&15)
	}
	if info.progressive {
		info.scans = bytes.Count(b, []byte{0xff, 0xda})
	}
	if info.scans > maxScans {
		return 0, fmt.Errorf("codec: jpeg header: %w: more than %d scans", ErrUnsupported, maxScans)
	}
	// The blocks of the components, in whole MCUs. The sizes were not checked yet.
	across, down := (info.Width+8*hm-1)/(8*hm), (info.Height+8*vm-1)/(8*vm)
	blocks := 0
	for c := range info.components {
		blocks += across * int(seg[7+3*c]>>4) * down * int(seg[7+3*c]&15)
	}
	info.jpegMemory = jpegMemory(info, blocks, info.progressive || inScan < info.components)
	// Each MCU has at least one block, and a block takes at least a bit.
	return info.Width * info.Height / (64 * hm * vm) / 8, nil
}
